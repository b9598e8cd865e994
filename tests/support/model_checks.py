"""Checks of models: gradients by central differences, and updates by conditioning on all rows."""

import copy

import numpy as np
import pytest
import torch


def assert_gradients(gp, *, step=1e-5, rel=1e-5, abs=1e-5):
    """The gradient in each raw hyperparameter is that of central differences."""
    names, parameters = zip(*gp.hyperparameters.named_parameters(), strict=True)
    slopes = torch.autograd.grad(gp.log_marginal_likelihood(), parameters, allow_unused=True)
    for name, raw, slope in zip(names, parameters, slopes, strict=True):
        found = torch.zeros_like(raw) if slope is None else slope
        for place in range(raw.numel()):
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    raw.view(-1)[place] += sign * step
                    ends.append(gp.log_marginal_likelihood().item())
                    raw.view(-1)[place] -= sign * step
            expected = pytest.approx((ends[0] - ends[1]) / (2 * step), rel=rel, abs=abs)
            assert found.reshape(-1)[place].item() == expected, name


def assert_update_is_condition(whole, X, y, new, first, *, rtol=1e-7, atol=0.0, variance_rtol=None):
    """A model conditioned on the first rows and updated by the others predicts as one of all rows."""
    parts = copy.deepcopy(whole)
    parts.condition(X[:first], y[:first])
    assert np.isfinite(parts.predict(new).mean).all()  # computes the posterior that the update may extend
    parts.update(X[first:], y[first:])
    found, expected = parts.predict(new), whole.predict(new)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=rtol, atol=atol)
    if variance_rtol is not None:
        np.testing.assert_allclose(found.variance, expected.variance, rtol=variance_rtol)
