"""Results of a case as lists and texts, and how far two sets of them are apart."""

import json
import platform
import warnings
from pathlib import Path

import numpy as np
import torch

from tests.golden import columns, models, others, searches

FILE = Path(__file__).parent / "golden.json"
GROUPS = {
    "models": models.CASES,
    "forecasts": others.FORECASTS,
    "slopes": others.SLOPES,
    "draws": others.DRAWS,
    "readers": others.READERS,
    "theory": others.THEORY,
    "refusals": others.REFUSALS,
    "columns": columns.CASES,
    "commands": others.COMMANDS,
    "fits": searches.FITS,
    "selections": searches.SELECTIONS,
}
"""The cases of each group by name. A case is a function without arguments that returns results by name."""
SEARCHES = ("fits", "selections", "commands")
"""Groups whose cases search for hyperparameters."""
HERE, ELSEWHERE = 1e-9, 1e-5
"""Tolerances relative to the largest number of a result, on the processor that wrote the file and on others."""
LOOSER = {
    "models/features-float32": 1e-4,
    "models/neighbors-latent": 1e-6,
    "models/neighbors-latent-features": 1e-6,
    "models/graph-walks-iterated": 1e-6,
}
"""Tolerances of cases in single precision, or with solves by iterations."""
SOLVED = {
    "forecasts/features",
    "slopes/features",
    "slopes/classes",
    "draws/functions",
    "draws/walks-learned",
    "commands/fit-features",
    "fits/features",
    "fits/subsets",
    "fits/learned",
    "fits/neighbors-features",
    "fits/poisson",
    "fits/variational",
}
"""Cases whose directions or lengths of walks an optimizer solves for. Other processors may end at another optimum."""
NATS, DEVIATIONS = (1e-4, 1e-2), (1e-3, 3e-2)
"""Tolerances of searches, here and elsewhere: of a likelihood in nats, and of predictions in standard deviations."""


def processor():
    """Return the name of the processor, its family and model, and the instructions that torch uses."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    names = [values[key] for key in ("model name", "cpu family", "model") if key in values] or [platform.processor()]
    return " ".join([*names, torch.backends.cpu.get_cpu_capability()])


def results_of(name):
    """Return the results of a case as numbers, nested lists and texts, by name.

    Args:
        name: The group and the name of the case, with a slash between them.
    """
    group, _, own = name.partition("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {key: rounded(value) for key, value in GROUPS[group][own]().items()}


def rounded(value, digits=13):
    """Return a value for JSON, with rounded numbers."""
    if isinstance(value, dict):
        return {key: rounded(part, digits) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part, digits) for part in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        return rounded(value.tolist(), digits)
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def differences(name, found, expected, is_here=True):
    """Return messages about results that are missing, new, or farther apart than the tolerance of a case.

    Args:
        name: The group and the name of the case.
        found: Its results.
        expected: The results with which they are compared. Those whose names begin with "about." are not.
        is_here: Whether they are of the same processor.
    """
    found, expected = ({k: v for k, v in part.items() if not k.startswith("about.")} for part in (found, expected))
    out = [f"{name}: {key} is only in one of both" for key in sorted(set(found) ^ set(expected))]
    if name in SOLVED and not is_here:
        return out
    for key in sorted(set(found) & set(expected)):
        try:
            one, other = (np.asarray(part[key], dtype=np.float64) for part in (found, expected))
        except ValueError:
            is_open = name.startswith("selections/") and not is_here  # candidates may be as good as each other
            if found[key] != expected[key] and not is_open:
                out.append(f"{name}: {key} is {found[key]!r}, was {expected[key]!r}")
            continue
        if one.shape != other.shape:
            out.append(f"{name}: {key} has shape {one.shape}, was {other.shape}")
            continue
        apart = float((np.abs(one - other) / _allowed(name, key, expected, is_here)).max(initial=0.0))
        if not apart <= 1:
            out.append(f"{name}: {key} differs by {apart:.3g} times what is allowed")
    return out


def _allowed(name, key, expected, is_here):
    """Return the largest difference of a number, or of each. Whole numbers, as counts and exit codes, must be equal."""
    if np.asarray(expected[key]).dtype.kind in "biu":
        return 0.5
    size = max(float(np.abs(np.asarray(expected[key], dtype=np.float64)).max(initial=0.0)), 1e-12)
    if name.partition("/")[0] not in SEARCHES:
        return max(HERE if is_here else ELSEWHERE, LOOSER.get(name, 0.0)) * size
    if key.endswith("log marginal likelihood"):
        return NATS[not is_here]
    if key in ("mean", "std", "observed.std"):
        return DEVIATIONS[not is_here] * np.asarray(expected["std"])
    return DEVIATIONS[not is_here] * size


def read(path=FILE):
    """Return the processor of a file, and the results of all cases by group and name."""
    return json.loads(path.read_text())


def write(results, path=FILE):
    """Write results with the name of the processor, a line for each case."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in results.items())
    path.write_text(f'{{"processor": {json.dumps(processor())}, "results": {{\n{lines}\n}}}}\n')
