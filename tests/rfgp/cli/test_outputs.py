"""What the command line writes over, and what it refuses to."""

import json
import os
import shlex
import shutil
import stat

import numpy as np
import pytest
import trimesh
from commands import fail, run, succeed
from devices import device

import rfgp
from rfgp.cli.common import command_line
from rfgp.tables.options import TableOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning"),
    pytest.mark.filterwarnings("ignore::graphs.GraphWarning"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table `t.csv`, its model `m` and a copy of this `n`, a mesh `mean.ply`, values and roads."""
    folder = tmp_path_factory.mktemp("made")
    rows = np.random.default_rng(0).standard_normal((40, 3))
    np.savetxt(folder / "t.csv", rows, delimiter=",", header="a,b,c", comments="")
    table = rfgp.tables.read_table(folder / "t.csv")
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0).condition(table.X, table.y)
    gp.metadata = {"schema": table.schema.to_dict()}
    gp.save(folder / "m")
    mesh = trimesh.creation.icosphere(subdivisions=1)
    mesh.export(folder / "mean.ply")
    (folder / "nodes.csv").write_text("face,v\n" + "".join(f"{i},{i % 5}\n" for i in range(0, 80, 2)))
    line = {"type": "Feature", "geometry": {"type": "LineString", "coordinates": [[0, 0], [0, 1]]}}
    (folder / "roads.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [line]}))
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of that folder, and in it the present one."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tell(how, path):
    """Give a file another name that leads to it."""
    if how == "same":
        return path
    (os.link if how == "hard" else os.symlink)(path, "other")
    return "other"


@pytest.mark.parametrize("how", ["same", "hard", "symbolic"])
@pytest.mark.parametrize("read", ["m", "t.csv"])
def test_predictions_are_not_written_over_the_model_or_the_table(how, read, here, monkeypatch, capsys):
    before = (here / read).read_bytes()
    code, out, err = run(monkeypatch, capsys, "predict", "m", "t.csv", "--out", tell(how, read))
    assert (code, out) == (1, "")
    assert err.endswith(f"would be written over {read}, which is read. Choose another --out.\n")
    assert (here / read).read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["fit", "report.html"], "report.html"),
        (["fit", "t.csv"], "t.csv"),
        (["mesh", "mean.ply"], "mean.ply"),
        (["mesh", "ball.ply", "--values", "nodes.csv"], "nodes.csv"),
        (["traffic", "roads.geojson"], "roads.geojson"),
        (["compare", "roads.json"], "roads.json"),
    ],
)
def test_inputs_are_not_overwritten_by_results(arguments, read, here, monkeypatch, capsys):
    shutil.copy("t.csv", "report.html")
    os.symlink("t.csv", "model.safetensors")
    shutil.copy("mean.ply", "ball.ply")
    if read != "mean.ply":
        os.remove("mean.ply")
    shutil.copy("roads.geojson", "roads.json")
    before = {name: (here / name).read_bytes() for name in os.listdir()}
    code, out, err = run(monkeypatch, capsys, *arguments, "--out", ".")
    assert (code, out) == (1, "")
    assert f"would be written over {read}, which is read." in err
    assert {name: (here / name).read_bytes() for name in os.listdir()} == before


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("made", "made cannot be written: Is a directory. Name a file in it."),
        ("nowhere/p.csv", "nowhere/p.csv cannot be written: No such file"),
        ("full", "full cannot be written: No space left on device. Make room"),
    ],
)
def test_an_output_that_cannot_be_written_is_named(out, message, here, monkeypatch, capsys):
    (here / "made").mkdir()
    if out == "full":
        device(here, out)
    code, printed, err = run(monkeypatch, capsys, "predict", "m", "t.csv", "--out", out)
    assert (code, printed) == (1, "")
    assert message in err


def test_a_device_and_a_link_stay(here, monkeypatch, capsys):
    (here / "folder").mkdir()
    os.symlink("folder/p.csv", "link")
    null = device(here, "null")
    for out in (null, "link"):
        assert run(monkeypatch, capsys, "predict", "m", "t.csv", "--out", out)[0] == 0
    assert stat.S_ISCHR(null.stat().st_mode)
    assert os.path.islink("link")
    assert (here / "folder" / "p.csv").read_text().startswith("row,mean")


@pytest.mark.parametrize("command", ["fit t.csv", "mesh mean.ply", "traffic roads.geojson", "compare t.csv"])
def test_an_impossible_folder_ends_a_command_before_it_reads(command, here, monkeypatch, capsys):
    monkeypatch.setattr("rfgp.tables.reading.read_text", lambda *_, **__: pytest.fail("read"))
    code, _, err = run(monkeypatch, capsys, *command.split(), "--out", "t.csv/o")
    assert (code, "Traceback" in err) == (1, False)
    assert "t.csv/o cannot be written: Not a directory. A file stands where a folder is needed. Choose" in err
    code, _, err = run(monkeypatch, capsys, *command.split(), "--out", "m")
    assert "cannot be written: Not a directory. A file stands where a folder is needed. Choose" in err


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "command", ["fit t.csv --no-compare", "compare t.csv --size 4 --draws 1", "mesh mean.ply --no-compare"]
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_command_that_fails_in_the_end_leaves_no_empty_folder(command, error, here, monkeypatch, capfd):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("os.replace", fail)
    before = sorted(os.listdir())
    code, _, err = run(monkeypatch, capfd, *command.split(), "--out", "a/b")
    assert code == (1 if isinstance(error, OSError) else 130)
    assert ("No space left on device. Make room" if isinstance(error, OSError) else "Interrupted. ") in err
    assert sorted(os.listdir()) == before


def test_gaps_in_a_file_to_predict_are_refused_or_dropped(here, monkeypatch, capsys):
    (here / "gap.csv").write_text("a,b\n1,2\n1,\n,2\n3,4\n")
    code, out, err = run(monkeypatch, capsys, "predict", "m", "gap.csv")
    assert (code, out) == (1, "")
    assert "column 'a' has 1 missing or infinite value, the first in row 2 (missing). Use --missing drop." in err
    assert "column 'b' has 1 missing" in err
    assert err.endswith("Rows count from 0, after the header.\n")
    out, _ = succeed(monkeypatch, capsys, "predict", "m", "gap.csv", "--missing", "drop")
    assert [line.split(",")[0] for line in out.splitlines()] == ["row", "0", "3"]
    err = fail(monkeypatch, capsys, "predict", "m", "gap.csv", "--missing", "mean")
    assert "--missing mean needs the means of the fitted table" in err
    assert "--missing must be one of error, drop, mean, got 'guess'" in fail(
        monkeypatch, capsys, "predict", "m", "gap.csv", "--missing", "guess"
    )
    (here / "gap.csv").write_text("a;b\n1,5;-\nNA;1\n1,5;2\n")
    arguments = ("--missing", "drop", "--decimal", ",", "--missing-mark", "-")
    out, _ = succeed(monkeypatch, capsys, "predict", "m", "gap.csv", *arguments)
    assert [line.split(",")[0] for line in out.splitlines()] == ["row", "2"]


def test_gaps_in_values_on_a_mesh_are_refused_or_dropped(here, monkeypatch, capsys):
    (here / "v.csv").write_text("face,v\n" + "".join(f"{i},{'' if i == 4 else i % 5}\n" for i in range(0, 80, 2)))
    common = ("mesh", "mean.ply", "--values", "v.csv", "--no-compare", "--out", "o", "--json")
    assert "Use --missing drop" in fail(monkeypatch, capsys, *common)
    out, _ = succeed(monkeypatch, capsys, *common, "--missing", "drop")
    assert json.loads(out)["train"] + json.loads(out)["test"] == 39
    assert run(monkeypatch, capsys, *common, "--missing", "mean")[0] == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(rfgp.Prediction, "exp"), reason="predictions have no logarithms yet")
def test_log_targets_are_predicted_in_their_own_units(here, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    X = rng.random((200, 2))
    y = np.exp(4 * X[:, 0] - 2 * X[:, 1] + 0.2 * rng.standard_normal(200))
    rows = "".join(f"{a!r},{b!r},{c!r}\n" for (a, b), c in zip(X.tolist(), y.tolist(), strict=True))
    (here / "y.csv").write_text("a,b,y\n" + rows)
    options = ("--kernel", "RBF()", "--approximation", "RandomFeatures(16)", "--no-compare", "--out", "o", "--json")
    out, err = succeed(monkeypatch, capsys, "fit", "y.csv", "--log", *options)
    assert json.loads(out)["title"] == "y.csv, target log of y"
    assert "No --target: it is the last column, y.\n" in err
    assert not [note for note in json.loads(out)["notes"] if "--log" in note]
    out, err = succeed(monkeypatch, capsys, "fit", "y.csv", "--target", "y", *options[:-2], "other", "--json")
    (note,) = [note for note in json.loads(out)["notes"] if "--log" in note]
    assert note.startswith("y is positive, from ")
    assert note.endswith("A model of its logarithm may be better (--log).")
    assert "No --target" not in err
    model = "o/model.safetensors"
    out, _ = succeed(monkeypatch, capsys, "predict", model, "y.csv", "--out", "p.csv", "--json")
    assert 0.9 < json.loads(out)["coverage_95"] <= 1
    found = np.loadtxt("p.csv", delimiter=",", skiprows=1)
    law = rfgp.load(model).predict(X)
    noisy = law.observed()
    np.testing.assert_allclose(found[:, 1], np.exp(law.mean + noisy.variance / 2), rtol=1e-9)
    spread = np.sqrt(np.expm1(law.variance)) * np.exp(law.mean + law.variance / 2)
    np.testing.assert_allclose(found[:, 2], spread, rtol=1e-6)
    np.testing.assert_allclose(found[:, 5], np.exp(law.mean + 1.959963984540054 * np.sqrt(noisy.variance)), rtol=1e-9)
    (here / "y.csv").write_text("a,b,y\n" + rows + "1,1,0\n")
    err = fail(monkeypatch, capsys, "fit", "y.csv", "--log", *options)
    assert "--log needs a positive target, and 'y' has 1 value not above 0, the first in row 200 (0)." in err


@pytest.mark.skipif("thousands" not in TableOptions.__annotations__, reason="tables know no thousands yet")
def test_separators_of_thousands_are_read_where_one_names_them(here, monkeypatch, capsys):
    (here / "n.csv").write_text('a;b\n"1,200";2\n')
    out, _ = succeed(monkeypatch, capsys, "predict", "m", "n.csv", "--thousands", ",")
    gp = rfgp.load("m")
    assert float(out.splitlines()[1].split(",")[1]) == pytest.approx(gp.predict([[1200.0, 2.0]]).mean[0], rel=1e-9)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("RBF(t, name='trend')", "\"RBF(t, name='trend')\""),
        ("a b", "'a b'"),
        ("it's $5", "'it'\"'\"'s $5'"),
        ("t", "t"),
    ],
)
def test_commands_are_shown_as_one_types_them(word, shown, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rfgp", "fit", word])
    assert command_line() == f"rfgp fit {shown}"
    assert shlex.split(command_line()) == ["rfgp", "fit", word]
