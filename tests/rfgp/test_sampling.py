import numpy as np
import ot
import pytest
import torch
from checks import assert_mean

import rfgp
from rfgp import couplings
from rfgp.features import softmax
from rfgp.sampling import SoftmaxSampler

CLASSES, QUERIES = (torch.from_numpy(0.7 * np.random.default_rng(n).standard_normal((n, 3))) for n in (7, 3))
DRAW = couplings.by_name("orthogonal").sample(8, 3, seed=0)
BOTH = (softmax.Positive, softmax.Trigonometric)


def definition(kind):
    """Probabilities, one by one, and the share of negative estimates."""
    omega = DRAW.dense().numpy()

    def estimate(x, c):
        if kind is softmax.Positive:
            return np.mean(np.exp(omega @ (x + c) - (x @ x + c @ c) / 2))
        return np.mean(np.exp((x @ x + c @ c) / 2) * np.cos(omega @ (x - c)))

    raw = np.array([[estimate(x, c) for c in CLASSES.numpy()] for x in QUERIES.numpy()])
    kept = np.maximum(raw, 0)
    return kept / kept.sum(1, keepdims=True), np.mean(raw < 0)


@pytest.mark.parametrize("kind", BOTH)
def test_probabilities(kind):
    expected, _ = definition(kind)
    sampler = SoftmaxSampler(kind(DRAW), CLASSES)
    np.testing.assert_allclose(sampler.probabilities(QUERIES), expected, rtol=1e-10)
    ratio = sampler.estimates(QUERIES) / kind(DRAW)(QUERIES, CLASSES)
    np.testing.assert_allclose(ratio, ratio[:, :1].expand(-1, 7), rtol=1e-10)


@pytest.mark.parametrize("kind", BOTH)
def test_draws_follow_the_probabilities(kind):
    expected, _ = definition(kind)
    found = SoftmaxSampler(kind(DRAW), CLASSES).sample(QUERIES, 20_000, generator=torch.Generator().manual_seed(3))
    assert found.shape == (3, 20_000)
    assert found.dtype == torch.int64
    counts = np.stack([(found.numpy() == c) for c in range(7)], axis=-1)  # (n, s, C)
    for estimated, rows in zip(expected, counts, strict=True):
        assert_mean(rows, estimated)


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
    assert sampler.probabilities(query).tolist() == [[0.0, 0.0]]
    report = sampler.report(query)
    assert (report.negative, report.unusable) == (1.0, 1.0)
    assert np.isnan(report.wasserstein)
    with pytest.raises(rfgp.DataError, match="got none for 1 of 1"):
        sampler.sample(query, generator=torch.Generator())


def test_classes_that_are_learned():
    classes = torch.nn.Parameter(CLASSES.float())
    found = SoftmaxSampler(softmax.Positive(DRAW), classes)
    before = found.report(QUERIES, ground="vectors")  # queries of another precision than the classes
    for _ in range(2):
        queries = QUERIES.clone().requires_grad_()
        found.estimates(queries).square().sum().backward()
        assert bool((queries.grad != 0).any())
    with torch.no_grad():
        classes.mul_(-2)
    assert found.report(QUERIES, ground="vectors") == before


@pytest.mark.parametrize(("kind", "ground"), [(BOTH[0], "index"), (BOTH[0], "vectors"), (BOTH[1], "vectors")])
def test_the_report(kind, ground):
    estimated, negative = definition(kind)
    inner = np.exp(QUERIES.numpy() @ CLASSES.numpy().T)
    true = inner / inner.sum(1, keepdims=True)
    places = np.arange(7.0)[:, None] / 6 if ground == "index" else CLASSES.numpy()
    moved = [ot.emd2(p, q, ot.dist(places, metric="euclidean")) for p, q in zip(true, estimated, strict=True)]
    report = SoftmaxSampler(kind(DRAW), CLASSES).report(QUERIES, ground=ground)
    assert report.negative == pytest.approx(negative)
    assert report.wasserstein == pytest.approx(np.mean(moved), rel=1e-6)
    largest = np.abs(np.cumsum(estimated - true, axis=1)).max(1)
    assert report.kolmogorov_smirnov == pytest.approx(np.mean(largest))
    assert report.total_variation == pytest.approx(np.mean(0.5 * np.abs(estimated - true).sum(1)))
    assert report.unusable == 0


SAMPLER, PAIR = SoftmaxSampler(softmax.Positive(DRAW), CLASSES), softmax.Positive(DRAW)


def test_no_queries_and_one_class():
    assert SAMPLER.sample(QUERIES[:0], 4, generator=torch.Generator()).shape == (0, 4)
    one = SoftmaxSampler(PAIR, CLASSES[:1])
    assert one.probabilities(QUERIES).tolist() == [[1.0]] * 3
    assert not one.sample(QUERIES, 4, generator=torch.Generator()).any()


@pytest.mark.parametrize(
    ("act", "error", "word"),
    [
        (lambda: SoftmaxSampler(softmax.Positive(DRAW, "gaussian"), CLASSES), rfgp.InvalidArgumentError, "softmax"),
        (lambda: SoftmaxSampler(3, CLASSES), rfgp.InvalidArgumentError, "FeaturePair"),
        (lambda: SoftmaxSampler(PAIR, CLASSES[:0]), rfgp.DataError, "at least one row"),
        (lambda: SoftmaxSampler(PAIR, CLASSES / 0), rfgp.DataError, "row 0"),
        (lambda: SoftmaxSampler(PAIR, [1.0]), rfgp.DataError, "Class vectors"),
        (lambda: SAMPLER.estimates(QUERIES[:, :2]), rfgp.DataError, "3 columns"),
        (lambda: SAMPLER.sample(QUERIES, 0, generator=torch.Generator()), rfgp.InvalidArgumentError, "positive"),
        (lambda: SAMPLER.sample(QUERIES, generator=3), rfgp.InvalidArgumentError, "generator"),
        (lambda: SAMPLER.report(QUERIES[:0]), rfgp.DataError, "at least one row"),
        (lambda: SAMPLER.report(QUERIES, ground="words"), rfgp.InvalidArgumentError, "ground"),
        (
            lambda: SoftmaxSampler(PAIR, torch.zeros(4001, 3)).report(QUERIES, ground="vectors"),
            rfgp.InvalidArgumentError,
            "at most 4000",
        ),
    ],
)
def test_bad_arguments_are_named(act, error, word):
    with pytest.raises(error, match=word):
        act()
