"""Results of a case as arrays, and how far two sets of them are apart."""

import importlib
import warnings
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import torch

TOLERANCE = 1e-9
"""Of the largest number of each result: what another order of sums may change on one machine."""
LOOSER = {
    "neighbors-latent": 1e-6,
    "neighbors-latent-features": 1e-6,
    "neighbors-latent-factor": 1e-7,
    "graph-walks-iterated": 1e-6,
    "features-float32": 1e-5,
    "neighbors-learned": 1e-7,
    "inducing-float32": 3e-4,
}
"""Tolerances of cases that iterate to a tolerance, search for hyperparameters, lose digits in the precision of close
neighbours, or compute in single precision.

The saved model in single precision computed features of new points in it when it was made.
"""
_SEARCHED = ("features-learned", "neighbors-learned", "average")
"""Cases that search for hyperparameters: compared by their predictions alone."""


def results_of(name, case):
    """Return the results of a case as arrays by name: predictions, the log marginal likelihood and its gradient."""
    model, found = case.model, {}
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for place, value in case.constants.items():
            module, _, constant = place.partition(":")
            stack.enter_context(patch.object(importlib.import_module(module), constant, value))
        prediction = model.predict(case.inputs)
        found["mean"], found["variance"] = _array(prediction.mean), _array(prediction.variance)
        found["covariance"] = _array(prediction.covariance)
        observed = prediction.observed()
        for moment in ("mean", "variance"):
            if hasattr(observed, moment):
                found[f"observed.{moment}"] = _array(getattr(observed, moment))
        if name in _SEARCHED:
            return found
        if case.has_gradient:
            found |= _gradient(model)
        if model.spec.is_gaussian and case.has_gradient:
            left_out = model.leave_one_out()
            found["leave-one-out.mean"], found["leave-one-out.variance"] = (
                _array(left_out.mean),
                _array(left_out.variance),
            )
    return found


TERMS = ("mesh", "roads", "nodes", "rbf", "matern")
"""The terms of presets, whose hyperparameters had no path when references were written."""


def _known(name):
    """Return the name of a raw hyperparameter in references."""
    *path, own = name.removeprefix("raw.").split("/")
    return "_".join([*(part for part in path if part not in TERMS), own])


def _gradient(model):
    """Return the log marginal likelihood, and its gradient in each raw hyperparameter."""
    live = model.hyperparameters
    live.requires_grad_(True)
    value = model.log_marginal_likelihood()
    value.backward()
    found = {"log marginal likelihood": _array(value)}
    found |= {
        f"gradient.raw.{_known(name)}": _array(p.grad) for name, p in live.named_parameters() if p.grad is not None
    }
    live.requires_grad_(False)
    return found


def _array(values):
    """Return values as an array of float64."""
    values = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
    return np.array(values, dtype=np.float64)


def differences(name, found, expected):
    """Return messages about results that are missing, new, or farther apart than the tolerance of a case."""
    out = [f"{name}: {key} is only in one of both" for key in sorted(set(found) ^ set(expected))]
    tolerance = LOOSER.get(name, TOLERANCE)
    for key in sorted(set(found) & set(expected)):
        one, other = np.asarray(found[key]), np.asarray(expected[key])
        if one.shape != other.shape:
            out.append(f"{name}: {key} has shape {one.shape}, was {other.shape}")
            continue
        apart = np.abs(one - other).max(initial=0.0) / max(np.abs(other).max(initial=0.0), 1e-12)
        if not apart <= tolerance:
            out.append(f"{name}: {key} differs by {apart:.2g} of its largest number, {tolerance:g} allowed")
    return out
