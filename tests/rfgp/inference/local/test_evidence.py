"""Features with a local process beside them, against the exact process of the sum kernel."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rfgp.inference.local import LocalEvidence, LocalPrior, blocks
from rfgp.inference.local import evidence as inference
from two_parts import F64, data, evidence, exact, local_prior, theta

import rfgp
from rfgp.inference import choice
from rfgp.local.neighbors import used


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize(("name", "with_features"), [("matern32", True), ("gaussian", True), ("matern12", False)])
def test_with_all_predecessors_it_is_the_exact_process(name, with_features, uneven):
    p, rows = theta(), data(uneven=uneven)
    of = {"name": name, "with_features": with_features}
    found, twin = evidence(p, rows, **of), exact(p, rows, **of)
    one, other = found.log_marginal_likelihood(), twin.log_marginal_likelihood()
    assert one.item() == pytest.approx(other.item(), abs=1e-8)
    free = [value for key, value in p.items() if with_features or key not in ("lengthscale", "variance")]
    for a, b in zip(torch.autograd.grad(one, free), torch.autograd.grad(other, free), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-8)
    for a, b in zip(found.leave_one_out(), twin.leave_one_out(), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-10)


def test_predictions_and_their_joint_law_are_those_of_the_exact_process():
    p, rows = {key: value.detach() for key, value in theta().items()}, data()
    new = torch.randn(9, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
    new[2], new[3] = new[1], rows.inputs[0]
    with torch.no_grad():
        posterior, twin = evidence(p, rows, neighbors=59).posterior(), exact(p, rows).posterior().law(new)
        law = posterior.law(new)
        assert torch.allclose(law.mean(), twin.mean(), atol=1e-10)
        assert torch.allclose(law.variance(), twin.variance(), atol=1e-10)
        assert torch.allclose(law.covariance(), twin.covariance(), atol=1e-9)
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        posterior.sample_functions(2, torch.Generator())


def test_few_neighbors_come_close_and_more_come_closer():
    p, rows = {key: value.detach() for key, value in theta().items()}, data(400)
    new = torch.randn(200, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        twin = exact(p, rows).posterior().law(new)
        errors = []
        for count in (3, 10, 30):
            law = evidence(p, rows, neighbors=count).posterior().law(new)
            errors.append(float((law.mean() - twin.mean()).square().mean().sqrt()))
            covariance = law.covariance()
            assert float(torch.linalg.eigvalsh(covariance)[0]) > -1e-12
            assert torch.allclose(covariance.diagonal(), law.variance(), rtol=1e-12)
    assert errors[0] > 1.5 * errors[1] > 3 * errors[2], errors


def test_a_part_of_the_rows_says_what_it_says_beside_its_neighbors():
    p, rows = {key: value.detach() for key, value in theta().items()}, data(60)
    prior = local_prior(p, neighbors=6)
    ordered = rows.take(prior.order(60))
    pattern = prior.neighbors(ordered.inputs)
    whole = LocalEvidence(prior, ordered, p["mean"], p["noise"], pattern)
    without = replace(prior, features=None)
    parts = []
    for some in (np.arange(0, 60, 2), np.arange(1, 60, 2)):
        smaller, columns = used(without.neighbors(ordered.inputs, torch.from_numpy(some)))
        parts.append(LocalEvidence(without, ordered.take(torch.from_numpy(columns)), p["mean"], p["noise"], smaller))
    total = sum(one.log_marginal_likelihood() for one in parts)
    alone = LocalEvidence(without, ordered, p["mean"], p["noise"], pattern).log_marginal_likelihood()
    assert total.item() == pytest.approx(alone.item(), abs=1e-9)
    everything = prior.neighbors(ordered.inputs, torch.arange(60))
    again = LocalEvidence(prior, ordered, p["mean"], p["noise"], everything).log_marginal_likelihood()
    assert again.item() == pytest.approx(whole.log_marginal_likelihood().item(), abs=1e-10)


@pytest.mark.parametrize("with_features", [True, False])
def test_by_blocks_many_rows_say_the_same(with_features, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_FEATURES", 0)
    monkeypatch.setattr(blocks, "BLOCK_FEATURES", 200)
    p, rows = {key: value.detach() for key, value in theta().items()}, data(400)
    prior, new = local_prior(p, neighbors=7, with_features=with_features), torch.zeros(3, 3, dtype=F64)
    with torch.no_grad():
        one = LocalEvidence.of(prior, rows, p["mean"], p["noise"])
        other = choice.evidence(prior, rows, p["mean"], p["noise"])
        assert isinstance(other, blocks.BlockedLocalEvidence) is with_features
        many = blocks.BlockedLocalEvidence(prior, rows, p["mean"], p["noise"])
        assert many.log_marginal_likelihood().item() == pytest.approx(one.log_marginal_likelihood().item(), abs=1e-8)
        assert torch.allclose(many.posterior().law(new).mean(), one.posterior().law(new).mean(), atol=1e-11)
        assert torch.allclose(many.posterior().law(new).variance(), one.posterior().law(new).variance(), atol=1e-11)
        assert torch.equal(many.leave_one_out()[0], one.leave_one_out()[0])
    lively = local_prior(theta(), with_features=with_features)
    assert not blocks.is_large(lively, 10**9)


@pytest.mark.parametrize("fault", ["determinant", "mean", "left"])
def test_planted_errors_are_seen(fault, monkeypatch):
    p, rows = {key: value.detach() for key, value in theta().items()}, data()
    new, twin = rows.inputs[:5] + 0.1, exact(p, rows)

    def is_right():
        with torch.no_grad():
            found = evidence(p, rows)
            law, other = found.posterior().law(new), twin.posterior().law(new)
            near = abs(float(found.log_marginal_likelihood() - twin.log_marginal_likelihood())) < 1e-8
            means = torch.allclose(law.mean(), other.mean(), atol=1e-9)
            return near and means and torch.allclose(law.variance(), other.variance(), atol=1e-9)

    assert is_right()
    if fault == "determinant":
        solved = inference.solved_weights
        monkeypatch.setattr(inference, "solved_weights", lambda *a: (solved(*a)[0] * 1.0001, solved(*a)[1]))
    else:
        original = LocalPrior.conditionals

        def wrong(*given):
            weights, left = original(*given)
            return (weights * 1.0001, left) if fault == "mean" else (weights, left * 1.0001)

        monkeypatch.setattr(LocalPrior, "conditionals", wrong)
    assert not is_right()
