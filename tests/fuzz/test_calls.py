"""Public calls with arrays of odd shapes, types, forms and numbers: a named error, or finite numbers."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphs
import rfgp
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


# --- models ------------------------------------------------------------------------------------------

NOISE = st.none() | arrays(6)
START = st.dictionaries(
    st.sampled_from(["lengthscale", "outputscale", "noise"]), mostly(st.sampled_from([0.5, 1e-9, 1e9])), max_size=1
)


@pytest.mark.parametrize("kind", ["fourier", "laplace", "exact"])
@pytest.mark.parametrize("examples", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_models_of_tables(kind, examples):
    make = rfgp.ExactGP if kind == "exact" else partial(rfgp.SparseSpectrumGP, kind=kind, coupling="iid", seed=0)

    @options(examples)
    @given(
        X=arrays(6, 2),
        y=arrays(6) | arrays(6, 2),
        new=arrays(4, 2),
        given_rows=st.fixed_dictionaries({"noise": NOISE, "sample_weight": NOISE}),
        m=mostly(st.integers(1, 20)),
        start=START,
        standardize=st.booleans(),
    )
    def check(X, y, new, given_rows, m, start, standardize):
        size = {} if kind == "exact" else {"num_frequencies": m}
        with bounded():
            gp = outcome(lambda: make(standardize=standardize, **size, **start))
            if is_error(gp) or is_error(outcome(lambda: gp.fit(X, y, max_iterations=2, **given_rows))):
                return
            assert_finite(outcome(gp.log_marginal_likelihood))
            p = outcome(lambda: gp.update(X, y, **given_rows).predict(new))
            if not is_error(p):
                assert_finite(outcome(lambda: p.mean))
                variance = outcome(lambda: p.variance)
                assert is_error(variance) or (np.asarray(variance) >= 0).all()

    check()


# --- what was found ----------------------------------------------------------------------------------


def hybrid(omega):
    base, other = softmax.Trigonometric(omega), softmax.Positive(omega)
    return softmax.Hybrid(base, [(softmax.coefficients.Constant(0.5), other)])


def conditioned(X, y, new=None, max_iterations=None, noise=None, sample_weight=None, **more):
    gp = rfgp.SparseSpectrumGP(num_frequencies=1, coupling="iid", seed=0, standardize=False, **more)
    given = {"noise": noise, "sample_weight": sample_weight}
    gp = gp.condition(X, y, **given) if max_iterations is None else gp.fit(X, y, max_iterations=max_iterations, **given)
    assert_finite(outcome(gp.log_marginal_likelihood))
    return gp.predict(normal(4, 1) if new is None else new).mean


def attend(scale=None, value=(1, 3)):
    phi, q = softmax.Positive(ONES(6, 1)), ONES(1, 1)
    return rfgp.attention.random_feature_attention(q, q, ONES(value), phi, scale=scale, chunk_size=1)


def sampled(phi, queries, count=1):
    sampler = rfgp.sampling.SoftmaxSampler(phi, torch.tensor(normal(5, 1)))
    assert_finite(outcome(lambda: sampler.probabilities(queries)))
    return sampler.sample(queries, count, generator=torch.Generator().manual_seed(0)).double()


ONES = partial(torch.ones, dtype=torch.float64)
RING = graphs.Graph.from_edges([(f"n{i}", f"n{(i + 1) % 14}") for i in range(14)])
COMPLEX, FRAME = torch.ones(6, 1, dtype=torch.complex128), pd.DataFrame(normal(6, 1))
FOUND = {
    "tiny targets": lambda: conditioned(normal(2, 1), 1e-310 * normal(2), noise=np.abs(normal(2)), max_iterations=2),
    "huge new rows": lambda: conditioned(normal(2, 1), normal(2), 1e200 * normal(4, 1), max_iterations=2),
    "huge rows": lambda: conditioned(1e200 * normal(2, 1), normal(2), max_iterations=2),
    "scales of no column": lambda: conditioned(normal(2, 3), normal(2, 2), outputscale=[1.0] * 3, max_iterations=2),
    "tiny weights": lambda: conditioned(normal(2, 1), normal(2), sample_weight=1e-310 * np.abs(normal(2))),
    "huge scale": lambda: attend(scale=2**40),
    "scalar keys": lambda: attend(value=()),
    "complex inputs": lambda: softmax.Positive(ONES(1, 1)).left(np.array(1j)),
    "complex inputs of a hybrid": lambda: hybrid(ONES(1, 1)).left(np.array(1j)),
    "no frequencies": lambda: rfgp.features.by_name("fourier")(None),
    "complex features": lambda: rfgp.features.by_name("fourier")(COMPLEX),
    "ragged targets": lambda: rfgp.GraphGP(RING).fit([], [[1.0], [1.0, 2.0]]),
    "boolean covariance": lambda: rfgp.metrics.expected_posterior_kl(*2 * [torch.ones(4, 4, dtype=bool)], 0, 0.1),
    "huge count": lambda: sampled(softmax.Positive(ONES(6, 1)), ONES(3, 1), 2**40),
    "huge frequencies": lambda: sampled(hybrid(1e200 * ONES(6, 1)), 0 * ONES(3, 1)),
    "frame of a sampler": lambda: softmax.Positive(FRAME),
}
"""The smallest examples of what searches have found, and of what was repaired."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_repaired(name):
    with bounded():
        found = outcome(FOUND[name])
        if not isinstance(found, rfgp.GP):
            assert_finite(found)
