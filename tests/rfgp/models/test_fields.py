"""Models of fields on roads, surfaces and nodes, and of their products, against dense algebra with formulas."""

import pickle

import fields
import numpy as np
import pytest
import torch
import trimesh
from field_cases import NEW, ROWS, Y, network, ring
from model_checks import assert_gradients

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.saving import container

BALL = trimesh.creation.icosphere(1)
SPARSE = rfgp.SparsePrecision()
KNOWN = {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1, "seed": 0}


def compare(gp, terms, y, new, digits, noise=None):
    """Compare a model with dense algebra, given the covariances of its terms at its rows and at new points."""
    n, h, K = len(y), gp.hyperparameters, sum(terms.values())
    mean, noise = h.mean.item(), np.full(n, h.noise.item()) if noise is None else h.noise.item() + noise
    inverse = np.linalg.inv(K[:n, :n] + np.diag(noise))
    a = inverse @ (y - mean)
    density = -0.5 * ((y - mean) @ a - np.linalg.slogdet(inverse)[1] + n * np.log(2 * np.pi))
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, abs=10 * digits)
    found, left = gp.predict(new), gp.leave_one_out()
    for one, own, offset in [
        (found, K, mean),
        *((found.terms[name], terms[name], 0) for name in terms if len(terms) > 1),
    ]:
        posterior = own[n:, n:] - own[n:, :n] @ inverse @ own[:n, n:]
        np.testing.assert_allclose(one.mean, offset + own[n:, :n] @ a, atol=digits)
        np.testing.assert_allclose(one.covariance, posterior, atol=digits)
        np.testing.assert_allclose(one.variance, posterior.diagonal(), atol=digits)
    np.testing.assert_allclose(left.mean, y - a / inverse.diagonal(), atol=10 * digits)
    np.testing.assert_allclose(left.variance, 1 / inverse.diagonal(), rtol=1e-6, atol=digits)


def both(rows, new):
    return {key: np.concatenate([rows[key], new[key]]) for key in rows}


# --- kernels -------------------------------------------------------------------------------------

ROAD = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1000.0, 0.0)]], metric="euclidean")


@pytest.mark.parametrize("alpha", [1, 2])
def test_kernels_have_the_covariances_of_fields(alpha):
    fraction = np.array([0.0, 0.13, 0.5, 0.77, 1.0])
    found = k.Roads(ROAD, alpha, boundary="stationary", lengthscale=200.0).matrix(
        {"road": [0] * 5, "fraction": fraction}
    )
    expected = fields.matern(alpha - 0.5, 1000 * (fraction[:, None] - fraction), 200.0)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    Q = fields.mesh_precision((BALL.vertices, BALL.faces), alpha, 0.7)
    read = np.concatenate([np.eye(42), np.eye(42)[BALL.faces[0]].mean(0)[None]])  # the middle of a face
    found = k.Mesh(BALL, alpha, lengthscale=0.7).matrix(read @ BALL.vertices)
    np.testing.assert_allclose(found, read @ np.linalg.inv(Q) @ read.T, rtol=1e-7)


def test_nodes_have_the_kernel_of_the_graph():
    x = 1 - np.cos(2 * np.pi * np.subtract.outer(np.arange(12), np.arange(12)) / 12)  # of the circulant matrix
    waves = np.exp(2j * np.pi * np.outer(np.arange(12), np.arange(12)) / 12)
    spectra = {"diffusion": lambda x: np.exp(-0.5 * x), "regularized-laplacian": lambda x: (1 + x) ** -2.0}
    for name, spectral in spectra.items():
        kernel = graphs.kernels.by_name(
            name, **({"lengthscale": 1.0} if name == "diffusion" else {"order": 2, "sigma": 1.0})
        )
        exact = (waves * spectral(x[0]) @ waves.conj().T).real / 12
        nodes = k.Nodes(ring(12), kernel)
        np.testing.assert_allclose(nodes.matrix(["n3", "n0", "n7"]), exact[np.ix_([3, 0, 7], [3, 0, 7])], atol=1e-12)
        by_column = k.Nodes(ring(12), kernel, column="place").matrix({"place": ["n3", "n0"]})
        np.testing.assert_array_equal(by_column, nodes.matrix({"node": ["n3", "n0"]}))


@pytest.mark.parametrize(
    "kernel",
    [k.Roads(network(), lengthscale=400.0), k.Roads(network(), 2, lengthscale=400.0), k.Mesh(BALL, lengthscale=0.6)],
    ids=["roads", "smooth roads", "mesh"],
)
def test_gradients_of_kernels_match_differences(kernel):
    some = {name: column[:6] for name, column in ROWS.items()}
    start = torch.tensor(float(kernel.lengthscale), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: kernel.matrix(some, values={"lengthscale": value}), start, eps=1e-4)
    nodes, start = k.Nodes(ring(12), "diffusion"), torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: nodes.matrix(["n1", "n2"], values={"lengthscale": v}), start)


# --- roads and surfaces --------------------------------------------------------------------------

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


def on_roads(alpha, boundary):
    return lambda places, lengthscale: fields.law(ROADS, places, alpha, lengthscale, boundary)


def on_ball(places, lengthscale):
    found = graphs.MeshField(BALL).locate(places)
    read = np.zeros((len(places), 42))
    np.put_along_axis(read, BALL.faces[found.faces], found.barycentric, axis=1)
    return read @ np.linalg.inv(fields.mesh_precision((BALL.vertices, BALL.faces), 2, lengthscale)) @ read.T


MODELS = {
    "rough": (lambda **o: rfgp.RoadGP(ROADS, 1, seed=0, **o), on_roads(1, "neumann"), observations),
    "smooth": (
        lambda **o: rfgp.RoadGP(ROADS, 2, boundary="stationary", seed=0, **o),
        on_roads(2, "stationary"),
        observations,
    ),
    "mesh": (lambda **o: rfgp.MeshGP(BALL, seed=0, **o), on_ball, points),
}
MODEL = pytest.mark.parametrize(("make", "covariance", "data"), MODELS.values(), ids=MODELS)


@MODEL
def test_model_matches_dense_algebra(make, covariance, data):
    (X, y), (new, _) = data(), data(9, 1)
    gp, known = make().condition(X, y), np.linspace(0.01, 0.5, len(y))

    def check(noise=None):
        h = gp.hyperparameters
        K = h.outputscale.item() * covariance(np.concatenate([X, new]), h.lengthscale.item())
        compare(gp, {"field": K}, y, new, 1e-7, noise)

    check()
    assert_gradients(gp, abs=1e-6)
    gp.condition(X, y, noise=known)
    check(known)
    gp.condition(X[:-5], y[:-5]).update(X[-5:], y[-5:])
    check()
    together, alone = gp.predict(new), [gp.predict(place[None]) for place in new]
    np.testing.assert_allclose(together.mean, [p.mean[0] for p in alone], atol=1e-7)


@pytest.mark.slow
@MODEL
def test_fits_converge(make, covariance, data):
    (X, y), (new, truth) = data(), data(30, 1)
    gp = make().fit(X, y)
    assert gp.fit_report.converged
    assert gp.log_marginal_likelihood() > make().condition(X, y).log_marginal_likelihood()
    assert np.mean((gp.predict(new).mean - truth) ** 2) < 0.3 * truth.var()
    assert 0.02 < gp.hyperparameters.noise.item() ** 0.5 < 0.3  # the truth is 0.1


def test_outputs_share_a_field_and_functions_are_drawn_on_meshes():
    X, y = observations()
    gp, new = rfgp.RoadGP(ROADS, **KNOWN), observations(9, 1)[0]
    both_outputs = rfgp.RoadGP(ROADS, **KNOWN).condition(X, np.stack([y, 2 * y + 1], axis=1)).predict(new)
    np.testing.assert_allclose(both_outputs.mean[:, 0], gp.condition(X, y).predict(new).mean, atol=1e-9)
    assert gp.predict(new).sample(3, seed=0).shape == (3, 9)
    with pytest.raises(rfgp.InvalidArgumentError, match="predict"):
        gp.sample_functions(2)
    gp, new = rfgp.MeshGP(BALL, **KNOWN).condition(*points()), points(9, 1)[0]
    drawn, p = gp.sample_functions(4000, seed=0)(new), gp.predict(new)
    errors = (drawn - p.mean) @ np.linalg.inv(np.linalg.cholesky(p.covariance)).T
    assert np.abs(errors.mean(0)).max() < 7 / np.sqrt(4000)  # standard normals: 7 sigma
    assert np.abs((errors**2).mean(0) - 1).max() < 10 * np.sqrt(2 / 4000)


def test_merged_roads_and_crossings_share_predictions():
    cross = graphs.RoadNetwork.from_lines([[(1, 0), (1, 1), (1, 2)], [(0, 1), (1, 1), (2, 1)]], metric="euclidean")
    gp = rfgp.RoadGP(cross, **{**KNOWN, "lengthscale": 2.0, "noise": 1e-4})
    gp.condition([(0, f) for f in np.linspace(0, 1, 11)], np.linspace(1, 3, 11))
    found = gp.predict([(1, 0.5), (1, 0.4), (1, 1.0), (1, 0.2), (1, 0.8)])
    assert found.variance[0] < 1e-4 < found.variance[1] < found.variance[2]
    assert found.mean[0] == pytest.approx(2, abs=0.01)
    assert found.variance[3] == pytest.approx(found.variance[4])
    parts = graphs.RoadNetwork.from_lines([*LINES, [(9, 9), (10, 9)]], metric="euclidean")
    gp = rfgp.RoadGP(parts, **KNOWN)
    with pytest.warns(graphs.DisconnectedWarning, match="1 of them without an observation"):
        gp.condition([(0, 0.25), (1, 0.1)], [1.0, 2.0])
    assert gp.predict([(5, 0.5)]).mean[0] == pytest.approx(gp.hyperparameters.mean.item())


# --- surfaces whose vertices are close, loose, or far ---------------------------------------------


@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning", "ignore::graphs.DegenerateFacesWarning")
def test_loose_and_close_vertices_keep_their_places(tmp_path):
    """A sliver along one edge with vertex 0 in its middle, vertex 1 on no face, and vertices 1e-7 from corners."""
    X, y = points()
    a, b = BALL.faces[0, :2]
    vertices = np.concatenate([[BALL.vertices[[a, b]].mean(0), (9, 9, 9)], BALL.vertices])
    loose = trimesh.Trimesh(vertices, np.concatenate([BALL.faces + 2, [[a + 2, 0, b + 2]]]), process=False)
    corner, second, third = (np.asarray(BALL.vertices)[BALL.faces[:5, i]] for i in range(3))
    near = np.concatenate([BALL.vertices, corner + 1e-7 * (second + third - 2 * corner)])
    inner = [(*np.roll(face, -i)[:2], 42 + n) for n, face in enumerate(BALL.faces[:5]) for i in range(3)]
    close = trimesh.Trimesh(near, np.concatenate([inner, BALL.faces[5:]]), process=False)
    for mesh, new in ((loose, vertices[[0, 2]]), (close, near[-3:])):
        gp, plain = (rfgp.MeshGP(each, **KNOWN).condition(X, y) for each in (mesh, BALL))
        gp.save(tmp_path / "model.safetensors")
        for one in (gp, rfgp.load(tmp_path / "model.safetensors")):
            np.testing.assert_allclose(one.predict(new).mean, plain.predict(new).mean, atol=1e-6)
            np.testing.assert_allclose(one.predict(new).std, plain.predict(new).std, atol=1e-6)
    with pytest.warns(graphs.DegenerateFacesWarning, match="joins 5 vertices"):
        rfgp.MeshGP(close, **KNOWN)


def test_limit_of_distance_is_kept_and_saved(tmp_path):
    (X, y), far = points(), np.array([[0.0, 0.0, 4.0]])
    default = 0.1 * np.linalg.norm(np.ptp(BALL.vertices, axis=0))
    for within, expected in ((None, default), (0.1, 0.1), (np.inf, np.inf)):
        gp = rfgp.MeshGP(BALL, within=within, **KNOWN).condition(X, y)
        gp.save(tmp_path / "model.safetensors", data=True)
        for each in (gp, rfgp.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(gp))):
            assert each.within == pytest.approx(expected)
            if within == np.inf:
                np.testing.assert_allclose(each.predict(far).mean, each.predict(far / 4).mean, rtol=1e-9)
                continue
            for call in (each.predict, lambda P, gp=each: gp.update(P, [1.0])):
                with pytest.raises(rfgp.DataError, match="row 0 at a distance of 3"):
                    call(far)
    square = [(0.0, 0.0), (9.0, 0.0), (9.0, 9.0), (0.0, 9.0)], [(0, 1, 2), (0, 2, 3)]
    gp = rfgp.MeshGP(square, within=0.5, **KNOWN).condition([(3.0, 6.0), (6.0, 3.0)], [1.0, 2.0])
    assert gp.predict([(9.4, 4.5)]).mean.shape == (1,)  # near the surface, not a vertex
    with pytest.raises(rfgp.DataError, match=r"row 1 at a distance of 0\.6"):
        gp.predict([(4.5, 4.5), (9.6, 4.5)])


FAULTS = {
    "source": lambda part: part + 9,
    "road": lambda part: part + 1,
    "begin": lambda part: part + 0.5,
    "end": lambda part: part - 0.5,
    "representative": lambda part: part + 1,
    "is_reversed": lambda part: part.long(),
    "first": lambda part: part[:-1],
    "reached": lambda part: part[:-1],
    "lengths": lambda part: part.long(),
}


@pytest.mark.parametrize("name", FAULTS)
def test_roads_of_damaged_files_are_refused(name, tmp_path):
    file = tmp_path / "roads.safetensors"
    rfgp.RoadGP(ROADS, **KNOWN).condition(*observations()).save(file)
    header, tensors = container.read_file(file)
    container.write_file(file, header, {**tensors, f"object.0.{name}": FAULTS[name](tensors[f"object.0.{name}"])})
    with pytest.raises(rfgp.ModelFileError, match="consistent model"):
        rfgp.load(file)


# --- products with columns -----------------------------------------------------------------------

DAYS = {**ROWS, "day": np.resize([0.0, 2.5, 1.0, 6.0, 3.0, 4.2, 1.0], len(Y))}
NEW_DAYS = {**NEW, "day": np.resize([1.0, 2.0, 3.3, 6.0, 7.5], 8), "sensor": np.array(list("abzzyabc"))}
MATERN = graphs.kernels.Matern(nu=2, kappa=1.5)


def day(nu):
    return k.Matern("day", nu=nu, lengthscale=2.0)


def roads_of(lengthscale=500.0):
    return k.Roads(network(), lengthscale=lengthscale)


PRODUCTS = {
    "roads": (0.5, lambda d: (roads_of() * d).named("field") + k.Group("sensor", name="group")),
    "roads beside roads": (1.5, lambda d: (roads_of() * d).named("field") + roads_of(900.0).named("still")),
    "mesh": (2.5, lambda d: (k.Mesh(BALL, lengthscale=0.5) * d).named("field")),
    "nodes": (
        0.5,
        lambda d: (d * k.Nodes(ring(), MATERN)).named("field") + k.Linear("pressure", origin=2.0, name="slope"),
    ),
    "a series of each sensor": (2.5, lambda d: (k.Group("sensor") * d).named("field")),
    "roads of each sensor": (1.5, lambda d: (roads_of() * d * k.Group("sensor")).named("field")),
    "a coefficient on a mesh": (
        0.5,
        lambda d: (k.Mesh(BALL, lengthscale=0.5) * d * k.Linear("pressure", origin=2.0)).named("field"),
    ),
    "slopes of sensors": (
        0.5,
        lambda d: (roads_of() * d * k.Group("sensor") * k.Linear("pressure", origin=2.0)).named("field"),
    ),
    "a column": (
        0.5,
        lambda d: (
            k.Matern("hour", nu=0.5, lengthscale=5.0, name="field") + k.Linear("pressure", origin=2.0, name="slope")
        ),
    ),
    "two columns": (1.5, lambda d: (d * k.Matern("hour", nu=0.5, lengthscale=5.0)).named("field")),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_match_dense_algebra(name):
    nu, make = PRODUCTS[name]
    kernel = make(day(nu))
    chosen = {term.name: SPARSE for term in kernel.terms() if term.name != "slope"}
    gp = rfgp.GP(kernel, approximation=chosen, start={"noise": 0.1}, seed=0).condition(DAYS, Y)
    values = {path: gp.hyperparameters[path].detach() for path in gp.hyperparameters.names}
    terms = {}
    for term in kernel.terms():
        own = {path: value for path, value in values.items() if path.startswith(f"{term.name}.")}
        terms[term.name] = k.Sum((term,)).matrix(both(DAYS, NEW_DAYS), values=own).numpy()
    compare(gp, terms, Y, NEW_DAYS, {0.5: 1e-7, 1.5: 1e-6, 2.5: 1e-6}[nu])
    assert_gradients(gp, rel=1e-4, abs=1e-4)
    whole = gp.update(NEW_DAYS, np.arange(8.0)).predict(NEW_DAYS)
    expected = gp.condition(both(DAYS, NEW_DAYS), np.concatenate([Y, np.arange(8.0)])).predict(NEW_DAYS)
    np.testing.assert_allclose(whole.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(whole.std, expected.std, atol=1e-6)


def test_other_likelihoods_have_products():
    gp = rfgp.GP(roads_of() * day(0.5), likelihood="bernoulli", approximation=SPARSE, seed=0)
    gp.condition(DAYS, (np.median(Y) < Y).astype(float))
    np.testing.assert_allclose(gp.predict(NEW_DAYS).mean, gp.exact().predict(NEW_DAYS).mean, atol=1e-6)


def test_precisions_are_planned_where_they_are_cheaper():
    gp = rfgp.GP(PRODUCTS["roads"][1](day(0.5)), seed=0).condition(DAYS, Y)
    assert gp.terms["field"].approximation == SPARSE
    assert "latent values (" in gp.terms["field"].cost.note
    small = rfgp.GP(PRODUCTS["a column"][1](None), seed=0).condition(DAYS, Y)
    assert isinstance(small.terms["field"].approximation, rfgp.Exact)
    large = rfgp.GP((roads_of() * k.Matern("hour")).named("field"), seed=0).condition(DAYS, Y)
    assert isinstance(large.terms["field"].approximation, rfgp.Exact)  # 74 x 140 latent values of 70 rows

    t = np.random.default_rng(0).uniform(size=2100)
    long = rfgp.GP(k.Matern("t", nu=2.5, name="f"), start={"noise": 0.1}).condition({"t": t}, np.sin(9 * t))
    assert long.terms["f"].approximation == SPARSE


@pytest.mark.parametrize(("nu", "knots", "digits"), [(0.5, 502, 1e-6), (1.5, 360, 1e-5), (2.5, 60, 1e-5)])
def test_columns_of_close_rows_share_knots(nu, knots, digits):
    """Also rows that are equal up to rounding."""
    rng = np.random.default_rng(0)
    t = np.concatenate([rng.uniform(0, 2, 500), [0.5, 0.5 + 1e-16, 0.1 + 0.2, 0.3]])
    y = np.sin(3 * t) + 0.1 * rng.normal(size=504)
    kernel, new = k.Matern("t", nu=nu, lengthscale=1.0, name="trend"), np.linspace(-1, 3, 30)
    gp = rfgp.GP(kernel, approximation=SPARSE, start={"noise": 0.01, "trend.outputscale": 1.0}).condition({"t": t}, y)
    assert gp.terms["trend"].cost.num_features <= knots * (nu + 0.5)
    whole, h = np.concatenate([t, new]), gp.hyperparameters
    K = h["trend.outputscale"].item() * fields.matern(nu, whole[:, None] - whole, 1.0)
    solved = np.linalg.solve(K[:504, :504] + h.noise.item() * np.eye(504), K[:504, 504:])
    found = gp.predict({"t": new})
    np.testing.assert_allclose(found.mean, h.mean.item() + solved.T @ (y - h.mean.item()), atol=digits)
    np.testing.assert_allclose(found.variance, np.diag(K[504:, 504:] - K[504:, :504] @ solved), atol=digits)


# --- refusals ------------------------------------------------------------------------------------


def at(*places):
    return lambda: rfgp.RoadGP(ROADS, **KNOWN).condition(*observations()).predict(list(places))


LONG_ROAD = {"road": [7], "fraction": [0.5]}
REFUSED = {
    "roads of lines": (lambda: rfgp.RoadGP(LINES), "RoadNetwork"),
    "roads of order 3": (lambda: rfgp.RoadGP(ROADS, 3), "alpha"),
    "a mesh of a graph": (lambda: rfgp.MeshGP(ring()), r"k\.Nodes"),
    "no limit": (lambda: rfgp.MeshGP(BALL, within=0.0), "within"),
    "two coordinates": (lambda: rfgp.MeshGP(BALL).fit(points()[0][:, :2], points()[1]), "column"),
    "the center": (lambda: rfgp.MeshGP(BALL, **KNOWN).condition([(0.0, 0.0, 0.0)] * 2, [0.0, 1.0]), "distance of 0.9"),
    "one number": (at([0.5]), "column"),
    "a road too many": (at([9.0, 0.5]), "road"),
    "a fraction": (at([0.0, 1.5]), "fraction"),
    "nodes of a text": (lambda: k.Nodes("ring"), "graphs.Graph"),
    "a kernel on nodes": (lambda: k.Nodes(ring(), "rbf"), "rbf"),
    "one column of roads": (lambda: k.Roads(network(), columns=("road",)), "2 columns"),
    "a lengthscale of nothing": (lambda: k.Roads(network(), lengthscale=0.0), "lengthscale"),
    "no fractions": (lambda: k.Roads(network()).matrix({"road": [0]}), "Give columns"),
    "no coordinates": (lambda: k.Mesh(BALL).matrix({"x": [0.0]}), "x, y, z"),
    "no nodes": (lambda: k.Nodes(ring()).matrix({"x": ["n1"]}), "column="),
    "an unknown node": (lambda: k.Nodes(ring()).matrix({"node": ["n99"]}), "n99"),
    "an unknown road": (lambda: k.Roads(network(), lengthscale=1.0).matrix(LONG_ROAD), "road"),
    "a far point": (lambda: k.Mesh(BALL, lengthscale=1.0, within=0.1).matrix([[3.0, 0.0, 0.0]]), "within"),
    "lost digits": (
        lambda: rfgp.GP(
            k.Roads(network(), 2, lengthscale=500.0) * k.Matern("day", nu=2.5, lengthscale=4.0), approximation=SPARSE
        ).condition(DAYS, Y),
        "rounding error",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(name):
    call, word = REFUSED[name]
    with pytest.raises((rfgp.RfgpError, graphs.GraphError), match=word):
        call()
