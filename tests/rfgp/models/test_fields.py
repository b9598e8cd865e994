"""Models of fields on roads, surfaces and nodes, and of their products, against dense algebra with formulas."""

import pickle

import fields
import numpy as np
import pytest
import torch
import trimesh
from dense import DenseGP
from field_cases import NEW, ROWS, Y, network, ring
from model_checks import assert_gradients
from numpy.polynomial.legendre import legval
from numpy.testing import assert_allclose
from refusals import refused
from scipy.linalg import eigh

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.saving import container

BALL = trimesh.creation.icosphere(1)
SPARSE = rfgp.SparsePrecision()
KNOWN = {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1, "seed": 0}
LINES = [[(0, 0), (1, 0)], [(1, 0), (2, 0.5)], [(1, 0), (1, 1)], [(1, 1), (0, 1), (0, 0)], [(2, 0.5), (2, 2)]]
ROADS = graphs.RoadNetwork.from_lines(LINES, metric="euclidean")


def observations(count=40, seed=0):
    """Return positions, some of them several times and some at crossings, and values."""
    rng = np.random.default_rng(seed)
    positions = np.stack([rng.integers(len(LINES), size=count), rng.uniform(size=count)], axis=1)
    positions[:3, 1], positions[3] = (0.0, 1.0, 1.0), positions[4]
    return positions, np.sin(3 * positions[:, 1] + positions[:, 0]) + 0.1 * rng.standard_normal(count)


def points(count=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    x /= np.linalg.norm(x, axis=1)[:, None]
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(count)


def on_ball(places, lengthscale, alpha=2):
    found = graphs.MeshField(BALL).locate(places)
    read = np.zeros((len(places), 42))
    np.put_along_axis(read, BALL.faces[found.faces], found.barycentric, axis=1)
    return read @ np.linalg.inv(fields.mesh_precision((BALL.vertices, BALL.faces), alpha, lengthscale)) @ read.T


def both(rows, new):
    return {key: np.concatenate([rows[key], new[key]]) for key in rows}


def compare(gp, priors, y, new, digits):
    """Compare a model with dense algebra, given the covariances of its terms at its rows and at new points."""
    h, found = gp.hyperparameters, gp.predict(new)
    expected = DenseGP(priors, y, np.full(len(y), h.noise.item()), h.mean.item())
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood(), abs=10 * digits)
    assert_allclose(found.mean, expected.mean_at(), atol=digits)
    assert_allclose(found.covariance, expected.covariance(), atol=digits)
    for name in priors if len(priors) > 1 else ():
        assert_allclose(found.terms[name].mean, expected.mean_at([name]), atol=digits)
        assert_allclose(found.terms[name].variance, np.diag(expected.covariance([name])), atol=digits)


# --- kernels and models --------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1, 2])
def test_kernels_and_models_have_the_covariances_of_fields(alpha):
    (X, y), new = observations(), observations(9, 1)[0]
    for boundary in ("neumann", "stationary"):
        law = fields.law(ROADS, np.concatenate([X, new]), alpha, 1.0, boundary)
        kernel = k.Roads(ROADS, alpha, boundary=boundary, lengthscale=1.0)
        assert_allclose(kernel.matrix({"road": new[:, 0], "fraction": new[:, 1]}), law[40:, 40:], atol=1e-7)
        compare(rfgp.RoadGP(ROADS, alpha, boundary=boundary, **KNOWN).condition(X, y), {"field": law}, y, new, 1e-7)
    (X, y), new = points(), np.concatenate([points(9, 1)[0], BALL.vertices[BALL.faces[0]].mean(0)[None]])
    law = on_ball(np.concatenate([X, new]), 1.0, alpha)
    assert_allclose(k.Mesh(BALL, alpha, lengthscale=1.0).matrix(new), law[60:, 60:], rtol=1e-7)
    gp = rfgp.MeshGP(graphs.MeshField(BALL, alpha), **KNOWN).condition(X, y)
    compare(gp, {"field": law}, y, new, 1e-7)
    assert_gradients(gp, abs=1e-6)


def heat_on_ball(places, lengthscale):
    """Return the correlations of the heat kernel by a dense generalized eigenproblem."""
    found = graphs.MeshField(BALL).locate(places)
    read = np.zeros((len(places), 42))
    np.put_along_axis(read, BALL.faces[found.faces], found.barycentric, axis=1)
    C, G = fields.elements(BALL.vertices, BALL.faces)
    values, vectors = eigh(G, np.diag(C))
    law = read @ (vectors * np.exp(-(lengthscale**2) * values / 2)) @ vectors.T @ read.T
    return law / np.sqrt(np.outer(np.diag(law), np.diag(law)))


def test_smooth_kernel_matches_dense_eigenvectors():
    (X, y), new = points(), np.concatenate([points(9, 1)[0], BALL.vertices[BALL.faces[0]].mean(0)[None]])
    law = heat_on_ball(np.concatenate([X, new]), 0.7)
    assert_allclose(k.Mesh(BALL, np.inf, lengthscale=0.7).matrix(new), law[60:, 60:], atol=1e-9)
    gp = rfgp.MeshGP(BALL, np.inf, **{**KNOWN, "lengthscale": 0.7}).condition(X, y)
    assert gp.terms["mesh"].cost.note == "42 functions, exactly"
    compare(gp, {"field": law}, y, new, 1e-7)
    assert_gradients(gp, abs=1e-6)


def test_smooth_kernel_matches_spherical_harmonics():
    ball = trimesh.creation.icosphere(3)
    places = ball.vertices[:30]
    found = k.Mesh(ball, np.inf, lengthscale=0.6).matrix(places)
    degrees = np.arange(20)
    weights = (2 * degrees + 1) * np.exp(-(0.6**2) * degrees * (degrees + 1) / 2)
    assert_allclose(found, legval(places @ places.T, weights) / weights.sum(), atol=0.01)


def test_lengthscales_keep_the_omitted_variance_small():
    """Values without any correlation end at the shortest lengthscale, with 256 of 642 eigenfunctions."""
    ball, rng = trimesh.creation.icosphere(3), np.random.default_rng(0)
    gp = rfgp.MeshGP(ball, np.inf, noise=1e-3, seed=0).fit(ball.vertices[:100], rng.standard_normal(100), fixed="noise")
    lengthscale = gp.hyperparameters.lengthscale.item()
    assert np.exp(-(lengthscale**2) * graphs.MeshField(ball).spectrum(256)[0][-1] / 2) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.slow
def test_orders_that_rows_cannot_tell_apart_are_averaged():
    ball, rng = trimesh.creation.icosphere(2), np.random.default_rng(1)
    covariance = k.Mesh(ball, 1, lengthscale=2.0).matrix(ball.vertices).numpy()
    rough = np.linalg.cholesky(covariance) @ rng.standard_normal(162)
    smooth = np.sin(2 * ball.vertices[:, 0] + ball.vertices[:, 1]) * ball.vertices[:, 2]
    for values, alphas in ((rough, (2, 3, 4, np.inf)), (smooth, (np.inf,))):
        gp = rfgp.MeshGP(ball, seed=0).fit(ball.vertices[:120], values[:120] + 1e-3 * rng.standard_normal(120))
        assert set(gp.selection.parts) == {f"alpha={alpha}" for alpha in alphas}
        assert {trial.name for trial in gp.selection.trials} == {f"alpha={a}" for a in (2, 3, 4, np.inf)}


@pytest.mark.parametrize(
    "kernel",
    [
        k.Roads(network(), lengthscale=400.0),
        k.Roads(network(), 2, lengthscale=400.0),
        k.Mesh(BALL, lengthscale=0.6),
        k.Mesh(BALL, np.inf, lengthscale=0.6),
        k.Nodes(ring(), graphs.kernels.Diffusion(1.3)),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_gradients_of_kernels_match_differences(kernel):
    some = {name: column[:6] for name, column in ROWS.items()}
    start = torch.tensor(float(getattr(kernel, "lengthscale", 1.3)), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: kernel.matrix(some, values={"lengthscale": value}), start, eps=1e-4)


def test_parts_without_observations_have_the_prior_and_are_named():
    parts = graphs.RoadNetwork.from_lines([*LINES, [(9, 9), (10, 9)]], metric="euclidean")
    gp = rfgp.RoadGP(parts, **KNOWN)
    with pytest.warns(graphs.DisconnectedWarning, match="1 of them without an observation"):
        gp.condition([(0, 0.25), (1, 0.1)], [1.0, 2.0])
    assert gp.predict([(5, 0.5)]).mean[0] == pytest.approx(gp.hyperparameters.mean.item())


# --- surfaces whose vertices are close, loose, or far ---------------------------------------------


@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning", "ignore::graphs.DegenerateFacesWarning")
def test_loose_vertices_keep_their_places(tmp_path):
    """A sliver along one edge with vertex 0 in its middle, and vertex 1 on no face."""
    (X, y), (a, b) = points(), BALL.faces[0, :2]
    vertices = np.concatenate([[BALL.vertices[[a, b]].mean(0), (9, 9, 9)], BALL.vertices])
    loose = trimesh.Trimesh(vertices, np.concatenate([BALL.faces + 2, [[a + 2, 0, b + 2]]]), process=False)
    gp, plain = (rfgp.MeshGP(mesh, **KNOWN).condition(X, y) for mesh in (loose, BALL))
    gp.save(tmp_path / "model.safetensors")
    expected = plain.predict(vertices[[0, 2]])
    for one in (gp, rfgp.load(tmp_path / "model.safetensors")):
        found = one.predict(vertices[[0, 2]])
        assert_allclose(found.mean, expected.mean, atol=1e-6)
        assert_allclose(found.std, expected.std, atol=1e-6)


def test_limit_of_distance_is_kept_and_saved(tmp_path):
    (X, y), far = points(), np.array([[0.0, 0.0, 4.0]])
    default = 0.1 * np.linalg.norm(np.ptp(BALL.vertices, axis=0))
    for within, expected in ((None, default), (0.1, 0.1), (np.inf, np.inf)):
        gp = rfgp.MeshGP(BALL, within=within, **KNOWN).condition(X, y)
        gp.save(tmp_path / "model.safetensors", data=True)
        for each in (gp, rfgp.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(gp))):
            assert each.within == pytest.approx(expected)
            if within == np.inf:
                assert_allclose(each.predict(far).mean, each.predict(far / 4).mean, rtol=1e-9)
                continue
            for call in (each.predict, lambda P, gp=each: gp.update(P, [1.0])):
                refused(lambda call=call: call(far), rfgp.DataError, "row 0 at a distance of 3")


FAULTS = {
    **dict.fromkeys(("source", "road", "representative"), lambda part: part + 9),
    "start": lambda part: part + 0.5,
    "end": lambda part: part - 0.5,
    **dict.fromkeys(("is_reversed", "lengths"), lambda part: part.long()),
    **dict.fromkeys(("first", "reached"), lambda part: part[:-1]),
}


def test_roads_of_damaged_files_are_refused(tmp_path):
    file = tmp_path / "roads.safetensors"
    rfgp.RoadGP(ROADS, **KNOWN).condition(*observations()).save(file)
    header, tensors = container.read_file(file)
    for name, fault in FAULTS.items():
        container.write_file(file, header, {**tensors, f"object.0.{name}": fault(tensors[f"object.0.{name}"])})
        refused(lambda: rfgp.load(file), rfgp.ModelFileError, "consistent model")


# --- products with columns -----------------------------------------------------------------------

DAYS = {**ROWS, "day": np.resize([0.0, 2.5, 1.0, 6.0, 3.0, 4.2, 1.0], len(Y))}
NEW_DAYS = {**NEW, "day": np.resize([1.0, 2.0, 3.3, 6.0, 7.5], 8), "sensor": np.array(list("abzzyabc"))}
ROUGH, DAY, SMOOTH = (k.Matern("day", nu=nu, lengthscale=2.0) for nu in (0.5, 1.5, 2.5))
STREETS, SENSOR = k.Roads(network(), lengthscale=500.0), k.Group("sensor")
SURFACE, SLOPE = k.Mesh(BALL, lengthscale=0.5), k.Linear("pressure", origin=2.0)
HOUR = k.Matern("hour", nu=0.5, lengthscale=5.0)
NODES = k.Nodes(ring(), graphs.kernels.Matern(nu=2, kappa=1.5))
PRODUCTS = {
    "roads": (1e-7, (STREETS * ROUGH).named("field") + SENSOR.named("group")),
    "roads beside roads": (1e-6, (STREETS * DAY).named("field") + k.Roads(network(), lengthscale=900.0, name="still")),
    "mesh": (1e-6, (SURFACE * SMOOTH).named("field")),
    "nodes": (1e-7, (ROUGH * NODES).named("field") + SLOPE.named("slope")),
    "a series of each sensor": (1e-6, (SENSOR * SMOOTH).named("field")),
    "roads of each sensor": (1e-6, (STREETS * DAY * SENSOR).named("field")),
    "a coefficient on a mesh": (1e-7, (SURFACE * ROUGH * SLOPE).named("field")),
    "slopes of sensors": (1e-7, (STREETS * ROUGH * SENSOR * SLOPE).named("field")),
    "two columns": (1e-6, (DAY * HOUR).named("field")),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_match_dense_algebra(name):
    digits, kernel = PRODUCTS[name]
    chosen = {term.name: SPARSE for term in kernel.terms() if term.name != "slope"}
    gp = rfgp.GP(kernel, approximation=chosen, start={"noise": 0.1}, seed=0).condition(DAYS, Y)
    values, priors = {path: gp.hyperparameters[path].detach() for path in gp.hyperparameters.names}, {}
    for term in kernel.terms():
        own = {path: value for path, value in values.items() if path.startswith(f"{term.name}.")}
        priors[term.name] = k.Sum((term,)).matrix(both(DAYS, NEW_DAYS), values=own).numpy()
    compare(gp, priors, Y, NEW_DAYS, digits)
    assert_gradients(gp, rel=1e-4, abs=1e-4)
    whole = gp.update(NEW_DAYS, np.arange(8.0)).predict(NEW_DAYS)
    expected = gp.condition(both(DAYS, NEW_DAYS), np.concatenate([Y, np.arange(8.0)])).predict(NEW_DAYS)
    assert_allclose(whole.mean, expected.mean, atol=1e-6)
    assert_allclose(whole.std, expected.std, atol=1e-6)


def test_slopes_of_a_product_in_all_of_its_columns_match_differences():
    """Variances of fields on a mesh and of nodes differ between points, and that of a coefficient grows."""
    path = graphs.Graph.from_edges([("a", "b"), ("b", "c")])
    kernel = SURFACE * k.Nodes(path, graphs.kernels.Matern(nu=2, kappa=1.5)) * ROUGH * SLOPE
    table = {**dict(zip("xyz", points(4)[0].T, strict=True)), "day": [0.0, 3.0, 6.0, 3.0], "pressure": [2.0, 0, 3, 4]}
    gp = rfgp.GP(kernel, approximation=SPARSE, start={"noise": 0.1}, seed=0)
    gp.condition({**table, "node": ["a", "b", "c", "a"]}, [1.0, -1.0, 0.5, 2.0])
    places = BALL.triangles[[3, 20, 51]].transpose(0, 2, 1) @ [0.5, 0.3, 0.2]  # within faces
    rows = {**dict(zip("xyz", places.T, strict=True)), "day": np.array([0.7, 2.2, 5.0]), "pressure": np.arange(3.0)}
    inputs, node = {name: torch.tensor(column, requires_grad=True) for name, column in rows.items()}, list("abb")
    for read in (lambda p: p.mean, lambda p: p.variance):
        value = read(gp.predict({**inputs, "node": node})).sum()
        slopes = torch.autograd.grad(value, list(inputs.values()))
        for (name, column), slope in zip(rows.items(), slopes, strict=True):
            up, down = (read(gp.predict({**rows, "node": node, name: column + step})) for step in (1e-5, -1e-5))
            assert_allclose(slope, (up - down) / 2e-5, rtol=1e-5, atol=1e-7)


def test_precisions_are_planned_where_they_are_cheaper():
    gp = rfgp.GP(PRODUCTS["roads"][1], seed=0).condition(DAYS, Y)
    assert gp.terms["field"].approximation == SPARSE
    assert "latent values (" in gp.terms["field"].cost.note
    for few in (HOUR.named("field"), (STREETS * k.Matern("hour")).named("field")):  # the second: 74 x 140 values
        assert rfgp.GP(few, seed=0).condition(DAYS, Y).terms["field"].approximation == rfgp.Exact()


@pytest.mark.parametrize(("nu", "knots", "digits"), [(0.5, 502, 1e-6), (1.5, 360, 1e-5), (2.5, 60, 1e-5)])
def test_columns_of_close_rows_share_knots(nu, knots, digits):
    """Also rows that are equal up to rounding."""
    rng = np.random.default_rng(0)
    t = np.concatenate([rng.uniform(0, 2, 500), [0.5, 0.5 + 1e-16, 0.1 + 0.2, 0.3]])
    y = np.sin(3 * t) + 0.1 * rng.normal(size=504)
    kernel, new = k.Matern("t", nu=nu, lengthscale=1.0, name="trend"), np.linspace(-1, 3, 30)
    gp = rfgp.GP(kernel, approximation=SPARSE, start={"noise": 0.01, "trend.outputscale": 1.0}).condition({"t": t}, y)
    assert gp.terms["trend"].cost.num_features <= knots * (nu + 0.5)
    whole = np.concatenate([t, new])
    prior = {"trend": fields.matern(nu, whole[:, None] - whole, 1.0)}
    expected = DenseGP(prior, y, np.full(504, 0.01), gp.hyperparameters.mean.item())
    found = gp.predict({"t": new})
    assert_allclose(found.mean, expected.mean_at(), atol=digits)
    assert_allclose(found.variance, np.diag(expected.covariance()), atol=digits)


# --- refusals ------------------------------------------------------------------------------------

INVALID, DATA = rfgp.InvalidArgumentError, rfgp.DataError


def at(*places):
    return lambda: rfgp.RoadGP(ROADS, **KNOWN).condition(*observations()).predict(list(places))


CLOSE_DAYS = k.Roads(network(), 2, lengthscale=500.0) * k.Matern("day", nu=2.5, lengthscale=4.0)
REFUSED = [
    (lambda: rfgp.RoadGP(LINES), graphs.InvalidArgumentError, "RoadNetwork"),
    (lambda: rfgp.RoadGP(ROADS, 3), graphs.InvalidArgumentError, "alpha"),
    (lambda: rfgp.MeshGP(ring()), INVALID, "k.Nodes"),
    (lambda: rfgp.MeshGP(BALL, within=0.0), INVALID, "within"),
    (lambda: rfgp.MeshGP(graphs.MeshField(BALL, 3), 2), INVALID, "alpha"),
    (lambda: rfgp.MeshGP(BALL, -np.inf), graphs.InvalidArgumentError, "alpha"),
    (
        lambda: k.Mesh(BALL, np.inf, lengthscale=1.0).matrix(torch.tensor([[0.0, 0.0, 1.0]], requires_grad=True)),
        rfgp.NotDifferentiableError,
        "finite alpha",
    ),
    (lambda: rfgp.MeshGP(BALL).fit(points()[0][:, :2], points()[1]), DATA, "column"),
    (lambda: rfgp.MeshGP(BALL, **KNOWN).condition([(0.0, 0.0, 0.0)] * 2, [0.0, 1.0]), DATA, "distance of 0.9"),
    (at([0.5]), DATA, "column"),
    (at([9.0, 0.5]), DATA, "road"),
    (at([0.0, 1.5]), DATA, "fraction"),
    (lambda: k.Nodes("ring"), INVALID, "graphs.Graph"),
    (lambda: k.Nodes(ring(), "rbf"), graphs.InvalidArgumentError, "rbf"),
    (lambda: k.Roads(network()).matrix({"road": [0]}), INVALID, "Give columns"),
    (lambda: STREETS.matrix({"road": [7], "fraction": [0.5]}), DATA, "road"),
    (lambda: k.Mesh(BALL).matrix({"x": [0.0]}), INVALID, "x, y, z"),
    (lambda: k.Nodes(ring()).matrix({"x": ["n1"]}), INVALID, "column="),
    (lambda: k.Nodes(ring()).matrix({"node": ["n99"]}), DATA, "n99"),
    (lambda: rfgp.GP(CLOSE_DAYS, approximation=SPARSE).condition(DAYS, Y), INVALID, "rounding error"),
]


@pytest.mark.parametrize(("call", "error", "word"), REFUSED)
def test_bad_arguments_are_refused(call, error, word):
    refused(call, error, word)
