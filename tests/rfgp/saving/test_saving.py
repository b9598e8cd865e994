import copy
import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
import trimesh
from safetensors.torch import load_file, save_file
from stationary import model_of

import graphs
import rfgp
from rfgp.regression import FitReport
from rfgp.saving import container

pytestmark = pytest.mark.filterwarnings("ignore::graphs.LargeVarianceWarning", "ignore::rfgp.RfgpWarning")
X, Y, NEW, ERRORS = (np.random.default_rng(seed).standard_normal(n) for seed, n in enumerate(((40, 3), 40, (7, 3), 15)))
TWO_OUTPUTS = np.stack([Y, Y[::-1]], axis=1)
GRID = graphs.Graph.from_networkx(nx.grid_2d_graph(5, 6))
SEEN, HIDDEN = GRID.labels[::2], GRID.labels[1::2]
VALUES = np.array([a + np.sin(b) for a, b in SEEN]) + 0.1 * ERRORS


def table_model(**options):
    return rfgp.SparseSpectrumGP(num_frequencies=8, seed=1, **options).fit(X, Y, max_iterations=5)


def graph_model(**options):
    return rfgp.GraphGP(GRID, num_walkers=8, seed=1, **options).fit(list(SEEN), VALUES, max_iterations=5)


def wide_halting():
    return graph_model(features="walks", p_halt=np.array([1.0, 0.8, 0.5, 0.2]))


MODELS = {
    "primal": (lambda: table_model(), NEW),
    "laplace": (lambda: table_model(kind="laplace", coupling="orthogonal"), NEW),
    "rows": (lambda: rfgp.SparseSpectrumGP(num_frequencies=64, seed=1, ard=False).fit(X, Y, max_iterations=5), NEW),
    "float32": (lambda: table_model(dtype=torch.float32, standardize=False, lengthscale=[1.0, 2.0, 3.0]), NEW),
    "priors": (
        lambda: table_model(priors={"noise": torch.distributions.Gamma(torch.tensor(2.0), torch.tensor(3.0))}),
        NEW,
    ),
    "matern copula": (
        lambda: table_model(
            spectrum=rfgp.spectra.Matern(2.2), coupling=rfgp.couplings.Copula([[1, 0.3, 0], [0.3, 1, 0], [0, 0, 1]])
        ),
        NEW,
    ),
    "inducing points": (
        lambda: model_of("gaussian", rfgp.InducingPoints(8, method="vfe"), seed=1).fit(X, Y, max_iterations=5),
        NEW,
    ),
    "antithetic": (
        lambda: table_model(kind="laplace", coupling=rfgp.couplings.Antithetic(rfgp.couplings.SimplexPlus(3))),
        NEW,
    ),
    "walks": (lambda: graph_model(features="walks"), list(HIDDEN)),
    "sigma": (lambda: graph_model(features="walks", lengths="sigma"), list(HIDDEN)),
    "learned": (lambda: graph_model(features="walks", lengths="learned"), list(HIDDEN)),
    "survival": (wide_halting, list(HIDDEN)),
    "chebyshev": (lambda: graph_model(features="chebyshev", degree=3), list(HIDDEN)),
    "spectrum": (lambda: graph_model(features="spectrum", rank=12), list(HIDDEN)),
    "free modulation": (
        lambda: graph_model(features="walks", kernel=graphs.kernels.FreeModulation(factors=(0.8, 1.2, 1.0))),
        list(HIDDEN),
    ),
    "exact graph": (lambda: graph_model(kernel=graphs.kernels.RegularizedLaplacian(3, 2.0)), list(HIDDEN)),
}
pytestmark = [
    pytestmark,
    pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning", "ignore::rfgp.PoorFeaturesWarning"),
]


def assert_same_law(a, b):
    for name in ("mean", "variance", "covariance"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("data", [False, True])
@pytest.mark.slow
def test_a_loaded_model_predicts_bit_for_bit(name, data, tmp_path):
    make, new = MODELS[name]
    gp = make()
    gp.metadata = {"unit": "mm", "columns": ["a", "b"]}
    gp.save(tmp_path / "m.safetensors", data=data)
    again = rfgp.load(tmp_path / "m.safetensors")
    assert type(again) is type(gp)
    assert repr(again.hyperparameters) == repr(gp.hyperparameters)
    for attribute in ("fit_report", "metadata", "num_observations"):
        assert getattr(again, attribute) == getattr(gp, attribute)
    assert_same_law(again.predict(new), gp.predict(new))
    again.save(tmp_path / "again.safetensors", data=data)
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_with_data_everything_works_on(name, tmp_path):
    make, new = MODELS[name]
    gp = make()
    gp.save(tmp_path / "m.safetensors", data=True)
    again = rfgp.load(tmp_path / "m.safetensors")
    assert again.log_marginal_likelihood().item() == gp.log_marginal_likelihood().item()
    assert_same_law(redrawn(again, 5).predict(new), redrawn(gp, 5).predict(new))
    assert_same_law(again.exact().predict(new), gp.exact().predict(new))
    y = np.arange(len(new), dtype=np.float64)
    assert_same_law(again.update(new, y).predict(new), gp.update(new, y).predict(new))
    fitted = [
        model.fit(*((X, Y) if name not in GRAPHS else (list(SEEN), VALUES)), max_iterations=3) for model in (again, gp)
    ]
    assert_same_law(fitted[0].predict(new), fitted[1].predict(new))


def redrawn(gp, seed):
    """Return a model with other random draws."""
    (used,) = gp.spec.approximations.values()
    return gp.with_approximation(replace(used, seed=seed))


GRAPHS = ("walks", "sigma", "learned", "survival", "chebyshev", "spectrum", "free modulation", "exact graph")


@pytest.mark.parametrize("name", MODELS)
def test_without_data_the_model_says_what_to_do(name, tmp_path):
    make, new = MODELS[name]
    gp = make()
    gp.save(tmp_path / "m.safetensors")
    again = rfgp.load(tmp_path / "m.safetensors")
    y = np.zeros(len(new))
    calls = [again.exact, lambda: redrawn(again, 5), again.log_marginal_likelihood, again.leave_one_out]
    if {"weights", "factor"} != {key.split(".")[1] for key in load_file(tmp_path / "m.safetensors") if "predi" in key}:
        calls.append(lambda: again.update(new, y))  # the posterior alone does not take new rows
    else:
        updated = rfgp.load(tmp_path / "m.safetensors").update(new, y).predict(new)
        np.testing.assert_allclose(updated.mean, copy.deepcopy(gp).update(new, y).predict(new).mean, rtol=1e-4)
    for call in calls:
        with pytest.raises(rfgp.NotFittedError, match=r"saved without data.*Call condition"):
            call()
    with pytest.raises(rfgp.NotFittedError, match=r"known for a file with data=True.*saved without data"):
        again.save(tmp_path / "n.safetensors", data=True)
    assert not (tmp_path / "n.safetensors").exists()
    data = (X, Y) if name not in GRAPHS else (list(SEEN), VALUES)
    assert_same_law(again.condition(*data).predict(new), gp.condition(*data).predict(new))
    again.exact()
    again.hyperparameters.noise = 2.0
    loaded = rfgp.load(tmp_path / "m.safetensors")
    loaded.hyperparameters.noise = 2.0
    with pytest.raises(rfgp.NotFittedError, match="other hyperparameters"):
        loaded.predict(new)


@pytest.mark.parametrize("name", MODELS)
def test_only_data_true_writes_the_data(name, tmp_path):
    gp = MODELS[name][0]()
    for data in (False, True):
        gp.save(tmp_path / "m.safetensors", data=data)
        assert any(key.startswith("data.") for key in load_file(tmp_path / "m.safetensors")) == data


def test_what_the_posterior_tells_about_the_data(tmp_path):
    """The documented limit: with fewer rows than features, and on graphs, the targets follow from the posterior."""
    MODELS["walks"][0]().save(tmp_path / "m.safetensors")
    found, again = load_file(tmp_path / "m.safetensors"), rfgp.load(tmp_path / "m.safetensors")
    factor = found["predictor.factor"]
    centered = factor @ (factor.T @ found["predictor.coefficients"])
    standardized = centered[:, 0] + again.hyperparameters.standardized("mean").detach()
    targets = found["scaling.targets.location"] + found["scaling.targets.scale"] * standardized
    np.testing.assert_allclose(targets, VALUES, rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("source", ["fitted", "loaded"])
@pytest.mark.parametrize("way", [copy.deepcopy, lambda gp: pickle.loads(pickle.dumps(gp))], ids=["copied", "pickled"])
@pytest.mark.slow
def test_copies_predict_the_same(name, source, way, tmp_path):
    make, new = MODELS[name]
    gp = make()
    expected = gp.predict(new)
    if source == "loaded":
        gp.save(tmp_path / "m.safetensors")
        gp = rfgp.load(tmp_path / "m.safetensors")
    other = way(gp)
    assert_same_law(other.predict(new), expected)
    with torch.no_grad():
        other.hyperparameters.noise = 9.0
    assert_same_law(gp.predict(new), expected)
    if source == "loaded":
        with pytest.raises(rfgp.NotFittedError):
            other.predict(new)


def test_models_without_rows_are_not_saved(tmp_path):
    with pytest.raises(rfgp.NotFittedError):
        rfgp.SparseSpectrumGP().save(tmp_path / "n.safetensors")


class OwnCoupling(rfgp.couplings.IID):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: table_model(coupling=OwnCoupling()), "coupling must be one of"),
        (
            lambda: table_model(priors={"noise": torch.distributions.Chi2(torch.tensor(2.0))}),
            "prior of noise is a Chi2",
        ),
        (
            lambda: rfgp.GraphGP(graphs.Graph.from_edges([(frozenset("a"), 1), (1, 2)])).fit([1, 2], [0.0, 1.0]),
            "node label frozenset",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(make, message, tmp_path):
    gp = make()
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        gp.save(tmp_path / "m.safetensors")
    gp = table_model()
    for metadata in ({"a": object()}, {"a": float("nan")}, {"a": {1, 2}}):
        gp.metadata = metadata
        with pytest.raises(rfgp.InvalidArgumentError, match="metadata must be JSON"):
            gp.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_class_of_ones_own_cannot_be_saved(tmp_path):
    class Own(rfgp.SparseSpectrumGP):
        pass

    gp = Own(num_frequencies=8, seed=1).condition(X, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match=r"classes GP or .*, got Own"):
        gp.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_labels_come_back_as_they_were(tmp_path):
    labels = ["a", 3, (1, ("b", None)), 2.5, True, np.int64(7)]
    g = graphs.Graph.from_edges([(labels[i], labels[i + 1]) for i in range(5)])
    gp = rfgp.GraphGP(g).fit(labels[:4], [0.0, 1.0, 2.0, 0.5])
    gp.save(tmp_path / "m.safetensors")
    again = rfgp.load(tmp_path / "m.safetensors").graph
    assert again.labels == g.labels
    assert [type(label) for label in again.labels][:5] == [str, int, tuple, float, bool]
    np.testing.assert_array_equal(again.adjacency.toarray(), g.adjacency.toarray())


@pytest.mark.parametrize("kind", ["grid", "numbers"])
def test_labels_that_are_computed_are_saved_as_a_shape(kind, tmp_path):
    """And files without the shape, as they were once written, load with positions."""
    mesh = trimesh.creation.icosphere(1)
    graph = graphs.Graph.from_grid((5, 6)) if kind == "grid" else graphs.Graph.from_mesh(mesh)
    nodes = [graph.labels[i] for i in range(0, 30, 2)]
    gp = rfgp.GraphGP(graph, seed=0).condition(nodes, np.arange(15.0))
    gp.save(tmp_path / "m", data=True)
    again = rfgp.load(tmp_path / "m")
    assert again.graph.labels == graph.labels
    np.testing.assert_array_equal(again.predict(nodes).mean, gp.predict(nodes).mean)
    for wrong in ([0, 30], [5, 7], "56", [5, 6.5], {}) if kind == "grid" else (29, "x", None):
        rewrite(tmp_path / "m", tmp_path / "forged", set_object(kind, wrong))
        with pytest.raises(rfgp.ModelFileError):
            rfgp.load(tmp_path / "forged")

    rewrite(tmp_path / "m", tmp_path / "old", lambda header, tensors: header["options"]["objects"][0].pop(kind))
    old = rfgp.load(tmp_path / "old")
    assert old.graph.labels is None
    np.testing.assert_array_equal(old.predict(np.arange(0, 30, 2)).mean, gp.predict(nodes).mean)


def test_labels_that_are_lost_are_missed(tmp_path):
    rfgp.GraphGP(graphs.Graph.from_edges([("a", "b"), ("b", "c")])).condition(["a", "b"], [0.0, 1.0]).save(
        tmp_path / "m"
    )
    rewrite(tmp_path / "m", tmp_path / "forged", set_object("labels", None))
    with pytest.raises(rfgp.ModelFileError, match="must have labels of its nodes"):
        rfgp.load(tmp_path / "forged")


# --- files that are not right ------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.safetensors"
    table_model().save(path, data=True)
    return path


def rewrite(saved, path, change, *, sign=True):
    """Write the file again after change(header, tensors); with its checksum right if `sign`."""
    tensors = load_file(saved)
    content = saved.read_bytes()
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    entry = json.loads(metadata["rfgp"])
    header = json.loads(entry["header"])
    change(header, tensors)
    entry["header"] = json.dumps(header, sort_keys=True)
    if sign:
        entry["sha256"] = container.digest(entry["header"], tensors)
    save_file(tensors, path, {"rfgp": json.dumps(entry)})


def test_every_truncation_is_found(saved, tmp_path):
    content = saved.read_bytes()
    for size in sorted({0, 1, 7, 8, 9, 100, *np.linspace(0, len(content) - 1, 40).astype(int).tolist()}):
        (tmp_path / "cut").write_bytes(content[:size])
        with pytest.raises(rfgp.ModelFileError, match="cut is"):
            rfgp.load(tmp_path / "cut")


def test_every_flipped_byte_is_found(saved, tmp_path):
    content = bytearray(saved.read_bytes())
    for place in np.linspace(0, len(content) - 1, 120).astype(int).tolist():
        changed = content.copy()
        changed[place] ^= 0x11
        (tmp_path / "flipped").write_bytes(changed)
        with pytest.raises(rfgp.ModelFileError):
            rfgp.load(tmp_path / "flipped")


def vars_of_a_report():
    return dataclasses.asdict(FitReport(True, 1, 1, 0.0, "done"))


def set_in(name, value):
    return lambda header, tensors: header.__setitem__(name, value)


def set_option(name, value):
    return lambda header, tensors: header["options"].__setitem__(name, value)


def set_object(name, value):
    return lambda header, tensors: header["options"]["objects"][0].__setitem__(name, value)


def set_draw(name, value):
    return lambda header, tensors: header["options"]["draws"][0].__setitem__(name, value)


def set_argument(name, value):
    return lambda header, tensors: header["options"]["resolved"]["leaves"][0]["arguments"].__setitem__(name, value)


def set_tensor(name, value):
    return lambda header, tensors: tensors.__setitem__(name, value)


@pytest.mark.parametrize("approximation", [rfgp.InducingPoints(4), rfgp.RandomFeatures(4), rfgp.Exact()], ids=repr)
def test_the_class_in_a_file_has_the_approximation(approximation, tmp_path):
    model_of("gaussian", approximation).condition(X, Y).save(tmp_path / "m", data=True)
    for name, kind in (("SparseSpectrumGP", rfgp.RandomFeatures), ("ExactGP", rfgp.Exact)):
        rewrite(tmp_path / "m", tmp_path / name, set_in("class", name))
        if isinstance(approximation, kind):
            assert type(rfgp.load(tmp_path / name)).__name__ == name
        else:
            with pytest.raises(rfgp.ModelFileError, match=f"not that of a {name}"):
                rfgp.load(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        set_in("class", "os.system"),
        set_in("class", ["SparseSpectrumGP"]),
        set_in("options", None),
        set_in("num_observations", 10**12),
        set_in("num_observations", "40"),
        set_in("hyperparameters", ["lengthscale"]),
        set_in("hyperparameters", ["lengthscale", "outputscale", "noise", "__class__"]),
        set_in("fit_report", {"converged": True}),
        set_in("class", "GraphGP"),
        set_option("dtype", "object"),
        set_option("priors", {"noise": {"distribution": "__builtins__", "arguments": {}}}),
        set_tensor("predictor.factor", torch.zeros(3, 3, dtype=torch.float64)),
        set_tensor("predictor.evil", torch.zeros(3, dtype=torch.float64)),
        set_tensor("hyperparameters.noise.raw", torch.zeros(2, dtype=torch.float64)),
        set_tensor("scaling.targets.scale", torch.full((), torch.inf, dtype=torch.float64)),
        set_in("metadata", 5),
        set_in("fit_report", {**vars_of_a_report(), "iterations": "<b>"}),
        set_in("fit_report", {**vars_of_a_report(), "trace": ["<b>"]}),
        set_tensor("scaling.inputs.scale", torch.zeros(3, dtype=torch.float64)),
        set_tensor("predictor.factor", torch.zeros(16, 16, dtype=torch.float64)),
        set_tensor("hyperparameters.noise.unit", -torch.ones((), dtype=torch.float64)),
        lambda header, tensors: tensors.pop("predictor.weights"),
        lambda header, tensors: tensors.pop("data.targets"),
        lambda header, tensors: header.clear(),
    ],
)
def test_a_forged_content_is_refused(saved, tmp_path, change):
    rewrite(saved, tmp_path / "forged", change)
    with pytest.raises(rfgp.ModelFileError, match="consistent model"):
        rfgp.load(tmp_path / "forged")


def odd(tensor):
    """Yield tensors that none of a model's can be in the place of: other shapes, other kinds."""
    yield tensor[None]
    yield tensor.to(torch.complex64)
    for axis in range(tensor.ndim):
        yield tensor.narrow(axis, 0, 0)
        yield torch.cat([tensor, tensor.narrow(axis, 0, 1)], axis)
    if tensor.dtype.is_floating_point:
        yield torch.full_like(tensor, torch.nan)


@pytest.mark.parametrize("name", ["two outputs", "exact", "rows", "chebyshev", "spectrum"])
def test_tensors_of_other_shapes_and_kinds_are_refused(name, tmp_path):
    """Each in turn, in a file whose checksum is right: refused when it is loaded, not in a prediction."""
    make = {
        "two outputs": lambda: rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=1).condition(
            X, TWO_OUTPUTS
        ),
        "rows": lambda: rfgp.SparseSpectrumGP(num_frequencies=32, coupling="iid", ard=False).condition(X, Y),
        "exact": lambda: rfgp.ExactGP().condition(X, Y),
    }
    gp = make[name]() if name in make else rfgp.GraphGP(GRID, features=name, rank=5, degree=2).condition(SEEN, VALUES)
    gp.save(tmp_path / "m", data=True)
    for key, tensor in load_file(tmp_path / "m").items():
        for number, other in enumerate(odd(tensor)):
            rewrite(tmp_path / "m", tmp_path / "forged", set_tensor(key, other.contiguous()))
            with pytest.raises(rfgp.ModelFileError, match="consistent model"):
                pytest.fail(f"{key} {number} is loaded: {rfgp.load(tmp_path / 'forged')}")


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("object.0.indptr", lambda t: torch.cat([t, t[:1]])),
        ("object.0.indptr", lambda t: t.flip(0)),
        ("object.0.indptr", lambda t: t.long().float()),
        ("object.0.data", lambda t: t[:-1]),
        ("predictor.factor", lambda t: 1e-300 * t),
        ("hyperparameters.noise.raw", lambda t: t + 1e300),
        ("scaling.targets.scale", lambda t: 1e300 * t),
        ("data.inputs", lambda t: t + 0.5),
    ],
)
def test_numbers_out_of_range_are_refused(key, change, tmp_path):
    rfgp.GraphGP(GRID, features="chebyshev", degree=2).condition(SEEN, VALUES).save(tmp_path / "m", data=True)
    rewrite(tmp_path / "m", tmp_path / "forged", lambda header, tensors: tensors.update({key: change(tensors[key])}))
    with pytest.raises(rfgp.ModelFileError, match="consistent model"):
        rfgp.load(tmp_path / "forged")


def test_an_honest_rewrite_is_accepted(saved, tmp_path):
    """Without this, the test above would pass on a `rewrite` that breaks every file."""
    rewrite(saved, tmp_path / "same", lambda *_: None)
    assert_same_law(rfgp.load(tmp_path / "same").predict(NEW), rfgp.load(saved).predict(NEW))
    rewrite(saved, tmp_path / "unsigned", set_option("seed", 7), sign=False)
    with pytest.raises(rfgp.ModelFileError, match="checksum"):
        rfgp.load(tmp_path / "unsigned")


def pickle_bomb(path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(path.parent / "executed"),))

    torch.save({"model": Bomb()}, path)


def plain_pickle(path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(path.parent / "executed"),))

    path.write_bytes(pickle.dumps(Bomb()))


def nested_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.zip", b"PK\x05\x06" + bytes(18))


def versioned(version):
    def write(path):
        save_file({"a": torch.zeros(1)}, path, {"rfgp": json.dumps({"version": version, "header": "{}"})})

    return write


BAD = {
    "missing": (lambda path: None, "There is no file"),
    "folder": (lambda path: path.mkdir(), "must be a file, got the folder"),
    "empty": (lambda path: path.write_bytes(b""), "not a saved model"),
    "text": (lambda path: path.write_text("hello, world"), "not a saved model"),
    "torch.save": (pickle_bomb, "pickle"),
    "pickle": (plain_pickle, "pickle"),
    "nested archive": (nested_zip, "pickle or an archive"),
    "huge claimed header": (lambda path: path.write_bytes((2**62).to_bytes(8, "little") + b"{}"), "not a saved model"),
    "huge claimed tensor": (
        lambda path: path.write_bytes(
            len(h := b'{"a":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}').to_bytes(
                8, "little"
            )
            + h
        ),
        "not a saved model",
    ),
    "deep header": (
        lambda path: path.write_bytes((200_000).to_bytes(8, "little") + b"[" * 200_000),
        "not a saved model",
    ),
    "not ours": (lambda path: save_file({"a": torch.zeros(1)}, path), "must be a model of rfgp"),
    "newer": (versioned(container.FORMAT + 1), "Install a newer rfgp"),
    "version 0": (versioned(0), "must have a format version"),
    "version words": (versioned("1; import os"), "must have a format version"),
    "version long": (versioned(int("9" * 4000)), "must have a format version"),
    "no version": (lambda path: save_file({"a": torch.zeros(1)}, path, {"rfgp": "[]"}), "header cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_other_files_get_a_clear_error_and_execute_nothing(name, tmp_path):
    write, message = BAD[name]
    write(tmp_path / "file")
    with pytest.raises(rfgp.ModelFileError, match=message) as caught:
        rfgp.load(tmp_path / "file")
    assert len(str(caught.value)) < 400
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("base", [graphs.kernels.RegularizedLaplacian(3, 2.0), graphs.kernels.Matern(2.5, 1.5)])
def test_a_kernel_inside_a_kernel_is_kept(base, tmp_path):
    kernel = graphs.kernels.FreeModulation(base, (0.5, 2.0))
    graph_model(features="exact", kernel=kernel).save(tmp_path / "m.safetensors", data=True)
    again = rfgp.load(tmp_path / "m.safetensors")
    assert again.spec.options.kernel.graph_kernel == kernel
    assert [name for name, _ in again.hyperparameters.named_parameters()]


def test_walks_of_another_generator_are_refused(tmp_path, monkeypatch):
    graph_model(features="walks").save(tmp_path / "m.safetensors")
    monkeypatch.setattr("rfgp.saving.draws.GENERATOR_VERSION", 3)
    with pytest.raises(rfgp.ModelFileError, match="generator 3 of this version, got 2"):
        rfgp.load(tmp_path / "m.safetensors")


def test_the_laplacian_is_kept(tmp_path):
    model = graph_model(features="walks")
    gp = rfgp.GraphGP(model.graph.with_laplacian("combinatorial"), seed=1)
    gp.condition(list(model.graph.labels or range(5))[:5], np.arange(5.0)).save(tmp_path / "m.safetensors")
    assert rfgp.load(tmp_path / "m.safetensors").graph.laplacian == "combinatorial"


def test_chosen_hops_are_kept(tmp_path, monkeypatch):
    """The rule is in the file: another processor's pilot, rounded otherwise, would find another."""
    gp = graph_model(features="walks")
    rule = gp.walks.settings.exact_hops
    assert rule.max_hops > 0
    gp.save(tmp_path / "m.safetensors")
    monkeypatch.setattr("graphs.walks.sampling.choose_hops", lambda *_: pytest.fail("chosen anew"))
    again = rfgp.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.walks.settings.exact_hops.limits, rule.limits)
    assert again.walk_options.exact_hops == "auto"


def test_a_rule_of_the_users_own_is_kept(tmp_path):
    for limits in ([1], [1, 3, 5]):
        gp = graph_model(features="walks", exact_hops=graphs.HopRule(limits))
        gp.save(tmp_path / "m.safetensors", data=True)
        again = rfgp.load(tmp_path / "m.safetensors")
        for model in (again, redrawn(again, 7)):
            np.testing.assert_array_equal(model.walks.settings.exact_hops.limits, limits)


def test_a_forged_graph_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    graph_model(features="walks").save(path, data=True)
    indices = load_file(path)["object.0.indices"].clone()
    indices[0] = 10**6
    asymmetric = load_file(path)["object.0.data"].clone()
    asymmetric[0] = 5.0
    for change in (
        set_tensor("object.0.indices", indices),
        set_tensor("object.0.data", asymmetric),
        set_tensor("object.0.data", -asymmetric),
        set_tensor("data.inputs", torch.full((15, 1), 1e6, dtype=torch.float64)),
        set_tensor("predictor.inputs", torch.full((15, 1), 1e6, dtype=torch.float64)),
        set_tensor("predictor.inputs", torch.full((15, 1), -1.0, dtype=torch.float64)),
        set_object("labels", ["a"]),
        set_object("labels", [[{}]] * 30),
        set_draw("halt", "x"),
        set_draw("kind", "others"),
        set_draw("permutation", list(range(20_000))),
        set_draw("tuples", [[0, 1], [1, 0]]),
        set_draw("hop_limits", []),
        set_draw("hop_limits", [1] * 10**5),
        set_draw("hop_limits", [1, "2"]),
        set_argument("kernel", "os.system"),
        set_argument("kernel", {"role": "graph kernel", "name": "os.system", "arguments": {}}),
        set_argument("graph", {"object": 7}),
    ):
        rewrite(path, tmp_path / "forged", change)
        with pytest.raises(rfgp.ModelFileError, match="consistent model"):
            rfgp.load(tmp_path / "forged")


def test_a_full_disk_leaves_the_old_file(saved, tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    gp = table_model()
    gp.save(path)
    before = path.read_bytes()
    gp.hyperparameters.noise = 3.0
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        gp.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path):
    code = (
        "import numpy as np, rfgp, sys\n"
        "rng = np.random.default_rng(0)\n"
        "gp = rfgp.SparseSpectrumGP(num_frequencies=300, seed=1)\n"
        "gp.condition(rng.normal(size=(700, 3)), rng.normal(size=700))\n"
        "print('ready', flush=True)\n"
        "while True: gp.save(sys.argv[1], data=True)\n"
    )
    path = tmp_path / "m.safetensors"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.15)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert rfgp.load(path).num_observations == 700


def no_edges():
    return rfgp.GraphGP(graphs.Graph.from_edges([], nodes=range(9)), features="chebyshev", seed=1)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: rfgp.SparseSpectrumGP(num_frequencies=1, coupling="iid", seed=1).fit(X[:, :1], Y), NEW[:, :1]),
        (lambda: rfgp.ExactGP().fit(X[:2, :1], Y[:2]), NEW[:, :1]),
        (lambda: rfgp.ExactGP(ard=False, standardize=False).condition(X, Y), NEW),
        (lambda: rfgp.ExactGP(ard=False, standardize=False).condition(X, np.stack([Y, X[:, 0]], 1)), NEW),
        (lambda: no_edges().fit([0, 1], [1.0, 2.0]), [0, 5]),
        (lambda: rfgp.GraphGP(graphs.Graph.from_edges([], nodes=["a"])).fit(["a", "a"], [1.0, 2.0]), ["a"]),
        (lambda: rfgp.GraphGP(GRID, features="spectrum", rank=1, seed=1).fit(SEEN, VALUES), HIDDEN),
    ],
    ids=["one frequency", "two rows", "one unit", "one unit of two outputs", "no edges", "one node", "one eigenvector"],
)
@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
def test_the_smallest_models_go_through_a_file(make, inputs, tmp_path):
    gp = make()
    gp.save(tmp_path / "model", data=True)
    np.testing.assert_array_equal(rfgp.load(tmp_path / "model").predict(inputs).mean, gp.predict(inputs).mean)


def test_functions_of_classes_that_are_not_all_there(tmp_path):
    rng = np.random.default_rng(0)
    options = {"num_frequencies": 4, "likelihood": "categorical", "lengthscale": 1.0, "outputscale": 1.0, "seed": 0}
    whole = tmp_path / "whole.safetensors"
    gp = rfgp.SparseSpectrumGP(**options).condition(rng.standard_normal((30, 2)), np.arange(30.0) % 3)
    gp.save(whole)
    assert {name.split(".")[1] for name in load_file(whole) if name.startswith("predictor.")} == {"0", "1", "2"}

    def change(header, tensors):
        for name in [name for name in tensors if name.startswith("predictor.2.")]:
            tensors[name.replace(".2.", ".7.")] = tensors.pop(name)

    rewrite(whole, tmp_path / "broken.safetensors", change)
    with pytest.raises(rfgp.ModelFileError, match="consistent model"):
        rfgp.load(tmp_path / "broken.safetensors")
