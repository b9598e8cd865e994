"""Saved models of the cases, in the form of `tests/rfgp/saving/models`."""

import json
import warnings
from pathlib import Path

import numpy as np
import torch

import rfgp
from tests.golden.cases import CASES

MAX_BYTES = 200_000
"""The largest file that is kept: that of walks on thousands of nodes is not."""


def add_fixtures(folder: Path) -> None:
    """Save a model of each case that has none yet, and add what it predicts to `expected.json`; nothing is changed."""
    path = folder / "expected.json"
    expected = json.loads(path.read_text())
    for name, make in CASES.items():
        if f"golden-{name}" in expected:
            continue
        case = make()
        file = folder / f"golden-{name}.safetensors"
        case.model.save(file, data=case.has_data)
        if file.stat().st_size > MAX_BYTES:
            file.unlink()
            continue
        expected[f"golden-{name}"] = _entry(case, file)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in expected.items())
    path.write_text(f"{{\n{lines}\n}}\n")


def _entry(case, file):
    """Return what a model answers, as `expected.json` has it."""
    gp, is_tensor = case.model, isinstance(case.inputs, torch.Tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entry = {
            "class": type(gp).__name__,
            "data": case.has_data,
            "tensors": is_tensor,
            "inputs": np.asarray(case.inputs).tolist(),
            "num_observations": gp.num_observations,
            "metadata": gp.metadata,
            "hyperparameters": {k: getattr(gp.hyperparameters, k).detach().tolist() for k in gp.hyperparameters.names},
            "fit": None if gp.fit_report is None else {"converged": gp.fit_report.converged},
            **_moments(gp, case.inputs),
            "features": getattr(gp, "features", None),
            "update": _updated(rfgp.load(file), case.inputs),
        }
        if case.has_data:
            entry["log_marginal_likelihood"] = gp.log_marginal_likelihood().item()
    return entry


def _updated(gp, inputs):
    """Return new rows, and what the model answers when they are added; None if it needs the rows that it has not.

    A target of 1 is one of every likelihood.
    """
    outputs = gp.predict(inputs).mean.shape[1:]
    target = np.ones((2, *outputs)) if gp.spec.is_gaussian else np.ones(2)
    more = inputs[:2]
    try:
        gp.update(more, torch.as_tensor(target, dtype=more.dtype) if isinstance(more, torch.Tensor) else target)
    except rfgp.NotFittedError:
        return None
    return {"inputs": np.asarray(more).tolist(), "targets": target.tolist(), **_moments(gp, inputs)}


def _moments(gp, inputs):
    """Return the mean and variance at inputs as lists."""
    prediction = gp.predict(inputs)
    return {
        name: np.asarray(torch.as_tensor(getattr(prediction, name)).detach()).tolist() for name in ("mean", "variance")
    }
