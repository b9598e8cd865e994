"""Mutation testing: small errors put into code, and whether a test that reaches them fails.

`python tests/support/mutants.py rfgp/inference graphs/kernels --count 40 --seed 0` draws 40 places at random in those
folders or files, changes each in memory alone, and runs the quickest tests that reach it, in a fork that has torch and
numba already. Which tests reach which lines is measured once, by a run of `--tests` under coverage, and kept in
`--reach`. What numba compiles is not for this: its cache knows the source in the file alone.
"""

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from coverage import CoverageData
from mistakes import lines_of, places, variants

ROOT = Path(__file__).parents[2]
LOADED = ("torch", "numba", "scipy.stats", "scipy.optimize", "networkx", "pandas", "hypothesis", "sklearn")
"""Before the forks."""


class Mutant(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """One node of a file exchanged for another, and the import of the module with that."""

    def __init__(self, path, tree, statement, old, new):
        self.path, self.tree, self.statement, self.old, self.new = path, tree, statement, old, new
        self.name = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")

    def __str__(self):
        was, now = (" ".join(ast.unparse(node).split())[:90] for node in (self.old, self.new))
        return f"{self.path}:{self.old.lineno}: {was}  ->  {now}"

    def find_spec(self, name, path=None, target=None):
        file = ROOT / self.path
        inside = [str(file.parent)] if file.stem == "__init__" else None
        found = importlib.util.spec_from_file_location(name, file, loader=self, submodule_search_locations=inside)
        return found if name == self.name else None

    def exec_module(self, module):
        tree = ast.fix_missing_locations(_Exchange(self.old, self.new).visit(self.tree))
        exec(compile(tree, str(ROOT / self.path), "exec", dont_inherit=True), module.__dict__)


class _Exchange(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def mutants_of(path):
    """All that this makes of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return [Mutant(path, tree, statement, old, new) for statement, old in places(tree) for new in variants(old)]


def measure(tests, kept):
    """Run tests under coverage; `kept` then has what each reaches, and another file beside it what it takes."""
    kept.parent.mkdir(exist_ok=True)
    settings = Path(f"{kept}-settings")
    settings.write_text(f"[run]\nsource = rfgp,graphs\ndata_file = {kept}\n")
    options = ["-p", "no:cacheprovider", "-m", "not slow", "-vv", "--durations=0", "--cov", "--cov-report="]
    command = [sys.executable, "-m", "pytest", *options, f"--cov-config={settings}", "--cov-context=test", *tests]
    with Path(f"{kept}-seconds").open("w") as out:
        subprocess.run(command, cwd=ROOT, stdout=out, check=False)


class Reach:
    """Which tests reach a line, and what they take."""

    def __init__(self, kept):
        self.data = CoverageData(str(kept))
        self.data.read()
        said = Path(f"{kept}-seconds").read_text()
        self.seconds = dict.fromkeys(re.findall(r"^(tests/.*?) PASSED", said, re.MULTILINE), 0.005)
        for took, test in re.findall(r"^([\d.]+)s \w+ +(tests/.*)$", said, re.MULTILINE):
            if test in self.seconds:
                self.seconds[test] += float(took)

    def of(self, mutant):
        """Tests, those of the room and quick ones first; what the setup of one runs counts for all of its file."""
        by_line = self.data.contexts_by_lineno(str(ROOT / mutant.path))
        contexts = {each for line in lines_of(mutant.statement) for each in by_line.get(line, [])}
        found = {context.split("|")[0] for context in contexts}
        files = {context.split("::")[0] for context in contexts if context.endswith("|setup")}
        if "" in contexts:  # at import
            files |= {test.split("::")[0] for tests in by_line.values() for test in tests if test}
        reaching = [test for test in self.seconds if test in found or test.split("::")[0] in files]
        package, room = Path(mutant.path).with_suffix("").parts[:2]
        ours = (f"tests/{package}/{room}/", f"tests/{package}/test_{room}.py")
        return sorted(reaching, key=lambda test: (not test.startswith(ours), self.seconds[test]))


class Only:
    """Has pytest run some tests, in their order."""

    def __init__(self, tests):
        self.order = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items):
        ours = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(ours, key=lambda item: self.order[item.nodeid])


def run(mutant, tests, limit, log):
    """How a run of the tests ended: "killed", "survived", or "timed out"."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.setsid()
        signal.alarm(int(limit))
        sys.meta_path.insert(0, mutant)
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[Only(tests)]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "survived", 1: "killed", 2: "killed", -signal.SIGALRM: "timed out"}.get(status, f"ended {status}")


def within(seconds, tests, most):
    """The first of the tests that together take so long."""
    totals = itertools.accumulate(seconds[test] for test in tests)
    return [test for test, total in zip(tests, totals, strict=True) if total < most or test == tests[0]]


def _files(path):
    return path.rglob("*.py") if path.is_dir() else [path]


def sample(where, count, seed):
    """Some of the mutants of files and folders."""
    files = sorted({file for each in where for file in _files(ROOT / each)})
    mutants = [mutant for file in files for mutant in mutants_of(file.relative_to(ROOT).as_posix())]
    print(f"{min(count, len(mutants))} of {len(mutants)} mutants of {len(files)} files")
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("where", nargs="+", help="files and folders of code")
    parser.add_argument("--tests", nargs="+", default=["tests/rfgp", "tests/graphs"], help="all that may be run")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=25, help="of tests for one mutant")
    parser.add_argument("--reach", type=Path, default=ROOT / "out" / "reach", help="is measured if it is not there")
    options = parser.parse_args()
    if not options.reach.exists():
        measure(options.tests, options.reach)
    reach, ends = Reach(options.reach), Counter()
    for name in LOADED:
        importlib.import_module(name)
    for mutant in sample(options.where, options.count, options.seed):
        begun, reaching = time.perf_counter(), reach.of(mutant)
        tests = within(reach.seconds, reaching, options.seconds)
        end = run(mutant, tests, 3 * options.seconds + 30, f"{options.reach}.log") if tests else "unreached"
        ends[end] += 1
        took = f"{time.perf_counter() - begun:4.0f} s {len(tests):4d} of {len(reaching):4d} tests"
        print(f"{end:9s} {took}  {mutant}", flush=True)
    print(", ".join(f"{count} {end}" for end, count in ends.items()))


if __name__ == "__main__":
    main()
