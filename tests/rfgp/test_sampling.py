import numpy as np
import ot
import pytest
import torch
from checks import assert_mean, fails
from hypothesis import given, settings
from hypothesis import strategies as st

import rfgp
from rfgp import couplings, random
from rfgp.features import softmax
from rfgp.sampling import SoftmaxSampler

CLASSES = 0.7 * torch.randn(7, 3, generator=random.generator(1), dtype=torch.float64)
QUERIES = 0.7 * torch.randn(3, 3, generator=random.generator(2), dtype=torch.float64)
DRAW = couplings.by_name("orthogonal").sample(8, 3, generator=random.generator(0))
BOTH = (softmax.Positive, softmax.Trigonometric)


def twin(kind, queries=QUERIES, classes=CLASSES):
    """Probabilities from the definition, one by one."""
    omega = DRAW.dense().numpy()

    def estimate(x, c):
        if kind is softmax.Positive:
            return np.mean(np.exp(omega @ (x + c) - (x @ x + c @ c) / 2))
        return np.mean(np.exp((x @ x + c @ c) / 2) * np.cos(omega @ (x - c)))

    raw = np.array([[estimate(x, c) for c in classes.numpy()] for x in queries.numpy()])
    kept = np.maximum(raw, 0)
    return kept / kept.sum(1, keepdims=True), np.mean(raw < 0)


@pytest.mark.parametrize("kind", BOTH)
def test_probabilities(kind):
    expected, _ = twin(kind)
    sampler = SoftmaxSampler(kind(DRAW), CLASSES)
    np.testing.assert_allclose(sampler.probabilities(QUERIES), expected, rtol=1e-10)
    ratio = sampler.estimates(QUERIES) / kind(DRAW)(QUERIES, CLASSES)
    np.testing.assert_allclose(ratio, ratio[:, :1].expand(-1, 7), rtol=1e-10)


def check_draws(found, expected):
    counts = np.stack([(found.numpy() == c) for c in range(7)], axis=-1)  # (n, s, C)
    for estimated, rows in zip(expected, counts, strict=True):
        assert_mean(rows, estimated)


@pytest.mark.parametrize("kind", BOTH)
def test_draws_follow_the_probabilities(kind):
    expected, _ = twin(kind)
    found = SoftmaxSampler(kind(DRAW), CLASSES).sample(QUERIES, 20_000, generator=random.generator(3))
    assert found.shape == (3, 20_000)
    assert found.dtype == torch.int64
    check_draws(found, expected)


class TestPlantedErrors:
    def test_a_class_drawn_whatever_the_feature(self, monkeypatch):
        sampler = SoftmaxSampler(softmax.Positive(DRAW), CLASSES)
        uniform = (torch.arange(7.0, dtype=torch.float64) + 1) / 7
        monkeypatch.setattr(sampler, "cumulative", uniform.expand(8, 7))
        found = sampler.sample(QUERIES, 20_000, generator=random.generator(3))
        assert fails(check_draws, found, twin(softmax.Positive)[0])

    def test_features_of_equal_weight(self, monkeypatch):
        sampler = SoftmaxSampler(softmax.Positive(DRAW), CLASSES)
        monkeypatch.setattr(sampler, "log_totals", torch.zeros(8, dtype=torch.float64))
        found = sampler.sample(QUERIES, 20_000, generator=random.generator(3))
        assert fails(check_draws, found, twin(softmax.Positive)[0])


@pytest.mark.parametrize("ground", ["index", "vectors"])
@pytest.mark.parametrize("kind", BOTH)
def test_the_report(kind, ground):
    estimated, negative = twin(kind)
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


def test_long_vectors_neither_overflow_nor_vanish():
    queries, classes = 30 * QUERIES.float(), 30 * CLASSES.float()
    sampler = SoftmaxSampler(softmax.Positive(DRAW), classes)
    estimated = sampler.probabilities(queries)
    torch.testing.assert_close(estimated.sum(1), torch.ones(3))
    found = sampler.sample(queries, 50, generator=random.generator(0))
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
        sampler.sample(query, generator=random.generator(0))


@given(st.integers(0, 4), st.integers(1, 9), st.integers(1, 5), st.sampled_from(BOTH), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_any_shape(n, count, samples, kind, seed):
    generator = random.generator(seed)
    classes, queries = (torch.randn(k, 3, generator=generator) / 3 for k in (count, n))
    sampler = SoftmaxSampler(kind(DRAW), classes)
    estimated = sampler.probabilities(queries)
    assert estimated.shape == (n, count)
    torch.testing.assert_close(estimated.sum(1), torch.ones(n))
    found = sampler.sample(queries, samples, generator=generator)
    assert found.shape == (n, samples)
    assert not n or 0 <= int(found.min()) <= int(found.max()) < count


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: SoftmaxSampler(softmax.Positive(DRAW, "gaussian"), CLASSES), rfgp.InvalidArgumentError, "softmax"),
        (lambda: SoftmaxSampler(softmax.Positive(DRAW), CLASSES[:0]), rfgp.DataError, "at least one row"),
        (lambda: SoftmaxSampler(softmax.Positive(DRAW), CLASSES / 0), rfgp.DataError, "row 0 is not"),
        (lambda: SoftmaxSampler(softmax.Positive(DRAW), [1.0]), rfgp.DataError, "Class vectors must be"),
        (lambda: sampler().estimates(QUERIES[:, :2]), rfgp.DataError, "must have the 3 columns"),
        (lambda: sampler().sample(QUERIES, 0, generator=random.generator(0)), rfgp.InvalidArgumentError, "positive"),
        (lambda: sampler().sample(QUERIES, generator=3), rfgp.InvalidArgumentError, "generator"),
        (lambda: SoftmaxSampler(3, CLASSES), rfgp.InvalidArgumentError, "must be a FeaturePair"),
        (lambda: sampler().report(QUERIES[:0]), rfgp.DataError, "at least one row"),
        (lambda: sampler().report(QUERIES, ground="words"), rfgp.InvalidArgumentError, "ground"),
    ],
)
def test_errors(act, error, message):
    with pytest.raises(error, match=message):
        act()


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


def test_too_many_classes_to_move(monkeypatch):
    monkeypatch.setattr("rfgp.sampling.MAX_GROUND", 6)
    with pytest.raises(rfgp.InvalidArgumentError, match="at most 6"):
        sampler().report(QUERIES, ground="vectors")


def sampler():
    return SoftmaxSampler(softmax.Positive(DRAW), CLASSES)
