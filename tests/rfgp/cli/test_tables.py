"""Commands on tables: what they print and write agrees with the models that they save."""

import hashlib
import io
import json
import os
import shlex
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
from commands import command, figures

import graphs
import rfgp
from rfgp.datasets import CATALOG, Entry

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning"),  # few rows, short searches
    pytest.mark.filterwarnings("ignore::graphs.GraphWarning"),
]

DATA = Path(__file__).parents[3] / "data"
QUICK = "--num-train 40 --num-test 10 --draws 1 --size 8"
SMALL = "--kernel \"RBF(name='rbf')\" --approximation RandomFeatures(16) --no-compare --out o"
MODEL = "o/model.safetensors"


def write(folder, name="t.csv", **columns):
    pd.DataFrame(columns).to_csv(folder / name, index=False)


def read(text):
    return pd.read_csv(io.StringIO(text))


def assert_columns(found, **expected):
    """Compare columns of predictions, which have eleven digits."""
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-7, err_msg=name)


def waves(n=80, seed=0):
    rng = np.random.default_rng(seed)
    return rng, rng.uniform(-2, 2, n)


# --- fit and predict ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with the model of a table that has text, dates and a gap, and the printed figures."""
    folder, (rng, _) = tmp_path_factory.mktemp("shop"), waves()
    size, color = rng.uniform(1, 9, 120), np.array(["red", "green", "blue"])[np.arange(120) % 3]
    price = 3 * size + 10 * (color == "red") + 0.1 * np.arange(120) + 0.1 * rng.standard_normal(120)
    size[7] = np.nan
    days = [f"2026-01-{1 + i % 28:02d}" for i in range(120)]
    write(folder, size=size, color=color, day=days, note=[f"n{i}" for i in range(120)], price=price)
    return folder, figures(f"fit t.csv {SMALL} --missing drop --drop note", folder)


def test_fit_prints_figures_and_writes_model_and_report(shop):
    folder, found = shop
    gp = rfgp.load(folder / MODEL)
    assert found["train"] + found["test"] == gp.num_observations == 119
    assert found["rmse"] < 0.5 * found["target_sd"]
    assert (set(found["files"]), found["converged"]) == ({"model", "report"}, gp.fit_report.converged)
    assert "t.csv, target price" in (folder / "o" / "report.html").read_text()
    with pytest.raises(rfgp.NotFittedError):
        gp.exact()


def test_predict_prints_and_scores(shop, tmp_path):
    folder, _ = shop
    found = read(command(f"predict {MODEL} t.csv", folder).out)
    assert (list(found), len(found)) == (["row", "mean", "sd", "observed_sd", "low", "high"], 119)
    scores = figures(f"predict {MODEL} t.csv --out {tmp_path / 'p.csv'}", folder)
    assert (scores["rows"], scores["left_out"]) == (119, 1)
    assert 0.8 < scores["coverage_95"] <= 1


def test_predict_reads_other_tables_like_the_fitted_one(shop, tmp_path):
    folder, _ = shop
    rows = "2026-01-03,blue,x,4.5\n2026-01-04,red,y,\n2026-02-05,red,z,2\n"
    (tmp_path / "n.csv").write_text(f"day,color,extra,size\n{rows}")
    answer = command(f"predict {folder / MODEL} n.csv --out p.csv", tmp_path)
    assert "1 row with missing values was left out" in " ".join(answer.out.split())
    law = rfgp.load(folder / MODEL).predict(pd.read_csv(tmp_path / "n.csv", parse_dates=["day"]).dropna())
    low, high = law.observed().interval(0.95)
    assert_columns(pd.read_csv(tmp_path / "p.csv"), row=[0, 2], mean=law.mean, sd=law.std, low=low, high=high)


@pytest.mark.slow
def test_classes_are_recognized_and_predicted(tmp_path):
    rng, x = waves(120)
    one = x + 0.5 * rng.standard_normal(120) > 0
    write(tmp_path, x=x, y=np.where(one, "yes", "no"))
    assert "--likelihood bernoulli" in command(f"fit t.csv {SMALL}", tmp_path, 1).err
    answer = command(f"fit t.csv --likelihood bernoulli --inference laplace {SMALL}", tmp_path)
    assert "y is 1 for yes and 0 for no" in answer.err
    assert "Reliability" in (tmp_path / "o" / "report.html").read_text()
    assert (rfgp.load(tmp_path / MODEL).predict({"x": x}).observed().mean[one] > 0.5).mean() > 0.8
    kinds = np.array(["blue", "green", "red"])
    write(tmp_path, x=x, y=kinds[np.digitize(x, [-0.7, 0.7])])
    found = figures(f"fit t.csv --likelihood categorical {SMALL}", tmp_path)
    assert (found["classes"], found["accuracy"] > found["most_frequent"]) == (kinds.tolist(), True)
    shares = rfgp.load(tmp_path / MODEL).predict({"x": x}).observed().probabilities
    rows = read(command(f"predict {MODEL} t.csv", tmp_path).out)
    assert_columns(rows, **{f"p_{kind}": shares[:, i] for i, kind in enumerate(kinds)})
    assert (rows["class"] == kinds[shares.argmax(1)]).all()


def orders(folder, n=120):
    """Write a table of dates, texts, numbers, gaps and an identifier; return its rows."""
    rng, at = np.random.default_rng(0), np.arange(n)
    columns = {
        "order no": [f"A{i:03d}" for i in at],
        "store": np.array(["north", "south", "east", "west"])[at % 4],
        "day": (np.datetime64("2026-01-01") + at).astype(str),
        "price": np.where(at == 5, np.nan, rng.uniform(1, 2, n).round(4)),
        "units": np.cos(2 * np.pi * at / 7) + np.array([0.0, 1.0, -1.0, 2.0])[at % 4] + 0.05 * rng.standard_normal(n),
    }
    frame = pd.DataFrame(columns)
    frame.loc[3, "units"] = np.nan
    frame.to_csv(folder / "t.csv", index=False)
    return frame


KERNEL = "RBF((day, price), name='trend') + Periodic(day, period=7, name='week') + Group(store)"


@pytest.mark.slow
def test_a_kernel_reads_its_columns_and_predicts_by_terms(tmp_path):
    frame = orders(tmp_path)
    options = "--missing mean --approximation trend=RandomFeatures(16) --seed 3 --no-compare --with-data --out o"
    answer = command(f'fit t.csv --target units --kernel "{KERNEL}" {options}', tmp_path)
    assert "conditioned on 119 of 120 rows" in " ".join(answer.out.split())
    gp = rfgp.load(tmp_path / MODEL)
    assert (gp.seed, [*gp.terms]) == (3, ["trend", "week", "group(store)"])
    assert gp.terms["trend"].approximation == rfgp.RandomFeatures(16)
    new = frame.loc[[7, 9], ["store", "price", "day", "order no"]].assign(store=["nobody yet", "north"])
    new.to_csv(tmp_path / "n.csv", index=False)
    found = read(command(f"predict {MODEL} n.csv --terms --id 'order no' --id store", tmp_path).out)
    assert list(found)[:9] == ["row", "order no", "store", "mean", "sd", "observed_sd", "low", "high", "trend_mean"]
    assert list(found["order no"]) == ["A007", "A009"]
    law = gp.predict(new.assign(day=pd.to_datetime(new.day)))
    assert_columns(found, mean=law.mean)
    for name in gp.terms:
        effect = law.terms[name].centered()
        assert_columns(found, **{f"{name}_mean": effect.mean, f"{name}_sd": effect.std})
    new[:1].to_csv(tmp_path / "n.csv", index=False)
    for options, code, word in (
        ("--terms", 1, "two rows"),
        ("--id mean", 2, "the name of a result"),
        ("--id 'ordr no'", 1, "Did you mean 'order no'?"),
    ):
        assert word in command(f"predict {MODEL} n.csv {options}", tmp_path, code).err


def test_a_kernel_without_columns_reads_the_others_and_neighbors_keep_their_rows(tmp_path):
    orders(tmp_path)
    options = "--target units --missing drop --drop 'order no' --no-compare --out o"
    kernel = "--kernel \"Matern(nu=0.5, name='all') + Group(store, name='g')\""
    command(f"fit t.csv {options} {kernel} --approximation 'all=Vecchia(8), g=SparsePrecision()'", tmp_path)
    gp = rfgp.load(tmp_path / MODEL)
    assert gp.kernel.terms()[0].factors[0].columns == ("day", "price")
    assert gp.terms["all"].approximation == rfgp.Vecchia(8)
    assert gp.exact().num_observations == gp.num_observations == 118


@pytest.mark.slow
def test_logarithms_are_predicted_in_the_units_of_the_target(tmp_path):
    rng, x = waves(200)
    y = np.exp(2 * x + 0.2 * rng.standard_normal(200))
    write(tmp_path, x=x, y=y)
    answer = command(f"fit t.csv --log {SMALL} --json", tmp_path)
    assert json.loads(answer.out)["title"] == "t.csv, target log of y"
    assert "No --target: it is the last column, y." in answer.err
    assert 0.9 < figures(f"predict {MODEL} t.csv --out p.csv", tmp_path)["coverage_95"] <= 1
    law = rfgp.load(tmp_path / MODEL).predict({"x": x})
    mean = np.exp(law.mean + law.observed().variance / 2)
    sd = np.sqrt(np.expm1(law.variance)) * np.exp(law.mean + law.variance / 2)
    high = np.exp(law.mean + 1.959963984540054 * law.observed().std)
    assert_columns(pd.read_csv(tmp_path / "p.csv"), mean=mean, sd=sd, high=high)
    write(tmp_path, x=[*x, 0.0], y=[*y, 0.0])
    assert "'y' has 1 value not above 0" in command(f"fit t.csv --log {SMALL}", tmp_path, 1).err


@pytest.mark.slow
def test_exposures_scale_counts_in_fits_and_predictions(tmp_path):
    rng, x = waves(200)
    hours = rng.choice([1.0, 5.0, 20.0], 200)
    write(tmp_path, x=x, hours=hours, visits=rng.poisson(np.exp(0.5 + np.sin(2 * x)) * hours))
    line = "fit t.csv --likelihood poisson --kernel RBF(x) --no-compare --out o"
    wrong, right = (figures(f"{line} {more}", tmp_path) for more in ("", "--exposure hours"))
    assert right["rmse"] < 0.5 * wrong["rmse"]
    assert "Rootogram" in (tmp_path / "o" / "report.html").read_text()
    law = rfgp.load(tmp_path / MODEL).predict({"x": x})
    for options, exposure in (("", hours), ("--exposure 2", 2.0)):
        found = read(command(f"predict {MODEL} t.csv {options}", tmp_path).out)
        assert_columns(found, mean=law.observed(exposure=exposure).mean)
    assert "must be positive" in command(f"predict {MODEL} t.csv --exposure x", tmp_path, 1).err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binomial", "weibull", "ordinal"])
def test_trials_censoring_and_ordered_classes_are_fitted(kind, tmp_path):
    rng, x = waves(120)
    trials, time, limit = (
        rng.integers(1, 30, 120),
        np.exp(np.sin(2 * x)) * rng.weibull(2, 120),
        rng.uniform(0.5, 3, 120),
    )
    y, option, column = {
        "binomial": (rng.binomial(trials, 1 / (1 + np.exp(-np.sin(2 * x)))), {"trials": trials}, "--trials trials"),
        "weibull": (np.minimum(time, limit), {"censored": (time > limit).astype(int)}, "--censored censored"),
        "ordinal": (np.digitize(np.sin(2 * x) + 0.3 * rng.normal(size=120), [-0.5, 0.5]), {}, ""),
    }[kind]
    write(tmp_path, x=x, y=y, **option)
    line = f"fit t.csv --target y --likelihood {kind} {column} --kernel RBF(x) --no-compare --out o --seed 0"
    command(line, tmp_path)
    gp, found = rfgp.load(tmp_path / MODEL), read(command(f"predict {MODEL} t.csv", tmp_path).out)
    law = gp.predict({"x": x})
    if kind == "ordinal":
        assert_columns(found, p_2=law.observed().probabilities[:, 2])
        return
    assert_columns(found, mean=law.observed(**({"trials": trials} if kind == "binomial" else {})).mean)
    values = {name: gp.hyperparameters[name].detach().numpy() for name in gp.hyperparameters.names}
    own = rfgp.GP(rfgp.kernels.RBF("x"), kind, start=values, seed=0).condition({"x": x}, y, **option)
    np.testing.assert_allclose(own.predict({"x": x}).mean, law.mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("option", "name"), [("--noise-column", "noise"), ("--weight-column", "sample_weight")])
def test_columns_of_noise_and_weights_are_no_inputs(option, name, tmp_path):
    rng, x = waves(60)
    given = rng.choice([0.7, 1.3], 60)
    y = np.sin(2 * x) + np.sqrt(given) * rng.standard_normal(60)
    write(tmp_path, x=x, given=given, y=y)
    line = "fit t.csv --approximation Exact --no-compare --out o --kernel RBF()"
    command(f"{line} {option} given", tmp_path)
    gp = rfgp.load(tmp_path / MODEL)
    assert gp.kernel.terms()[0].factors[0].columns == ("x",)
    mean = gp.predict({"x": x}).mean
    np.testing.assert_allclose(gp.condition({"x": x}, y, **{name: given}).predict({"x": x}).mean, mean, rtol=1e-9)
    assert np.abs(gp.condition({"x": x}, y).predict({"x": x}).mean - mean).max() > 1e-3
    assert "Did you mean 'given'" in command(f"{line} {option} givn", tmp_path, 1).err


@pytest.mark.slow
def test_a_column_keeps_rows_together_and_is_no_input(tmp_path):
    rng, a = waves(240)
    write(tmp_path, station=[f"s{i % 24}" for i in range(240)], a=a, b=rng.uniform(size=240), level=np.sin(2 * a))
    answer = command(f"fit t.csv {SMALL} --holdout-by station --json", tmp_path)
    assert "held out by station, in 24 groups. It is not an input" in answer.err
    found = json.loads(answer.out)
    assert (found["test"], found["test_groups"]) == (20, 2)
    assert rfgp.load(tmp_path / MODEL).kernel.terms()[0].factors[0].columns == ("a", "b")
    assert "cannot be assessed: 2 held-out groups" in (tmp_path / "o" / "report.html").read_text()
    command(f"fit t.csv {SMALL} --drop station --holdout last", tmp_path)
    assert "held-out part, the last in their order" in (tmp_path / "o" / "report.html").read_text()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a saved model `m` of columns a and b, for tables that are read like its own."""
    folder = tmp_path_factory.mktemp("small")
    rows = np.random.default_rng(0).standard_normal((40, 3)).round(4)
    write(folder, a=rows[:, 0], b=rows[:, 1], c=rows[:, 2])
    command(f"fit t.csv {SMALL}", folder)
    return folder / MODEL


def test_gaps_and_marks_of_a_table_to_predict(small, tmp_path):
    gp = rfgp.load(small)
    (tmp_path / "gap.csv").write_text("a,b\n1,2\n1,\n,2\n3,4\n")
    err = command(f"predict {small} gap.csv", tmp_path, 1).err
    assert "column 'a' has 1 missing or infinite value, the first in row 2 (missing). Use --missing drop." in err
    assert "column 'b' has 1 missing" in err
    found = read(command(f"predict {small} gap.csv --missing drop", tmp_path).out)
    assert_columns(found, row=[0, 3], mean=gp.predict({"a": [1.0, 3.0], "b": [2.0, 4.0]}).mean)
    (tmp_path / "marks.csv").write_text("a;b\n1,5;-\nNA;1\n1,5;2\n")
    found = read(command(f"predict {small} marks.csv --missing drop --decimal , --missing-mark=-", tmp_path).out)
    assert_columns(found, row=[2], mean=gp.predict({"a": [1.5], "b": [2.0]}).mean)
    assert "--decimal ," in command(f"predict {small} marks.csv", tmp_path, 1).err
    (tmp_path / "n.csv").write_text('a;b\n"1,200";2\n')
    found = read(command(f"predict {small} n.csv --thousands ,", tmp_path).out)
    assert_columns(found, mean=gp.predict({"a": [1200.0], "b": [2.0]}).mean)


def test_names_in_a_file_cannot_steer_the_terminal(tmp_path):
    (tmp_path / "t.csv").write_text("a,\x1b]0;owned\x07y\n" + "".join(f"{i},{i % 4}\n" for i in range(30)))
    answer = command(f"fit t.csv {SMALL}", tmp_path)
    assert not {"\x1b", "\x07"} & {*answer.out, *answer.err}


def test_a_public_data_set_takes_the_given_options(monkeypatch, tmp_path):
    content = b"".join(b"%d %d %d\n" % (i, i % 7, i % 5) for i in range(60))
    names, digest = ("A", "B", "C"), hashlib.sha256(content).hexdigest()
    entry = Entry("tiny", "table", "uci/tiny.txt", "a/b", "c", "tiny.txt", len(content), digest, 60, "Tiny.", names)
    monkeypatch.setitem(CATALOG, "tiny", entry)
    monkeypatch.setenv("RFGP_DATA_DIR", str(tmp_path))
    (tmp_path / "tiny.txt").write_bytes(content)
    found = figures(f"fit tiny --target A --drop C {SMALL}", tmp_path)
    assert (found["title"], len(found["hyperparameters"]["rbf.lengthscale"])) == ("tiny, target A", 1)


# --- compare, dry runs, datasets ----------------------------------------------------------------------------------


def test_compare_prints_a_table_and_writes_files(tmp_path):
    out = command(f"compare {DATA / 'table.csv'} {QUICK} --out o", tmp_path).out
    for word in ("exact", "iid", "kernel err", "KL, nats", "test RMSE", "NLPD", "40 training and 10 test"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 100
    assert (tmp_path / "o" / "table.png").stat().st_size > 10_000
    printed = figures(f"compare {DATA / 'table.csv'} {QUICK}", tmp_path)["draws"]
    written = json.loads((tmp_path / "o" / "table.json").read_text())["draws"]
    assert len(printed) == 4
    assert [draw["kl"] for draw in printed] == [draw["kl"] for draw in written]


@pytest.mark.slow
def test_compare_takes_a_kernel_and_names_a_poor_model(tmp_path):
    rng, x = waves(80)
    store = rng.choice(["a", "b"], 80)
    y = np.sin(2 * x) + (store == "a") + 0.1 * rng.standard_normal(80)
    write(tmp_path, x=x, store=store, y=y, nothing=rng.standard_normal(80))
    answer = command(f"compare t.csv {QUICK} --target y --kernel 'RBF(x) + Group(store)' --json", tmp_path)
    (exact,) = json.loads(answer.out)["exact"]
    assert exact["r_squared"] > 0.9
    assert "store" in exact["hyperparameters"]
    assert "poor" not in answer.err
    assert "poor model" in command(f"compare t.csv {QUICK} --target nothing --kernel RBF(x) --json", tmp_path).err


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder, (rng, a) = tmp_path_factory.mktemp("plain"), waves(80)
    b = rng.uniform(-1, 1, 80)
    write(folder, a=a, b=b, y=np.sin(2 * a) * b + 0.1 * rng.standard_normal(80))
    return folder


@pytest.mark.slow
def test_the_advised_command_fits_the_average_that_was_selected(plain):
    out = command("fit t.csv --dry-run --target y --seed 5 --memory 1GB", plain).out
    frame = pd.read_csv(plain / "t.csv")
    selection = rfgp.GP(seed=5).select(frame[["a", "b"]], frame.y)
    assert all(trial.name in out for trial in selection.trials)
    assert selection.reason in out
    (line,) = [line.removeprefix("Type: rfgp ") for line in out.splitlines() if line.startswith("Type: ")]
    assert line == "fit t.csv --target y --seed 5 --memory 1GB"
    command(f"{line} --no-compare --out o", plain)
    gp = rfgp.load(plain / MODEL)
    assert gp.selection.parts.keys() == selection.parts.keys()
    assert len(gp.members) == len(selection.parts) > 1
    assert "average" in command(f"predict {MODEL} t.csv --terms", plain, 1).err


@pytest.mark.slow
def test_the_advised_command_reads_the_same_table(plain):
    lines = (plain / "t.csv").read_text().replace(",", ";").splitlines()[1:]
    rows = [f"{line};{'ab'[i % 2]}" for i, line in enumerate(lines)]
    (plain / "marks.csv").write_text("\n".join(["a;b;y;kind", *rows, "-;1;2;a"]))
    options = "--target y --missing-mark - --missing mean --approximation RandomFeatures(16) --time-limit 1min"
    found = figures(f"fit marks.csv --dry-run {options}", plain)
    words = shlex.split(found["command"])
    assert {"--missing-mark", "--missing", "--kernel", "--approximation"} <= {*words}
    assert not {"--time-limit", "1min", "--dry-run", "--json"} & {*words}
    assert words.count("--approximation") == 1
    command(shlex.join(words[1:]) + " --no-compare --out o", plain)
    (term,) = rfgp.load(plain / MODEL).kernel.terms()
    assert term.factors[0].columns == ("a", "b", "kind=a", "kind=b")


def test_a_time_limit_is_kept_and_commands_are_quoted_as_in_a_shell(plain):
    found = figures("fit t.csv --dry-run --time-limit=1e-6s --missing-mark 'it is $5'", plain)
    assert "--missing-mark it is $5 --kernel" in " ".join(shlex.split(found["command"]))
    assert {*found} == {"best", "weights", "reason", "candidates", "baselines", "command"}
    assert sum("predicted time" in each["status"] for each in found["candidates"]) == len(found["candidates"]) - 1


def test_features_of_meshes_are_compared_before_a_fit(tmp_path):
    (tmp_path / "m.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\nv 2 0 1\nf 1 2 3\nf 2 4 3\nf 2 5 4\n")
    line = "mesh m.obj --kernel diffusion"
    found = figures(f"{line} --dry-run", tmp_path)
    kept = [each for each in found["candidates"] if not each["status"]]
    assert found["best"] in [each["name"] for each in kept]
    assert found["command"].startswith(f"rfgp {line} --features ")
    assert f"Type: {found['command']}" in command(f"{line} --dry-run", tmp_path).out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.obj"]


def test_features_of_a_graph_are_selected_by_a_dry_run(tmp_path):
    networkx.write_gml(networkx.path_graph(30), tmp_path / "g.gml", stringizer=str)
    advice = graphs.advise(graphs.Graph.from_gml(tmp_path / "g.gml"), graphs.kernels.Matern(), 256)
    found = figures("fit g.gml --dry-run --kernel matern", tmp_path)
    line = f'rfgp.GraphGP(graph, kernel="matern", features="{advice.best.features}")'
    assert found["command"].startswith(line)
    assert f"Type: {line}" in command("fit g.gml --dry-run --kernel matern", tmp_path).out
    assert os.listdir(tmp_path) == ["g.gml"]


def test_hyperparameters_are_integrated_if_asked(tmp_path):
    _, x = waves(20)
    write(tmp_path, x=x, y=np.sin(2 * x))
    line = "fit t.csv --kernel RBF(x) --approximation Exact --no-compare --out o"
    for posterior, is_average in (("point", False), ("integrated", True)):
        command(f"{line} --hyperparameter-posterior {posterior}", tmp_path)
        assert (len(rfgp.load(tmp_path / MODEL).members) > 1) == is_average


def test_a_skewed_target_gets_a_hint_of_its_logarithm(tmp_path):
    _, x = waves(60)
    for y, count in ((np.exp(3 + x), 1), (5 + np.sin(2 * x), 0)):
        write(tmp_path, x=x, price=y)
        assert command(f"fit t.csv {SMALL}", tmp_path).err.count("(--log)") == count


def test_datasets_are_listed_and_checked(tmp_path):
    out = command("datasets", tmp_path).out
    assert all(name in out for name in ("power-plant", "pems", "cora", "idler_riser"))
    assert len(figures("datasets", tmp_path)) == len(CATALOG)
    (tmp_path / "uci").mkdir()
    (tmp_path / "uci" / "airfoil.csv.gz").write_bytes(b"wrong")
    assert "sha256" in command("datasets airfoil --folder .", tmp_path, 1).err


# --- forecasts -------------------------------------------------------------------------------------------------------


def sales(count=60):
    """Return days of two stores with a week, and the holidays of 67 days."""
    rng = np.random.default_rng(0)
    day = pd.date_range("2024-01-01", periods=count)
    common = 100 + np.cumsum(rng.standard_normal(count)) + 10 * np.sin(np.arange(count) * 2 * np.pi / 7)
    stores = {name: common + shift + rng.standard_normal(count) for name, shift in (("a", 0.0), ("b", 20.0))}
    table = {"day": np.tile(day, 2), "store": np.repeat(["a", "b"], count), "sales": np.concatenate([*stores.values()])}
    return table, {"day": pd.date_range("2024-01-01", periods=count + 7), "open": np.arange(count + 7) % 7 != 6}


@pytest.mark.slow
def test_a_series_is_forecast_with_a_report(tmp_path):
    table, _ = sales()
    write(tmp_path, day=table["day"][:60], sales=table["sales"][:60])
    answer = command("forecast t.csv --horizon 7 --origins 3 --log --json --out o", tmp_path)
    found = json.loads(answer.out)
    assert (found["rows"], found["steps"], found["frequency"]) == (60, 7, "1 day")
    gp, frame = rfgp.load(tmp_path / MODEL), pd.read_csv(tmp_path / "o" / "forecast.csv", parse_dates=["day"])
    again = gp.forecast(7)
    assert frame["day"].tolist() == list(pd.date_range("2024-03-01", periods=7))
    assert_columns(frame, **{name: again[name] for name in ("mean", "lower", "upper")})
    assert (frame["lower"] > 50).all()
    backtest = pd.read_csv(tmp_path / "o" / "backtest.csv")
    np.testing.assert_allclose(backtest["y"].unique(), table["sales"][39:60], rtol=1e-9)
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    for title in ("Forecast", "Components", "Backtest", "Model selection", "How it was made"):
        assert f">{title}</h2>" in page


@pytest.mark.slow
def test_series_and_known_columns_are_forecast(tmp_path):
    table, calendar = sales()
    write(tmp_path, **{name: table[name] for name in ("store", "day", "sales")})
    command("forecast t.csv --horizon 7 --by store --origins 0 --target sales --out o", tmp_path)
    frame = pd.read_csv(tmp_path / "o" / "forecast.csv")
    assert frame["store"].tolist() == ["a"] * 7 + ["b"] * 7
    difference = frame["mean"][7:].to_numpy() - frame["mean"][:7].to_numpy()
    np.testing.assert_allclose(difference, 20, atol=3)
    is_open = calendar["open"]
    write(tmp_path, "open.csv", day=table["day"][:60], open=is_open[:60], sales=table["sales"][:60] + 50 * is_open[:60])
    write(tmp_path, "later.csv", day=calendar["day"][60:], open=np.ones(7, bool))
    command("forecast open.csv --horizon 7 --future later.csv --origins 0 --out p", tmp_path)
    assert pd.read_csv(tmp_path / "p" / "forecast.csv")["mean"].min() > 120
