import numpy as np
import ot
import pytest
import torch
from checks import assert_mean
from refusals import refused

import rfgp
from rfgp import couplings
from rfgp.features import softmax
from rfgp.sampling import SoftmaxSampler

CLASSES, QUERIES = (torch.from_numpy(0.7 * np.random.default_rng(n).standard_normal((n, 3))) for n in (7, 3))
DRAW = couplings.by_name("orthogonal").sample(8, 3, seed=0)
BOTH = (softmax.Positive, softmax.Trigonometric)


def definition(kind):
    """Probabilities, one by one, and the share of negative estimates."""
    x, c = QUERIES.numpy()[:, None], CLASSES.numpy()
    half, angles = ((x**2).sum(-1) + (c**2).sum(-1)) / 2, DRAW.dense().numpy().T
    if kind is softmax.Positive:
        raw = np.exp((x + c) @ angles).mean(-1) * np.exp(-half)
    else:
        raw = np.cos((x - c) @ angles).mean(-1) * np.exp(half)
    kept = np.maximum(raw, 0)
    return kept / kept.sum(1, keepdims=True), np.mean(raw < 0)


@pytest.mark.parametrize("kind", BOTH)
def test_draws_follow_the_probabilities(kind):
    expected, _ = definition(kind)
    sampler = SoftmaxSampler(kind(DRAW), CLASSES)
    np.testing.assert_allclose(sampler.probabilities(QUERIES), expected, rtol=1e-10)
    ratio = sampler.estimates(QUERIES) / kind(DRAW)(QUERIES, CLASSES)
    np.testing.assert_allclose(ratio, ratio[:, :1].expand(-1, 7), rtol=1e-10)
    found = sampler.sample(QUERIES, 20_000, generator=torch.Generator().manual_seed(3))
    assert found.shape == (3, 20_000)
    assert found.dtype == torch.int64
    for estimated, row in zip(expected, found.numpy(), strict=True):
        assert_mean(row[:, None] == np.arange(7), estimated)


def test_long_vectors_neither_overflow_nor_vanish():
    queries, classes = 30 * QUERIES.float(), 30 * CLASSES.float()
    sampler = SoftmaxSampler(softmax.Positive(DRAW), classes)
    estimated = sampler.probabilities(queries)
    torch.testing.assert_close(estimated.sum(1), torch.ones(3))
    found = sampler.sample(queries, 50, generator=torch.Generator().manual_seed(0))
    assert bool((estimated.gather(1, found) > 0).all())


def test_queries_without_a_positive_estimate():
    pair = softmax.Trigonometric(torch.tensor([[torch.pi, 0.0]], dtype=torch.float64))
    sampler = SoftmaxSampler(pair, torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64))
    query = torch.zeros(1, 2, dtype=torch.float64)  # cos(pi) < 0 for both
    assert not sampler.probabilities(query).any()
    report = sampler.report(query)
    assert (report.negative, report.unusable) == (1.0, 1.0)
    assert np.isnan(report.wasserstein)
    refused(lambda: sampler.sample(query, generator=torch.Generator()), rfgp.DataError, "got none for 1 of 1")


def test_classes_that_are_learned():
    classes, queries = torch.nn.Parameter(CLASSES.float()), QUERIES.clone().requires_grad_()
    found = SoftmaxSampler(softmax.Positive(DRAW), classes)
    before = found.report(QUERIES, ground="vectors")  # queries of another precision than the classes
    for _ in range(2):
        assert torch.autograd.grad(found.estimates(queries).square().sum(), queries)[0].any()
    with torch.no_grad():
        classes.mul_(-2)
    assert found.report(QUERIES, ground="vectors") == before


@pytest.mark.parametrize(("kind", "ground"), [(BOTH[0], "index"), (BOTH[0], "vectors"), (BOTH[1], "vectors")])
def test_the_report(kind, ground):
    estimated, negative = definition(kind)
    true = torch.softmax(QUERIES @ CLASSES.T, 1).numpy()
    places = np.arange(7.0)[:, None] / 6 if ground == "index" else CLASSES.numpy()
    moved = [ot.emd2(p, q, ot.dist(places, metric="euclidean")) for p, q in zip(true, estimated, strict=True)]
    report = SoftmaxSampler(kind(DRAW), CLASSES).report(QUERIES, ground=ground)
    assert (report.negative, report.unusable) == (pytest.approx(negative), 0)
    assert report.wasserstein == pytest.approx(np.mean(moved), rel=1e-6)
    gaps = estimated - true
    assert report.kolmogorov_smirnov == pytest.approx(np.abs(np.cumsum(gaps, axis=1)).max(1).mean())
    assert report.total_variation == pytest.approx(0.5 * np.abs(gaps).sum(1).mean())


SAMPLER, PAIR = SoftmaxSampler(softmax.Positive(DRAW), CLASSES), softmax.Positive(DRAW)


def test_no_queries_and_one_class():
    assert SAMPLER.sample(QUERIES[:0], 4, generator=torch.Generator()).shape == (0, 4)
    one = SoftmaxSampler(PAIR, CLASSES[:1])
    assert one.probabilities(QUERIES).tolist() == [[1.0]] * 3
    assert not one.sample(QUERIES, 4, generator=torch.Generator()).any()


INVALID = rfgp.InvalidArgumentError
BAD = [
    (lambda: SoftmaxSampler(softmax.Positive(DRAW, "gaussian"), CLASSES), INVALID, "softmax"),
    (lambda: SoftmaxSampler(3, CLASSES), INVALID, "FeaturePair"),
    (lambda: SoftmaxSampler(PAIR, CLASSES / 0), rfgp.DataError, "row 0"),
    (lambda: SAMPLER.estimates(QUERIES[:, :2]), rfgp.DataError, "3 columns"),
    (lambda: SAMPLER.sample(QUERIES, generator=3), INVALID, "generator"),
    (lambda: SAMPLER.report(QUERIES[:0]), rfgp.DataError, "at least one row"),
    (lambda: SAMPLER.report(QUERIES, ground="words"), INVALID, "ground"),
    (lambda: SoftmaxSampler(PAIR, torch.zeros(4001, 3)).report(QUERIES, ground="vectors"), INVALID, "at most 4000"),
]


@pytest.mark.parametrize(("call", "error", "word"), BAD)
def test_bad_arguments_are_named(call, error, word):
    refused(call, error, word)
