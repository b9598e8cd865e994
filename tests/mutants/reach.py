"""Which tests reach which lines, and how long they take."""

import re
import subprocess
import sys
from pathlib import Path

from coverage import CoverageData

from tests.mutants.code import ROOT, Callers, Mutant


def measure(tests: list[str], kept: Path, marks: str) -> None:
    """Run tests under coverage. `kept` then has what each reaches, and another file beside it the seconds of each."""
    kept.parent.mkdir(exist_ok=True, parents=True)
    settings = Path(f"{kept}-settings")
    settings.write_text(f"[run]\nsource = rfgp,graphs\ndata_file = {kept}\n")
    options = ["-p", "no:cacheprovider", "-m", marks, "-vv", "--durations=0", "--cov", "--cov-report="]
    options += ["-n", "2", "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", *options, f"--cov-config={settings}", "--cov-context=test", *tests]
    with Path(f"{kept}-seconds").open("w") as out:
        subprocess.run(command, cwd=ROOT, stdout=out, check=False)


class Reach:
    """The tests that reach a mutant, the quickest first."""

    def __init__(self, kept: Path) -> None:
        self.data = CoverageData(str(kept))
        self.data.read()
        said = Path(f"{kept}-seconds").read_text()
        passed = re.findall(r"^\[gw\d+\] \[ *\d+%\] PASSED (tests/.*?) *$", said, re.MULTILINE)
        self.seconds = dict.fromkeys(passed, 0.005)
        for took, test in re.findall(r"^([\d.]+)s \w+ +(tests/.*)$", said, re.MULTILINE):
            if test in self.seconds:
                self.seconds[test] += float(took)
        self.callers = Callers()

    def of(self, mutant: Mutant) -> list[str]:
        """Return tests, those of the room and quick ones first. What a setup runs counts for all tests of its file."""
        lines = self.callers.of(mutant.loop)[0] if mutant.loop else {mutant.path: set(mutant.lines)}
        found, of_files = set[str](), set[str]()
        for path, numbers in lines.items():
            by_line = self.data.contexts_by_lineno(str(ROOT / path))
            contexts = {each for line in numbers for each in by_line.get(line, [])}
            found |= {context.split("|")[0] for context in contexts}
            of_files |= {context.split("::")[0] for context in contexts if context.endswith("|setup")}
            if "" in contexts and not mutant.loop:  # at import
                of_files |= {test.split("::")[0] for tests in by_line.values() for test in tests if test}
        reaching = [test for test in self.seconds if test in found or test.split("::")[0] in of_files]
        package, room = Path(mutant.path).with_suffix("").parts[:2]
        ours = (f"tests/{package}/{room}/", f"tests/{package}/test_{room}.py")
        return sorted(reaching, key=lambda test: (not test.startswith(ours), self.seconds[test]))
