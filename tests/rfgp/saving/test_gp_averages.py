"""Averages of models in files: they predict bit for bit, and forged ones are refused."""

import field_cases
import numpy as np
import pytest
from average_cases import CASES, EXACT, FEATURES, MORE, NEW, ROWS, SHARES, Y, average, models_of
from model_files import assert_refused, assert_same
from safetensors.torch import load_file

import graphs
import rfgp
from rfgp import kernels as k

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")


def assert_saved(gp, new, tmp_path, data=None):
    """An average goes through a file unchanged, and so does the loaded one."""
    file, second = tmp_path / "m.safetensors", tmp_path / "n.safetensors"
    gp.save(file, data=data)
    again = rfgp.load(file)
    assert repr(again) == repr(gp)
    assert_same(again.predict(new), gp.predict(new))
    assert_same(again.predict(new).observed(), gp.predict(new).observed())
    for (share, one), (expected, other) in zip(again.members, gp.members, strict=True):
        assert (share, repr(one), repr(one.kernel)) == (expected, repr(other), repr(other.kernel))
        assert repr(one.spec.options.kernel) == repr(other.spec.options.kernel)
        assert one.seed == other.seed
        assert_same(one.predict(new), other.predict(new))
    again.save(second, data=data)
    assert second.read_bytes() == file.read_bytes()
    return again


@pytest.mark.parametrize("case", CASES)
def test_averages_predict_bit_for_bit(case, tmp_path):
    gp = average(models_of(*CASES[case]))
    with pytest.warns(rfgp.DataSavedWarning):
        again = assert_saved(gp, NEW, tmp_path)
    np.testing.assert_array_equal(again.leave_one_out().mean, gp.leave_one_out().mean)
    assert_same(again.update(MORE, np.ones(2)).predict(NEW), gp.update(MORE, np.ones(2)).predict(NEW))
    assert_saved(again, {**NEW, "store": np.array(list("abcdabcde"))}, tmp_path, data=True)
    assert_same(again.exact().predict(NEW), gp.exact().predict(NEW))
    assert_same(again.condition(ROWS, Y).predict(NEW), gp.condition(ROWS, Y).predict(NEW))


def test_averages_of_features_predict_without_rows(tmp_path):
    gp = average(models_of(FEATURES, FEATURES, rfgp.InducingPoints(9)))
    again = assert_saved(gp, NEW, tmp_path, data=False)
    assert not any(name.startswith("data.") for name in load_file(tmp_path / "m.safetensors"))
    for call in (again.leave_one_out, again.exact, lambda: again.update(MORE, np.ones(2))):
        with pytest.raises(rfgp.NotFittedError, match="saved without data"):
            call()


def test_the_warning_names_the_terms_of_all_models(tmp_path):
    gp = average(models_of(FEATURES, EXACT, FEATURES))
    with pytest.warns(rfgp.DataSavedWarning, match="'smooth'"):
        gp.save(tmp_path / "m")
    with pytest.raises(rfgp.InvalidArgumentError, match="Use data=True"):
        gp.save(tmp_path / "m", data=False)


def test_models_of_an_average_share_graphs(tmp_path):
    graph = field_cases.ring()
    pairs = [("diffusion", rfgp.Exact()), ("diffusion", rfgp.RandomWalks(8)), ("matern", rfgp.Chebyshev())]
    kernels = [k.Nodes(graph, kernel) for kernel, _ in pairs]
    rows = {"node": field_cases.ROWS["node"]}
    models = [
        rfgp.GP(kernel, approximation=one, seed=0).condition(rows, field_cases.Y)
        for kernel, (_, one) in zip(kernels, pairs, strict=True)
    ]
    again = assert_saved(average(models), {"node": field_cases.NEW["node"]}, tmp_path)
    assert len({id(one.spec.kernel.terms()[0].factors[0].graph) for _, one in again.members}) == 1
    assert sum(name.endswith(".indptr") for name in load_file(tmp_path / "m.safetensors")) == 1


# --- forged files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of an average of features, exact terms and points, with rows."""
    path = tmp_path_factory.mktemp("saved") / "m.safetensors"
    average(models_of(*CASES["mixed"])).save(path, data=True)
    return path


def member(change):
    """Return a change of the second model of the average."""
    return lambda options, tensors, _: change(options["average"]["members"][0], tensors)


def average_with(**changes):
    return lambda options, *_: options["average"].update(changes)


def dropped(name):
    return lambda options, tensors, _: tensors.pop(name)


def scaled(name, factor):
    return lambda options, tensors, _: tensors.update({name: factor * tensors[name]})


POINTS = "members.1.draw.0.points"
RAW = "members.0.hyperparameters.smooth.lengthscale.raw"
FORGED = {
    "no members": average_with(members=[]),
    "members of a text": average_with(members="ab"),
    "no average": lambda options, *_: options.pop("average"),
    "an average of numbers": lambda options, *_: options.update(average=[0.5, 0.5]),
    "too large a share": average_with(weight=0.9),
    "a negative share": lambda options, *_: (
        options["average"].update(weight=1.0),
        options["average"]["members"][0].update(weight=-0.2),
    ),
    "a share that is a text": average_with(weight="0.5"),
    "a share that is no number": average_with(weight=float("nan")),
    "an integer": average_with(weight=1),
    "a member less": lambda options, *_: options["average"]["members"].pop(),
    "a member without a share": member(lambda entry, _: entry.pop("weight")),
    "a member without options": member(lambda entry, _: entry.pop("options")),
    "a member that is a number": lambda options, *_: options["average"]["members"].__setitem__(0, 0.3),
    "another likelihood": member(lambda entry, _: entry["options"].update(likelihood={"name": "poisson"})),
    "a kernel of another class": member(
        lambda entry, _: entry["options"]["resolved"]["leaves"][0].update(name="os.system")
    ),
    "other columns": member(lambda e, _: e["options"]["resolved"]["leaves"][0]["arguments"].update(columns=["t", "z"])),
    "fewer draws": member(lambda entry, _: entry["options"]["draws"].pop()),
    "other approximations": lambda options, *_: options["average"]["members"][0]["options"].update(
        approximations=options["average"]["members"][1]["options"]["approximations"]
    ),
    "other hyperparameters": member(lambda entry, _: entry["hyperparameters"].reverse()),
    "fewer hyperparameters": member(lambda entry, _: entry["hyperparameters"].pop()),
    "hyperparameters of the first": lambda options, _, header: options["average"]["members"][0].update(
        hyperparameters=header["hyperparameters"]
    ),
    "a lengthscale less": lambda options, tensors, _: tensors.update({RAW: tensors[RAW][:1].clone()}),
    "no lengthscale": dropped(RAW),
    "an infinite lengthscale": scaled(RAW, float("inf")),
    "a lengthscale out of range": scaled(RAW, 1e9),
    "no points": dropped(POINTS),
    "points far away": scaled(POINTS, 1e200),
    "points of another member": lambda options, tensors, _: tensors.update({POINTS: tensors[POINTS][:, :1].clone()}),
    "no posterior of a member": dropped("predictor.1.factor"),
    "a posterior of one model": lambda options, tensors, _: [
        tensors.update({name.replace("predictor.0.", "predictor."): tensors.pop(name)})
        for name in list(tensors)
        if name.startswith("predictor.")
    ],
    "unknown levels": lambda options, tensors, _: tensors["predictor.1.inputs"][:, -1].fill_(9.0),
    "several outputs": lambda options, tensors, _: tensors.update(
        {name: tensors[name].expand(2).clone() for name in tensors if name.startswith("scaling.targets.")}
    ),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_averages_are_refused(saved, change):
    assert_refused(saved, change, None)


def test_kernels_on_another_graph_than_their_column_are_refused(tmp_path):
    graph = graphs.Graph.from_grid((3, 4))
    nodes = k.Nodes(graph, "diffusion")
    models = [rfgp.GP(nodes, seed=0).condition(list(graph.labels), np.arange(12.0)) for _ in SHARES]
    average(models).save(tmp_path / "m", data=True)

    def change(options, tensors, _):
        options["objects"].append(options["objects"][0])
        own = {name: tensor for name, tensor in tensors.items() if name.startswith("object.0.")}
        tensors.update({name.replace("object.0.", "object.1."): tensor.clone() for name, tensor in own.items()})
        leaf = options["average"]["members"][0]["options"]["resolved"]["leaves"][0]
        leaf["arguments"]["graph"] = {"object": 1}

    assert_refused(tmp_path / "m", change, "graph of its column")
