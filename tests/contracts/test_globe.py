"""Longitudes and latitudes: chords against dense algebra, rotated globes, the date line, poles, and bad angles."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused
from scipy.stats import special_ortho_group

import rfgp
from rfgp import kernels as k
from rfgp.tables import Batches

RADIUS = 6371.0088
LENGTHSCALE, VARIANCE, NOISE, MEAN = 2500.0, 1.5, 0.1, 0.4
EXACT = rfgp.Exact()
POINTS_OF_ALL = rfgp.InducingPoints(119, init="pivoted-cholesky")
FEATURES = rfgp.RandomFeatures(2000, coupling="orthogonal")


def points_of(count, seed):
    """Points on the unit sphere, two of them poles and two close to each other across the date line."""
    points = np.random.default_rng(seed).normal(size=(count, 3))
    near = np.deg2rad(0.01)
    points[:4] = [0, 0, 1], [0, 0, -1], [-np.cos(near), np.sin(near), 0], [-np.cos(near), -np.sin(near), 0]
    return points / np.linalg.norm(points, axis=1)[:, None]


def degrees(points):
    latitude = np.rad2deg(np.arcsin(np.clip(points[:, 2], -1, 1)))
    return pd.DataFrame({"lon": np.rad2deg(np.arctan2(points[:, 1], points[:, 0])), "lat": latitude})


def covariance(a, b):
    """Matern 3/2 of chords in km."""
    r = np.sqrt(3) * RADIUS * np.linalg.norm(a[:, None] - b[None], axis=-1) / LENGTHSCALE
    return (1 + r) * np.exp(-r)


POINTS, NEW = points_of(120, 0), points_of(15, 1)
Y = MEAN + np.linalg.cholesky(VARIANCE * covariance(POINTS, POINTS) + NOISE * np.eye(120)) @ np.random.default_rng(
    2
).normal(size=120)


def conditioned(points, approximation, kernel=None, **options):
    gp = rfgp.GP(kernel or k.Sphere(), approximation=approximation, seed=0, **options).condition(degrees(points), Y)
    gp.hyperparameters.set(lengthscale=LENGTHSCALE, outputscale=VARIANCE, noise=NOISE, mean=MEAN)
    return gp


def conditioned_alone(points):
    return rfgp.GP(k.Sphere(), approximation=EXACT, seed=0).condition(degrees(points), Y)


def posterior():
    K, cross = VARIANCE * covariance(POINTS, POINTS), VARIANCE * covariance(POINTS, NEW)
    solved = np.linalg.solve(K + NOISE * np.eye(120), np.column_stack([Y - MEAN, cross]))
    return MEAN + cross.T @ solved[:, 0], VARIANCE - (cross * solved[:, 1:]).sum(0)


@pytest.mark.parametrize(
    ("approximation", "tolerance"),
    [(EXACT, 1e-8), (rfgp.Vecchia(119), 1e-6), (POINTS_OF_ALL, 1e-3), (FEATURES, 0.25)],
    ids=repr,
)
def test_posteriors_are_those_of_chords_on_any_rotation(approximation, tolerance):
    mean, variance = posterior()
    for turn in (np.eye(3), special_ortho_group.rvs(3, random_state=3)):
        p = conditioned(POINTS @ turn, approximation).predict(degrees(NEW @ turn))
        assert_allclose(p.mean, mean, atol=tolerance)
        assert_allclose(p.variance, variance, atol=tolerance)


GSTOOLS = {
    0.5: ([0.030062038737514812, 1.0215473975824407], [0.7301971246744552, 1.1129698340872294]),
    1.5: ([-0.01699238974813133, 1.293288616304321], [0.37788470854887546, 0.8943446923813683]),
    2.5: ([-0.013337471498713671, 1.3770274449658622], [0.29642039326797787, 0.8136344729437283]),
}
"""Means and variances of simple kriging by GSTools 1.7.0, `Matern(latlon=True, geo_scale=KM_SCALE)`, by nu.

Its length is 1 / sqrt(2) of ours.
"""


@pytest.mark.parametrize("nu", GSTOOLS)
def test_kriging_agrees_with_gstools(nu):
    gp = rfgp.GP(k.Sphere(kernel=k.Matern(nu=nu), radius=6371.0), approximation=EXACT, seed=0)
    gp.condition({"lon": [-170.0, 175.0, 10.0, 11.0], "lat": [10.0, -5.0, 80.0, 45.0]}, [1.0, -0.5, 2.0, 0.3])
    gp.hyperparameters.set(lengthscale=1500 * np.sqrt(2), outputscale=1.3, noise=0.1, mean=0.2)
    observed = gp.predict({"lon": [180.0, -120.0], "lat": [0.0, 85.0]}).observed()
    assert_allclose(observed.mean, GSTOOLS[nu][0], atol=1e-12)
    assert_allclose(observed.variance, GSTOOLS[nu][1], atol=1e-12)


def test_a_fit_finds_the_same_on_any_rotation():
    turn = special_ortho_group.rvs(3, random_state=4)
    first, second = (
        rfgp.GP(k.Sphere(), approximation=EXACT, seed=0).fit(degrees(points), Y) for points in (POINTS, POINTS @ turn)
    )
    assert first.fit_report.log_marginal_likelihood == pytest.approx(
        second.fit_report.log_marginal_likelihood, abs=1e-4
    )
    starts = [conditioned_alone(points).hyperparameters.lengthscale.item() for points in (POINTS, POINTS @ turn)]
    assert starts[0] == pytest.approx(starts[1], rel=1e-6)
    one, other = first.hyperparameters.lengthscale.item(), second.hyperparameters.lengthscale.item()
    assert one == pytest.approx(other, rel=1e-2)
    assert 800 < one < 8000  # km


def test_equispaced_features_of_a_region_are_nearly_exact():
    region = degrees(POINTS) * 0.05 + [10.0, 50.0]
    kernel = k.Sphere(kernel=k.RBF(lengthscale=1500.0))
    fitted = [
        rfgp.GP(kernel, approximation=one, start={"noise": 0.1}, seed=0).condition(region, Y)
        for one in (EXACT, rfgp.EquispacedFourier(tolerance=1e-6))
    ]
    exact, found = (gp.predict(region[:9] + 0.1) for gp in fitted)
    assert_allclose(found.mean, exact.mean, atol=1e-4)
    assert_allclose(found.std, exact.std, rtol=1e-2)


def test_turns_of_longitude_change_nothing():
    gp, turned = conditioned(POINTS, EXACT), degrees(NEW).assign(lon=lambda frame: frame["lon"] % 360)
    assert_allclose(gp.predict(turned).mean, gp.predict(degrees(NEW)).mean, atol=1e-9)
    poles = gp.predict({"lon": [0.0, 77.0, -200.0], "lat": [90.0, 90.0, 90.0]})
    assert np.ptp(poles.mean) < 1e-9


def test_gradients_in_degrees_are_those_of_differences():
    gp, step = conditioned(POINTS, EXACT), 1e-4
    x = torch.tensor([[20.0, 40.0], [179.9, -60.0]], dtype=torch.float64, requires_grad=True)

    def mean(rows):
        return gp.predict({"lon": rows[:, 0], "lat": rows[:, 1]}).mean

    (gradient,) = torch.autograd.grad(mean(x).sum(), x)
    for column in range(2):
        moved = step * torch.eye(2, dtype=torch.float64)[column]
        slope = (mean(x.detach() + moved) - mean(x.detach() - moved)) / (2 * step)
        assert_allclose(gradient[:, column], slope, rtol=1e-5)


def test_products_with_time_and_sources_of_rows():
    frame = degrees(POINTS).assign(day=np.linspace(0, 9, 120), y=Y)
    kernel = k.Sphere(("lon", "lat"), k.Matern(lengthscale=LENGTHSCALE), name="space") * k.Matern(
        "day", lengthscale=3.0
    )
    gp = rfgp.GP(kernel, approximation=EXACT, start={"noise": 0.1}, seed=0).condition(frame, "y")
    lags = np.abs(np.subtract.outer(*2 * (frame["day"].to_numpy(),))) * np.sqrt(3) / 3.0
    expected = covariance(POINTS, POINTS) * (1 + lags) * np.exp(-lags)
    found = gp.prior_covariance(frame).detach().numpy()
    assert_allclose(found / found[0, 0], expected, atol=1e-9)
    features = rfgp.RandomFeatures(30, coupling="iid", seed=1)
    whole = rfgp.GP(kernel, approximation=features, standardize=False, seed=0).condition(frame, "y")
    parts = rfgp.GP(kernel, approximation=features, standardize=False, seed=0)
    parts.condition(Batches([frame[:50], frame[50:]], "y"))
    assert_allclose(parts.predict(frame[:5]).mean, whole.predict(frame[:5]).mean, atol=1e-6)


def test_a_text_names_the_kernel():
    kernel = k.parse("Sphere((lon, lat), kernel=Matern(nu=2.5, lengthscale=900), radius=1) * RBF(day)")
    sphere = kernel.terms()[0].factors[0]
    assert (sphere.columns, sphere.kernel.nu, sphere.radius) == (("lon", "lat"), 2.5, 1.0)


def test_the_default_tries_the_globe_if_columns_have_such_names():
    rows, y = degrees(POINTS), POINTS @ [0.5, 1.0, 0.7] + 2 * POINTS[:, 0] * POINTS[:, 1] + 0.1 * (Y - Y.mean())
    gp = rfgp.GP(seed=0, likelihood="gaussian").fit(rows.rename(columns={"lon": "Longitude", "lat": "Latitude"}), y)
    names = [trial.name for trial in gp.selection.trials]
    assert {"exact Matern 3/2 on the globe", "exact Matern 3/2"} <= set(names)
    chosen = {type(factor).__name__ for term in gp.kernel.terms() for factor in term.factors}
    assert "Sphere" in chosen
    other = rfgp.GP(seed=0, likelihood="gaussian").select(rows * 10, Y)
    assert not any("globe" in trial.name for trial in other.trials)


def test_kernels_in_degrees_say_what_they_measure():
    with pytest.warns(rfgp.TermWarning, match="k.Sphere"):
        rfgp.GP(k.Matern(("lon", "lat")), seed=0).fit(degrees(POINTS), Y)


def test_angles_have_no_derivatives_and_integrals():
    gp = rfgp.GP(k.Sphere(("lon", "lat")) + k.RBF("lon"), seed=0).condition(degrees(POINTS), Y)
    box = ({"lon": [1.0], "lat": [5.0]}, {"lon": [2.0], "lat": [6.0]})
    refused(lambda: gp.predict(degrees(NEW), derivative="lon"), rfgp.InvalidArgumentError, "as an angle")
    refused(lambda: gp.integrate(*box), rfgp.InvalidArgumentError, "as an angle")
    kernel = k.Sphere(("lon", "lat")) + k.RBF("lon")
    refused(
        lambda: rfgp.GP(kernel, seed=0).fit(degrees(POINTS), Y, input_noise={"lon": 1.0}),
        rfgp.InvalidArgumentError,
        "as an angle",
    )


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_models_of_the_plane_are_integrated_over_angles():
    rng = np.random.default_rng(0)
    rows = {"lon": rng.uniform(0, 20, 60), "lat": rng.uniform(10, 60, 60)}
    gp = rfgp.GP(seed=0, likelihood="gaussian").fit(rows, 0.1 * rows["lat"] + 0.1 * rng.normal(size=60))
    assert "Sphere" not in str(gp.kernel)
    found = gp.integrate({"lon": [1.0], "lat": [30.0]}, {"lon": [3.0], "lat": [31.0]})
    assert found.mean.item() == pytest.approx(2 * 3.05, abs=0.1)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_sources_are_read_whatever_their_names():
    frame = pd.DataFrame({"lon": np.linspace(0, 20, 60), "lat": np.r_[np.zeros(30), np.full(30, 5000.0)]})
    frame["y"] = np.sin(frame["lon"])
    blocks = Batches([frame[:30], frame[30:]], "y")
    rfgp.GP(seed=0, likelihood="gaussian", approximation=rfgp.RandomFeatures(9)).fit(blocks, max_iterations=2)


def test_rounded_poles_are_poles():
    gp = conditioned(POINTS, EXACT)
    found = gp.predict({"lon": np.zeros(2), "lat": [90.0, 90.0 + 1e-7]}).mean
    assert found[0] == pytest.approx(found[1], abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"lat": 95.0}, "between -90 and 90 degrees, got 95 in row 3"),
        ({"lon": 500.0}, "between -360 and 360"),
        ({"lon": np.nan}, "missing"),
        ({"lat": np.inf}, "not finite"),
        ({"lat": "50 N"}, "degrees"),
    ],
)
def test_bad_angles_are_named(changes, word):
    frame = degrees(POINTS).astype(object if "50 N" in changes.values() else float)
    for name, value in changes.items():
        frame.loc[3, name] = value
    refused(lambda: rfgp.GP(k.Sphere(), seed=0).fit(frame, Y), rfgp.DataError, word)
    refused(lambda: conditioned(POINTS, EXACT).predict(frame), rfgp.DataError, word)


def test_missing_columns_of_angles_are_named():
    refused(lambda: rfgp.GP(k.Sphere()).fit({"x": [1.0, 2.0]}, [1.0, 2.0]), rfgp.InvalidArgumentError, "such as lon")
    refused(lambda: rfgp.GP(k.Sphere(("a", "b"))).fit({"a": [1.0, 2.0]}, [1.0, 2.0]), rfgp.DataError, "no column 'b'")
