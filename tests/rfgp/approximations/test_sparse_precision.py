"""Fields by their sparse precision, alone and in sums and products, against exact covariance matrices."""

import numpy as np
import pytest
from field_cases import CASES, NEW, ROWS, Y, kernels
from twins import check_model

import graphs
import rfgp
from rfgp import kernels as k

ROADS = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1.0, 0.0)], [(1.0, 0.0), (1.0, 1.0)]], metric="euclidean")


def models(case):
    names = [term.name for term in kernels()[case].terms()]
    sparse = {"field": rfgp.SparsePrecision()} | ({"trend": rfgp.Exact()} if "trend" in names else {})
    gp = rfgp.GP(kernels()[case], approximation=sparse, start={"noise": 0.1}, seed=0).condition(ROWS, Y)
    return gp, gp.exact()


@pytest.mark.parametrize("case", CASES)
def test_fields_agree_with_exact_covariances(case):
    gp, exact = models(case)
    assert any(isinstance(one, rfgp.SparsePrecision) for one in gp.spec.approximations.values())
    assert all(isinstance(one, rfgp.Exact) for one in exact.spec.approximations.values())
    digits = {"roads": 1e-3, "rough and smooth roads": 1e-5}.get(case, 1e-6)  # a tail of harmonics; alpha of 2
    check_model(gp, exact, {**NEW, "sensor": np.array(list("abzzyabc"))}, digits, 50 * digits)


@pytest.mark.parametrize(
    "case",
    ["roads", "rough and smooth roads", "a field of each sensor", "a coefficient on roads", "slopes of each sensor"],
)
def test_marginal_predictions_on_roads_refine_no_field(case, monkeypatch):
    gp, _ = models(case)
    digits = 1e-6 if case == "rough and smooth roads" else 1e-9  # refined by other points, alpha of 2 changes by 1e-7
    new = {key: np.concatenate([value, ROWS[key][:3]]) for key, value in NEW.items()}
    joint = gp.predict(new)
    pairs = [(one.mean, one.covariance.diagonal()) for one in (joint, *joint.terms.values())]

    def refuse(*arguments):
        raise AssertionError("the field was refined")

    monkeypatch.setattr(graphs.RoadField, "refine", refuse)
    single = gp.predict(new)
    for one, (mean, variance) in zip((single, *single.terms.values()), pairs, strict=True):
        np.testing.assert_allclose(one.mean, mean, atol=digits)
        np.testing.assert_allclose(one.variance, variance, rtol=0, atol=digits)
    with pytest.raises(AssertionError, match="refined"):
        gp.predict({key: value[:2] for key, value in new.items()}).sample(1)


@pytest.mark.parametrize("case", ["a field of each sensor", "mesh", "nodes"])
def test_updates_are_conditions_on_all_rows(case):
    gp, _ = models(case)
    more = {**NEW, "sensor": np.array(list("abzzyabc"))}
    both = {key: np.concatenate([ROWS[key], more[key]]) for key in ROWS}
    y = np.concatenate([Y, np.arange(8.0)])
    new = gp.update(more, y[-8:]).predict(more)
    scaled = gp.condition(both, y).predict(more)
    np.testing.assert_allclose(new.mean, scaled.mean, atol=1e-7)
    np.testing.assert_allclose(new.std, scaled.std, atol=1e-7)


def test_groups_of_many_levels_use_a_sparse_precision():
    rng = np.random.default_rng(0)
    rows = {"site": rng.integers(0, 700, 3000), "p": rng.normal(size=3000)}
    gp = rfgp.GP(k.Group("site", name="site") + k.Linear("p"), seed=0).condition(rows, rng.normal(size=3000))
    assert isinstance(gp.terms["site"].approximation, rfgp.SparsePrecision)
    np.testing.assert_allclose(
        gp.predict({"site": [3, 9999], "p": [0.0, 0.0]}).terms["site"].std[1],
        gp.hyperparameters["site.outputscale"].item() ** 0.5,
    )


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (k.RBF("hour"), "no factor has a sparse precision"),
        (k.Group("sensor") * k.RBF("hour"), "infinitely many functions"),
        (k.Group("sensor") * k.Linear(("hour", "pressure")), "has the hyperparameter .*variance"),
        (k.Group("sensor") * k.Categorical("road"), "has the hyperparameter .*correlation"),
    ],
)
def test_terms_that_cannot_be_served_are_named(kernel, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        rfgp.GP(kernel, approximation=rfgp.SparsePrecision()).fit(ROWS, Y)


def test_fits_recover_a_field_and_a_slope():
    from trimesh.creation import icosphere

    ball, rng = icosphere(3), np.random.default_rng(4)
    points = ball.vertices[rng.integers(0, len(ball.vertices), 400)]
    rows = dict(zip("xyz", points.T, strict=True)) | {"pressure": rng.normal(size=400)}
    y = np.sin(3 * points[:, 0]) + 0.5 * rows["pressure"] + 0.1 * rng.normal(size=400)
    gp = rfgp.GP(k.Mesh(ball, name="field") + k.Linear("pressure", name="slope"), seed=0).fit(rows, y)
    slope = gp.predict({**rows, "pressure": rows["pressure"]}).terms["slope"]
    assert np.corrcoef(slope.mean, rows["pressure"])[0, 1] > 0.9999
    ratio = slope.centered().mean[0] / (rows["pressure"][0] - rows["pressure"].mean())
    assert ratio == pytest.approx(0.5, abs=0.02)
    assert gp.hyperparameters.noise.item() == pytest.approx(0.01, rel=0.3)


def days(kernel):
    """Return the plan of a model of a field on two roads, with five days."""
    rng = np.random.default_rng(0)
    X = {"road": rng.integers(0, 2, 60), "fraction": rng.uniform(0, 1, 60), "day": rng.integers(0, 5, 60)}
    gp = rfgp.GP(kernel(ROADS), seed=0).condition(X, rng.standard_normal(60))
    return {name: type(one).__name__ for name, one in gp.spec.approximations.items()}


def test_a_shared_group_times_a_field_is_sparse():
    def kernel(roads):
        group = k.Group("day", name="day")
        return group + k.Roads(roads) * group

    assert days(kernel) == {"day": "Exact", "roads:day": "SparsePrecision"}


def test_a_chain_with_a_field_is_exact():
    planned = days(lambda roads: k.Roads(roads) + k.Matern("day", nu=0.5, name="day"))
    assert planned == {"roads": "SparsePrecision", "day": "SparsePrecision"}


def test_hyperparameters_are_iterated_by_path():
    X = np.linspace(0, 1, 9)[:, None]
    gp = rfgp.GP(k.RBF(name="f"), seed=0).condition(X, np.sin(X[:, 0]))
    assert list(gp.hyperparameters) == ["f.lengthscale", "f.outputscale", "noise", "mean"]
