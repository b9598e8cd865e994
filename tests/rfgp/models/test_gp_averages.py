"""Averages of models of terms: their predictions are mixtures of those of the models."""

import copy
import pickle

import numpy as np
import pytest
from average_cases import CASES, KERNELS, MORE, NEW, ROWS, SHARES, Y, average, model, models_of, table

import rfgp
from rfgp import kernels as k
from rfgp.inference.mixture import MixturePrediction
from rfgp.models.process import Fitted

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")


@pytest.fixture(params=CASES)
def models(request):
    return models_of(*CASES[request.param])


def moments(found):
    """Return the mean and variance of the mixture of distributions."""
    mean = sum(share * one.mean for share, one in zip(SHARES, found, strict=True))
    second = sum(share * (one.variance + one.mean**2) for share, one in zip(SHARES, found, strict=True))
    return mean, second - mean**2


def assert_mixed(gp, models, new):
    """An average predicts the mixture of its models, latent and observed."""
    prediction, each = gp.predict(new), [one.predict(new) for one in models]
    for found, parts in ((prediction, each), (prediction.observed(), [one.observed() for one in each])):
        mean, variance = moments(parts)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(found.variance, variance, rtol=1e-7)


def test_averages_predict_the_mixture_of_their_models(models):
    gp = average(models)
    assert isinstance(gp.predict(NEW), MixturePrediction)
    assert_mixed(gp, models, NEW)


def test_densities_are_those_of_the_mixture(models):
    y = np.linspace(3, 8, 9)
    found = average(models).predict(NEW).observed().log_prob(y)
    each = [np.exp(one.predict(NEW).observed().log_prob(y)) for one in models]
    np.testing.assert_allclose(np.exp(found), sum(s * one for s, one in zip(SHARES, each, strict=True)), rtol=1e-8)


def test_leave_one_out_has_the_moments_of_the_mixture():
    models = models_of(*CASES["mixed"])
    found, (mean, variance) = average(models).leave_one_out(), moments([one.leave_one_out() for one in models])
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-7)


def test_members_are_the_models_with_their_shares(models):
    gp = average(models)
    gp.predict(NEW)
    assert [share for share, _ in gp.members] == list(SHARES)
    for (_, member), one in zip(gp.members, models, strict=True):
        assert type(member) is rfgp.GP
        assert member.members == ()
        assert repr(member) == repr(one)
        np.testing.assert_allclose(member.predict(NEW).std, one.predict(NEW).std, rtol=1e-10)
    assert list(gp.terms) == list(models[0].terms) == list(gp.members[0][1].terms)
    assert {name: term.share for name, term in gp.terms.items()} == pytest.approx(
        {name: term.share for name, term in models[0].terms.items()}
    )
    assert gp.log_marginal_likelihood().item() == models[0].log_marginal_likelihood().item()


def test_plain_models_have_no_members_and_the_text_counts_others():
    models = models_of(*CASES["exact"])
    assert models[0].members == rfgp.GP(k.RBF()).members == ()
    assert repr(average(models)) == f"{repr(models[0])[:-1]}, averaged with 2 others)"
    assert "averaged with 1 other)" in repr(average(models[:2], (0.6, 0.4)))


@pytest.mark.parametrize("copied", [lambda gp: pickle.loads(pickle.dumps(gp)), copy.deepcopy])
def test_copies_predict_the_same(copied, models):
    gp = average(models)
    expected = gp.predict(NEW)
    np.testing.assert_allclose(copied(gp).predict(NEW).variance, expected.variance, rtol=1e-10)
    np.testing.assert_array_equal(copied(average(models)).predict(NEW).mean, expected.mean)


def test_new_rows_reach_all_models(models):
    gp = average(models)
    gp.predict(NEW)
    gp.update(MORE, np.array([4.0, 5.0]))
    for one in models:
        one.update(MORE, np.array([4.0, 5.0]))
    assert gp.num_observations == len(Y) + 2
    assert_mixed(gp, models, {**NEW, "store": np.array(list("adbadbadb"))})
    rows, y = table(25, seed=3)
    gp.condition(rows, y)
    for one in models:
        one.condition(rows, y)
    assert_mixed(gp, models, NEW)


def test_exact_averages_stay_averages():
    models = models_of(*CASES["mixed"])
    found = average(models).exact()
    assert [share for share, _ in found.members] == list(SHARES)
    assert_mixed(found, [one.exact() for one in models], NEW)
    again = found.exact()
    np.testing.assert_allclose(again.predict(NEW).variance, found.predict(NEW).variance, rtol=1e-10)
    assert repr(again) == repr(found)


def test_other_approximations_are_of_the_largest_alone():
    models = models_of(*CASES["exact"])
    found = average(models).with_approximation(rfgp.InducingPoints(10))
    assert found.members == ()
    expected = models[0].with_approximation(rfgp.InducingPoints(10))
    np.testing.assert_allclose(found.predict(NEW).mean, expected.predict(NEW).mean, rtol=1e-10)


def test_a_fit_is_of_one_model_again():
    gp = average(models_of(*CASES["exact"]))
    again = rfgp.GP.of(gp.spec, Fitted.of(gp.state))
    for one in (gp, again):
        one.fit(ROWS, Y, max_iterations=3)
        assert one.members == ()
        assert not isinstance(one.predict(NEW), MixturePrediction)


def test_hyperparameters_change_the_first_model():
    models = models_of(*CASES["exact"])
    gp = average(models)
    gp.hyperparameters.noise = models[0].hyperparameters.noise = 0.7
    assert_mixed(gp, models, NEW)


def test_averages_have_no_terms_and_no_functions():
    gp = average(models_of(*CASES["exact"]))
    for refused in (
        lambda: gp.predict(NEW).terms,
        lambda: gp.predict(NEW).of("rbf(t)"),
        lambda: gp.predict(NEW).without("rbf(t)"),
        lambda: gp.sample_functions(2, seed=0),
    ):
        with pytest.raises(rfgp.InvalidArgumentError, match="average"):
            refused()


def test_identities_differ_by_members_and_shares():
    models = models_of(*CASES["exact"])
    changed = models_of(*CASES["exact"])
    changed[1].hyperparameters.noise = 0.9
    all_of_them = [models[0], average(models), average(models, (0.5, 0.2, 0.3)), average(changed)]
    texts = [[str(entry) for entry in gp.state.spec.identity()] for gp in all_of_them]
    assert len(set(map(tuple, texts))) == 4


def others_of(kernel=KERNELS[1], **options):
    return [model(KERNELS[0]), model(kernel, **options)]


@pytest.mark.parametrize(
    ("make", "shares", "said"),
    [
        (lambda: others_of(k.RBF("t") + k.Group("store")), (0.6, 0.4), "same columns in the same order"),
        (lambda: others_of(k.Linear("p") + k.RBF("t") + k.Group("store")), (0.6, 0.4), "same columns"),
        (lambda: others_of(standardize=False), (0.6, 0.4), "same scaling"),
        (lambda: others_of(rows=table(20, 1)[0], y=table(20, 1)[1]), (0.6, 0.4), "same scaling"),
        (lambda: others_of(), (0.4, 0.6), "largest weight"),
        (lambda: others_of(), (0.6, 0.5), "sum to one"),
        (lambda: others_of(), (1.5, -0.5), "positive"),
        (lambda: others_of()[:1], (1.0,), "sum to one"),
        (lambda: [rfgp.GP(K, "bernoulli", seed=0).condition(ROWS, Y > 5) for K in KERNELS[:2]], (0.6, 0.4), "Gaussian"),
        (lambda: [model(K, y=np.column_stack([Y, Y])) for K in KERNELS[:2]], (0.6, 0.4), "one output"),
    ],
)
def test_models_that_cannot_be_averaged_are_refused(make, shares, said):
    with pytest.raises(rfgp.InvalidArgumentError, match=said):
        average(make(), shares)
