"""Wrong calls, files that must not be overwritten, and outputs that cannot be written."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh
from commands import calls, command
from devices import device

import graphs
import rfgp
from rfgp import names
from rfgp.cli import speech
from rfgp.saving import values

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning"),
    pytest.mark.filterwarnings("ignore::graphs.GraphWarning"),
]

DATA = Path(__file__).parents[3] / "data"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with files of every kind: t.csv, shop.csv, ball.ply, nodes.csv, roads.geojson and the model m."""
    folder, rng = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    np.savetxt(folder / "t.csv", rng.standard_normal((40, 3)), delimiter=",", header="a,b,c", comments="")
    rows = [f"A{i},{('north', 'south')[i % 2]},{'' if i == 5 else i / 3},{i * i % 11}\n" for i in range(30)]
    (folder / "shop.csv").write_text("id,store,price,units\n" + "".join(rows))
    table = rfgp.tables.read_table(folder / "t.csv")
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0).condition(table.X, table.y)
    gp.save(folder / "python")
    gp.metadata = {"schema": table.schema.to_dict()}
    gp.save(folder / "m")
    trimesh.creation.icosphere(subdivisions=1).export(folder / "ball.ply")
    (folder / "nodes.csv").write_text("face,v\n" + "".join(f"{i},{'' if i == 4 else i % 5}\n" for i in range(0, 80, 2)))
    (folder / "two.csv").write_text("face,id,heat,load\n" + "".join(f"{i},{i},{i % 5},{i % 3}\n" for i in range(40)))
    shutil.copy(DATA / "roads.geojson", folder)
    return folder


@pytest.fixture
def here(made, tmp_path):
    """A copy of that folder."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def test_wrong_calls_have_one_clear_message_and_write_nothing(here):
    """Among them outputs that would be written over what is read, by any of its names."""
    for name, text in {
        "empty.csv": "",
        "void.csv": "a,b,c\n5,1,\n" + "".join(f",{i},{i % 3}\n" for i in range(9)),
        "empty.stl": "",
        "constant.csv": "a,b\n" + "".join(f"{i},5\n" for i in range(60)),
        "empty.geojson": '{"type": "FeatureCollection", "features": []}',
        "bad.rda": "not R",
        "what.xyz": "1",
    }.items():
        (here / name).write_text(text)
    for name, copy in (("t.csv", "report.html"), ("roads.geojson", "roads.json"), ("ball.ply", "mean.ply")):
        shutil.copy(here / name, here / copy)
    (here / "over").mkdir()
    os.symlink("../t.csv", here / "over" / "model.safetensors")
    for name in ("m", "t.csv"):
        os.link(here / name, here / f"hard-{name[0]}")
        os.symlink(name, here / f"link-{name[0]}")
    before = {path.name: path.is_file() and path.read_bytes() for path in here.iterdir()}
    long = f"fit t.csv --kernel '{'RBF(a)+' * 2000}RBF(a)'"
    other = []
    for code, line, word in [*calls("files.txt"), ["1", long, "10,000 characters"]]:
        answer = command(line, here, code=None)
        if (answer.out, answer.code) != ("", int(code)) or word not in answer.err:
            other.append((line[:200], answer))
    assert other == []
    assert {path.name: path.is_file() and path.read_bytes() for path in here.iterdir()} == before


def test_devices_and_links_stay(here):
    (here / "folder").mkdir()
    os.symlink("folder/p.csv", here / "link")
    null = device(here, "null")
    for out in ("null", "link"):
        command(f"predict m t.csv --out {out}", here)
    assert stat.S_ISCHR(null.stat().st_mode)
    assert (here / "link").is_symlink()
    assert (here / "folder" / "p.csv").read_text().startswith("row,mean")
    device(here, "full")
    assert "No space left on device. Make room" in command("predict m t.csv --out full", here, 1).err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "error", "word"),
    [
        ("fit t.csv --kernel RBF() --no-compare", KeyboardInterrupt, "Interrupted."),
        ("mesh ball.ply --no-compare", OSError(28, "No space left on device"), "Make room"),
    ],
)
def test_a_command_that_fails_in_the_end_leaves_no_empty_folder(line, error, word, here, monkeypatch, capfd):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("os.replace", fail)
    before = sorted(os.listdir(here))
    answer = command(f"{line} --out a/b", here, 1 if isinstance(error, OSError) else 130)
    assert word in answer.err + capfd.readouterr().err
    assert sorted(os.listdir(here)) == before


# --- words -------------------------------------------------------------------------------------------------------


def test_completion_is_offered():
    environment = {**os.environ, "_RFGP_COMPLETE": "complete_bash", "COMP_WORDS": "rfgp tr", "COMP_CWORD": "1"}
    program = Path(sys.executable).parent / "rfgp"
    run = subprocess.run(["rfgp"], executable=program, env=environment, capture_output=True, text=True, check=False)
    assert "traffic" in run.stdout


def test_phrases_that_are_translated_are_those_of_the_library():
    """A message that is worded anew in the library must be worded anew in the command line."""
    root = Path(rfgp.__path__[0])
    files = [path for path in root.rglob("*.py") if path.parent.name != "cli"]
    text = "".join(path.read_text("utf-8") for path in [*files, *(root.parent / "graphs").rglob("*.py")])
    text = re.sub(r"[\"']\n\s*f?[\"']", "", text.replace('\\"', '"'))  # texts in two parts
    text = re.sub(r"\{arguments\((.*?)\)\}", lambda found: found[1].replace("'", ""), text)  # which adapters change
    assert [pattern for pattern, _ in speech.PHRASES if not re.search(pattern, text)] == []


ROADS = graphs.RoadNetwork.from_lines([[(0, 0), (1, 1)]])
MESH = rfgp.datasets.make_mesh(subdivisions=1)
GRAPH = graphs.Graph.from_grid((2, 2))
CHOICES = {
    "KERNELS": lambda: rfgp.kernels.parse("nothing(x)"),
    "APPROXIMATIONS": lambda: rfgp.approximations.parse("nothing"),
    "LIKELIHOODS": lambda: rfgp.GP(likelihood="nothing"),
    "INFERENCES": lambda: rfgp.GP(likelihood="poisson", inference="nothing"),
    "GRAPH_KERNELS": lambda: rfgp.GraphGP(GRAPH, kernel="nothing"),
    "GRAPH_FEATURES": lambda: rfgp.GraphGP(GRAPH, features="nothing"),
    "METRICS": lambda: graphs.RoadNetwork.from_lines([[(0, 0), (1, 1)]], metric="nothing"),
    "WEIGHTS": lambda: graphs.Graph.from_mesh(MESH, weights="nothing"),
    "NODES": lambda: graphs.Graph.from_mesh(MESH, nodes="nothing"),
    "BOUNDARIES": lambda: rfgp.RoadGP(ROADS, boundary="nothing").condition([(0, 0.5)], [1]),
    "ROAD_DUPLICATES": lambda: rfgp.fields.read_road_field(DATA / "roads.geojson", "value", duplicates="nothing"),
    "POSTERIORS": lambda: rfgp.GP(hyperparameter_posterior="nothing"),
    "FEATURES": lambda: rfgp.RandomFeatures(8, kind="nothing"),
    "HOLDOUTS": lambda: rfgp.report.study_table(rfgp.datasets.make_table(), rfgp.GP(), holdout="nothing"),
}
"""Refusals of the library that list the values of each choice of the command line, which loads no library for them."""


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_those_of_the_library(name):
    with pytest.raises(ValueError, match="nothing") as found:
        CHOICES[name]()
    message = str(found.value)
    assert [choice for choice in getattr(names, name) if choice not in message] == []


def test_results_and_endings_are_those_of_the_library():
    assert (names.RESULTS, names.ROAD_SUFFIXES) == (rfgp.fields.RESULTS, rfgp.fields.ROAD_SUFFIXES)
    assert {*names.MESH_SUFFIXES} < {*rfgp.fields.FIELD_SUFFIXES}


ROLES = {
    "kernel": (values.KERNELS.names, (*names.KERNELS, *names.OBJECT_KERNELS, "Centered")),  # which no text may name
    "approximation": (values.APPROXIMATIONS.names, names.APPROXIMATIONS),
    "likelihood": (rfgp.likelihoods.names(), names.LIKELIHOODS),
    "graph kernel": (graphs.kernels.names(), names.GRAPH_KERNELS),
}
"""The names in the registry of each role that models are saved with, and those that options accept without torch."""


@pytest.mark.parametrize("role", ROLES)
def test_names_without_torch_are_those_of_the_registries(role):
    registered, known = ROLES[role]
    assert sorted(registered) == sorted(known)
