"""Public calls with arrays of odd shapes, types, forms and numbers: a named error, or finite numbers."""

from contextlib import suppress
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.features import softmax
from tests.fuzz.rules import assert_finite, bounded, is_error, options, outcome

pytestmark = pytest.mark.filterwarnings("ignore")
NO_ARRAYS = [None, "text", 3.5, True, [], [[]], {}, [1, "a"], [[1.0], [1.0, 2.0]], -1]
ODD = st.sampled_from([0, -1, 1.5, True, None, "3", "x", [2], float("nan"), 2**40, 3.25])
"""In the place of a number. A size as large as these is refused before it is allocated."""
TYPES = ["float64", "float32", "float16", "int64", "int8", "bool", "complex128", "object", "U3"]
NUMBERS = st.sampled_from([0.0, 1.0, 3.7, -2.5, 1e200, -1e200, 1e-310, np.nan, np.inf, -np.inf])
FORMS = [
    np.asfortranarray,
    np.ma.MaskedArray,
    lambda v: v.tolist(),
    lambda v: v[::-1].copy()[::-1] if v.ndim else v,
    lambda v: np.repeat(v, 2, axis=0)[::2] if v.ndim else v,
    lambda v: pd.DataFrame(v) if v.ndim == 2 else pd.Series(v) if v.ndim == 1 else v,
    lambda v: torch.as_tensor(np.array(v)) if v.dtype.kind in "fiubc" else v,
    lambda v: v.astype(v.dtype.newbyteorder()),
]


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Import before what takes seconds, such as torch's compiler."""


def normal(*shape, seed=0):
    return np.random.default_rng([9, seed]).standard_normal(shape)


@st.composite
def arrays(draw, *shape):
    """Return an array that mostly has a shape, type and form that will do."""
    values, kind = normal(*shape, seed=draw(st.integers(0, 9))), draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from(NO_ARRAYS))
    if kind == 1:
        return draw(hnp.arrays(float, shape, elements=NUMBERS))
    if kind == 2:
        return draw(hnp.arrays(float, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=NUMBERS))
    if kind == 3:
        return values.astype(draw(st.sampled_from(TYPES)))
    return draw(st.sampled_from(FORMS))(values) if kind < 6 else values


def mostly(strategy, odd=ODD):
    """Draw from a strategy, and now and then something odd."""
    return st.integers(0, 8).flatmap(lambda kind: strategy if kind else odd)


def checked(*calls):
    """Make calls. Each answer is finite numbers, or an error."""
    for call in calls:
        assert_finite(outcome(call))


def outcome_of_scikit(call):
    """Return the outcome of a call of an adapter, which may refuse as scikit-learn's own: by ValueError, TypeError."""
    try:
        return outcome(call)
    except (ValueError, TypeError) as error:
        return error


def search(**strategies):
    """Search for odd arguments with a few examples, or as a slow test with more."""

    def decorated(check):
        @pytest.mark.parametrize("examples", [12, pytest.param(40, marks=pytest.mark.slow)])
        def test(examples):
            @options(examples)
            @given(**strategies)
            def searched(**arguments):
                with bounded():
                    check(**arguments)

            searched()

        return test

    return decorated


# --- models ------------------------------------------------------------------------------------------

PARTS = {"X": arrays(6, 2), "new": arrays(4, 2), "noise": st.none() | arrays(6), "weight": st.none() | arrays(6)}


@search(
    **PARTS,
    y=arrays(6) | arrays(6, 2),
    kind=st.sampled_from(["fourier", "laplace", "exact"]),
    how=st.sampled_from(["fit", "condition", "update"]),
    m=mostly(st.integers(1, 20)),
    start=st.dictionaries(
        st.sampled_from(["lengthscale", "outputscale", "noise"]),
        mostly(st.sampled_from([0.5, 1e-9, 1e9, [1.0, 1.0]])),
        max_size=1,
    ),
    standardize=st.booleans(),
)
def test_models_of_tables(kind, how, X, y, new, noise, weight, m, start, standardize):
    common = {"standardize": standardize, **start}
    sizes = {"kind": kind, "num_frequencies": m, "coupling": "iid", "seed": 0}
    make = rfgp.ExactGP if kind == "exact" else lambda **given: rfgp.SparseSpectrumGP(**sizes, **given)
    gp = outcome(lambda: make(**common))
    more = {"noise": noise, "sample_weight": weight}
    rows = {"fit": lambda: gp.fit(X, y, max_iterations=2, **more), "condition": lambda: gp.condition(X, y, **more)}
    rows["update"] = lambda: gp.condition(X, y).update(X, y, **more)
    if is_error(gp) or is_error(outcome(rows[how])):
        return
    checked(gp.log_marginal_likelihood)
    p = outcome(lambda: gp.predict(new))
    if not is_error(p):
        checked(lambda: p.mean, lambda: p.variance)
        variance = outcome(lambda: p.variance)
        assert is_error(variance) or (np.asarray(variance) >= 0).all()


LABELS = st.integers(0, 13).map(lambda i: f"n{i}") | st.sampled_from(["nowhere", 3, None, 1.5, ["n1"], True])
RING = graphs.Graph.from_edges([(f"n{i}", f"n{(i + 1) % 14}") for i in range(14)])
SEEN = st.lists(st.integers(0, 13).map(lambda i: f"n{i}"), min_size=5, max_size=5)


@search(
    nodes=mostly(SEEN, st.lists(LABELS, max_size=6) | ODD),
    y=arrays(5),
    new=mostly(st.just(["n0", "n5"]), st.lists(LABELS, max_size=4) | ODD),
    kernel=mostly(st.sampled_from(["diffusion", "matern", "random-walk", "inverse-cosine"])),
    features=mostly(st.sampled_from(["auto", "walks", "chebyshev", "spectrum", "exact"])),
    num_walkers=mostly(st.integers(1, 8)),
    p_halt=mostly(st.floats(0.05, 0.9)),
    degree=mostly(st.sampled_from([None, 1, 3])),
    rank=mostly(st.sampled_from([None, 1, 14])),
)
def test_models_of_graphs(nodes, y, new, kernel, features, **sizes):
    gp = outcome(lambda: rfgp.GraphGP(RING, kernel, features, seed=0, **sizes))
    if not is_error(gp) and not is_error(outcome(lambda: gp.fit(nodes, y, max_iterations=2))):
        checked(lambda: gp.predict(new).mean, lambda: gp.predict(new).variance)


# --- features, couplings, attention ------------------------------------------------------------------


def pair(kind, omega):
    makers = {"positive": softmax.Positive, "trigonometric": softmax.Trigonometric}
    if kind == "hybrid":
        base, other = softmax.Trigonometric(omega), softmax.Positive(omega)
        return softmax.Hybrid(base, [(softmax.coefficients.Constant(0.5), other)])
    if kind == "exponential":
        size = omega.shape[-1] if len(omega.shape) else 1
        return softmax.Exponential(omega, torch.full((size,), 0.7, dtype=torch.float64))
    return makers[kind](omega)


def tensor(values):
    return (
        torch.as_tensor(np.array(values))
        if isinstance(values, np.ndarray) and values.dtype.kind in "fiub" and values.dtype.isnative
        else values
    )


@search(
    kind=st.sampled_from(["fourier", "laplace", "positive", "hybrid", "exponential", "trigonometric"]),
    omega=arrays(6, 2),
    query=arrays(3, 2) | arrays(2, 3, 2),
    key=arrays(4, 2) | arrays(2, 4, 2),
    value=arrays(4, 3) | arrays(2, 4, 3),
    count=mostly(st.integers(1, 5)),
    is_causal=st.booleans(),
    scale=mostly(st.sampled_from([None, 1.0, 0.1])),
    chunk_size=mostly(st.sampled_from([1, 2, 64])),
)
def test_features_attention_and_sampling(kind, omega, query, key, value, count, **more):
    omega, query, key, value = (tensor(part) for part in (omega, query, key, value))
    if kind in ("fourier", "laplace"):
        outcome(lambda: rfgp.features.by_name(kind)(omega)(query))
        return
    phi = outcome(lambda: pair(kind, omega)) if hasattr(omega, "shape") else None
    if phi is None or is_error(phi):
        return
    outcome(lambda: rfgp.attention.random_feature_attention(query, key, value, phi, **more))
    sampler = outcome(lambda: rfgp.sampling.SoftmaxSampler(phi, key))
    p = sampler if is_error(sampler) else outcome(lambda: sampler.probabilities(query))
    if not is_error(p):
        sums = np.asarray(p).sum(1)
        assert (np.isclose(sums, 1, atol=1e-3) | (sums == 0)).all()
        drawn = outcome(lambda: sampler.sample(query, count, generator=torch.Generator().manual_seed(0)))
        assert is_error(drawn) or not drawn.numel() or 0 <= int(drawn.min()) <= int(drawn.max()) < len(key)


@search(
    name=mostly(st.sampled_from([*(n for n in rfgp.couplings.names() if n != "energy"), "structured-antithetic"])),
    m=mostly(st.integers(1, 40)),
    d=mostly(st.integers(1, 9)),
    spectrum=mostly(st.sampled_from(rfgp.spectra.names())),
    generator=mostly(st.just(0), st.sampled_from([None, 3, "x"])),
)
def test_couplings(name, m, d, spectrum, generator):
    generator = torch.Generator().manual_seed(0) if generator == 0 else generator
    drawn = outcome(lambda: rfgp.couplings.by_name(name).sample(m, d, spectrum=spectrum, generator=generator))
    if not is_error(drawn):
        assert tuple(drawn.dense().shape) == (m, d)
        checked(drawn.dense, lambda: drawn.weights)
        projected = drawn.project(torch.eye(d, dtype=torch.float64))
        np.testing.assert_allclose(projected, drawn.dense().T, atol=1e-9 * float(drawn.dense().abs().max()))


# --- metrics -----------------------------------------------------------------------------------------


@lru_cache
def prediction():
    return rfgp.ExactGP().condition(normal(9, 2), normal(9)).predict(normal(4, 2))


METRICS = {
    "rmse": lambda y, other, levels: rfgp.metrics.rmse(y, other),
    "nlpd": lambda y, other, levels: rfgp.metrics.nlpd(y, prediction()),
    "standardized_residuals": lambda y, other, levels: rfgp.metrics.standardized_residuals(y, prediction()),
    "interval_coverage": lambda y, other, levels: rfgp.metrics.interval_coverage(other, prediction(), levels),
    "relative_frobenius_error": lambda y, other, levels: rfgp.metrics.relative_frobenius_error(y, other),
    "expected_posterior_kl": lambda y, other, levels: rfgp.metrics.expected_posterior_kl(tensor(y), tensor(y), 2, 0.1),
    "log_prob": lambda y, other, levels: prediction().log_prob(y),
}


@search(
    name=st.sampled_from(list(METRICS)),
    y=arrays(4) | arrays(4, 4),
    other=arrays(4),
    levels=mostly(st.just([0.5, 0.9])),
)
def test_metrics(name, **arguments):
    outcome(lambda: METRICS[name](**arguments))


# --- adapters ----------------------------------------------------------------------------------------


@search(X=arrays(6, 2), y=arrays(6), new=arrays(3, 2), m=mostly(st.integers(1, 6)), scale=mostly(st.just(1.0)))
def test_estimators(X, y, new, m, scale):
    features = rfgp.sklearn.RandomFeatures(m, coupling="iid", lengthscale=scale, random_state=0)
    models = [features, outcome(lambda: rfgp.sklearn.GPRegressor(k.RBF(), rfgp.RandomFeatures(m), random_state=0))]
    for model in (one for one in models if not is_error(one)):
        if not is_error(outcome_of_scikit(lambda model=model: model.fit(X, y))):
            call = model.predict if hasattr(model, "predict") else model.transform
            assert_finite(outcome_of_scikit(lambda call=call: call(new)))


NODES = st.lists(st.sampled_from([0, 5, 13, 99, -1, 0.5]), max_size=5)


@pytest.mark.slow
@options(40)
@given(nodes=NODES, X=arrays(6, 2), y=arrays(6, 1), new=arrays(3, 2), m=mostly(st.integers(1, 6)))
@example(nodes=[99], X=normal(1, 1), y=normal(1, 1), new=normal(0, 0), m=1)
@example(nodes=[99], X=normal(0, 1), y=normal(1, 1), new=normal(3, 1), m=1)
@example(nodes=[99], X=normal(1, 1), y=normal(0, 1), new=normal(3, 1), m=1)
@example(nodes=[99], X=np.ones((1, 1), int), y=normal(1, 1), new=normal(3, 1), m=1)
def test_models_of_gpytorch_and_botorch(nodes, X, y, new, m):
    """BoTorch refuses by its own errors what its own models refuse."""
    import botorch
    import gpytorch

    with bounded():
        features = graphs.chebyshev_features(RING, degree=3)
        module = rfgp.gpytorch.GraphFeatureKernel(features, graphs.kernels.Diffusion(1.5))
        outcome(lambda: module(torch.tensor(nodes, dtype=torch.float64)[:, None]).to_dense())
        X, y, new = (tensor(part) for part in (X, y, new))
        if all(isinstance(part, torch.Tensor) for part in (X, y, new)) and new.ndim > 1:
            foreign = (botorch.exceptions.BotorchError, gpytorch.utils.errors.NanError)
            with suppress(*foreign):
                outcome(
                    lambda: rfgp.botorch.RandomFeatureGP(X, y, num_frequencies=m, coupling="iid").posterior(new).mean
                )


# --- what was found ----------------------------------------------------------------------------------


def conditioned(X, y, new=None, max_iterations=None, **more):
    given = {name: more.pop(name) for name in ("noise", "sample_weight") if name in more}
    gp = rfgp.SparseSpectrumGP(num_frequencies=1, coupling="iid", seed=0, standardize=False, **more)
    gp = gp.condition(X, y, **given) if max_iterations is None else gp.fit(X, y, max_iterations=max_iterations, **given)
    assert_finite(outcome(gp.log_marginal_likelihood))
    return gp.predict(normal(4, 1) if new is None else new).mean


def attend(scale=None, value=(1, 3)):
    phi = softmax.Positive(torch.tensor(normal(6, 1)))
    q = torch.tensor(normal(1, 1))
    return rfgp.attention.random_feature_attention(q, q, torch.tensor(normal(*value)), phi, scale=scale, chunk_size=1)


def sampled(kind="positive", omega=None, queries=None, count=1):
    omega, queries = (
        torch.tensor(normal(*shape)) if v is None else v for v, shape in ((omega, (6, 1)), (queries, (3, 1)))
    )
    sampler = rfgp.sampling.SoftmaxSampler(pair(kind, omega), torch.tensor(normal(5, 1)))
    assert_finite(outcome(lambda: sampler.probabilities(queries)))
    return sampler.sample(queries, count, generator=torch.Generator().manual_seed(0)).double()


COMPLEX, FRAME = torch.ones(6, 1, dtype=torch.complex128), pd.DataFrame(normal(6, 1))
FOUND = {
    "tiny targets": lambda: conditioned(normal(2, 1), 1e-310 * normal(2), noise=np.abs(normal(2)), max_iterations=2),
    "huge new rows": lambda: conditioned(normal(2, 1), normal(2), 1e200 * normal(4, 1), max_iterations=2),
    "huge rows": lambda: conditioned(1e200 * normal(2, 1), normal(2), max_iterations=2),
    "scales of no column": lambda: conditioned(normal(2, 3), normal(2, 2), outputscale=[1.0] * 3, max_iterations=2),
    "tiny weights": lambda: conditioned(normal(2, 1), normal(2), sample_weight=1e-310 * np.abs(normal(2))),
    "huge scale": lambda: attend(scale=2**40),
    "scalar keys": lambda: attend(value=()),
    "complex inputs": lambda: softmax.Positive(torch.tensor(normal(1, 1))).left(np.array(1j)),
    "complex inputs of a hybrid": lambda: pair("hybrid", torch.tensor(normal(1, 1))).left(np.array(1j)),
    "no frequencies": lambda: rfgp.features.by_name("fourier")(None),
    "complex features": lambda: rfgp.features.by_name("fourier")(COMPLEX),
    "ragged targets": lambda: rfgp.GraphGP(RING).fit([], [[1.0], [1.0, 2.0]]),
    "kernel in a list": lambda: rfgp.GraphGP(RING, [2], 0),
    "scalar targets": lambda: rfgp.GraphGP(RING, features="spectrum", rank=1).fit([], np.array(1.0)),
    "reversed targets": lambda: rfgp.metrics.rmse(normal(4)[::-1], normal(4)),
    "boolean covariance": lambda: rfgp.metrics.expected_posterior_kl(*2 * [torch.ones(4, 4, dtype=bool)], 0, 0.1),
    "huge count": lambda: sampled(count=2**40),
    "huge frequencies": lambda: sampled("hybrid", 1e200 * torch.tensor(normal(6, 1)), 0 * torch.tensor(normal(3, 1))),
    "frame of a sampler": lambda: sampled(omega=FRAME),
}
"""The smallest examples of what searches have found, and of what was repaired."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_repaired(name):
    with bounded():
        found = outcome(FOUND[name])
        if not isinstance(found, rfgp.GP):
            assert_finite(found)
