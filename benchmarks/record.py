"""Results as files: figures of a paper and ours, with errors, and a verdict on each figure.

A paper's module has `FIGURES`, from names to functions of a `Scale` that return a `Result`. `python -m
benchmarks.papers` runs them and writes `benchmarks/results/PAPER/NAME.json`; `benchmarks.page` makes the documentation
of these files.
"""

import functools
import inspect
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from rfgp.files import write_atomically

RESULTS = Path(__file__).parent / "results"
_LIBRARIES = ("numpy", "scipy", "torch", "networkx", "scikit-learn")
AGREES, CLOSE = 2.0, 3.0
"""Standard errors."""


@dataclass(frozen=True)
class Scale:
    """The amount of computation: full, or about a tenth."""

    quick: bool = False

    def __call__(self, count: int, least: int = 2) -> int:
        """Return a number of repeats, or a tenth of it for quick runs."""
        return max(least, count // 10) if self.quick else count


@dataclass(frozen=True)
class Value:
    """One figure of a paper, and ours.

    Attributes:
        name: The name of the figure, such as "concrete, orthogonal".
        ours: Our value.
        error: The standard error of our value, or 0 if it is exact.
        printed: The value as printed in the paper, with its digits, or "" without one. "< 1" or "> 0" is a claim
            without a number.
        printed_error: The standard error of the printed value, if the paper gives one.
        why: The explanation of a difference, or that it is open.
        z: If the two are compared by another statistic, its value as a standard normal variable.
        comparable: Whether data, protocol and errors suffice for a comparison.
        together: For a claim on several cases, the support of all of them (`everywhere`). Our value and its error are
            then those of the case with the most evidence against the claim.
    """

    name: str
    ours: float
    error: float = 0.0
    printed: str = ""
    printed_error: float = 0.0
    why: str = ""
    z: float | None = None
    comparable: bool = True
    together: float | None = None

    @property
    def support(self) -> float | None:
        """The standard errors by which a claim of the paper holds; negative if it fails, None without a claim."""
        if self.printed[:1] not in ("<", ">") or not self.comparable:
            return None
        if self.together is not None:
            return self.together
        ahead = (self.ours - float(self.printed[1:])) * (1 if self.printed[0] == ">" else -1)
        return ahead / self.error if self.error > 0 else math.copysign(math.inf, ahead)

    @property
    def distance(self) -> float | None:
        """The distance between our value and the printed one in standard errors; None if they cannot be compared."""
        if not self.printed or not self.comparable or self.support is not None:
            return None
        if self.z is not None:
            return abs(self.z)
        return abs(self.ours - float(self.printed)) / math.hypot(self.error, self.printed_error, rounding(self.printed))

    @property
    def verdict(self) -> str:
        """The verdict: whether the values agree, or the claim holds."""
        far, support = self.distance, self.support
        if support is not None:
            return "holds" if support >= AGREES else "fails" if support <= -AGREES else "undecided"
        if far is None:
            return "not compared" if self.printed else "not printed"
        if far <= AGREES:
            return "agrees"
        return "close" if far <= CLOSE else "differs"


@dataclass(frozen=True)
class Result:
    """A table or figure of a paper.

    Attributes:
        title: The content of the table or figure.
        protocol: The computation of our values, and our interpretations of the paper.
        values: The values.
        notes: Further notes, a sentence each.
        missing: The parts that the paper does not state or we do not have: data, protocol, errors.
    """

    title: str
    protocol: str
    values: Sequence[Value] = ()
    notes: Sequence[str] = ()
    missing: Sequence[str] = field(default_factory=tuple)


Figure = Callable[[Scale], Result]


Entries = Sequence[Value] | tuple[Sequence[Value], Sequence[str]]
"""Values, or values and notes."""


def figure(title: str, missing: Sequence[str] = ()) -> Callable[[Callable[[Scale], Entries]], Figure]:
    """Make a figure of a function that returns values, or values and notes.

    The protocol is its docstring after the first paragraph. `{NAME}` there is a name of its module.
    """

    def made(compute: Callable[[Scale], Entries]) -> Figure:
        @functools.wraps(compute)
        def run(scale: Scale) -> Result:
            found = compute(scale)
            values, notes = found if isinstance(found, tuple) else (found, ())
            text = (inspect.getdoc(compute) or "").partition("\n\n")[2].format_map(compute.__globals__)
            return Result(title, " ".join(text.split()), values, notes, missing)

        return run

    return made


def rounding(printed: str) -> float:
    """Return the standard deviation of the rounding error of a number with these digits."""
    digits, _, exponent = printed.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return unit / math.sqrt(12)


def counts(values: Iterable[Value]) -> tuple[int, int, int]:
    """Return the number of compared figures, and the numbers within two and within three standard errors."""
    far = [value.distance for value in values if value.distance is not None]
    return len(far), sum(z <= AGREES for z in far), sum(z <= CLOSE for z in far)


def claims(values: Iterable[Value]) -> tuple[int, int, int]:
    """Return the numbers of claims that hold by two standard errors, are undecided, and fail by two."""
    said = [value.verdict for value in values if value.support is not None]
    return said.count("holds"), said.count("undecided"), said.count("fails")


def everywhere(supports: Iterable[float]) -> float:
    """Return the support of a claim that must hold in all of several cases, as one normal variable.

    If no support is negative, it is the least support, since the claim holds in all cases only if it holds in the
    weakest. Otherwise it takes the number of cases into account. If nothing differs in k cases, the worst is the least
    of k normal variables. They are independent, or positively dependent, and then errors are less frequent.
    """
    ahead = np.asarray(list(supports), dtype=np.float64)
    return float(ahead.min()) if ahead.min() >= 0 else 0.0 - worst(-ahead)


def worst(z: Iterable[float], two_sided: bool = False) -> float:
    """Return the largest of some normal variables, or of their moduli, as a normal variable, at least 0."""
    given, law = np.asarray(list(z), dtype=np.float64), stats.halfnorm if two_sided else stats.norm
    tail = -np.expm1(len(given) * law.logcdf(given.max()))
    return max(0.0, float(law.isf(max(tail, 1e-300))))


def write(paper: str, name: str, result: Result, seconds: float, scale: Scale, folder: Path = RESULTS) -> Path:
    """Write a result, and return the path of its file."""
    content = {
        "paper": paper,
        "figure": name,
        **asdict(result),
        "quick": scale.quick,
        "seconds": round(seconds, 1),
        "made_with": made_with(),
    }
    text = json.dumps(content, indent=1, default=_plain)
    path = folder / paper / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (text + "\n").encode())
    return path


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the contents of the files of results, by "paper/figure"."""
    paths = sorted(folder.glob("*/*.json"))
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text(encoding="utf-8")) for path in paths}


def values_of(content: Mapping[str, Any]) -> list[Value]:
    """Return the figures of a file."""
    return [Value(**entry) for entry in content["values"]]


def run(paper: str, name: str, figure: Figure, scale: Scale, folder: Path = RESULTS) -> Path:
    """Compute a figure, print it, and write it."""
    begin = time.perf_counter()
    result = figure(scale)
    seconds = time.perf_counter() - begin
    show(f"{paper}, {name}", result, seconds)
    return write(paper, name, result, seconds, scale, folder)


def show(heading: str, result: Result, seconds: float) -> None:
    """Print a result."""
    print(f"\n{heading}: {result.title} ({seconds:.0f} s)")
    for value in result.values:
        apart = value.support if value.distance is None else value.distance
        far = "" if apart is None else f" {apart:.1f} standard errors {'ahead' if value.distance is None else 'apart'};"
        printed = f"printed {value.printed}" if value.printed else "not printed"
        why = f" ({value.why})" if value.why else ""
        print(f"  {value.name}: {value.ours:.4g} ± {value.error:.2g}, {printed};{far} {value.verdict}{why}", flush=True)
    for note in result.notes:
        print(f"  {note}")
    total, near, close = counts(result.values)
    print(f"  of {total} figures that can be compared {near} lie within two standard errors, {close} within three")


def _plain(value: Any) -> Any:
    """Return a Python number for a number of numpy, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be part of a result.")


def made_with() -> dict[str, Any]:
    """Return versions, the commit, and the machine as text."""
    root = Path(__file__).parents[1]
    git = ["git", "-C", str(root)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "rfgp", "graphs", "benchmarks/*.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        "commit": commit.stdout.strip() + (" with changes" if changed.stdout.strip() else ""),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {sys.platform}",
    }
