"""Approximations of terms against dense algebra of what they compute, and against the exact kernel in their limits."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch
from dense_terms import DenseTerms
from gp_cases import KERNELS, NAMES, NEW, ROWS, SPACE, TREND, Y, covariance_of, model, twin
from twins import check_differences, check_terms

import graphs
import rfgp
from rfgp import kernels as k

RING = graphs.Graph.from_edges([(i, (i + 1) % 6) for i in range(6)])
NEAR, FURTHER = (rfgp.InducingPoints(10, residual=rfgp.Vecchia(count, condition_on="responses")) for count in (5, 6))
STATIONARY = ("trend", "space", "own", "varying", "both", "changing", "season")


def twin_through(case, gp, noise=0.07):
    """Return the dense twin of a model whose terms have the covariance of its features, if they have some."""
    prior, exact = gp.state.prior(), covariance_of(case)
    x, _ = gp.state.points({key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS})
    places = {"rows": slice(0, 60), "new": slice(60, None)}
    scale = float(gp.state.scaling.targets.scale) ** 2

    def covariance(name, first, second):
        blocks = prior.of([name]).weights
        if not blocks:
            return exact(name, first, second)
        with torch.no_grad():
            phi = torch.cat([block.scaled(x).double() for block in blocks], 1)
        return scale * (phi @ phi.mT).numpy()[places[first], places[second]]

    return DenseTerms(covariance, NAMES[case], Y, 4.5, noise)


def agrees(gp, exact, atol=1e-8, *, parts="crosses"):
    """Compare a model with a twin: means, then variances and covariances too."""
    expected = exact.log_marginal_likelihood()
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, abs=50 * atol, rel=1e-9)
    check_terms(gp.predict(NEW), exact, 4.5, atol, parts)


APPROXIMATIONS = {
    "fourier": rfgp.RandomFeatures(24),
    "more features than rows": rfgp.RandomFeatures(200, coupling="orthogonal"),
    "laplace": rfgp.RandomFeatures(24, kind="laplace", coupling="iid"),
    "sor": rfgp.InducingPoints(15, method="sor"),
    "pivots": rfgp.InducingPoints(15, init="pivoted-cholesky", method="sor"),
}


def supports(case, approximation):
    """Whether an approximation serves a term of a case: random features need a stationary factor."""
    names = {name for name in NAMES[case] if name in STATIONARY}
    if getattr(approximation, "kind", "") == "laplace":
        names -= {"space"}
    return bool(names) or isinstance(approximation, rfgp.InducingPoints)


@pytest.mark.thinned(4, slow=2)
@pytest.mark.parametrize("approximation", APPROXIMATIONS.values(), ids=APPROXIMATIONS)
@pytest.mark.parametrize("case", KERNELS)
def test_terms_through_features_match_dense_algebra(case, approximation):
    if not supports(case, approximation):
        with pytest.raises(rfgp.InvalidArgumentError, match=r"cannot be used for the term .* because"):
            model(case, approximation).condition(ROWS, Y)
        return
    gp = model(case, approximation).condition(ROWS, Y)
    assert any(type(one) is type(approximation) for one in gp.spec.approximations.values())
    agrees(gp, twin_through(case, gp))


@pytest.mark.thinned(4, slow=2)
@pytest.mark.parametrize("method", ["sor", "fitc", "vfe"])
@pytest.mark.parametrize("case", KERNELS)
def test_inducing_points_at_all_rows_are_exact(case, method):
    gp = model(case, rfgp.InducingPoints(100, method=method)).condition(ROWS, Y)
    agrees(gp, twin(case), atol=3e-5, parts={"sor": "mean", "fitc": "variance", "vfe": "crosses"}[method])


@pytest.mark.parametrize("case", ["two smooth", "every kind", "coregionalization", "a coefficient that varies"])
@pytest.mark.parametrize("method", ["fitc", "vfe"])
def test_residuals_of_inducing_points_are_noise_or_a_bound(case, method):
    gp = model(case, rfgp.InducingPoints(10, method=method)).condition(ROWS, Y)
    through = twin_through(case, gp)
    missing = sum(
        np.diag(covariance_of(case)(n, "rows", "rows") - through.covariance(n, "rows", "rows")) for n in NAMES[case]
    )
    assert missing.min() > -1e-6
    if method == "fitc":
        expected = twin_through(case, gp, noise=0.07 + missing).log_marginal_likelihood()
    else:
        expected = through.log_marginal_likelihood() - 0.5 * missing.sum() / 0.07
        assert expected < twin(case).log_marginal_likelihood()
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, rel=1e-6)
    check_differences(gp, 1e-4, 1e-3)


@pytest.mark.parametrize("condition_on", ["responses", "latent", "auto"])
@pytest.mark.parametrize("case", ["one", "two smooth", "linear", "season and groups", "categories"])
def test_all_neighbors_are_exact(case, condition_on):
    name, others = NAMES[case][0], {"two smooth": {"space": rfgp.Exact()}}.get(case, {})
    near = rfgp.Vecchia(100, condition_on=condition_on)
    gp, exact = model(case, {name: near, **others}).condition(ROWS, Y), twin(case)
    is_rough = condition_on != "responses" or "season" in NAMES[case]  # a jitter of 1e-11, or a tail of harmonics
    within, atol = (1e-4, 1e-3) if is_rough else (1e-7, 1e-6)
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood(), rel=within)
    check_terms(gp.predict(NEW), exact, 4.5, atol, "variance")


def test_products_of_gaussian_kernels_have_neighbors():
    kernel = (k.RBF("t", lengthscale=1.7) * k.RBF(("t", "p"), lengthscale=(3.0, 2.0))).named("both")
    start = {"both.outputscale": 1.3, "noise": 0.1}
    exact = rfgp.GP(kernel, start=start, seed=0).condition(ROWS, Y)
    near = exact.with_approximation(rfgp.Vecchia(100))
    np.testing.assert_allclose(near.predict(NEW).mean, exact.predict(NEW).mean, atol=1e-8)
    assert near.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood().item(), rel=1e-8)


@pytest.mark.parametrize("m", [16, 256])
def test_errors_of_independent_frequencies_have_their_variance(m):
    """The variance of an entry is ((1 + k(2 r)) / 2 - k(r)^2) / m; the mean of 40 draws is within 30 %."""
    r = (ROWS["t"][:, None] - ROWS["t"]) / 1.7
    expected = np.mean((1 + np.exp(-2 * r**2)) / 2 - np.exp(-(r**2))) / m
    exact, found = covariance_of("one")("trend", "rows", "rows"), []
    for seed in range(40):
        features = rfgp.RandomFeatures(m, coupling="iid", seed=seed)
        through = twin_through("one", model("one", features).condition(ROWS, Y))
        found.append(np.mean((through.covariance("trend", "rows", "rows") - exact) ** 2) / exact[0, 0] ** 2)
    assert np.mean(found) == pytest.approx(expected, rel=0.3)


def test_seeds_decide_the_draws():
    kernel = KERNELS["two smooth"]
    first = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(8), seed=1).condition(ROWS, Y).predict(NEW).mean
    again = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(8), seed=1).condition(ROWS, Y).predict(NEW).mean
    other = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(8), seed=2).condition(ROWS, Y).predict(NEW).mean
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-4
    own = [
        rfgp.GP(kernel, approximation=rfgp.RandomFeatures(8, seed=5), seed=s).condition(ROWS, Y).predict(NEW).mean
        for s in (1, 2)
    ]
    np.testing.assert_array_equal(*own)


def test_one_value_serves_its_terms_and_others_are_planned():
    gp = model("every kind", rfgp.RandomFeatures(8)).condition(ROWS, Y)
    chosen = {name: type(one).__name__ for name, one in gp.spec.approximations.items()}
    assert chosen == {
        "trend": "RandomFeatures",
        "space": "RandomFeatures",
        "season": "RandomFeatures",
        "store": "Exact",
        "slope": "Exact",
        "slopes": "Exact",
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rfgp.RandomFeatures(0), "num_frequencies"),
        (lambda: rfgp.RandomFeatures(kind="wavelet"), "kind must be one of"),
        (lambda: rfgp.RandomFeatures(coupling="none"), "none"),
        (lambda: rfgp.RandomFeatures(kind="laplace", learn_frequencies=True), "learn_frequencies must be False"),
        (lambda: rfgp.InducingPoints(0), "num_points"),
        (lambda: rfgp.InducingPoints(init="first"), "init must be one of"),
        (lambda: rfgp.InducingPoints(method="dtc"), "method must be None or one of"),
        (lambda: rfgp.Vecchia(0), "num_neighbors"),
        (lambda: rfgp.Vecchia(condition_on="rows"), "condition_on must be one of"),
        (lambda: rfgp.Exact(seed="one"), "seed"),
        (lambda: rfgp.InducingPoints(8, residual=30), "residual must be None or a value such as"),
        (lambda: rfgp.InducingPoints(8, residual=rfgp.Exact()), "residual must be None or a value such as"),
        (lambda: rfgp.InducingPoints(8, residual=rfgp.Vecchia(5), method="fitc"), "with a residual, got 'fitc'"),
        (lambda: rfgp.InducingPoints(8, residual=rfgp.Vecchia(5), method="vfe"), "with a residual, got 'vfe'"),
        (lambda: rfgp.EquispacedFourier(tolerance=0), "tolerance"),
        (lambda: rfgp.EquispacedFourier(tolerance=0.5), "tolerance"),
        (lambda: rfgp.EquispacedFourier(tolerance="1e-3"), "tolerance"),
        (lambda: rfgp.EquispacedFourier(max_features=0), "max_features"),
        (lambda: rfgp.RandomWalks(0), "num_walkers"),
        (lambda: rfgp.RandomWalks(8, columns=32), "columns"),
        (lambda: rfgp.RandomWalks(8, columns=rfgp.Exact()), "columns"),
        (lambda: rfgp.RandomWalks(8, columns=rfgp.RandomFeatures(8, learn_frequencies=True)), "columns"),
        (lambda: rfgp.Chebyshev(0), "degree"),
        (lambda: rfgp.TruncatedSpectrum(-1), "rank"),
        (lambda: rfgp.RationalPrecision(1.5), "degree"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("kernel", "approximation", "message"),
    [
        (k.Group("store"), rfgp.RandomFeatures(8), "finitely many functions"),
        (k.Matern("t"), rfgp.RandomFeatures(8, kind="laplace"), "Gaussian kernel only"),
        (k.Group("store") * k.RBF("t"), rfgp.InducingPoints(8, learn_locations=True), "columns of numbers"),
        (k.RBF("t") + k.Constant(name="level"), {"level": rfgp.Vecchia(8)}, "reads no column"),
        (k.Nodes(RING, "diffusion", column="node"), rfgp.Vecchia(8), "nodes of a graph"),
        (k.RBF("t", name="a") + k.RBF("p", name="b"), {"a": rfgp.Vecchia(8), "b": rfgp.Vecchia(9)}, "one value"),
        (k.RationalQuadratic("t"), NEAR, "requires a Gaussian kernel"),
        (k.Periodic("t", 2.5), NEAR, "requires a Gaussian kernel"),
        (k.Linear("t"), NEAR, "requires a Gaussian kernel"),
        (k.Matern("t") * k.RBF("p"), NEAR, "requires a Gaussian kernel"),
        (k.RBF("t") * k.Group("store"), NEAR, "requires columns of numbers"),
        (k.Group("store"), NEAR, "requires columns of numbers"),
        (k.Nodes(RING, "diffusion", column="node"), NEAR, "requires columns of numbers"),
        (TREND + SPACE, NEAR, "one term may have neighbors"),
        (TREND + SPACE, {"trend": NEAR, "space": rfgp.Vecchia(5)}, "one term.*'trend'.*'space'"),
        (TREND + SPACE, {"trend": NEAR, "space": FURTHER}, "one term may have neighbors"),
    ],
)
def test_terms_that_cannot_be_served_are_named(kernel, approximation, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        rfgp.GP(kernel, approximation=approximation).fit({**ROWS, "node": np.arange(60) % 6}, Y)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize(
    ("approximation", "stage"),
    [
        (rfgp.RandomFeatures(4, learn_frequencies=True), "learning frequencies"),
        (rfgp.InducingPoints(8, learn_locations=True, method="vfe"), "basis too"),
    ],
)
def test_draws_are_learned(approximation, stage):
    rng = np.random.default_rng(7)
    rows = {"t": rng.uniform(0, 6, 400), "p": rng.normal(size=400)}
    y = np.sin(2 * rows["t"]) + rows["p"] * np.cos(rows["t"]) + 0.1 * rng.normal(size=400)
    names = [name for name in ("learn_frequencies", "learn_locations") if hasattr(approximation, name)]
    fixed = dataclasses.replace(approximation, **dict.fromkeys(names, False))
    before, gp = (rfgp.GP(k.RBF(), approximation=one, seed=0).fit(rows, y) for one in (fixed, approximation))
    assert gp.log_marginal_likelihood() > before.log_marginal_likelihood() + 1
    assert gp.fit_report.stages[-1].name == stage
    assert gp.hyperparameters.names == before.hyperparameters.names
    again = pickle.loads(pickle.dumps(gp)).predict(rows)
    np.testing.assert_array_equal(gp.predict(rows).mean, again.mean)
