import contextlib
import csv
import hashlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import osm
import pandas as pd
import pytest
import trimesh
from commands import fail, run, succeed

import graphs
import rfgp
from rfgp.datasets import CATALOG, Entry
from rfgp.tables import Schema

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.BaselineNotBeatenWarning"),  # tables of a straight line
    pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning"),
    pytest.mark.filterwarnings("ignore::graphs.LargeVarianceWarning"),  # 40 nodes fit a long lengthscale
    pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning"),
]

DATA = Path(__file__).parents[3] / "data"
QUICK = ("--num-train", "40", "--num-test", "10", "--draws", "1", "--size", "8")


@pytest.fixture(scope="module")
def small_mesh(tmp_path_factory):
    """A file `mesh.ply` like that of `data`, with 320 faces for 1280."""
    path = tmp_path_factory.mktemp("mesh") / "mesh.ply"
    trimesh.creation.icosphere(subdivisions=2).export(path)
    return path


@pytest.mark.parametrize("name", ["table.csv", "mesh.ply", "roads.geojson"])
def test_compare_prints_a_table_and_writes_files(name, small_mesh, monkeypatch, capsys, tmp_path):
    path = small_mesh if name == small_mesh.name else DATA / name
    out, _ = succeed(monkeypatch, capsys, "compare", path, *QUICK, "--out", tmp_path / "o")
    for word in ("exact", "iid", "kernel err", "KL, nats", "test RMSE", "NLPD", "40 training and 10 test"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 100
    stem = name.split(".")[0]
    assert (tmp_path / "o" / f"{stem}.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "o" / f"{stem}.json").read_text())["draws"]


def test_json_is_all_that_reaches_standard_output(monkeypatch, capsys):
    out, _ = succeed(monkeypatch, capsys, "compare", DATA / "table.csv", *QUICK, "--json")
    assert len(json.loads(out)["draws"]) == 4


@pytest.mark.slow
def test_compare_takes_a_kernel_and_names_a_poor_model(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    x, store, nothing = rng.uniform(-2, 2, 80), rng.choice(["a", "b"], 80), rng.standard_normal(80)
    y = np.sin(2 * x) + (store == "a") + 0.1 * rng.standard_normal(80)
    pd.DataFrame({"x": x, "store": store, "y": y, "nothing": nothing}).to_csv(tmp_path / "t.csv", index=False)
    arguments = ("compare", tmp_path / "t.csv", "--num-train", "50", "--num-test", "30", "--draws", "1", "--size", "8")
    kernel = ("--target", "y", "--kernel", "RBF(x) + Group(store)")
    out, err = succeed(monkeypatch, capsys, *arguments, *kernel, "--json")
    (exact,) = json.loads(out)["exact"]
    assert exact["r_squared"] > 0.9
    assert "store" in exact["hyperparameters"]
    assert "poor" not in err
    out, err = succeed(monkeypatch, capsys, *arguments, "--target", "nothing", "--kernel", "RBF(x)", "--json")
    assert json.loads(out)["exact"][0]["r_squared"] < 0.1
    assert "No approximation of a poor model is worth comparing" in " ".join(err.split())
    for wrong, word in (
        ("Group(store)", "random features"),
        ("RBF(z)", "no column 'z'"),
        ("diffusion", "RBF(diffusion)"),
    ):
        assert word in fail(monkeypatch, capsys, *arguments, "--kernel", wrong)


@pytest.fixture
def stations(tmp_path):
    """A file of 240 rows of 24 stations, which are texts, in the order of time."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"station": [f"s{i % 24}" for i in range(240)], "a": rng.uniform(size=240)})
    frame.assign(b=rng.uniform(size=240), level=np.sin(4 * frame.a)).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.mark.slow
def test_a_column_keeps_rows_together_and_is_no_input(stations, monkeypatch, capsys, tmp_path):
    arguments = ["fit", stations, *SMALL, "--out", tmp_path / "o"]
    out, err = succeed(monkeypatch, capsys, *arguments, "--holdout-by", "station", "--json")
    assert "held out by station, in 24 groups. It is not an input" in err
    found = json.loads(out)
    assert (found["test"], found["test_groups"]) == (20, 2)
    assert rfgp.load(tmp_path / "o" / "model.safetensors").kernel.terms()[0].factors[0].columns == ("a", "b")
    assert "cannot be assessed: 2 held-out groups" in (tmp_path / "o" / "report.html").read_text()
    for wrong, word in (
        (["--holdout-by", "place"], "place"),
        (["--holdout-by", "level", "--target", "level"], "level"),
    ):
        err = fail(monkeypatch, capsys, *arguments, *wrong)
        assert word in err
    assert run(monkeypatch, capsys, *arguments, "--holdout-by", "station", "--holdout", "last")[0] == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::graphs.GraphWarning", "ignore::rfgp.RfgpWarning")
def test_fields_are_held_out_by_a_property_or_a_column(small_mesh, monkeypatch, capsys, tmp_path):
    osm.export(tmp_path / "town.geojson")
    content = json.loads((tmp_path / "town.geojson").read_text())
    for number, feature in enumerate(content["features"]):
        feature["properties"]["operator"] = f"company {number % 7}"
    (tmp_path / "town.geojson").write_text(json.dumps(content))
    quick = ("--out", tmp_path / "o", "--no-compare", "--json")
    arguments = ["traffic", tmp_path / "town.geojson", "--target", "speed", "--duplicates", "merge", *quick]
    out, _ = succeed(monkeypatch, capsys, *arguments, "--holdout-by", "operator")
    assert json.loads(out)["test_groups"] == 2
    assert "held-out groups" in (tmp_path / "o" / "report.html").read_text()
    assert run(monkeypatch, capsys, *arguments, "--holdout-by", "owner")[0] == 1
    assert run(monkeypatch, capsys, *arguments, "--holdout-by", "operator", "--holdout", "last")[0] == 1
    rows = "".join(f"{face},{np.sin(face)},{'abcde'[face % 5]}\n" for face in range(60))
    (tmp_path / "v.csv").write_text("face,heat,specimen\n" + rows)
    arguments = ["mesh", small_mesh, "--values", tmp_path / "v.csv", *quick]
    out, _ = succeed(monkeypatch, capsys, *arguments, "--holdout-by", "specimen")
    found = json.loads(out)
    assert (found["title"].endswith("heat"), found["test_groups"]) == (True, 2)


@pytest.mark.slow
def test_the_last_rows_of_a_file_are_held_out(stations, monkeypatch, capsys, tmp_path):
    arguments = ["fit", stations, *SMALL, "--drop", "station", "--out", tmp_path / "o", "--holdout"]
    _, err = succeed(monkeypatch, capsys, *arguments, "last")
    assert "held-out part, the last in their order" in (tmp_path / "o" / "report.html").read_text()
    err = fail(monkeypatch, capsys, *arguments, "first")
    assert "random, last" in err


def test_version_and_help(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version")[1].strip() == f"rfgp {rfgp.__version__}"
    assert "demo" in run(monkeypatch, capsys, "--help")[1]


def bad_files(folder):
    """File name -> (content, what the message says)."""
    ring = '{"type": "FeatureCollection", "features": []}'
    contents = {
        "empty.csv": (b"", "is empty"),
        "nan.csv": (b"a,b\n1,nan\n2,3\n", "column 'b' (the target) has 1 missing"),
        "text.csv": (b"a,b\n1,red\n2,3\n", "column 'b' holds text"),
        "constant.csv": (b"a,b\n" + b"".join(b"%d,5\n" % i for i in range(60)), "target is constant"),
        "one.csv": (b"a,b\n1,2\n", "must add up to at most 1, the number of items, got 40 training and 10 test items"),
        "empty.stl": (b"", "is empty"),
        "bad.stl": (b"solid nothing\nendsolid\n", "bad.stl"),
        "bad.rda": (b"not R", "bad.rda"),
        "none.geojson": (ring.encode(), "no roads"),
        "what.xyz": (b"1", "ending '.xyz'"),
    }
    for name, (content, _) in contents.items():
        (folder / name).write_bytes(content)
    return {name: message for name, (_, message) in contents.items()} | {"missing.csv": "There is no file"}


def test_bad_files_get_one_line_and_no_traceback(monkeypatch, capsys, tmp_path):
    for name, message in bad_files(tmp_path).items():
        code, out, err = run(monkeypatch, capsys, "compare", tmp_path / name, *QUICK)
        text = " ".join(err.split())
        assert code == 1, name
        assert message in text, (name, text)
        assert "Traceback" not in err
        assert not out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["table.csv", "--target", "cost"], "no column 'cost'"),
        (["table.csv", "--features", "cosine"], "--features must be one of"),
        (["table.csv", "--draws", "0"], "draws must be at least 1"),
        (["table.csv", "--num-train", "0"], "--num-train must be at least 2"),
        (["table.csv", "--num-test", "0"], "--num-test must be at least 1"),
        (["table.csv", "--seed", "-1"], "seed must be"),
        (["table.csv", "--size", "0"], "--size must be at least 1"),
        (["mesh.ply", "--halt", "1.5"], "halt must"),
        (["mesh.ply", "--size", "3"], "must be even"),
        (["mesh.ply", "--kernel", "heat"], "--kernel must be one of"),
    ],
)
def test_bad_options_are_named(options, message, small_mesh, monkeypatch, capsys):
    path = small_mesh if options[0] == small_mesh.name else DATA / options[0]
    err = fail(monkeypatch, capsys, "compare", path, *QUICK, *options[1:])
    assert message in err


def test_an_unwritable_folder_is_named(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    err = fail(monkeypatch, capsys, "compare", DATA / "table.csv", *QUICK, "--out", tmp_path / "file")
    assert "file" in err
    assert "Traceback" not in err


# --- fit, predict, mesh, traffic, datasets --------------------------------------------------------

SMALL = ("--kernel", "RBF(name='rbf')", "--approximation", "RandomFeatures(16)", "--no-compare")


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with the model of a table that has text, dates and gaps, by `python -m rfgp`; and what that printed."""
    folder = tmp_path_factory.mktemp("fitted")
    rng = np.random.default_rng(0)
    lines = ["size,color,day,note,price"]
    for i in range(120):
        color, size = ("red", "green", "blue")[i % 3], rng.uniform(1, 9)
        gap = "" if i == 7 else f"{size:.4f}"
        price = 3 * size + 10 * (color == "red") + 0.1 * i + 0.1 * rng.standard_normal()
        lines.append(f"{gap},{color},2026-01-{1 + i % 28:02d},n{i},{price:.4f}")
    (folder / "shop.csv").write_text("\n".join(lines) + "\n")
    options = ["--missing", "drop", "--drop", "note"]
    arguments = ["fit", folder / "shop.csv", *SMALL, *options, "--out", folder / "out", "--json"]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr("sys.argv", ["rfgp", *map(str, arguments)])
        with contextlib.suppress(SystemExit):
            runpy.run_module("rfgp", run_name="__main__")
    return folder, json.loads(out.getvalue())


def test_fit_says_how_well_and_writes_model_and_report(fitted):
    folder, figures = fitted
    assert figures["train"] + figures["test"] == 119
    assert figures["rmse"] < 0.5 * figures["target_sd"]
    assert set(figures["files"]) == {"model", "report"}
    gp = rfgp.load(folder / "out" / "model.safetensors")
    assert gp.num_observations == 119
    assert gp.fit_report.converged == figures["converged"]
    assert "shop.csv, target price" in (folder / "out" / "report.html").read_text()
    with pytest.raises(rfgp.NotFittedError):
        gp.exact()


@pytest.mark.parametrize(
    ("name", "picture"), [("poisson", "Rootogram"), ("bernoulli", "Reliability"), ("gamma", "Calib")]
)
def test_likelihoods_are_fitted_and_predict(monkeypatch, capsys, tmp_path, name, picture):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 2))
    f = 2 * np.sin(3 * X[:, 0])
    y = {"poisson": rng.poisson(np.exp(f)), "bernoulli": rng.uniform(size=150) < 1 / (1 + np.exp(-2 * f))}.get(
        name, rng.gamma(3.0, np.exp(f) / 3)
    )
    np.savetxt(tmp_path / "t.csv", np.c_[X, y], delimiter=",", header="a,b,y", comments="")
    out = tmp_path / "out"
    options = ("--likelihood", name, *SMALL, "--target", "y", "--out", out)
    _, err = succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *options)
    page = (out / "report.html").read_text()
    assert picture in page
    assert f"{type(rfgp.likelihoods.by_name(name)).__name__}(" in page
    gp = rfgp.load(out / "model.safetensors")
    written = tmp_path / "p.csv"
    _, err = succeed(monkeypatch, capsys, "predict", out / "model.safetensors", tmp_path / "t.csv", "--out", written)
    law = gp.predict(X).observed()
    for row, mean, low, high in zip(rows_of(written), law.mean, *law.quantile([0.025, 0.975]), strict=True):
        assert [float(row[key]) for key in ("mean", "low", "high")] == pytest.approx([mean, low, high], rel=1e-5)
    code, _, err = run(monkeypatch, capsys, "fit", tmp_path / "t.csv", *options, "--log")
    assert code == 2
    assert "--log is for a gaussian likelihood" in err


def test_several_classes_and_wrong_targets_are_named(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "t.csv", rng.uniform(size=(30, 3)), delimiter=",", header="a,b,y", comments="")
    for name, words in (
        ("categorical", "texts or integers"),
        ("poisson", "counts"),
        ("normal", "likelihood"),
    ):
        options = ("--likelihood", name, *SMALL, "--target", "y", "--out", tmp_path / "o")
        code, _, err = run(monkeypatch, capsys, "fit", tmp_path / "t.csv", *options)
        assert code in (1, 2)
        assert words in " ".join(err.split())
        assert not (tmp_path / "o").exists()


def written(path, n=120):
    """Write a table of dates, texts, numbers, gaps of the target and an identifier; return its rows."""
    rng = np.random.default_rng(0)
    stores, effects = np.array(["north", "south", "east", "west"]), [0.0, 1.0, -1.0, 2.0]
    frame = pd.DataFrame({"order no": [f"A{i:03d}" for i in range(n)], "store": stores[np.arange(n) % 4]})
    frame["day"] = (np.datetime64("2026-01-01") + np.arange(n)).astype(str)
    frame["price"] = rng.uniform(1, 2, n).round(4)
    season = np.cos(2 * np.pi * np.arange(n) / 7)
    frame["units"] = (season + np.array(effects)[np.arange(n) % 4] + 0.05 * rng.standard_normal(n)).round(4)
    frame.loc[3, "units"] = np.nan
    frame.loc[5, "price"] = np.nan
    frame.to_csv(path, index=False)
    return frame


KERNEL = "RBF((day, price), name='trend') + Periodic(day, period=7, name='week') + Group(store)"


def test_a_kernel_reads_its_columns_and_predicts_by_terms(monkeypatch, capsys, tmp_path):
    frame, out, model = written(tmp_path / "t.csv"), tmp_path / "out", tmp_path / "out" / "model.safetensors"
    given = ("--target", "units", "--kernel", KERNEL, "--missing", "mean", "--out", out)
    parts = ("--approximation", "trend=RandomFeatures(16)", "--seed", "3", "--no-compare", "--with-data")
    said, err = succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *given, *parts)
    assert "conditioned on 119 of 120 rows" in " ".join(said.split())
    gp = rfgp.load(model)
    assert [*gp.terms] == ["trend", "week", "group(store)"]
    assert gp.terms["trend"].approximation == rfgp.RandomFeatures(16)
    assert gp.seed == 3
    new = frame.loc[[7, 9], ["store", "price", "day", "order no"]].assign(store=["nobody yet", "north"])
    new.to_csv(tmp_path / "n.csv", index=False)
    arguments = ("predict", model, tmp_path / "n.csv", "--terms", "--id", "order no", "--id", "store")
    said, err = succeed(monkeypatch, capsys, *arguments)
    rows = list(csv.DictReader(io.StringIO(said)))
    begin = ["row", "order no", "store", "mean", "sd", "observed_sd", "low", "high", "trend_mean", "trend_sd"]
    assert list(rows[0])[:10] == begin
    assert [row["order no"] for row in rows] == ["A007", "A009"]
    found = gp.predict(new.assign(day=pd.to_datetime(new.day)))
    for name in gp.terms:
        effect = found.terms[name].centered()
        np.testing.assert_allclose([float(row[f"{name}_mean"]) for row in rows], effect.mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose([float(row[f"{name}_sd"]) for row in rows], effect.std, rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose([float(row["mean"]) for row in rows], found.mean, rtol=1e-9)
    monkeypatch.setattr("rfgp.cli.predict.CHUNK_OF_TERMS", 1)
    said, _ = succeed(monkeypatch, capsys, *arguments)
    again = [float(row["week_mean"]) for row in csv.DictReader(io.StringIO(said))]
    assert again == pytest.approx([float(row["week_mean"]) for row in rows])
    new[:1].to_csv(tmp_path / "one.csv", index=False)
    assert "--terms requires at least two rows" in fail(
        monkeypatch, capsys, *arguments[:2], tmp_path / "one.csv", "--terms"
    )
    code, _, err = run(monkeypatch, capsys, *arguments[:3], "--id", "mean")
    assert (code, "the name of a result" in " ".join(err.replace("│", " ").split())) == (2, True)
    assert "Did you mean 'order no'?" in fail(monkeypatch, capsys, *arguments[:3], "--id", "ordr no")


def test_a_kernel_without_columns_reads_the_others(monkeypatch, capsys, tmp_path):
    written(tmp_path / "t.csv")
    given = ("--target", "units", "--missing", "drop", "--drop", "order no", "--no-compare", "--out", tmp_path / "o")
    kernel = ("--kernel", "RBF(name='all') + Group(store)", "--approximation", "Exact")
    succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *given, *kernel)
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    assert gp.kernel.terms()[0].factors[0].columns == ("day", "price")
    assert gp.num_observations == 118
    out, _ = succeed(monkeypatch, capsys, "predict", tmp_path / "o" / "model.safetensors", tmp_path / "t.csv")
    assert len(out.splitlines()) == 120  # the header, and rows with all inputs


def test_an_average_has_no_terms_to_write(monkeypatch, capsys, tmp_path):
    written(tmp_path / "t.csv", 60)
    given = ("--target", "units", "--missing", "drop", "--drop", "order no", "--drop", "day")
    succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *given, "--no-compare", "--out", tmp_path / "o")
    model = tmp_path / "o" / "model.safetensors"
    assert rfgp.load(model).members
    assert "--terms requires one model, got an average" in fail(
        monkeypatch, capsys, "predict", model, tmp_path / "t.csv", "--terms"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernel", "Rbf(price)"], "Did you mean 'RBF'?"),
        (["--kernel", "RBF(prise)"], "Did you mean 'price'?"),
        (["--kernel", "RBF(store)"], "column 'store' holds text ('north' in row 0"),
        (["--kernel", "RBF(units)"], "since it is the target"),
        (["--kernel", "RBF(price) + Group(store)", "--drop", "store"], "among the columns to drop"),
        (["--kernel", "RBF(price) + Group(store)", "--holdout-by", "store"], "--holdout-by must be a column that"),
        (["--kernel", "Constant()"], "at least one column"),
        (["--kernel", "Group(price)"], "group(price) reads levels"),
        (["--kernel", "__import__('os').system('touch owned')"], "Use only names, calls"),
        (["--kernel", "[RBF(x) for x in y]"], "Use only names, calls"),
        (["--kernel", "RBF(price).__class__"], "Use only names, calls"),
        (["--kernel", "(" * 5000], "at most 32 nested brackets"),
        (["--kernel", "RBF(price)" + "+RBF(price)" * 10_000], "at most 10,000 characters"),
        (["--kernel", "RBF(price, lengthscale='long')"], "lengthscale must be a number"),
        (["--kernel", "Mesh('t.csv')"], "Build it in Python"),
        (["--kernel", "RBF(price)", "--approximation", "Vechia"], "Did you mean 'Vecchia'?"),
        (["--kernel", "RBF(price)", "--approximation", "trend=Exact()"], "one of rbf(price), got 'trend'"),
        (["--kernel", "Group(store)", "--approximation", "RandomFeatures(8)"], "RandomFeatures"),
        (["--approximation", "trend=Exact()", "--drop", "store"], "Give the kernel too"),
        (["--kernel", "RBF(price)", "--inference", "laplace"], "inference"),
    ],
)
def test_wrong_models_are_named_before_a_fit(options, message, monkeypatch, capsys, tmp_path):
    written(tmp_path / "t.csv", 30)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rfgp.fitting.fit_terms", lambda *_: pytest.fail("fitted"))
    given = ("--target", "units", "--missing", "drop", "--drop", "order no", "--out", tmp_path / "o")
    code, out, err = run(monkeypatch, capsys, "fit", tmp_path / "t.csv", *given, *options)
    assert (code, out) == (1, ""), err
    assert message in " ".join(err.split())
    assert sorted(os.listdir()) == ["t.csv"]


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")  # rows at the jumps
def test_neighbors_are_kept_with_their_rows(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 2))
    table = np.column_stack([X, np.sin(3 * X[:, 0]) + 0.4 * np.sign(np.sin(9 * X[:, 1]))])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,y", comments="")
    out, kernel = tmp_path / "out", "RBF(name='smooth') + Matern((a, b), nu=0.5, name='local')"
    parts = ("--approximation", "smooth=InducingPoints(12), local=Vecchia(8)", "--no-compare")
    succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", "--kernel", kernel, *parts, "--out", out)
    gp = rfgp.load(out / "model.safetensors")
    assert gp.terms["local"].approximation == rfgp.Vecchia(8)
    assert gp.exact().num_observations == 120


def test_predict_reads_other_tables_as_the_first(fitted, monkeypatch, capsys, tmp_path):
    folder, _ = fitted
    model = folder / "out" / "model.safetensors"
    (tmp_path / "new.csv").write_text(
        "day,color,extra,size\n2026-01-03,blue,x,4.5\n2026-01-04,red,y,\n2026-02-05,red,z,2\n"
    )
    out, _ = succeed(monkeypatch, capsys, "predict", model, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert "1 row with missing values was left out" in " ".join(out.split())
    found = rows_of(tmp_path / "p.csv")
    assert [row["row"] for row in found] == ["0", "2"]
    gp = rfgp.load(model)
    assert Schema.from_dict(gp.metadata["schema"]).columns == ("size", "color", "day")
    law = gp.predict(pd.read_csv(tmp_path / "new.csv", parse_dates=["day"]).dropna())
    np.testing.assert_allclose([float(row["mean"]) for row in found], law.mean, rtol=1e-10)
    np.testing.assert_allclose([float(row["sd"]) for row in found], np.sqrt(law.variance), rtol=1e-10)
    half = 1.959963984540054 * np.sqrt(law.observed().variance)
    np.testing.assert_allclose([float(row["high"]) for row in found], law.mean + half, rtol=1e-10)


@pytest.mark.filterwarnings("default::rfgp.NewLevelWarning")
def test_one_model_serves_the_command_and_python(monkeypatch, capsys, tmp_path):
    frame, out = written(tmp_path / "t.csv"), tmp_path / "out"
    frame.loc[[8, 12], "store"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = ("--target", "units", "--drop", "order no", "--missing", "mean", "--approximation", "Exact", "--no-compare")
    _, err = succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *given, "--out", out)
    gp = rfgp.load(out / "model.safetensors")
    assert {key: len(levels) for key, levels in gp.spec.options.indicators.items()} == {"store": 5}
    (tmp_path / "n.csv").write_text(frame.iloc[6:14].to_csv(index=False))
    found = gp.predict(pd.read_csv(tmp_path / "n.csv", parse_dates=["day"]))
    said, err = succeed(monkeypatch, capsys, "predict", out / "model.safetensors", tmp_path / "n.csv")
    assert not err
    rows = list(csv.DictReader(io.StringIO(said)))
    np.testing.assert_allclose([float(row["mean"]) for row in rows], found.mean, rtol=1e-9)
    np.testing.assert_allclose([float(row["sd"]) for row in rows], found.std, rtol=1e-9)
    (tmp_path / "n.csv").write_text("price,day,store\n1.5,2026-02-01,abroad\n1.5,2026-02-01,north\n")
    new = pd.read_csv(tmp_path / "n.csv", parse_dates=["day"])
    with pytest.warns(rfgp.NewLevelWarning, match="'store' has 1 level without training rows: abroad") as caught:
        found = gp.predict(new)
    assert [entry.filename for entry in caught] == [__file__]
    assert found.std[0] > found.std[1]
    said, err = succeed(monkeypatch, capsys, "predict", out / "model.safetensors", tmp_path / "n.csv")
    assert "NewLevelWarning: Column 'store' has 1 level" in err
    rows = list(csv.DictReader(io.StringIO(said)))
    np.testing.assert_allclose([float(row["mean"]) for row in rows], found.mean, rtol=1e-9)


def test_predict_prints_and_scores(fitted, monkeypatch, capsys, tmp_path):
    folder, _ = fitted
    model = folder / "out" / "model.safetensors"
    out, _ = succeed(monkeypatch, capsys, "predict", model, folder / "shop.csv")
    assert out.splitlines()[0] == "row,mean,sd,observed_sd,low,high"
    assert len(out.splitlines()) == 120
    out, _ = succeed(monkeypatch, capsys, "predict", model, folder / "shop.csv", "--out", tmp_path / "p.csv", "--json")
    figures = json.loads(out)
    assert figures["rows"] == 119
    assert figures["left_out"] == 1
    assert 0.8 < figures["coverage_95"] <= 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("color,day\nred,2026-01-03\n", "size"),
        ("size,color,day\n1,red,03/04/2026\n", "day"),
        ("size,color,day\nbig,red,2026-01-03\n", "big"),
        ("", "is empty"),
    ],
)
def test_predict_names_columns_that_do_not_match(fitted, content, message, monkeypatch, capsys, tmp_path):
    (tmp_path / "new.csv").write_text(content)
    model = fitted[0] / "out" / "model.safetensors"
    code, out, err = run(monkeypatch, capsys, "predict", model, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert code == 1
    assert message in " ".join(err.split())
    assert not out
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("decimal", [",", "."])
def test_predict_names_the_decimal_mark_that_the_model_brings(decimal, monkeypatch, capsys, tmp_path):
    rows = np.random.default_rng(0).standard_normal((20, 2))
    text = "".join(f"{a:.3f};{b:.3f}\n" for a, b in rows)
    for name, mark in (("same.csv", decimal), ("other.csv", "," if decimal == "." else ".")):
        (tmp_path / name).write_text("a;b\n" + text.replace(".", mark))
    table = rfgp.tables.read_table(tmp_path / "same.csv", decimal=decimal)
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0).condition(table.frame(), table.y)
    gp.metadata = {"schema": table.schema.to_dict()}
    gp.save(tmp_path / "m")
    err = fail(monkeypatch, capsys, "predict", tmp_path / "m", tmp_path / "other.csv")
    assert f"The decimal mark is {decimal!r}, as in the fitted table" in err
    assert f"Use --decimal {mark} if so." in err
    assert run(monkeypatch, capsys, "predict", tmp_path / "m", tmp_path / "other.csv", "--decimal", mark)[0] == 0


def test_predict_refuses_other_models(fitted, monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    rfgp.SparseSpectrumGP(num_frequencies=4).condition(rng.random((9, 2)), rng.random(9)).save(tmp_path / "m")
    table = fitted[0] / "shop.csv"
    for model, message in ((tmp_path / "m", "was not saved by `rfgp fit`"), (table, "not a saved model")):
        err = fail(monkeypatch, capsys, "predict", model, table)
        assert message in err
    assert run(monkeypatch, capsys, "predict", tmp_path / "m", table, "--json")[0] == 2


def test_mesh_writes_pictures_and_numbers(small_mesh, monkeypatch, capsys, tmp_path):
    rows = "".join(f"{i},{i % 7}\n" for i in range(0, 320, 2))
    (tmp_path / "v.csv").write_text("face,stress\n" + rows)
    arguments = ("--values", tmp_path / "v.csv", "--no-compare", "--json", "--out", tmp_path / "o")
    walks = ("--kernel", "diffusion", "--features", "walks", "--num-walkers", "8")
    out, _ = succeed(monkeypatch, capsys, "mesh", small_mesh, *walks, *arguments)
    figures = json.loads(out)
    names = {"mean.ply", "sd.ply", "mean.glb", "sd.glb", "nodes.csv", "model.safetensors", "report.html"}
    assert set(figures["files"]) == names == {path.name for path in (tmp_path / "o").iterdir()}
    assert figures["train"] + figures["test"] == 160
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    found = rows_of(tmp_path / "o" / "nodes.csv")
    np.testing.assert_allclose([float(row["mean"]) for row in found], gp.predict(range(320)).mean, rtol=1e-12)
    assert "stress" in (tmp_path / "o" / "report.html").read_text()
    succeed(monkeypatch, capsys, "mesh", small_mesh, "--alpha", "3", *arguments)
    gp, mesh = rfgp.load(tmp_path / "o" / "model.safetensors"), trimesh.load(small_mesh)
    law = gp.predict(mesh.triangles_center)
    found = rows_of(tmp_path / "o" / "nodes.csv")
    assert (type(gp), gp.num_observations, gp.kernel.terms()[0].factors[0].alpha) == (rfgp.MeshGP, 160, 3)
    np.testing.assert_allclose([float(row["mean"]) for row in found], law.mean, rtol=1e-6)
    np.testing.assert_allclose([float(row["sd"]) for row in found], np.sqrt(law.variance), rtol=1e-6)


def test_mesh_without_values_names_the_generated_field(small_mesh, monkeypatch, capsys, tmp_path):
    arguments = ("--known", "0.12", "--no-compare", "--out", tmp_path / "o")
    out, err = succeed(monkeypatch, capsys, "mesh", small_mesh, *arguments)
    assert "interpolated from a random 38 of 320 faces" in " ".join(err.split())
    assert "report.html in a browser" in " ".join(out.split())
    assert run(monkeypatch, capsys, "mesh", small_mesh, "--known", "0")[0] == 1


MESH_FILES = {"mean.ply", "sd.ply", "mean.glb", "sd.glb", "nodes.csv", "model.safetensors", "report.html"}
FAST = ("--kernel", "diffusion", "--features", "walks", "--num-walkers", "8", "--no-compare")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")  # of standard deviations as a target
def test_mesh_gives_each_of_several_targets_a_folder(small_mesh, monkeypatch, capsys, tmp_path):
    """A single one keeps the folder to itself; and properties of the file."""
    rows = "".join(f"{i},{i % 7},{i % 5}\n" for i in range(0, 320, 4))
    (tmp_path / "v.csv").write_text("FACE,stress/MPa,heat\n" + rows)
    arguments = ("--values", tmp_path / "v.csv", *FAST, "--json")
    both = ("--target", "stress/MPa", "--target", "heat", "--out", tmp_path / "o")
    out, err = succeed(monkeypatch, capsys, "mesh", small_mesh, *arguments, *both)
    figures = json.loads(out)
    assert list(figures) == ["stress/MPa", "heat"]
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"stress_MPa", "heat"}
    for name, folder in (("stress/MPa", "stress_MPa"), ("heat", "heat")):
        assert {path.name for path in (tmp_path / "o" / folder).iterdir()} == MESH_FILES == set(figures[name]["files"])
        assert name in (tmp_path / "o" / folder / "report.html").read_text()
    observed = [row["observed"] for row in rows_of(tmp_path / "o" / "heat" / "nodes.csv")]
    assert observed[:5] == ["0.0", "", "", "", "4.0"]
    one = ("--target", "heat", "--out", tmp_path / "one")
    out, err = succeed(monkeypatch, capsys, "mesh", small_mesh, *arguments, *one)
    assert {path.name for path in (tmp_path / "one").iterdir()} == MESH_FILES == set(json.loads(out)["files"])
    assert rows_of(tmp_path / "one" / "nodes.csv") == rows_of(tmp_path / "o" / "heat" / "nodes.csv")
    (tmp_path / "one" / "mean.ply").rename(tmp_path / "result.ply")
    both = ("--target", "mean", "--target", "sd", *FAST, "--out", tmp_path / "p")
    out, err = succeed(monkeypatch, capsys, "mesh", tmp_path / "result.ply", *both)
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"mean", "sd"}
    assert " ".join(out.split()).count("report.html in a browser") == 2
    mean = [float(row["observed"]) for row in rows_of(tmp_path / "p" / "mean" / "nodes.csv")]
    np.testing.assert_allclose(mean, [float(row["mean"]) for row in rows_of(tmp_path / "one" / "nodes.csv")], rtol=1e-6)
    err = fail(monkeypatch, capsys, "mesh", tmp_path / "result.ply", "--target", "heat")
    assert "heat must be a property of the faces or vertices" in err


def test_mesh_asks_which_of_several_columns(small_mesh, monkeypatch, capsys, tmp_path):
    rows = "".join(f"{i},{i},{i % 7},{i % 5}\n" for i in range(0, 320, 4))
    (tmp_path / "v.csv").write_text("face,id,stress,heat\n" + rows)
    arguments = ("--values", tmp_path / "v.csv", "--out", tmp_path / "o")
    assert "to interpolate: stress or heat." in fail(monkeypatch, capsys, "mesh", small_mesh, *arguments)
    assert not (tmp_path / "o").exists()


def test_points_far_from_the_mesh_are_refused(small_mesh, monkeypatch, capsys, tmp_path):
    (tmp_path / "v.csv").write_text(
        "X,Y,Z,heat\n" + "".join(f"{x},0,0.9,{x}\n" for x in np.linspace(-0.5, 0.5, 12)) + "0,0,3,1\n"
    )
    arguments = ("--values", tmp_path / "v.csv", "--no-compare", "--out", tmp_path / "o")
    err = fail(monkeypatch, capsys, "mesh", small_mesh, *arguments)
    assert "got row 12 at a distance of 2" in err
    assert "Raise --within to allow more" in err
    _, err = succeed(monkeypatch, capsys, "mesh", small_mesh, *arguments, "--within", "3", "--json")
    assert rfgp.load(tmp_path / "o" / "model.safetensors").within == 3


def test_traffic_gives_each_of_several_targets_a_folder(monkeypatch, capsys, tmp_path):
    content = json.loads((DATA / "roads.geojson").read_text())
    for feature in content["features"]:
        if feature["geometry"]["type"] == "Point":
            feature["properties"]["double"] = 2 * feature["properties"]["value"]
    (tmp_path / "roads.geojson").write_text(json.dumps(content))
    arguments = ("--target", "value", "--target", "double", *FAST, "--json", "--out", tmp_path / "o")
    out, _ = succeed(monkeypatch, capsys, "traffic", tmp_path / "roads.geojson", *arguments)
    assert list(json.loads(out)) == ["value", "double"]
    names = {"roads.geojson", "nodes.csv", "model.safetensors", "report.html"}
    observed = []
    for name in ("value", "double"):
        assert {path.name for path in (tmp_path / "o" / name).iterdir()} == names
        cells = [row["observed"] for row in rows_of(tmp_path / "o" / name / "nodes.csv")]
        observed.append([float(cell) for cell in cells if cell])
    np.testing.assert_allclose(observed[1], 2 * np.array(observed[0]))


@pytest.mark.slow
def test_traffic_reads_and_writes_geojson(monkeypatch, capsys, tmp_path):
    content = json.loads((DATA / "roads.geojson").read_text())
    hidden = 0
    for feature in content["features"]:
        if feature["geometry"]["type"] == "Point":
            feature["properties"] = {"speed": None if hidden < 5 else feature["properties"]["value"]}
            hidden += 1
    (tmp_path / "roads.geojson").write_text(json.dumps(content))
    arguments = ("--target", "speed", "--alpha", "2", "--boundary", "stationary", "--out", tmp_path / "o", "--json")
    arguments += ("--compare",)
    out, _ = succeed(monkeypatch, capsys, "traffic", tmp_path / "roads.geojson", *arguments)
    figures = json.loads(out)
    assert figures["train"] + figures["test"] == 115
    ((name, rmse),) = figures["others"].items()
    assert name == "64 walkers a node, diffusion on the graph"
    assert figures["notes"][-1].endswith(f"is approximated. For comparison, {name}: RMSE {rmse:.4g}.")
    report = (tmp_path / "o" / "report.html").read_text()
    assert "the Whittle-Matern field of alpha 2 along the roads (stationary at free ends), exactly" in report
    assert name in report
    written = json.loads((tmp_path / "o" / "roads.geojson").read_text())["features"]
    sensors = [f["properties"] for f in written if f["geometry"]["type"] == "Point"]
    assert [s["speed"] is None for s in sensors] == [True] * 5 + [False] * 115
    assert all(np.isfinite(s["gp_mean"]) and s["gp_sd"] > 0 for s in sensors)
    gp, roads = rfgp.load(tmp_path / "o" / "model.safetensors"), graphs.read_roads(tmp_path / "roads.geojson", "speed")
    assert (type(gp), gp.num_observations) == (rfgp.RoadGP, 115)
    found = gp.predict(np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)).observed()
    ends = found.interval(0.95)
    for name, expected in {"mean": found.mean, "observed_sd": found.std, "low": ends[0], "high": ends[1]}.items():
        np.testing.assert_allclose([s[f"gp_{name}"] for s in sensors], expected, rtol=1e-6)
    head = (tmp_path / "o" / "nodes.csv").read_text().splitlines()[0]
    assert head == "node,longitude,latitude,observed,mean,sd,observed_sd,low,high"


@pytest.mark.filterwarnings("ignore::graphs.DuplicateRoadsWarning", "ignore::graphs.SkippedFeaturesWarning")
@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
def test_traffic_names_directions_and_leaves_walks_out(monkeypatch, capsys, tmp_path):
    osm.export(tmp_path / "town.geojson")
    arguments = ("--target", "speed", "--out", tmp_path / "o", "--json")
    out, err = succeed(monkeypatch, capsys, "traffic", tmp_path / "town.geojson", *arguments)
    assert json.loads(out)["others"] == {}
    assert "3 of 23 roads are one-way or roundabouts in the file. Their direction is ignored" in " ".join(err.split())


@pytest.fixture
def limits(tmp_path):
    """Write a town whose speeds follow the limit of each road, a text. Return the limits by the number of the road."""
    osm.export(tmp_path / "town.geojson")
    content, rng = json.loads((tmp_path / "town.geojson").read_text()), np.random.default_rng(0)
    roads = [f for f in content["features"] if f["geometry"] and "LineString" in f["geometry"]["type"]]
    for road in roads:
        road["properties"]["maxspeed"] = str(rng.choice([30, 50, 80]))
    (tmp_path / "town.geojson").write_text(json.dumps(content))
    found = rfgp.fields.read_road_fields(tmp_path / "town.geojson", ["speed"], columns=["maxspeed"])["speed"]
    limit = found.columns["maxspeed"]
    speeds = iter(found.values + 0.8 * limit[found.observed_positions[:, 0].astype(int)])
    for feature in content["features"]:
        if isinstance(feature["properties"].get("speed"), int | float):
            feature["properties"]["speed"] = next(speeds)
    (tmp_path / "town.geojson").write_text(json.dumps(content))
    return limit


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")
def test_traffic_kernel_reads_properties_of_roads(limits, monkeypatch, capsys, tmp_path):
    arguments = ["traffic", tmp_path / "town.geojson", "--target", "speed", "--out", tmp_path / "o", "--json"]
    alone = json.loads(succeed(monkeypatch, capsys, *arguments)[0])
    out, _ = succeed(monkeypatch, capsys, *arguments, "--kernel", "Roads() + Linear(maxspeed)")
    assert json.loads(out)["rmse"] < 2 < 8 < alone["rmse"]
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    written = json.loads((tmp_path / "o" / "roads.geojson").read_text())["features"]
    pieces = [f["properties"] for f in written if f["geometry"]["type"] == "LineString"]
    road, begin, end = (np.array([p[f"source_{name}"] for p in pieces], float) for name in ("edge", "begin", "end"))
    rows = {"road": road, "maxspeed": limits[road.astype(int)]}
    means = [gp.predict(pd.DataFrame({**rows, "fraction": at})).mean for at in (begin, end)]
    np.testing.assert_allclose([p["gp_mean"] for p in pieces], np.mean(means, axis=0), rtol=1e-6)
    for kernel, word in (
        ("Roads() + Linear(maxsped)", "Did you mean 'maxspeed'"),
        ("Roads() + Group(highway)", "of the kernel, got none for 5 of 23 roads"),
        ("Linear(maxspeed)", "the term Roads()"),
    ):
        assert word in fail(monkeypatch, capsys, *arguments, "--kernel", kernel)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rfgp.OverdispersionWarning")  # of counts whose exposures are left out
def test_exposures_scale_counts_in_fits_and_predictions(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    x, hours = rng.uniform(-2, 2, 200), rng.choice([1.0, 5.0, 20.0], 200)
    y = rng.poisson(np.exp(0.5 + np.sin(2 * x)) * hours)
    pd.DataFrame({"x": x, "hours": hours, "visits": y}).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", tmp_path / "t.csv", "--likelihood", "poisson", "--kernel", "RBF(x)", "--out", tmp_path / "o"]
    wrong = json.loads(succeed(monkeypatch, capsys, *arguments, "--json")[0])
    right = json.loads(succeed(monkeypatch, capsys, *arguments, "--exposure", "hours", "--json")[0])
    assert right["rmse"] < 0.5 * wrong["rmse"]
    assert 5 * right["nlpd"] < 4 * wrong["nlpd"]
    assert right["rmse"] < min(right["baselines"].values()) < min(wrong["baselines"].values())
    command = ["predict", tmp_path / "o" / "model.safetensors", tmp_path / "t.csv"]
    for options, exposure in (((), hours), (("--exposure", "2"), 2.0), (("--exposure", "x"), None)):
        if exposure is None:
            assert "must be positive" in fail(monkeypatch, capsys, *command, *options)
            continue
        found = csv.DictReader(io.StringIO(succeed(monkeypatch, capsys, *command, *options)[0]))
        law = rfgp.load(command[1]).predict({"x": x}).observed(exposure=exposure)
        np.testing.assert_allclose([float(row["mean"]) for row in found], law.mean, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("option", "name"), [("--noise-column", "noise"), ("--weight-column", "sample_weight")])
def test_columns_of_noise_and_weights_are_no_inputs(option, name, monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    x, given = rng.uniform(-2, 2, 80), rng.choice([0.7, 1.3], 80)
    y = np.sin(2 * x) + np.sqrt(given) * rng.standard_normal(80)
    pd.DataFrame({"x": x, "given": given, "y": y}).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", tmp_path / "t.csv", "--approximation", "Exact", "--out", tmp_path / "o", "--no-compare"]
    succeed(monkeypatch, capsys, *arguments, "--kernel", "RBF()", option, "given")
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    assert gp.kernel.terms()[0].factors[0].columns == ("x",)
    mean = gp.predict({"x": x}).mean
    np.testing.assert_allclose(gp.condition({"x": x}, y, **{name: given}).predict({"x": x}).mean, mean, rtol=1e-9)
    assert np.abs(gp.condition({"x": x}, y).predict({"x": x}).mean - mean).max() > 1e-3
    assert "Did you mean 'given'" in fail(monkeypatch, capsys, *arguments, option, "givn")


@pytest.mark.slow
@pytest.mark.parametrize("names", [["blue", "green", "red"], ["1", "2", "4"]])
def test_several_classes_are_fitted_and_predicted(names, monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 60)
    labels = np.array(names)[np.digitize(x, [-0.7, 0.7])]
    pd.DataFrame({"x": x, "kind": labels}).to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "kind", "--likelihood", "categorical", "--kernel", "RBF(x)", "--out", tmp_path / "o")
    out, _ = succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *options, "--json")
    scores = json.loads(out)
    assert (scores["classes"], scores["train"], scores["test"]) == (names, 54, 6)
    assert scores["accuracy"] > scores["most_frequent"]
    command = ("predict", tmp_path / "o" / "model.safetensors", tmp_path / "t.csv")
    found = list(csv.DictReader(io.StringIO(succeed(monkeypatch, capsys, *command)[0])))
    law = rfgp.load(command[1]).predict({"x": x}).observed()
    for i, name in enumerate(names):
        np.testing.assert_allclose([float(row[f"p_{name}"]) for row in found], law.probabilities[:, i], rtol=1e-9)
    assert np.mean([row["class"] == label for row, label in zip(found, labels, strict=True)]) > 0.9
    succeed(monkeypatch, capsys, *command, "--out", tmp_path / "p.csv")
    assert "--terms" in fail(monkeypatch, capsys, *command, "--terms")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "values"])
def test_mesh_kernel_reads_further_columns(source, monkeypatch, capsys, tmp_path):
    ball, rng = trimesh.creation.icosphere(2), np.random.default_rng(0)
    thickness = rng.uniform(1, 5, len(ball.vertices)).round(2)
    ball.vertex_attributes["thickness" if source == "file" else "other"] = thickness
    ball.export(tmp_path / "ball.ply", include_attributes=True)
    stress = ball.vertices[:, 2] + 2 * thickness + 0.05 * rng.normal(size=len(thickness))
    table = pd.DataFrame({"vertex": np.arange(len(stress)), "thickness": thickness, "stress": stress})
    table.loc[rng.permutation(len(stress))[:80], "stress"] = np.nan
    known = table.dropna().drop(columns="thickness") if source == "file" else table
    known.to_csv(tmp_path / "v.csv", index=False)
    arguments = ["mesh", tmp_path / "ball.ply", "--values", tmp_path / "v.csv", "--out", tmp_path / "o", "--json"]
    arguments += ["--missing", "drop", "--kernel", "Mesh() + Linear(thickness)"]
    figures = json.loads(succeed(monkeypatch, capsys, *arguments)[0])
    assert figures["rmse"] < 0.3 < 1 < figures["target_sd"]
    found = np.array([float(row["mean"]) for row in rows_of(tmp_path / "o" / "nodes.csv")])
    assert np.sqrt(np.mean((found - stress) ** 2)) < 0.2
    table.dropna().to_csv(tmp_path / "v.csv", index=False)
    arguments[-1] = arguments[-1].replace("thickness", "other" if source == "file" else "thickness")
    assert "of" in fail(monkeypatch, capsys, *arguments)


def test_datasets_lists_and_fetches(monkeypatch, capsys, tmp_path):
    out, _ = succeed(monkeypatch, capsys, "datasets")
    for name in ("power-plant", "pems", "cora", "idler_riser"):
        assert name in out
    assert len(json.loads(run(monkeypatch, capsys, "datasets", "--json")[1])) == 35
    err = fail(monkeypatch, capsys, "datasets", "power-plan")
    assert "power-plant" in err
    (tmp_path / "uci").mkdir()
    (tmp_path / "uci" / "airfoil.csv.gz").write_bytes(b"wrong")
    err = fail(monkeypatch, capsys, "datasets", "airfoil", "--folder", tmp_path)
    assert "sha256" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "table.csv", "--target", "cost"], 1, "cost"),
        (["fit", "table.csv", "--coupling", "best"], 2, "No such option"),
        (["fit", "table.csv", "--test-share", "1.5"], 1, "Error: --test-share must lie strictly between 0 and 1"),
        (["fit", "table.csv", "--missing", "guess"], 1, "guess"),
        (["fit", "table.csv", "--approximation", "RandomFeatures(0)"], 1, "num_frequencies must be"),
        (["fit", "table.csv", "--seed", "many"], 2, "--seed"),
        (["fit", "mesh.ply"], 1, "is a mesh by its ending (.ply): `rfgp mesh` reads that, `rfgp fit` needs a table."),
        (["fit", "pems"], 1, "pems is roads by its ending (.rda): `rfgp traffic` reads that"),
        (["fit", "cora"], 1, "cora is a graph without values, which no command reads"),
        (["fit", "airfoyl"], 1, "There is no file airfoyl. There is no data set 'airfoyl'. Did you mean airfoil?"),
        (["compare", "-"], 1, "Standard input is not read. Save what it holds to a file"),
        (["mesh", "mesh.ply", "--values", "/dev/null"], 1, "/dev/null, a pipe or a device, is not read."),
        (["predict", "-", "table.csv"], 1, "Standard input is not read."),
        (["predict", "model", "/dev/stdin"], 1, "Standard input is not read."),
        (["fit"], 2, "Missing argument"),
        (["mesh", "roads.geojson"], 1, "`rfgp traffic` reads that, `rfgp mesh` needs a mesh."),
        (["mesh", "mesh.ply", "--values", "table.csv"], 1, "must have places of values"),
        (["mesh", "mesh.ply", "--values", "none.csv"], 1, "no file"),
        (["mesh", "mesh.ply", "--kernel", "heat"], 1, "--kernel must be one of"),
        (["mesh", "mesh.ply", "--features", "walks"], 2, "Name a graph's kernel, as --kernel diffusion, to use it."),
        (["mesh", "mesh.ply", "--alpha", "0"], 2, "alpha"),
        (["mesh", "mesh.ply", "--weights", "cotangent"], 1, "cotangent"),
        (["traffic", "roads.geojson", "--kernel", "diffusion", "--alpha", "2"], 2, "got diffusion. Leave it out."),
        (["traffic", "roads.geojson", "--boundary", "dirichlet"], 1, "boundary"),
        (["traffic", "mesh.ply"], 1, "`rfgp mesh` reads that, `rfgp traffic` needs roads."),
        (["traffic", "table.csv"], 1, "is a table by its ending (.csv): `rfgp fit` reads that"),
        (["traffic", "roads.geojson", "--target", "speed"], 1, "as in --target value."),
        (["traffic", "none.geojson"], 1, "There is no file"),
        (["traffic", "roads.geojson", "--target", "gp_mean"], 2, "the name of a result"),
        (["predict", "none", "table.csv"], 1, "There is no file"),
        (["predict", "..", "table.csv"], 1, "got the folder"),
        (["train"], 2, "No such command"),
    ],
)
def test_wrong_calls_get_one_clear_message(arguments, code, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    here = [DATA / a if (DATA / a).exists() else a for a in arguments]
    found, out, err = run(monkeypatch, capsys, *here)
    text = " ".join(err.replace("│", " ").split())
    assert found == code, text
    assert message in text
    assert not out
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.html")) + list(tmp_path.rglob("*.safetensors"))


def test_a_public_data_set_takes_the_options_that_are_given(monkeypatch, capsys, tmp_path):
    content = b"".join(b"%d %d %d\n" % (i, i % 7, i % 5) for i in range(60))
    entry = Entry(
        "tiny",
        "table",
        "uci/tiny.txt",
        "a/b",
        "c",
        "tiny.txt",
        len(content),
        hashlib.sha256(content).hexdigest(),
        60,
        "Tiny.",
        ("A", "B", "C"),
    )
    monkeypatch.setitem(CATALOG, "tiny", entry)
    monkeypatch.setenv("RFGP_DATA_DIR", str(tmp_path))
    (tmp_path / "tiny.txt").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    out, err = succeed(monkeypatch, capsys, "fit", "tiny", "--target", "A", "--drop", "C", *SMALL, "--json")
    figures = json.loads(out)
    assert figures["title"] == "tiny, target A"
    assert len(figures["hyperparameters"]["rbf.lengthscale"]) == 1
    err = fail(monkeypatch, capsys, "fit", "tiny", "--target", "nothing", *SMALL)
    assert "nothing" in err


@pytest.mark.filterwarnings("default::rfgp.IdentifierWarning")
def test_messages_speak_the_language_of_the_command_line(monkeypatch, capsys, tmp_path):
    rows = "".join(f"{i},n{i},{'ab'[i % 2]},2026-01-0{1 + i % 9},{'' if i == 3 else i}\n" for i in range(30))
    (tmp_path / "t.csv").write_text("id,note,kind,day,y\n" + rows)
    text = fail(monkeypatch, capsys, "fit", tmp_path / "t.csv")
    for word in ("t.csv: column 'note' is left out", "--missing drop"):
        assert word in text
    assert "'kind'" not in text
    err = fail(monkeypatch, capsys, "fit", tmp_path / "t.csv", "--kernel", "RBF(kind)")
    assert "Use a kernel of levels, such as Group('kind')" in err
    chosen = ["--missing", "drop", "--out", tmp_path / "o"]
    out, _ = succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *chosen, *SMALL)
    assert "29 of 30 rows; 1 with missing values" in " ".join(out.split())


def test_names_in_a_file_cannot_steer_the_terminal(monkeypatch, capsys, tmp_path):
    (tmp_path / "t.csv").write_text("a,\x1b]0;owned\x07y\n" + "".join(f"{i},{i % 4}\n" for i in range(30)))
    out, err = succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *SMALL, "--out", tmp_path / "o")
    assert "\x1b]0" not in out + err
    assert "\x07" not in out + err


def test_completion_is_offered(monkeypatch, capsys):
    environment = {**os.environ, "_RFGP_COMPLETE": "complete_bash", "COMP_WORDS": "rfgp tr", "COMP_CWORD": "1"}
    out = subprocess.run(
        ["rfgp"],
        executable=Path(sys.executable).parent / "rfgp",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "traffic" in out.stdout


def test_targets_of_two_classes_are_recognized(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    one = X[:, 0] + 0.5 * rng.standard_normal(80) > 0
    for name, words in (("text.csv", np.where(one, "yes", "no")), ("numbers.csv", one.astype(int))):
        lines = [f"{a:.5f},{b:.5f},{y}" for (a, b), y in zip(X, words, strict=True)]
        (tmp_path / name).write_text("\n".join(["a,b,y", *lines]))
    common = (*SMALL, "--target", "y")
    err = fail(monkeypatch, capsys, "fit", tmp_path / "text.csv", *common, "--out", tmp_path / "o")
    assert "--likelihood bernoulli) to predict 'yes'" in err
    law = ("--likelihood", "bernoulli", "--inference", "laplace")
    _, err = succeed(monkeypatch, capsys, "fit", tmp_path / "text.csv", *common, *law, "--out", tmp_path / "o")
    assert "y is 1 for yes and 0 for no" in err
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    assert gp.spec.options.inference == "laplace"
    assert (gp.predict(X).observed().mean[one] > 0.5).mean() > 0.8
    _, err = succeed(monkeypatch, capsys, "fit", tmp_path / "numbers.csv", *common, "--out", tmp_path / "n")
    assert "two values, 0 and 1: --likelihood bernoulli" in err
