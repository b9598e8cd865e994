"""Models against dense algebra and against exact models, and their gradients against differences."""

import itertools

import numpy as np
import pytest
import torch

from rfgp import kernels as k


def covariance_of(kernel, rows, new, values):
    """Return the covariance of each term between "rows" and "new" points, at hyperparameters in the user's units."""
    whole = {key: np.concatenate([rows[key], new[key]]) for key in rows}
    count = len(next(iter(rows.values())))
    places = {"rows": slice(0, count), "new": slice(count, None)}

    def covariance(name, first, second):
        (term,) = [term for term in kernel.terms() if term.name == name]
        own = {path: value for path, value in values.items() if path.startswith(f"{name}.")}
        return k.Sum((term,)).matrix(whole, values=own).numpy()[places[first], places[second]]

    return covariance


def check_terms(prediction, exact, offset, atol, parts="crosses"):
    """Compare a prediction and its terms with dense algebra: means, then variances, covariances and crosses too."""
    depth, names = ("mean", "variance", "covariance", "crosses").index(parts), exact.names
    total = sum(exact.cross_covariance(a, b) for a in names for b in names)
    pairs = [(prediction, offset + sum(map(exact.mean, names)), total)]
    pairs += [(prediction.terms[name], exact.mean(name), exact.cross_covariance(name, name)) for name in names]
    for found, mean, covariance in pairs:
        np.testing.assert_allclose(found.mean, mean, atol=atol)
        if depth > 0:
            np.testing.assert_allclose(found.variance, np.diag(covariance), atol=atol)
        if depth > 1:
            np.testing.assert_allclose(found.covariance, covariance, atol=atol)
    for a, b in itertools.product(names, names) if depth > 2 else ():
        np.testing.assert_allclose(prediction.cross_covariance(a, b), exact.cross_covariance(a, b), atol=atol)


def check_slopes(gp, exact, **tolerances):
    """Compare the gradients of the log densities of two models in all hyperparameters."""
    for one in (gp, exact):
        for raw in one.hyperparameters.raw.values():
            raw.grad = None
        one.log_marginal_likelihood().backward()
    for name, raw in gp.hyperparameters.raw.items():
        expected = exact.hyperparameters.raw[name].grad
        assert (raw.grad is None) == (expected is None), name
        if expected is not None:
            np.testing.assert_allclose(raw.grad, expected, err_msg=name, **tolerances)


def check_model(gp, exact, new, digits, slope_digits):
    """Compare densities, gradients, predictions, draws and held-out rows with those of an exact model."""
    expected = exact.log_marginal_likelihood().item()
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, abs=digits)
    check_slopes(gp, exact, atol=slope_digits)
    one, two = gp.predict(new), exact.predict(new)
    for p, q in [(one, two), *((one.terms[name], two.terms[name]) for name in one.terms)]:
        np.testing.assert_allclose(p.mean, q.mean, atol=digits)
        np.testing.assert_allclose(p.variance, q.variance, atol=digits)
        np.testing.assert_allclose(p.covariance, q.covariance, atol=digits)
    first, last = next(iter(one.terms)), list(one.terms)[-1]
    np.testing.assert_allclose(one.cross_covariance(first, last), two.cross_covariance(first, last), atol=digits)
    np.testing.assert_allclose(one.sample(2000, seed=0).var(0), two.variance, rtol=0.25)
    np.testing.assert_allclose(gp.leave_one_out().mean, exact.leave_one_out().mean, atol=10 * digits)


def check_differences(gp, step, tolerance):
    """Compare the gradient of the log density in all hyperparameters with central differences."""
    gp.log_marginal_likelihood().backward()
    slopes = {name: raw.grad.clone() for name, raw in gp.hyperparameters.raw.items() if raw.grad is not None}
    assert slopes
    for name, slope in slopes.items():
        raw = gp.hyperparameters.raw[name]
        for place in np.ndindex(tuple(raw.shape)):
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    raw[place] += sign * step
                    ends.append(gp.log_marginal_likelihood().item())
                    raw[place] -= sign * step
            expected = (ends[0] - ends[1]) / (2 * step)
            assert slope[place].item() == pytest.approx(expected, rel=tolerance, abs=tolerance), name


def leaves_of(gp):
    """Return the regression whose free hyperparameters are leaves, and these by path."""
    values = gp.state.hyperparameters
    values = values.leaves([name for name, one in values.space.quantities.items() if not one.is_fixed])
    return gp.state.replace(hyperparameters=values), {n: one for n, one in values.raw.items() if one.requires_grad}
