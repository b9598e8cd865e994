"""Laplace's approximation through lattices of frequencies, against dense algebra in numpy and finite differences."""

import numpy as np
import pytest
import torch
from checks import fails
from observed import SentRows
from planting import planted
from scipy import special, stats

import rfgp
from rfgp import kernels as k
from rfgp.inference.sites import LowRankLaplace, lattices
from rfgp.inference.sites.weights import DENSE_FEATURES
from rfgp.likelihoods import Bernoulli, NegativeBinomial, Poisson, StudentT
from rfgp.rows import JoinedRows
from rfgp.solvers.lowrank import LinearModel
from rfgp.solvers.onepass import SeriesPosterior, moments, products

N, NEW = 300, 80
TIGHT = rfgp.EquispacedFourier(tolerance=1e-7)
T, U = k.RBF("t", lengthscale=0.7), k.RBF("u", lengthscale=0.4)
KERNELS = {
    "series": T.named("f"),
    "map": k.RBF(("t", "u"), lengthscale=(1.5, 0.8)).named("f"),
    "two lattices": T.named("f") + U.named("g"),
    "with others": T.named("f") + k.Linear(("z",), name="h") + k.Group("g"),
}
LIKELIHOODS = {
    "poisson": (Poisson(), {}),
    "bernoulli": (Bernoulli(), {}),
    "student-t": (StudentT(df=4.0), {"scale": 0.3}),
}


def table():
    """Return rows and new points within their range, and a smooth function of both."""
    rng = np.random.default_rng(0)
    every = {"t": rng.uniform(0, 4, N + NEW), "u": rng.uniform(0, 1, N + NEW), "z": rng.normal(size=N + NEW)}
    for name in ("t", "u"):
        every[name][:2] = every[name].min(), every[name].max()
    every["g"] = rng.choice(list("abc"), N + NEW)
    return every, 0.4 + np.sin(2 * every["t"]) + every["u"] * every["z"] + 0.5 * (every["g"] == "a")


WHOLE, SMOOTH = table()
ROWS, LATER = ({key: values[part] for key, values in WHOLE.items()} for part in (slice(0, N), slice(N, None)))


def observations(name):
    rng, f = np.random.default_rng(1), SMOOTH[:N]
    if name == "student-t":
        return f + 0.3 * rng.standard_t(3, size=N)
    return (
        rng.poisson(np.exp(f)).astype(float) if name != "bernoulli" else (rng.uniform(size=N) < special.expit(f)) * 1.0
    )


def model(name="poisson", case="series", approximation=TIGHT, likelihood=None, **given):
    start = {"mean": 0.3, **LIKELIHOODS[name][1]}
    likelihood = likelihood or LIKELIHOODS[name][0]
    options = {"likelihood": likelihood, "inference": "laplace", "standardize": False, "start": start, "seed": 0}
    return rfgp.GP(KERNELS[case], approximation=approximation, **options).condition(ROWS, observations(name), **given)


def slopes(name, y, f, exposure):
    """Return log density, its derivative and the W of Laplace's approximation, (n,) each, by their formulas."""
    if name == "poisson":
        rate = exposure * np.exp(f)
        return stats.poisson.logpmf(y, rate), y - rate, rate
    if name == "bernoulli":
        p = special.expit(f)
        return np.log(np.where(y > 0, p, 1 - p)), y - p, p * (1 - p)
    df, scale = 4.0, 0.3
    r = y - f
    information = np.full(len(y), (df + 1) / ((df + 3) * scale**2))
    return stats.t.logpdf(r / scale, df) - np.log(scale), (df + 1) * r / (df * scale**2 + r**2), information


class Dense:
    """Laplace's approximation by n x n matrices (Rasmussen and Williams 2006, Section 3.4), at a mode f (n,)."""

    def __init__(self, gp, name, f, weight=1.0, exposure=1.0):
        values, terms = gp.state.hyperparameters, k.Sum(gp.kernel.terms()).terms()
        own = {path: values.value(path).detach().numpy() for path in values.space.names}
        of_terms = {path: value for path, value in own.items() if path.split(".")[0] in {term.name for term in terms}}
        matrix = k.Sum(terms).matrix(WHOLE, values=of_terms).numpy()
        inner, self.cross, self.outer = matrix[:N, :N], matrix[N:, :N], matrix[N:, N:]
        value, gradient, curvature = (weight * one for one in slopes(name, observations(name), f, exposure))
        self.mean, self.gradient = float(own["mean"].item()), gradient
        self.stationary = self.mean + inner @ gradient
        self.matrix = inner + np.diag(1 / curvature)
        inside = np.eye(N) + inner * curvature
        self.value = value.sum() - 0.5 * (f - self.mean) @ gradient - 0.5 * np.linalg.slogdet(inside)[1]

    def moments(self):
        return self.mean + self.cross @ self.gradient, self.outer - self.cross @ np.linalg.solve(
            self.matrix, self.cross.T
        )


def check_moments(name="poisson", case="series", **given):
    gp = model(name, case, **given)
    assert isinstance(gp.state.posterior, SeriesPosterior)
    counts = given.get("sample_weight", 1.0)
    f = np.concatenate([gp.predict(ROWS).mean])
    dense = Dense(gp, name, f, counts, given.get("exposure", 1.0))
    mean, covariance = dense.moments()
    found = gp.predict(LATER)
    np.testing.assert_allclose(f, dense.stationary, atol=1e-4)
    np.testing.assert_allclose(gp.log_marginal_likelihood().item(), dense.value, atol=1e-3)
    np.testing.assert_allclose(found.mean, mean, atol=1e-4)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-4)
    np.testing.assert_allclose(found.std**2, np.diag(covariance), atol=1e-4)


@pytest.mark.parametrize("case", KERNELS)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_mode_evidence_and_moments_match_dense_algebra(name, case):
    check_moments(name, case)


def test_weights_and_exposures_count():
    rng = np.random.default_rng(2)
    check_moments("poisson", "two lattices", sample_weight=rng.integers(1, 4, N).astype(float))
    check_moments("poisson", "series", exposure=rng.uniform(0.5, 2.0, N))


# --- gradients -------------------------------------------------------------------------------------


def value_with_leaves(gp, values, names, rows=None):
    regression = gp.state.replace(hyperparameters=values)
    return regression.infer(gp.state.rows if rows is None else rows).log_marginal_likelihood()


def check_gradient(name="poisson", case="series", likelihood=None):
    """The gradient in all hyperparameters is that of central differences of the evidence."""
    gp = model(name, case, likelihood=likelihood)
    values = gp.state.hyperparameters
    names = values.space.free(())
    values = values.leaves(names)
    value = value_with_leaves(gp, values, names)
    gradients = torch.autograd.grad(value, [values.raw[path] for path in names])
    assert len(names) >= 3
    for path, gradient in zip(names, gradients, strict=True):
        for place in range(values.raw[path].numel()):
            ends = []
            for sign in (1, -1):
                raw = {key: one.detach().clone() for key, one in values.raw.items()}
                raw[path].reshape(-1)[place] += sign * 1e-4
                moved = values.replaced({path: raw[path]})
                with torch.no_grad():
                    ends.append(float(value_with_leaves(gp, moved, names)))
            expected = (ends[0] - ends[1]) / 2e-4
            np.testing.assert_allclose(gradient.reshape(-1)[place], expected, rtol=2e-5, atol=2e-5, err_msg=path)


@pytest.mark.parametrize(("name", "case", "likelihood"), [
    ("poisson", "map", None),
    ("poisson", "with others", None),
    ("poisson", "two lattices", NegativeBinomial()),
    ("bernoulli", "series", Bernoulli(link="probit")),
    ("student-t", "two lattices", StudentT()),
])  # fmt: skip
def test_gradient_matches_differences(name, case, likelihood):
    check_gradient(name, case, likelihood)


def check_steps(name="poisson"):
    """The sums of a Newton step by transforms are those by features."""
    gp = model(name, "with others")
    found = gp.state.infer(gp.state.rows)
    bound = found.likelihood.at({path: value.detach() for path, value in found.learned.items()})
    weights = torch.as_tensor(np.random.default_rng(3).normal(size=found.model.num_features))
    for is_final in (False, True):
        given = found.model.detached(), bound, weights, is_final
        pairs = list(zip(lattices.SERIES_FEATURES.step(*given), DENSE_FEATURES.step(*given), strict=True))
        assert len(pairs) == (4 if name == "student-t" and not is_final else 3)
        for one, other in pairs:
            np.testing.assert_allclose(one, other, atol=1e-9 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_newton_steps_by_transforms_and_by_features_agree(name):
    check_steps(name)


def check_information():
    """The information of log s^2 and the mean is that of Laplace pseudo-observations by dense algebra."""
    gp = model("poisson", "two lattices")
    found, rows = gp.state.infer(gp.state.rows), gp.state.rows
    phi = found.model.detached().weights.scaled(rows.inputs).double().numpy()
    curvature = np.exp(found.fitted.detach().numpy())
    inverse = np.linalg.inv(phi @ phi.T + np.diag(1 / curvature))
    size, eye = phi.shape[1], torch.eye(phi.shape[1] + 1, dtype=torch.float64)
    information = found.information(eye[size:], torch.zeros(size + 1, dtype=torch.float64), eye[:size]).numpy()
    expected = 0.5 * np.square(phi.T @ inverse @ phi)
    np.testing.assert_allclose(information[:size, :size], expected, atol=1e-7 * expected.max())
    np.testing.assert_allclose(information[size, size], inverse.sum(), rtol=1e-7)
    assert not information[size, :size].any()


def test_information_matches_dense_algebra():
    check_information()


FAULTS = {
    "the information of scales": (lattices, "(1 - 2 * inverse", "(1 - inverse", check_information, ()),
    "the information of the mean": (
        lattices, "implicit.weight - implicit", "implicit.weight + implicit", check_information, ()
    ),
    "the gradient at the rows": (lattices, "0.5 * at.series", "0.4 * at.series", check_gradient, ()),
    "the slope of scales": (lattices, "2 * b * weights", "b * weights", check_gradient, ()),
    "the slope of the mean": (lattices, "total - b @", "total + b @", check_gradient, ()),
    "the scale of Phi^T g": (lattices, "scale * statistics[0].target", "statistics[0].target", check_moments, ()),
    "the excess of majorizers": (
        lattices, "terms.majorizer - terms.curvature", "terms.curvature - terms.majorizer", check_steps, ("student-t",)
    ),
    "functions in pairs": (moments, "pair[0] + 1j * pair[1]", "pair[0] - 1j * pair[1]", check_gradient,
                           ("poisson", "series", NegativeBinomial())),
    "real series": (products, "0.5 * (series +", "0.5 * (series -", check_moments, ()),
}  # fmt: skip


@pytest.mark.parametrize(("module", "right", "wrong", "check", "arguments"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_are_seen(module, right, wrong, check, arguments):
    with planted(module, right, wrong):
        try:
            assert fails(check, *arguments)
        except rfgp.RfgpError:
            return


# --- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poisson", "student-t"])
def test_passes_by_transforms_and_by_features_agree(name):
    """Rows in several parts are included."""
    gp = model(name, "with others")
    rows, found = gp.state.rows, gp.state.infer(gp.state.rows)
    model_of = found.model
    parts = JoinedRows([rows.take(slice(0, 70)), rows.take(slice(70, None))])
    for some in (rows, parts):
        fast = lattices.LatticeLaplace(
            LinearModel(model_of.weights, some, model_of.mean, model_of.noise), found.likelihood, found.learned
        )
        slow = LowRankLaplace(fast.model, found.likelihood, found.learned)
        np.testing.assert_allclose(
            fast.log_marginal_likelihood().item(), slow.log_marginal_likelihood().item(), rtol=1e-9
        )
        for one, other in zip(fast.leave_one_out(), slow.leave_one_out(), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-7)
        np.testing.assert_allclose(fast.fitted.detach(), slow.fitted.detach(), atol=1e-7)
        assert fast.effective_dof_fraction == pytest.approx(slow.effective_dof_fraction, abs=1e-9)


class Chunks:
    """Rows in chunks that can be read many times."""

    def chunks(self):
        X, y = np.column_stack([ROWS["t"], ROWS["u"]]), observations("poisson")
        for first in range(0, N, 70):
            yield rfgp.rows.Chunk(X[first : first + 70], y[first : first + 70])


def test_rows_in_blocks_have_the_posterior_of_rows_in_memory():
    options = {"likelihood": "poisson", "approximation": TIGHT, "start": {"mean": 0.3}, "seed": 0}
    kernel, X = k.RBF((0, 1), lengthscale=(0.7, 1.0)), np.column_stack([ROWS["t"], ROWS["u"]])
    found = rfgp.GP(kernel, standardize=False, **options).condition(Chunks()).predict(X)
    memory = rfgp.GP(kernel, standardize=False, **options).condition(X, observations("poisson")).predict(X)
    np.testing.assert_allclose(found.mean, memory.mean, atol=1e-8)
    np.testing.assert_allclose(found.std, memory.std, atol=1e-8)


def test_files_keep_predictions(tmp_path):
    gp = model("poisson", "with others")
    gp.save(tmp_path / "model.rfgp")
    loaded = rfgp.load(tmp_path / "model.rfgp")
    assert isinstance(loaded.state.posterior, SeriesPosterior)
    for name in ("mean", "std", "covariance"):
        np.testing.assert_allclose(getattr(loaded.predict(LATER), name), getattr(gp.predict(LATER), name), atol=1e-10)
    for name in gp.terms:
        np.testing.assert_allclose(loaded.predict(LATER).terms[name].std, gp.predict(LATER).terms[name].std, atol=1e-10)


def test_points_by_series_and_by_features_agree():
    gp = model("poisson", "two lattices")
    every, few = gp.predict(LATER), gp.predict({key: values[:10] for key, values in LATER.items()})
    np.testing.assert_allclose(every.std[:10], few.std, atol=1e-8)
    np.testing.assert_allclose(every.mean[:10], few.mean, atol=1e-8)
    slope = gp.predict(LATER, derivative="t")
    np.testing.assert_allclose(np.sqrt(np.diag(slope.covariance)), slope.std, rtol=1e-6)


def test_fit_of_counts_is_close_to_the_exact_process():
    fast = rfgp.GP(k.RBF("t"), likelihood="poisson", approximation=rfgp.EquispacedFourier(tolerance=1e-5), seed=0)
    exact = rfgp.GP(k.RBF("t"), likelihood="poisson", approximation=rfgp.Exact(), inference="laplace", seed=0)
    y = np.random.default_rng(4).poisson(np.exp(1 + np.sin(2 * ROWS["t"])))
    for gp in (fast, exact):
        gp.fit(ROWS, y)
    gap = exact.fit_report.log_marginal_likelihood - fast.fit_report.log_marginal_likelihood
    assert abs(gap) < 0.1


@pytest.mark.parametrize("bad", [np.nan, -1.0, 0.5])
def test_wrong_targets_keep_their_errors(bad):
    y = observations("poisson")
    y[3] = bad
    with pytest.raises(rfgp.DataError):
        rfgp.GP(KERNELS["series"], likelihood="poisson", approximation=TIGHT).condition(ROWS, y)


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial()])
def test_rows_on_other_machines_are_summed_there(likelihood):
    gp = model("poisson", "with others", likelihood=likelihood)
    rows = gp.state.rows
    values = gp.state.hyperparameters
    names = values.space.free(())
    values = values.leaves(names)
    totals = []
    for some in (rows, JoinedRows([rows.take(slice(0, 70)), SentRows(rows.take(slice(70, None)))])):
        value = value_with_leaves(gp, values, names, some)
        totals.append((value, *torch.autograd.grad(value, [values.raw[name] for name in names])))
    for one, other in zip(*totals, strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-7, atol=1e-9)
