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
from model_files import argument, assert_refused, assert_same, changed, draw, entry, option, rewrite, shared, tensor
from safetensors.torch import load_file, save_file
from stationary import model_of

import graphs
import rfgp
from rfgp.regression import FitReport
from rfgp.saving import container

pytestmark = pytest.mark.filterwarnings("ignore::graphs.LargeVarianceWarning", "ignore::rfgp.RfgpWarning")
X, Y, NEW, ERRORS = (np.random.default_rng(seed).standard_normal(n) for seed, n in enumerate(((40, 3), 40, (7, 3), 15)))
GRID = graphs.Graph.from_networkx(nx.grid_2d_graph(5, 6))
SEEN, HIDDEN = GRID.labels[::2], GRID.labels[1::2]
VALUES = np.array([a + np.sin(b) for a, b in SEEN]) + 0.1 * ERRORS


def table_model(**options):
    return rfgp.SparseSpectrumGP(num_frequencies=8, seed=1, **options).fit(X, Y, max_iterations=5)


def graph_model(**options):
    return rfgp.GraphGP(GRID, num_walkers=8, seed=1, **options).fit(list(SEEN), VALUES, max_iterations=5)


MODELS = {
    "features": (lambda: table_model(), NEW),
    "more features than rows": (
        lambda: rfgp.SparseSpectrumGP(num_frequencies=64, seed=1, ard=False).fit(X, Y, max_iterations=5),
        NEW,
    ),
    "float32": (lambda: table_model(dtype=torch.float32, standardize=False, lengthscale=[1.0, 2.0, 3.0]), NEW),
    "walks": (lambda: graph_model(features="walks"), list(HIDDEN)),
    "exact graph": (lambda: graph_model(kernel=graphs.kernels.RegularizedLaplacian(3, 2.0)), list(HIDDEN)),
}


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
    assert_same(again.predict(new), gp.predict(new))
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
    assert_same(redrawn(again, 5).predict(new), redrawn(gp, 5).predict(new))
    assert_same(again.exact().predict(new), gp.exact().predict(new))
    y = np.arange(len(new), dtype=np.float64)
    assert_same(again.update(new, y).predict(new), gp.update(new, y).predict(new))
    fitted = [model.fit(*((X, Y) if new is NEW else (list(SEEN), VALUES)), max_iterations=3) for model in (again, gp)]
    assert_same(fitted[0].predict(new), fitted[1].predict(new))


def redrawn(gp, seed):
    """Return a model with other random draws."""
    (used,) = gp.spec.approximations.values()
    return gp.with_approximation(replace(used, seed=seed))


@pytest.mark.parametrize("name", MODELS)
def test_error_without_data_names_a_remedy(name, tmp_path):
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
    data = (X, Y) if new is NEW else (list(SEEN), VALUES)
    assert_same(again.condition(*data).predict(new), gp.condition(*data).predict(new))
    again.exact()
    again.hyperparameters.noise = 2.0
    loaded = rfgp.load(tmp_path / "m.safetensors")
    loaded.hyperparameters.noise = 2.0
    with pytest.raises(rfgp.NotFittedError, match="other hyperparameters"):
        loaded.predict(new)


def test_targets_follow_from_a_small_posterior(tmp_path):
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
    assert_same(other.predict(new), expected)
    with torch.no_grad():
        other.hyperparameters.noise = 9.0
    assert_same(gp.predict(new), expected)
    if source == "loaded":
        with pytest.raises(rfgp.NotFittedError):
            other.predict(new)


def test_metadata_that_json_has_not_are_refused(tmp_path):
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
        rewrite(tmp_path / "m", tmp_path / "forged", shared(0, **{kind: wrong}))
        with pytest.raises(rfgp.ModelFileError):
            rfgp.load(tmp_path / "forged")

    rewrite(tmp_path / "m", tmp_path / "old", lambda options, *_: options["objects"][0].pop(kind))
    old = rfgp.load(tmp_path / "old")
    assert old.graph.labels is None
    np.testing.assert_array_equal(old.predict(np.arange(0, 30, 2)).mean, gp.predict(nodes).mean)


def test_labels_that_are_lost_are_missed(tmp_path):
    rfgp.GraphGP(graphs.Graph.from_edges([("a", "b"), ("b", "c")])).condition(["a", "b"], [0.0, 1.0]).save(
        tmp_path / "m"
    )
    assert_refused(tmp_path / "m", shared(0, labels=None), "must have labels of its nodes")


# --- files that are not right ------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.safetensors"
    table_model().save(path, data=True)
    return path


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


@pytest.mark.parametrize("approximation", [rfgp.InducingPoints(4), rfgp.RandomFeatures(4), rfgp.Exact()], ids=repr)
def test_the_class_in_a_file_has_the_approximation(approximation, tmp_path):
    model_of("gaussian", approximation).condition(X, Y).save(tmp_path / "m", data=True)
    for name, kind in (("SparseSpectrumGP", rfgp.RandomFeatures), ("ExactGP", rfgp.Exact)):
        rewrite(tmp_path / "m", tmp_path / name, entry("class", name))
        if isinstance(approximation, kind):
            assert type(rfgp.load(tmp_path / name)).__name__ == name
        else:
            with pytest.raises(rfgp.ModelFileError, match=f"not that of a {name}"):
                rfgp.load(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        entry("class", "os.system"),
        entry("class", ["SparseSpectrumGP"]),
        entry("options", None),
        entry("num_observations", 10**12),
        entry("num_observations", "40"),
        entry("hyperparameters", ["lengthscale"]),
        entry("hyperparameters", ["lengthscale", "outputscale", "noise", "__class__"]),
        entry("fit_report", {"converged": True}),
        tensor("predictor.factor", torch.zeros(3, 3, dtype=torch.float64)),
        tensor("predictor.evil", torch.zeros(3, dtype=torch.float64)),
        tensor("hyperparameters.noise.raw", torch.zeros(2, dtype=torch.float64)),
        tensor("scaling.targets.scale", torch.full((), torch.inf, dtype=torch.float64)),
        entry("metadata", 5),
        entry("fit_report", {**vars_of_a_report(), "iterations": "<b>"}),
        entry("fit_report", {**vars_of_a_report(), "trace": ["<b>"]}),
        tensor("scaling.inputs.scale", torch.zeros(3, dtype=torch.float64)),
        tensor("predictor.factor", torch.zeros(16, 16, dtype=torch.float64)),
        tensor("hyperparameters.noise.unit", -torch.ones((), dtype=torch.float64)),
        lambda options, tensors, _: tensors.pop("predictor.weights"),
        lambda options, tensors, _: tensors.pop("data.targets"),
        lambda options, tensors, header: header.clear(),
    ],
)
def test_a_forged_content_is_refused(saved, change):
    assert_refused(saved, change)


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
    assert_refused(tmp_path / "m", changed(key, change))


def test_other_options_under_an_old_checksum_are_found(saved, tmp_path):
    rewrite(saved, tmp_path / "unsigned", option("seed", 7), sign=False)
    with pytest.raises(rfgp.ModelFileError, match="checksum"):
        rfgp.load(tmp_path / "unsigned")


class Bomb:
    """An object whose unpickling makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path.parent / "executed"),))


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
    "torch.save": (lambda path: torch.save({"model": Bomb(path)}, path), "pickle"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps(Bomb(path))), "pickle"),
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
    "version 0": (versioned(0), "must have format version"),
    "version words": (versioned("1; import os"), "must have format version"),
    "version long": (versioned(int("9" * 4000)), "must have format version"),
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
    asymmetric = load_file(path)["object.0.data"].clone()
    asymmetric[0] = 5.0
    for change in (
        tensor("object.0.data", asymmetric),
        tensor("object.0.data", -asymmetric),
        shared(0, labels=["a"]),
        shared(0, labels=[[{}]] * 30),
        draw(0, halt="x"),
        draw(0, kind="others"),
        draw(0, hop_limits=[1] * 10**5),
        draw(0, hop_limits=[1, "2"]),
        argument(0, "kernel", "os.system"),
        argument(0, "graph", {"object": 7}),
    ):
        rewrite(path, tmp_path / "forged", change)
        with pytest.raises(rfgp.ModelFileError, match="consistent model"):
            rfgp.load(tmp_path / "forged")


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
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

    def change(options, tensors, _):
        for name in [name for name in tensors if name.startswith("predictor.2.")]:
            tensors[name.replace(".2.", ".7.")] = tensors.pop(name)

    assert_refused(whole, change)
