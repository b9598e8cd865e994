"""Processes on roads and on surfaces against dense algebra on the same fields."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from model_checks import assert_gradients

import graphs
import rfgp
from graphs.precisions import MarkovField
from rfgp.saving import container

LINES = [[(0, 0), (1, 0)], [(1, 0), (2, 0.5)], [(1, 0), (1, 1)], [(1, 1), (0, 1), (0, 0)], [(2, 0.5), (2, 2)]]


def roads(lines=LINES):
    return graphs.RoadNetwork.from_lines(lines, metric="euclidean")


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


MODELS = {
    "alpha 1": lambda: (rfgp.RoadGP(roads(), 1, seed=0), *observations(), observations(9, 1)[0]),
    "alpha 2": lambda: (rfgp.RoadGP(roads(), 2, boundary="stationary", seed=0), *observations(), observations(9, 1)[0]),
    "mesh": lambda: (rfgp.MeshGP(trimesh.creation.icosphere(2), seed=0), *points(), points(9, 1)[0]),
}


def domain_of(gp):
    """Return the domain of the field of a model."""
    ((factor,),) = (term.factors for term in gp.kernel.terms())
    return factor.domain


def covariance(gp, inputs):
    """Return the prior covariance of the function at inputs, by dense algebra on the field."""
    domain, h = domain_of(gp), gp.hyperparameters
    if isinstance(gp, rfgp.RoadGP):
        field, index = domain.roads.refine(inputs)
        A = np.eye(len(field.coordinates))[index]
    else:
        field, found = domain.mesh, domain.mesh.locate(inputs)
        A = domain.mesh.projector(found.faces, found.barycentric).toarray()
    entries = field.entries(np.array([h.lengthscale.item()]))
    Q = sp.csr_array((entries, field.pattern.indices, field.pattern.indptr)).toarray()
    return h.outputscale.item() * A @ np.linalg.inv(Q) @ A.T


def check(gp, X, y, new, noise=None):
    """Compare likelihood, prediction and leave-one-out with dense algebra."""
    n, h = len(y), gp.hyperparameters
    K = covariance(gp, np.concatenate([X, new]))
    noise = np.full(n, h.noise.item()) if noise is None else h.noise.item() + noise
    C, mean = K[:n, :n] + np.diag(noise), h.mean.item()
    inverse = np.linalg.inv(C)
    a = inverse @ (y - mean)
    expected = -0.5 * ((y - mean) @ a + np.linalg.slogdet(C)[1] + n * np.log(2 * np.pi))
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, abs=1e-7)
    p = gp.predict(new)
    np.testing.assert_allclose(p.mean, mean + K[n:, :n] @ a, atol=1e-8)
    law = K[n:, n:] - K[n:, :n] @ inverse @ K[:n, n:]
    np.testing.assert_allclose(p.covariance, law, atol=1e-8)
    np.testing.assert_allclose(p.variance, law.diagonal(), rtol=1e-6)
    left = gp.leave_one_out()
    np.testing.assert_allclose(left.mean, y - a / inverse.diagonal(), atol=1e-7)
    np.testing.assert_allclose(left.variance, 1 / inverse.diagonal(), rtol=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_dense_process(name):
    gp, X, y, new = MODELS[name]()
    check(gp.fit(X, y), X, y, new)
    assert gp.fit_report.converged
    known = np.linspace(0.01, 0.5, len(y))
    check(gp.condition(X, y, noise=known), X, y, new, noise=known)
    gp.condition(X[:-5], y[:-5]).update(X[-5:], y[-5:])
    check(gp, X, y, new)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_differences(name):
    gp, X, y, _ = MODELS[name]()
    gp.condition(X, y)
    assert_gradients(gp, abs=1e-6)


@pytest.mark.parametrize("alpha", [1, 2])
def test_how_roads_are_cut_changes_nothing(alpha):
    """Nor does which way they run: the same fit, and the same predictions, from the same places."""
    X, y = observations()
    X = X[X[:, 0] != 3]
    y = y[: len(X)]
    half = [
        line for a, b in (line for i, line in enumerate(LINES) if i != 3) for line in ([b, mid(a, b)], [mid(a, b), a])
    ]
    cut = roads([*half, LINES[3]])
    road, fraction = X[:, 0].astype(int), X[:, 1]
    numbers = {0: 0, 1: 2, 2: 4, 4: 6}
    second = fraction < 0.5  # the half at the line's first point, which runs backwards
    moved = np.stack(
        [np.array([numbers[r] for r in road]) + second, np.where(second, 1 - 2 * fraction, 2 - 2 * fraction)], 1
    )
    whole, pieces = rfgp.RoadGP(roads(), alpha, seed=0).fit(X, y), rfgp.RoadGP(cut, alpha, seed=0).fit(moved, y)
    for name in ("lengthscale", "outputscale", "noise", "mean"):
        first, other = (getattr(gp.hyperparameters, name).item() for gp in (whole, pieces))
        assert other == pytest.approx(first, rel=1e-3)  # where searches end depends on rounding
    np.testing.assert_allclose(pieces.predict(moved[:9]).mean, whole.predict(X[:9]).mean, atol=1e-4)


def mid(a, b):
    return tuple((np.array(a) + np.array(b)) / 2)


def test_inspection_changes_no_prediction():
    gp, X, y, new = MODELS["alpha 2"]()
    gp.condition(X, y)
    together, alone = gp.predict(new), [gp.predict(position[None]) for position in new]
    np.testing.assert_allclose(together.mean, [p.mean[0] for p in alone], atol=1e-8)
    np.testing.assert_allclose(together.variance, [p.variance[0] for p in alone], rtol=1e-6)
    np.testing.assert_allclose(gp.predict(new.tolist()).mean, together.mean, rtol=1e-12)


def test_outputs_share_a_field():
    gp, X, y, new = MODELS["alpha 1"]()
    both = rfgp.RoadGP(roads(), lengthscale=1.0, outputscale=1.0, noise=0.1, seed=0)
    both.condition(X, np.stack([y, 2 * y + 1], axis=1))
    single = rfgp.RoadGP(roads(), lengthscale=1.0, outputscale=1.0, noise=0.1, seed=0).condition(X, y)
    assert both.predict(new).mean.shape == (9, 2)
    np.testing.assert_allclose(both.predict(new).mean[:, 0], single.predict(new).mean, atol=1e-9)
    assert gp.seed == 0


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_goes_on_where_it_was_stopped(name, tmp_path):
    gp, X, y, _ = MODELS[name]()
    whole = gp.fit(X, y, checkpoint=tmp_path / "fit")
    again = MODELS[name]()[0].fit(X, y, checkpoint=tmp_path / "fit")
    assert again.log_marginal_likelihood().item() == whole.log_marginal_likelihood().item()
    other, X, y, _ = MODELS["mesh" if name != "mesh" else "alpha 1"]()
    with pytest.raises(rfgp.CheckpointError, match="of another fit"):
        other.fit(X, y, checkpoint=tmp_path / "fit")


def ring(count, radius=1.0, around=(0.0, 0.0), begin=0.0):
    angles = begin + np.linspace(0, 2 * np.pi, count + 1)
    points = np.asarray(around) + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([points[:-1], points[:1]])


@pytest.mark.parametrize("alpha", [1, 2])
@pytest.mark.parametrize("metric", ["euclidean", "haversine"])
def test_a_single_ring_is_the_process_on_a_circle(alpha, metric):
    """Wherever the ring begins, the variance is the same all around, and only distances along it count."""
    lines = [ring(36, 0.01, (8.0, 0.0), begin) for begin in (0.0, np.pi / 2)]
    networks = [graphs.RoadNetwork.from_lines([line], metric=metric) for line in lines]
    length = networks[0].total_length
    seen = np.array([0.0, 0.1, 0.25, 0.6, 0.7])
    laws = []
    for network, shift in zip(networks, (0.0, 0.25), strict=True):
        gp = rfgp.RoadGP(network, alpha, lengthscale=length / 5, outputscale=1.0, noise=0.1, seed=0)
        assert domain_of(gp).extent == pytest.approx(0.02 * np.sqrt(2) * length / (0.02 * np.pi), rel=0.01)
        gp.condition(np.stack([np.zeros(5), (seen - shift) % 1.0], axis=1), [1.0, 2.0, 0.5, 0.0, 1.0])
        laws.append(gp.predict([(0, (f - shift) % 1.0) for f in (0.05, 0.4, 0.95)]))
    np.testing.assert_allclose(laws[0].mean, laws[1].mean, rtol=1e-3)
    np.testing.assert_allclose(laws[0].variance, laws[1].variance, rtol=1e-3)


def test_rings_that_share_a_point_can_be_fitted():
    lines = [ring(12, 1.0, (-1.0, 0.0)), ring(12, 2.0, (2.0, 0.0), np.pi)]
    network = graphs.RoadNetwork.from_lines(lines, metric="euclidean", snap=1e-9)
    assert network.degrees.tolist() == [4]
    positions = [(road, f) for road in (0, 1) for f in np.linspace(0.05, 0.95, 9)]
    gp = rfgp.RoadGP(network, seed=0).fit(positions, np.sin(np.arange(18)))
    assert np.isfinite(gp.predict([(0, 0.5)]).mean).all()


FAULTS = {
    "source": lambda held: {"source": held["source"] + 9},
    "road": lambda held: {"road": held["road"] + 1},
    "begin": lambda held: {"begin": held["begin"] + 0.5},
    "end": lambda held: {"end": held["end"] - 0.5},
    "representative": lambda held: {"representative": held["representative"] + 1},
    "is_reversed": lambda held: {"is_reversed": held["is_reversed"].long()},
    "first": lambda held: {"first": held["first"][:-1]},
    "reached": lambda held: {"reached": held["reached"][:-1]},
    "lengths": lambda held: {"lengths": held["lengths"].long()},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_roads_of_damaged_files_are_refused(fault, tmp_path):
    gp, X, y, _ = MODELS["alpha 1"]()
    file = tmp_path / "roads.safetensors"
    gp.condition(X, y).save(file)
    header, tensors = container.read_file(file)
    held = {name.removeprefix("object.0."): tensor for name, tensor in tensors.items()}
    container.write_file(file, header, tensors)
    assert rfgp.load(file).seed == gp.seed
    container.write_file(file, header, {**tensors, **{f"object.0.{k}": v for k, v in FAULTS[fault](held).items()}})
    with pytest.raises(rfgp.ModelFileError, match="consistent model"):
        rfgp.load(file)


def test_functions_are_drawn_on_meshes_alone():
    gp, X, y, new = MODELS["mesh"]()
    gp.condition(X, y)
    drawn = gp.sample_functions(4000, seed=0)(new)
    law = gp.predict(new)
    errors = (drawn - law.mean) @ np.linalg.inv(np.linalg.cholesky(law.covariance)).T
    assert np.abs(errors.mean(0)).max() < 7 / np.sqrt(4000)  # standard normals: 7 sigma
    assert np.abs((errors**2).mean(0) - 1).max() < 10 * np.sqrt(2 / 4000)
    gp, X, y, new = MODELS["alpha 1"]()
    with pytest.raises(rfgp.InvalidArgumentError, match=r"predict\(X\).sample"):
        gp.condition(X, y).sample_functions(2)
    assert gp.predict(new).sample(3, seed=0).shape == (3, 9)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([[0.5]], "column"),
        ([[9.0, 0.5]], "road"),
        ([[0.5, 0.5]], "road"),
        ([[0.0, 1.5]], "fraction"),
        ([[0.0, np.nan]], "missing value"),
    ],
)
def test_positions_are_checked(positions, message):
    gp, X, y, _ = MODELS["alpha 1"]()
    gp.condition(X, y)
    with pytest.raises(rfgp.DataError, match=message):
        gp.predict(positions)
    with pytest.raises(rfgp.DataError, match=message):
        gp.fit(np.concatenate([np.array(positions), np.array(positions)]), [0.0, 1.0])


def test_other_arguments_are_checked():
    with pytest.raises(graphs.InvalidArgumentError, match=r"roads must be a graphs\.RoadNetwork"):
        rfgp.RoadGP(LINES)
    with pytest.raises(graphs.InvalidArgumentError, match="alpha must be 1 or 2"):
        rfgp.RoadGP(roads(), 3)
    with pytest.raises(rfgp.InvalidArgumentError, match=r"k\.Nodes"):
        rfgp.MeshGP(graphs.Graph.from_edges([(0, 1)]))
    gp, X, y, _ = MODELS["mesh"]()
    with pytest.raises(rfgp.DataError, match="column"):
        gp.fit(X[:, :2], y)


@pytest.mark.parametrize("name", MODELS)
def test_planted_errors_are_seen(name, monkeypatch):
    determinant = MarkovField.log_determinant if name != "mesh" else graphs.MeshField.log_determinant
    owner = MarkovField if name != "mesh" else graphs.MeshField

    def wrong(self, values):
        found = determinant(self, values)
        return found[0] * 1.0001 + 1e-4, found[1]

    monkeypatch.setattr(owner, "log_determinant", wrong)
    with pytest.raises(AssertionError):
        test_it_is_the_dense_process(name)


def test_a_field_on_roads_is_read_where_it_has_values():
    gp, X, y, _ = MODELS["alpha 1"]()
    domain = domain_of(gp.condition(X, y))
    with pytest.raises(rfgp.InvalidArgumentError, match="vertices"):
        domain.projector(X)
    field, projector = domain.refine(X)
    read = projector(X[::2])
    assert read.shape == (len(X[::2]), len(field.coordinates))
    np.testing.assert_array_equal(read.sum(axis=1), 1)


def test_points_are_located_once_for_a_fit(monkeypatch):
    counted, locate = [], graphs.MeshField.locate
    monkeypatch.setattr(graphs.MeshField, "locate", lambda self, p: counted.append(len(p)) or locate(self, p))
    gp, X, y, new = MODELS["mesh"]()
    gp.fit(X, y)
    assert gp.fit_report.evaluations > 5
    assert counted.count(len(X)) == 1
    first = gp.predict(new).mean
    np.testing.assert_array_equal(gp.predict(new[::-1]).mean, first[::-1])  # other points are located anew
    np.testing.assert_array_equal(gp.predict(X).mean, pickle.loads(pickle.dumps(gp)).predict(X).mean)


@pytest.mark.filterwarnings("ignore::graphs.UnreferencedVerticesWarning", "ignore::graphs.DegenerateFacesWarning")
def test_a_mesh_with_loose_vertices_keeps_their_numbers(tmp_path):
    """A sphere with a sliver along one edge, whose middle is vertex 0, and a vertex on no face, 1."""
    ball = trimesh.creation.icosphere(2)
    a, b = ball.faces[0, :2]
    vertices = np.concatenate([[ball.vertices[[a, b]].mean(0), (9, 9, 9)], ball.vertices])
    mesh = trimesh.Trimesh(vertices, np.concatenate([ball.faces + 2, [[a + 2, 0, b + 2]]]), process=False)
    X, y = points()
    options = {"lengthscale": 0.5, "outputscale": 1.0, "noise": 0.01, "seed": 0}
    gp, plain = (rfgp.MeshGP(each, **options).condition(X, y) for each in (mesh, ball))
    np.testing.assert_allclose(gp.predict(vertices[[0]]).mean, plain.predict(vertices[[0]]).mean, rtol=1e-9)
    field = domain_of(gp).mesh
    assert (field.num_vertices, len(field.coordinates), field.vertices_on_faces[0]) == (164, 162, 2)
    gp.save(tmp_path / "model.safetensors")
    again = rfgp.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(domain_of(again).mesh.vertices, vertices)
    np.testing.assert_allclose(again.predict(vertices[[0, 2]]).mean, gp.predict(vertices[[0, 2]]).mean, rtol=1e-9)


@pytest.mark.parametrize("alpha", [2, 3])
def test_close_vertices_share_values_and_keep_places(alpha, tmp_path):
    """Vertices in five faces of a sphere, 1e-7 of the way from a corner, three of them observed."""
    ball = trimesh.creation.icosphere(2)
    a, b, c = (np.asarray(ball.vertices)[ball.faces[:5, i]] for i in range(3))
    vertices = np.concatenate([ball.vertices, a + 1e-7 * (b + c - 2 * a)])
    inner = [(*np.roll(face, -i)[:2], 162 + n) for n, face in enumerate(ball.faces[:5]) for i in range(3)]
    mesh = trimesh.Trimesh(vertices, np.concatenate([inner, ball.faces[5:]]), process=False)
    rows = np.concatenate([vertices[:60], vertices[-3:]])
    options = {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.01, "seed": 0}
    with pytest.warns(graphs.DegenerateFacesWarning, match="joins 5 vertices") as caught:
        gp = rfgp.MeshGP(mesh, alpha, **options).condition(rows, rows[:, 2])
    assert len(caught) == 1
    expected = rfgp.MeshGP(ball, alpha, **options).condition(rows, rows[:, 2])
    gp.save(tmp_path / "model.safetensors")
    with pytest.warns(graphs.DegenerateFacesWarning):
        again = rfgp.load(tmp_path / "model.safetensors")
    new = np.concatenate([vertices[60:], vertices[mesh.faces[:15]].mean(axis=1)])
    right = expected.predict(new)
    for model in (gp, again):
        np.testing.assert_allclose(model.predict(new).mean, right.mean, atol=1e-6)
        np.testing.assert_allclose(model.predict(new).std, right.std, atol=1e-6)
    np.testing.assert_array_equal(domain_of(again).mesh.vertices, vertices)
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood().item(), rel=1e-6)


def test_auto_alpha_warns_of_thin_faces_of_any():
    """A vertex 1e-3 of the way along a side is too close to its end for alpha = 4."""
    ball = trimesh.creation.icosphere(1)
    a, b, c = ball.faces[0]
    near = ball.vertices[a] + 1e-3 * (ball.vertices[b] + ball.vertices[c] - 2 * ball.vertices[a])
    faces = np.concatenate([ball.faces[1:], [(a, b, 42), (b, c, 42), (c, a, 42)]])
    with pytest.warns(graphs.DegenerateFacesWarning, match="alpha = 4"):
        rfgp.MeshGP((np.concatenate([ball.vertices, [near]]), faces), "auto")


@pytest.mark.parametrize(("point", "distance"), [((9.0, 0.0, 0.0), "8 "), ((0.0, 0.0, 0.0), r"0\.98")])
def test_points_far_from_the_surface_are_refused(point, distance):
    """Also the centre of the sphere, from which all faces are about equally far."""
    gp, X, y, _ = MODELS["mesh"]()
    gp.condition(X, y)
    message = rf"within 0\.3\d+ of the surface, got row 2 at a distance of {distance}"
    far = np.concatenate([X[:2], [point]])
    with pytest.raises(rfgp.DataError, match=message):
        gp.predict(far)
    with pytest.raises(rfgp.DataError, match=message):
        gp.condition(far, y[:3])
    with pytest.raises(rfgp.DataError, match=message):
        gp.fit(far, y[:3])
    with pytest.raises(rfgp.DataError, match=message):
        gp.update(far, y[:3])


def test_a_limit_of_distance_is_kept_and_saved(tmp_path):
    """Also by a model that was saved without one, which has the default."""
    X, y = points()
    mesh, far = trimesh.creation.icosphere(2), np.array([[0.0, 0.0, 4.0]])
    default = 0.1 * np.linalg.norm(np.ptp(mesh.vertices, axis=0))
    for within, expected in ((None, default), (0.1, 0.1), (np.inf, np.inf)):
        gp = rfgp.MeshGP(mesh, within=within, lengthscale=1.0, outputscale=1.0, noise=0.1, seed=0).condition(X, y)
        assert gp.within == pytest.approx(expected)
        gp.save(tmp_path / "model.safetensors", data=True)
        again = rfgp.load(tmp_path / "model.safetensors")
        assert again.within == gp.within
        for each in (gp, again, pickle.loads(pickle.dumps(gp))):
            if within == np.inf:
                np.testing.assert_allclose(each.predict(far).mean, each.predict(far / 4).mean, rtol=1e-9)
            else:
                with pytest.raises(rfgp.DataError, match="of the surface"):
                    each.predict(far)
    for wrong in (0.0, -1.0, "near", True, np.nan):
        with pytest.raises(rfgp.InvalidArgumentError, match="within must be a positive number"):
            rfgp.MeshGP(mesh, within=wrong)


def test_points_are_near_the_surface_not_a_vertex():
    """A square of two large faces: its centre is far from the corners."""
    square = [(0.0, 0.0), (9.0, 0.0), (9.0, 9.0), (0.0, 9.0)], [(0, 1, 2), (0, 2, 3)]
    gp = rfgp.MeshGP(square, within=0.5, lengthscale=1.0, outputscale=1.0, noise=0.1, seed=0)
    gp.condition([(3.0, 6.0), (6.0, 3.0)], [1.0, 2.0])
    assert gp.predict([(9.4, 4.5)]).mean.shape == (1,)
    with pytest.raises(rfgp.DataError, match=r"row 1 at a distance of 0\.6"):
        gp.predict([(4.5, 4.5), (9.6, 4.5)])
    with pytest.raises(rfgp.DataError, match="missing value"):
        gp.predict([(np.nan, 4.5)])
