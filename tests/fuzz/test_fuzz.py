"""The corpus of what fuzzing found, replayed, and a fixed number of new examples of each target.

An entry of the corpus is an example that did what may not be. Those that still do are marked `known` in the notes
beside them: each is a bug that waits, and the test fails as soon as it is none any more, so that the mark goes.
"""

import importlib
import time
from unittest import mock

import numpy as np
import pytest

import graphs
import rfgp
from tests.fuzz import twin
from tests.fuzz.mutations import mutated
from tests.fuzz.registry import TARGETS
from tests.fuzz.rules import FoundError, bounded, outcome
from tests.fuzz.targets import CORPUS, Target, entries, load

pytestmark = pytest.mark.filterwarnings("ignore")
CASES = entries()
QUICK, MORE = 4, 12
HEAVY = ("adapters", "dask", "checkpoint")
"""Their imports or their fits take seconds."""


@pytest.fixture(scope="session", autouse=True)
def compiled():
    """What is compiled once, in a clean checkout, or imported takes longer than an example may."""
    importlib.import_module("rfgp.attention")  # and torch's compiler
    X = np.random.default_rng(0).standard_normal((12, 2))
    for condition_on in ("responses", "latent"):
        near = rfgp.Vecchia(3, condition_on=condition_on)
        for approximation in (near, rfgp.InducingPoints(3, residual=near)):
            gp = rfgp.GP(rfgp.kernels.Matern(nu=1.5), approximation=approximation, seed=0)
            gp.fit(X, X[:, 0], max_iterations=1).predict(X + 1).variance.sum()
    grid = graphs.Graph.from_grid((4, 4))
    gp = rfgp.GraphGP(grid, features="walks", num_walkers=4, seed=0)
    nodes = grid.labels_at(np.arange(16))
    gp.fit(nodes[:12], X[:, 0], max_iterations=1).predict(nodes).variance.sum()


@pytest.mark.parametrize(("target", "name", "what", "known"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_the_corpus(target, name, what, known):
    if not known:
        TARGETS[target].run(load(target, name))
        return
    try:
        TARGETS[target].run(load(target, name))
    except FoundError:
        return
    pytest.fail(f"{what}: no longer so. Take the mark `known` out of corpus/{target}/notes.json.")


def test_every_file_of_the_corpus_is_noted():
    files = {(path.parent.name, path.name) for path in CORPUS.glob("*/*") if path.name != "notes.json"}
    assert files == {(target, name) for target, name, _, _ in CASES}
    assert {target for target, _ in files} <= set(TARGETS)
    assert all(path.stat().st_size < 50_000 for path in CORPUS.glob("*/*"))


def known_of(target):
    return {what for name, _, what, known in CASES if name == target and known}


def look(name, examples):
    """Search a target a little; what is known is passed by."""
    target = TARGETS[name]
    found = target.search(max(2, round(examples * target.share)), passing=known_of(name))
    assert found is None, f"{found[1]}: {str(found[0])[:2000]}"


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in HEAVY])
def test_a_few_examples(name):
    look(name, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_more_examples(name):
    look(name, MORE)


# --- planted ---------------------------------------------------------------------------------------------


def refuses_sevens(content):
    """A reader with an error: a seven among its bytes is a KeyError."""
    if b"7" in outcome(lambda: content):
        raise KeyError("7")


def test_planted_a_foreign_error_is_found_and_made_small():
    target = Target(
        "planted", lambda content: outcome(lambda: refuses_sevens(content)), lambda: mutated([b"a,b\n1,7\n"])
    )
    example, what = target.search(200)
    assert b"7" in example
    assert what == "KeyError: _ [no line]"
    assert target.search(50, passing={what}) is None


def test_planted_too_long_and_too_large():
    with pytest.raises(FoundError, match=r"more than 0\.2 s"), bounded(seconds=0.2):
        time.sleep(5)
    with pytest.raises(FoundError, match="it used"), bounded(size=2**26):
        np.ones(2**24).sum()  # above what malloc keeps of its own
    with pytest.raises(FoundError, match="it wanted"), bounded(size=2**24):
        np.ones(2**30)


def test_planted_a_foreign_type_error():
    def raised():
        raise TypeError("unsupported operand")

    with pytest.raises(FoundError, match="unsupported operand"):
        outcome(raised)
    assert isinstance(outcome(lambda: rfgp.RandomFeatures(nothing=1)), TypeError)
    assert isinstance(outcome(lambda: rfgp.ExactGP().predict(np.ones((2, 2)))), rfgp.NotFittedError)


@pytest.mark.parametrize("name", ["life-table", "life-graph"])
def test_planted_a_twin_of_another_posterior_is_found(name):
    """A twin that forgets a thousandth of the noise is told from the model."""
    right = twin.posterior

    def wrong(K, cross, prior, y, noise, mean):
        return right(K, cross, prior, y, 1.001 * noise, mean)

    with mock.patch.object(twin, "posterior", wrong):
        found = TARGETS[name].search(40, shrink=False)
    assert found is not None
    assert "after" in found[1] or "Not equal" in found[1]
