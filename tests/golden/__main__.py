"""Compare the results of all cases with `golden.json`, or with those of another checkout.

python -m tests.golden                      compare with the file
python -m tests.golden models/exact fits    compare some cases or groups
python -m tests.golden --against FOLDER     compare with the packages of another checkout, by the cases of this one
python -m tests.golden --write              write the file again, or --write models/exact to write some cases

A number of the file is replaced only in a commit of its own, which says why.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.golden import results

ROOT = Path(__file__).parents[2]


def names_of(chosen):
    """Return the names of the cases that are chosen by group or name, or of all."""
    names = [f"{group}/{name}" for group, cases in results.GROUPS.items() for name in cases]
    unknown = [one for one in chosen if one not in names and one not in results.GROUPS]
    if unknown:
        raise SystemExit(f"There are no cases {', '.join(unknown)}.")
    return [name for name in names if not chosen or name in chosen or name.partition("/")[0] in chosen]


def results_of(names):
    """Return the results of cases by name, with their names on a terminal."""
    found = {}
    for name in names:
        if sys.stderr.isatty():
            print(f"\r{name:60s}", end="", file=sys.stderr, flush=True)
        found[name] = results.results_of(name)
    return found


def results_against(folder, names):
    """Return the results of cases by the packages of another checkout."""
    with tempfile.TemporaryDirectory() as root:
        for name, place in (("rfgp", folder), ("graphs", folder), ("data", ROOT), ("tests", ROOT)):
            (Path(root) / name).symlink_to((place / name).resolve())
        out = Path(root) / "results.json"
        subprocess.run([sys.executable, "-m", "tests.golden", "--out", str(out), *names], cwd=root, check=True)
        return results.read(out)["results"]


def main():
    """Run a command. Return 1 if results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="names of cases or groups")
    parser.add_argument("--against", type=Path, help="the folder of another checkout")
    parser.add_argument("--write", action="store_true", help="write the file again")
    parser.add_argument("--out", type=Path, help="write the results to another file, and compare nothing")
    options = parser.parse_args()
    names = names_of(options.cases)
    found = results_of(names)
    if options.out:
        results.write(found, options.out)
        return 0
    known = results.read() if results.FILE.exists() else {"processor": results.processor(), "results": {}}
    is_here = options.against is not None or known["processor"] == results.processor()
    if options.write:
        if options.cases and not is_here:
            raise SystemExit(f"The file was written on {known['processor']}. Write all cases, or write there.")
        both = known["results"] | found
        results.write({name: both[name] for name in names_of([]) if name in both})
        return 0
    expected = results_against(options.against, names) if options.against else known["results"]
    wrong = [f"{name} has no results" for name in names if name not in expected]
    wrong += [f"{name} is no case" for name in expected if not options.cases and name not in found]
    for name in (name for name in names if name in expected):
        wrong += results.differences(name, found[name], expected[name], is_here)
        for key in (key for key in found[name] if key.startswith("about.")):
            now, was = (results.rounded(values.get(key), 3) for values in (found[name], expected[name]))
            if now != was:
                print(f"{name}: {key} is {now}, was {was}")
    print("\n".join(wrong) or f"The results of {len(names)} cases agree.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
