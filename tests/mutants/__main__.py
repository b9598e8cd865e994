"""Draw small errors in the code, and see whether a test that reaches each of them fails.

python -m tests.mutants                         40 errors, in proportion to the lines of each folder
python -m tests.mutants --count 400 --least 6 --loops 80 --planted --out FILE
python -m tests.mutants --page FILE             count the fates of a file by folder

Each error is put into one function in memory, in a fork that has imported both packages. Errors in what an import runs
and in compiled loops come first: their forks have only torch and numba, import the module with the error, and compile
the loops that call the one with the error. The tests run until one fails, those of the folder first, then by their
seconds. A test that fails is run again without the error, which it must pass.
Which tests reach which lines is measured once under coverage, and kept in `--reach`. Fates are lines of JSON. Errors
whose fate a file has are not tried again.
"""

import argparse
import importlib
import itertools
import json
import os
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.code import ROOT, Mutant, Unchanged, drawn, files, planted, room_of
from tests.mutants.reach import Reach, measure

LOADED = ("torch", "numba", "scipy.stats", "scipy.optimize", "networkx", "pandas", "hypothesis", "sklearn")
"""Before the forks."""
TESTS = [f"tests/{folder}" for folder in ("contracts", "numeric", "rfgp", "graphs", "golden", "faults", "fuzz")]
COMPILING = 60
"""The seconds that compiled loops take at most, in addition to those of the tests."""


class Only:
    """Has pytest run some tests, in their order."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the tests."""
        ours = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(ours, key=lambda item: self.order[item.nodeid])


def without_cache(modules: set[str]) -> None:
    """Have numba compile the loops of some files, which it caches by the text of their files."""
    from numba.core.dispatcher import Dispatcher

    names = {".".join(Path(path).with_suffix("").parts) for path in modules}
    cached = Dispatcher.enable_caching

    def enable_caching(self: Any) -> None:
        if self.py_func.__module__ not in names:
            cached(self)

    Dispatcher.enable_caching = enable_caching


def packages() -> None:
    """Import all modules of both packages."""
    for path in files():
        name = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__"):
            importlib.import_module(name)


def run(mutant: Mutant, tests: list[str], modules: set[str], limit: float, log: str) -> str:
    """Return how a run of the tests ended: "killed", "survived", "timed out", or "ended" with a status of pytest."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.setsid()
        signal.setitimer(signal.ITIMER_PROF, limit)
        signal.alarm(int(10 * limit))
        if mutant.name in sys.modules:
            mutant.exchange()
        else:
            sys.meta_path.insert(0, mutant)
            without_cache(modules)
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow"]
        os._exit(pytest.main([*options, *files], plugins=[Only(tests)]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ends = {0: "survived", 1: "killed", -signal.SIGPROF: "timed out", -signal.SIGALRM: "timed out"}
    return ends.get(status, f"ended {status}")


def fate_of(mutant: Mutant, tests: list[str], modules: set[str], limit: float, log: str) -> str:
    """Return how a run of the tests ended. What fails is run again without the error.

    A module that cannot be imported ends the run before a test fails. But so do tests that cannot be collected.
    """
    while tests:
        end = run(mutant, tests, modules, limit, log)
        if end in ("survived", "timed out"):
            return end
        failed = re.findall(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", Path(log).read_text(), re.MULTILINE)
        again = [test for test in tests if test in failed] or tests
        if run(Unchanged(mutant), again, modules, limit, log) == "survived":
            return "killed"
        print(f"fails without an error: {again[0]}")
        tests = [test for test in tests if test not in again]
    return "broken"


def within(seconds: dict[str, float], tests: list[str], most: float) -> list[str]:
    """Return the first of the tests that together take so long."""
    totals = itertools.accumulate(seconds[test] for test in tests)
    return [test for test, total in zip(tests, totals, strict=True) if total < most or test == tests[0]]


def fates_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the fates of a file by the name of the mutant."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {one["mutant"]: one for one in map(json.loads, lines)}


def page(path: Path) -> None:
    """Print the numbers of fates by folder, and the survivors."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    fates = fates_of(path)
    for one in fates.values():
        for room in (one["kind"], one["room"], "all"):
            counts[room][one["fate"]] += 1
    names = ("killed", "timed out", "survived", "unreached", "broken")
    print(f"| folder | {' | '.join(names)} | killed, % |\n{'|---' * 7}|")
    for room, found in sorted(counts.items()):
        share = 100 * (found["killed"] + found["timed out"]) / sum(found.values())
        print(f"| {room} | {' | '.join(str(found[name]) for name in names)} | {share:.0f} |")
    for name, one in sorted(fates.items()):
        if one["fate"] not in ("killed", "timed out"):
            print(f"{one['fate']:9s} {name}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40, help="about how many errors are drawn")
    parser.add_argument("--least", type=int, default=0, help="the least number of a folder")
    parser.add_argument("--loops", type=int, default=0, help="the least number in compiled loops")
    parser.add_argument("--planted", action="store_true", help="also those of planted.json")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", nargs="*", default=[], help="only files whose path begins with one of these")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--marks", default="not slow", help="the marks of these tests")
    parser.add_argument(
        "--seconds", type=float, default=25, help="of tests for one mutant; its processor time is limited"
    )
    parser.add_argument("--reach", type=Path, default=ROOT / "out" / "reach", help="is measured if it is not there")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants.jsonl", help="gets the fates")
    parser.add_argument("--again", default="", help="try those again that have this fate")
    parser.add_argument("--control", action="store_true", help="run the same tests without the errors: all survive")
    parser.add_argument("--page", type=Path, help="print the page of a file, and do nothing else")
    options = parser.parse_args()
    if options.page:
        page(options.page)
        return
    if not options.reach.exists():
        measure(options.tests, options.reach, options.marks)
    reach = Reach(options.reach)
    for name in LOADED:
        importlib.import_module(name)
    mutants = drawn(options.count, options.least, options.loops, options.seed)
    mutants += planted() if options.planted else []
    mutants = [one for one in mutants if not options.where or one.path.startswith(tuple(options.where))]
    mutants = [Unchanged(one) for one in mutants] if options.control else mutants
    options.out.parent.mkdir(exist_ok=True, parents=True)
    for mutant in sorted(mutants, key=lambda one: one.functions is not None):
        if mutant.functions is not None:
            packages()
        known = fates_of(options.out).get(str(mutant))
        if known is not None and known["fate"] != options.again:
            continue
        begun, reaching = time.perf_counter(), reach.of(mutant)
        tests = within(reach.seconds, reaching, options.seconds)
        modules = reach.callers.of(mutant.loop)[1] | {mutant.path} if mutant.loop else {mutant.path}
        limit = 3 * options.seconds + 30 + (COMPILING if mutant.loop else 0)
        fate = fate_of(mutant, tests, modules, limit, f"{options.out}.log") if tests else "unreached"
        kind = "planted" if type(mutant).__name__ == "TextMutant" else "loop" if mutant.loop else "code"
        line = {"mutant": str(mutant), "room": room_of(mutant.path), "kind": kind, "fate": fate}
        line |= {"tests": len(tests), "reaching": len(reaching), "seconds": round(time.perf_counter() - begun, 1)}
        with options.out.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(f"{fate:9s} {line['seconds']:5.0f} s {len(tests):4d} of {len(reaching):4d} tests  {mutant}", flush=True)
    page(options.out)


if __name__ == "__main__":
    main()
