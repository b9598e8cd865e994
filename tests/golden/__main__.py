"""Write the results of all cases, or compare them with those of another version on the same machine.

python -m tests.golden write FILE        in a checkout of the one
python -m tests.golden compare FILE      in a checkout of the other
python -m tests.golden fixtures FOLDER   save a model of each case, with what it predicts; files there stay
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

from tests.golden.cases import CASES
from tests.golden.fixtures import add_fixtures
from tests.golden.results import differences, results_of


def main(command: str, path: Path) -> int:
    """Run a command; return 1 if results differ."""
    warnings.simplefilter("ignore")
    if command == "fixtures":
        add_fixtures(path)
        return 0
    found = {name: results_of(name, make()) for name, make in CASES.items()}
    if command == "write":
        held = {name: {key: values.tolist() for key, values in results.items()} for name, results in found.items()}
        path.write_text(json.dumps(held))
        return 0
    expected = json.loads(path.read_text())
    wrong = [f"{name} is only in one of both" for name in sorted(set(found) ^ set(expected))]
    for name in sorted(set(found) & set(expected)):
        wrong += differences(name, found[name], {key: np.array(values) for key, values in expected[name].items()})
    print("\n".join(wrong) or f"The results of {len(found)} cases agree.")
    return int(bool(wrong))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "compare", "fixtures"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
