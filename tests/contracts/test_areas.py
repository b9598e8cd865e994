"""Rows that are means over areas, against dense algebra of A K A^T, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import torch
import trimesh
import xarray as xr
from model_files import forged
from numpy.testing import assert_allclose
from refusals import refused
from scipy import stats

import rfgp
from rfgp import kernels as k

LENGTHSCALE, VARIANCE, NOISE, MEAN = 2.0, 1.3, 0.02, 0.2
NUM_AREAS, EACH = 25, 6


def table(each=EACH):
    """Points of areas in a random order, the areas, the matrix A of weights, and the means."""
    rng = np.random.default_rng(0)
    count = NUM_AREAS * each
    points = np.repeat(rng.uniform(0, 8, (NUM_AREAS, 2)), each, axis=0) + rng.uniform(-0.7, 0.7, (count, 2))
    order = rng.permutation(count)
    frame = pd.DataFrame(points[order], columns=["x", "y"])
    frame["area"] = np.repeat([f"A{number:02d}" for number in range(NUM_AREAS)], each)[order]
    frame["people"] = rng.uniform(0.5, 3, count)
    codes = frame["area"].str[1:].astype(int).to_numpy()
    A = np.zeros((NUM_AREAS, count))
    A[codes, np.arange(count)] = frame["people"]
    A /= A.sum(1, keepdims=True)
    y = A @ (np.sin(frame["x"]) + np.cos(0.7 * frame["y"])) + 0.1 * rng.normal(size=NUM_AREAS)
    return frame, codes, A, y


FRAME, CODES, A, Y = table()
X, NEW = FRAME[["x", "y"]].to_numpy(), np.random.default_rng(1).uniform(0, 8, (9, 2))
PLACES = pd.DataFrame(NEW, columns=["x", "y"])
KERNEL = k.Matern(("x", "y"), ard=False)
BY = {"average_over": "area", "weights": "people"}


def covariance(a, b):
    r = np.sqrt(3) * np.linalg.norm(a[:, None] - b[None], axis=-1) / LENGTHSCALE
    return VARIANCE * (1 + r) * np.exp(-r)


def dense(K, cross, prior):
    """The mean, variances, log likelihood and left-out means of K (m, m)."""
    inverse = np.linalg.inv(K + NOISE * np.eye(len(K)))
    weighted = inverse @ (Y - MEAN)
    density = stats.multivariate_normal(np.full(len(K), MEAN), K + NOISE * np.eye(len(K))).logpdf(Y)
    variance = prior - (cross @ inverse * cross).sum(1)
    return MEAN + cross @ weighted, variance, density, Y - weighted / np.diag(inverse)


def conditioned(approximation="auto", kernel=KERNEL, y=Y[CODES], frame=FRAME, **options):
    gp = rfgp.GP(kernel, approximation=approximation, standardize=False, seed=0)
    gp.condition(frame, y, **(options or BY))
    gp.hyperparameters.set(lengthscale=LENGTHSCALE, outputscale=VARIANCE, noise=NOISE, mean=MEAN)
    return gp


def assert_dense(gp, expected, tolerance):
    mean, variance, density, left_out = expected
    p = gp.predict(PLACES)
    assert_allclose(p.mean, mean, atol=tolerance)
    assert_allclose(p.variance, variance, atol=tolerance)
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, abs=30 * tolerance)
    assert_allclose(np.sort(gp.leave_one_out().mean), np.sort(left_out), atol=tolerance)


@pytest.mark.parametrize(
    ("approximation", "tolerance"),
    [
        ("auto", 1e-9),
        (rfgp.InducingPoints(150, init="pivoted-cholesky"), 2e-3),
        (rfgp.RandomFeatures(3000, coupling="orthogonal"), 0.1),
        (rfgp.EquispacedFourier(tolerance=3e-3), 0.1),
    ],
    ids=["exact", "points", "features", "equispaced"],
)
def test_posteriors_are_those_of_mean_covariances(approximation, tolerance, tmp_path):
    expected = dense(A @ covariance(X, X) @ A.T, covariance(NEW, X) @ A.T, VARIANCE)
    gp = conditioned(approximation)
    assert_dense(gp, expected, tolerance)
    gp.save(tmp_path / "model.rfgp", data=True)
    assert_dense(rfgp.load(tmp_path / "model.rfgp"), expected, tolerance)


def test_few_inducing_points_keep_the_diagonal_of_means():
    """FITC: A Q A^T, and the diagonal of A (K - Q) A^T, of more points than are computed at once."""
    frame, codes, A, _ = table(44)
    X, data = frame[["x", "y"]].to_numpy(), {"y": Y[codes], "frame": frame}
    gp = conditioned(rfgp.InducingPoints(12, method="fitc"), **data)
    sor = conditioned(rfgp.InducingPoints(12, method="sor"), **data)
    Q = sor.prior_covariance(pd.concat([frame[["x", "y"]], PLACES])).detach().numpy()
    n, means = len(X), A @ covariance(X, X) @ A.T
    K = A @ Q[:n, :n] @ A.T
    K += np.diag(np.diag(means - K))
    assert np.abs(K - means).max() > 0.05
    assert_dense(gp, dense(K, Q[n:, :n] @ A.T, VARIANCE), 1e-6)


def test_fits_end_at_the_highest_likelihood():
    gp = rfgp.GP(KERNEL, seed=0).fit(FRAME, Y[CODES], **BY)
    best = gp.log_marginal_likelihood().item()
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(best, abs=1e-6)
    for name in ("lengthscale", "outputscale", "noise"):
        found = getattr(gp.hyperparameters, name).detach().numpy().copy()
        for factor in (0.9, 1.1):
            gp.hyperparameters.set(**{name: factor * found})
            assert gp.log_marginal_likelihood().item() < best
        gp.hyperparameters.set(**{name: found})


def test_frequencies_cover_all_points_of_areas():
    """The rows with targets are close together, and their other points are not."""
    rng = np.random.default_rng(2)
    t = np.column_stack([np.full(20, 0.5), rng.uniform(0, 9, 20)]).reshape(-1)
    y = np.column_stack([rng.normal(size=20), np.full(20, np.nan)]).reshape(-1)
    new = {"t": np.linspace(0, 9, 10)}
    found = []
    for approximation in (rfgp.Exact(), rfgp.EquispacedFourier(tolerance=1e-6)):
        gp = rfgp.GP(k.RBF("t", lengthscale=0.8), approximation=approximation, standardize=False, seed=0)
        gp.condition({"t": t}, y, average_over=np.arange(40) // 2)
        gp.hyperparameters.set(noise=0.1, outputscale=1.0, mean=0.0)
        found.append(gp.predict(new))
    assert_allclose(found[1].mean, found[0].mean, atol=1e-3)
    assert_allclose(found[1].std, found[0].std, atol=1e-3)


def test_targets_stand_in_one_row_or_in_all():
    one = np.full(len(FRAME), np.nan)
    last = {code: row for row, code in enumerate(CODES)}
    one[list(last.values())] = Y[list(last)]
    assert_allclose(conditioned(y=one).predict(PLACES).mean, conditioned().predict(PLACES).mean, atol=1e-9)
    in_arrays = conditioned(average_over=CODES, weights=FRAME["people"].to_numpy())
    assert_allclose(in_arrays.predict(PLACES).mean, conditioned().predict(PLACES).mean, atol=1e-9)


def test_areas_and_points_update_a_model():
    some = FRAME["area"].isin(["A03", "A11"]).to_numpy()
    gp = rfgp.GP(KERNEL, standardize=False, seed=0).condition(FRAME[~some], Y[CODES][~some], **BY)
    gp.hyperparameters.set(lengthscale=LENGTHSCALE, outputscale=VARIANCE, noise=NOISE, mean=MEAN)
    gp.update(FRAME[some], Y[CODES][some], **BY)
    assert gp.num_observations == NUM_AREAS
    assert_allclose(gp.predict(PLACES).mean, conditioned().predict(PLACES).mean, atol=1e-9)
    gp.update(PLACES, np.full(9, 3.0))
    both, B = np.vstack([X, NEW]), np.block([[A, np.zeros((NUM_AREAS, 9))], [np.zeros((9, len(X))), np.eye(9)]])
    K = B @ covariance(both, both) @ B.T + NOISE * np.eye(NUM_AREAS + 9)
    expected = MEAN + covariance(NEW, both) @ B.T @ np.linalg.solve(K, np.append(Y, np.full(9, 3.0)) - MEAN)
    assert_allclose(gp.predict(PLACES).mean, expected, atol=1e-9)


def test_noise_and_weights_of_rows_are_those_of_the_target():
    noise = np.where(CODES == 4, 5.0, 0.0)
    gp = rfgp.GP(KERNEL, standardize=False, seed=0).condition(FRAME, Y[CODES], noise=noise, **BY)
    gp.hyperparameters.set(lengthscale=LENGTHSCALE, outputscale=VARIANCE, noise=NOISE, mean=MEAN)
    K = A @ covariance(X, X) @ A.T + np.diag(np.where(np.arange(NUM_AREAS) == 4, 5.0, 0.0) + NOISE)
    mean = MEAN + covariance(NEW, X) @ A.T @ np.linalg.solve(K, Y - MEAN)
    assert_allclose(gp.predict(PLACES).mean, mean, atol=1e-9)


def test_fits_find_the_function_between_areas():
    for approximation in ("auto", rfgp.InducingPoints(30), rfgp.RandomFeatures(50)):
        gp = rfgp.GP(k.RBF(("x", "y")), approximation=approximation, seed=0).fit(FRAME, Y[CODES], **BY)
        p = gp.predict(FRAME)
        error = p.mean - (np.sin(FRAME["x"]) + np.cos(0.7 * FRAME["y"]))
        assert np.sqrt(np.mean(error**2)) < 0.3
        averages = gp.predict(FRAME).linear(A)
        assert np.corrcoef(averages.mean, Y)[0, 1] > 0.95


def test_the_default_is_selected_by_areas():
    gp = rfgp.GP(seed=0).fit(FRAME, Y[CODES], **BY)
    assert gp.num_observations == gp.selection.num_validation == NUM_AREAS
    assert set(gp.kernel.terms()[0].factors[0].columns) == {"x", "y"}
    assert rfgp.GP(seed=0).select(FRAME, Y[CODES], **BY).num_validation == NUM_AREAS


def test_fields_and_levels_are_averaged():
    """A surface, and effects of levels: A K A^T by the model's own prior at points."""
    ball = trimesh.creation.icosphere(2)
    frame = pd.DataFrame(ball.vertices[:60], columns=["x", "y", "z"]).assign(kind=np.tile(["a", "b", "c"], 20))
    kernel = k.Mesh(ball, lengthscale=0.7) + k.Group("kind")
    areas, y = np.arange(60) // 4, np.sin(np.arange(15.0))
    gp = rfgp.GP(kernel, standardize=False, start={"noise": 0.1, "mean": 0.0}, seed=0)
    gp.condition(frame, y[areas], average_over=areas)
    B = np.kron(np.eye(15), np.full((1, 4), 0.25))
    K = gp.prior_covariance(frame).detach().numpy()
    weights = np.linalg.solve(B @ K @ B.T + 0.1 * np.eye(15), y)
    assert_allclose(gp.predict(frame).mean, K @ B.T @ weights, atol=1e-6)


def test_fits_do_not_depend_on_the_order_of_rows():
    ends = []
    for seed in (None, 1):
        frame = FRAME.assign(mean=Y[CODES])
        frame = frame if seed is None else frame.sample(frac=1, random_state=seed)
        gp = rfgp.GP(KERNEL, seed=0).fit(frame, "mean", **BY)
        ends.append(gp.fit_report.log_marginal_likelihood)
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)


def test_columns_of_areas_can_be_inputs_too():
    kernel = k.RBF(("x", "y")) + k.Group("area")
    gp = rfgp.GP(kernel, standardize=False, start={"noise": 0.1}, seed=0).condition(FRAME, Y[CODES], **BY)
    assert gp.terms.keys() == {"rbf(x, y)", "group(area)"}
    assert np.corrcoef(gp.predict(FRAME).linear(A).mean, Y)[0, 1] > 0.95


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_other_weights_are_another_fit(tmp_path):
    rfgp.GP(KERNEL, seed=0).fit(FRAME, Y[CODES], **BY, checkpoint=tmp_path / "c", max_iterations=1)
    other = FRAME.assign(people=FRAME["people"] ** 2)
    fit = rfgp.GP(KERNEL, seed=0).fit
    refused(
        lambda: fit(other, Y[CODES], **BY, checkpoint=tmp_path / "c", max_iterations=1),
        rfgp.CheckpointError,
        "another fit",
    )


def test_files_hold_points_only_if_predictions_need_them(tmp_path):
    gp = conditioned(rfgp.RandomFeatures(20))
    gp.save(tmp_path / "features.rfgp", data=False)
    assert b"areas.points" not in (tmp_path / "features.rfgp").read_bytes()
    assert_allclose(rfgp.load(tmp_path / "features.rfgp").predict(PLACES).mean, gp.predict(PLACES).mean, atol=1e-9)
    conditioned().save(tmp_path / "exact.rfgp", data=True)
    content = (tmp_path / "exact.rfgp").read_bytes()
    sizes = torch.tensor([2**62] * 4 + [EACH * NUM_AREAS - NUM_AREAS + 5] + [1] * (NUM_AREAS - 5))
    for name, tensor in (("sizes", sizes), ("weights", torch.ones(EACH * NUM_AREAS, dtype=torch.float64))):
        (tmp_path / "forged.rfgp").write_bytes(forged(content, (f"areas.{name}", tensor)))
        refused(lambda: rfgp.load(tmp_path / "forged.rfgp"), rfgp.ModelFileError, "areas" if name == "sizes" else "sum")


def test_cells_of_a_grid_are_points_of_areas():
    numbers = np.arange(12)
    cells = {"v": (("y", "x"), np.where(numbers % 2 == 0, numbers / 2, np.nan).reshape(3, 4))}
    cells["a"] = (("y", "x"), (numbers // 2).reshape(3, 4))
    grid = xr.Dataset(cells, coords={"x": np.arange(4.0), "y": np.arange(3.0)})
    gp = rfgp.GP(KERNEL, standardize=False, start={"noise": 0.1, "mean": 0.0, "outputscale": 1.0}, seed=0)
    gp.condition(grid, "v", average_over="a").hyperparameters.set(lengthscale=LENGTHSCALE, outputscale=VARIANCE)
    frame = grid.to_dataframe().reset_index()
    points, B = frame[["x", "y"]].to_numpy(), np.equal.outer(np.arange(6), frame["a"].to_numpy()) / 2
    K = covariance(points, points)
    expected = K @ B.T @ np.linalg.solve(B @ K @ B.T + 0.1 * np.eye(6), np.arange(6.0))
    assert_allclose(gp.predict(frame).mean, expected, atol=1e-8)


def test_areas_with_dates_have_a_default_model():
    frame = FRAME[["x", "area"]].assign(day=pd.date_range("2026-01-01", periods=len(FRAME)))
    assert rfgp.GP(seed=0).fit(frame, Y[CODES], average_over="area").num_observations == NUM_AREAS


INVALID, DATA = rfgp.InvalidArgumentError, rfgp.DataError


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: conditioned(y=np.where(CODES == 3, np.nan, Y[CODES])), DATA, "got none for 'A03'"),
        (lambda: conditioned(y=Y[CODES] + np.eye(1, len(CODES))[0]), DATA, "must have one target"),
        (lambda: conditioned(average_over="none"), DATA, "no column 'none'"),
        (lambda: conditioned(average_over=CODES[:5]), DATA, "150 rows"),
        (lambda: conditioned(average_over="area", weights=-FRAME["people"]), DATA, "positive"),
        (lambda: conditioned(average_over=np.where(CODES == 3, np.nan, CODES)), DATA, "an area in each row"),
        (lambda: conditioned(average_over="area", weights="area"), DATA, "no column"),
        (lambda: conditioned(average_over="area", weights=FRAME["area"]), DATA, "must be numbers"),
        (lambda: conditioned(average_over="area", weights=1.0), DATA, "150 rows"),
        (lambda: conditioned(**BY, noise=np.ones(100)), DATA, "noise must have one value for each"),
        (lambda: conditioned(**BY, sample_weight=np.zeros(150)), DATA, "positive, got 0 in row 0"),
        (lambda: conditioned().variogram(), INVALID, "means over areas"),
        (lambda: rfgp.GP().fit(FRAME, Y[CODES], **BY, horizon=3), INVALID, "means over areas"),
        (lambda: conditioned(weights="people"), INVALID, "average_over"),
        (lambda: conditioned(y=np.column_stack([Y[CODES]] * 2)), DATA, "y must have shape"),
        (lambda: conditioned(y=["a"] * len(CODES)), DATA, "y must be numbers"),
        (lambda: conditioned(rfgp.Vecchia()), INVALID, "means over areas"),
        (lambda: conditioned(rfgp.InducingPoints(9, residual=rfgp.Vecchia())), INVALID, "points"),
        (lambda: rfgp.GP(KERNEL, likelihood="poisson").fit(FRAME, CODES, **BY), INVALID, "Gaussian"),
        (lambda: rfgp.GP(KERNEL).condition(FRAME, Y[CODES]).update(FRAME, Y[CODES], **BY), INVALID, "fitted with it"),
        (lambda: rfgp.GP(KERNEL).fit(rfgp.tables.Batches([FRAME], "y"), **BY), DATA, "in memory"),
    ],
)
def test_wrong_areas_are_refused(call, error, word):
    refused(call, error, word)
