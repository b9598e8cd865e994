"""A regression is a value: what is done with a model, or to its hyperparameters, does not reach it."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch

import graphs
import rfgp
from rfgp.regression import begin, conditioned, extended
from rfgp.rows import Chunk
from rfgp.tables import Batches


def drawn(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def table(frequencies=8):
    return rfgp.SparseSpectrumGP(num_frequencies=frequencies, coupling="orthogonal", seed=0)


MODELS = {
    "features": (lambda: table(), drawn()),
    "more features than rows": (lambda: table(64), drawn()),
    "exact": (lambda: rfgp.ExactGP(), drawn()),
    "nodes": (
        lambda: rfgp.GraphGP(graphs.Graph.from_grid((6, 6)), features="walks", num_walkers=8, seed=0),
        (np.arange(0, 36, 2), np.sin(np.arange(0, 36, 2) / 5)),
    ),
}


@pytest.fixture(params=MODELS)
def given(request):
    make, (X, y) = MODELS[request.param]
    return make(), X, y


def test_nothing_in_it_can_be_set(given):
    model, X, y = given
    with pytest.raises(dataclasses.FrozenInstanceError):
        begin(model.spec, Chunk(X, y)).rows = None


def test_in_place_changes_of_hyperparameters_do_not_reach_it(given):
    model, X, y = given
    before = model.condition(X, y).state
    mean, noise = before.predict(X).mean, before.hyperparameters.raw["noise"].item()
    model.hyperparameters.raw["noise"].data.add_(2.0)
    after = model.state
    assert after is not before
    assert before.hyperparameters.raw["noise"].item() == noise
    assert after.hyperparameters.raw["noise"].item() == noise + 2.0
    np.testing.assert_array_equal(before.predict(X).mean, mean)
    assert np.abs(after.predict(X).mean - mean).max() > 1e-3
    assert model.state is after
    model.hyperparameters.raw["noise"].data.add_(1.0)
    assert after.hyperparameters.raw["noise"].item() == noise + 2.0


def test_stored_tensors_have_no_gradient(given):
    model, X, y = given
    model.condition(X, y)
    model.log_marginal_likelihood().backward()
    assert torch.is_grad_enabled()
    assert not any(tensor.requires_grad for tensor in model.state.posterior.tensors().values())
    assert not any(raw.requires_grad for raw in model.state.hyperparameters.raw.values())


def test_copies_are_equal_and_pickles_drop_computed_values(given):
    model, X, y = given
    state = model.condition(X, y).state
    mean = state.predict(X).mean
    assert copy.deepcopy(state) is state
    again = pickle.loads(pickle.dumps(state))
    assert state.present_posterior is not None
    assert again.present_posterior is None
    np.testing.assert_array_equal(again.predict(X).mean, mean)


def test_pickles_keep_a_posterior_that_was_given():
    X, y = drawn()
    state = begin(table().spec, Chunk(X, y))
    alone = state.replace(rows=None, given=state.posterior)
    again = pickle.loads(pickle.dumps(alone))
    np.testing.assert_array_equal(again.predict(X).mean, state.predict(X).mean)
    with pytest.raises(rfgp.NotFittedError, match="saved without data"):
        _ = again.replace(hyperparameters=again.hyperparameters.shifted(noise=1.0)).posterior


def test_error_without_rows_names_the_method():
    X, y = drawn()
    state = begin(rfgp.ExactGP().spec, Chunk(X, y))
    alone = state.replace(rows=None, given=state.posterior)
    for ask in (alone.log_marginal_likelihood, alone.leave_one_out, lambda: extended(alone, Chunk(X, y))):
        with pytest.raises(rfgp.NotFittedError, match="saved without data"):
            ask()
    np.testing.assert_array_equal(conditioned(alone, Chunk(X, y)).predict(X).mean, state.predict(X).mean)


def test_the_only_pass_over_a_stream_counts_its_rows():
    """A stream that is absorbed is read once, and what was counted then is as in memory."""
    X, y = drawn(90)
    weight, read = np.random.default_rng(1).integers(1, 4, 30).astype(float), []

    def blocks():
        read.append(1)
        return iter([Chunk(X[60:], y[60:], None, weight)])

    start = begin(table().spec, Chunk(X[:60], y[:60]))
    assert start.posterior is start.present_posterior
    streamed = extended(start, Chunk(Batches(blocks)))
    whole = extended(start, Chunk(X[60:], y[60:], None, weight))
    assert len(read) == 3  # looked at for its columns and its types, then read
    assert (streamed.num_observations, streamed.rows.count) == (90, whole.rows.count)
    np.testing.assert_allclose(streamed.predict(X).mean, whole.predict(X).mean, rtol=1e-12)
    torch.testing.assert_close(streamed.log_marginal_likelihood(), whole.log_marginal_likelihood())
