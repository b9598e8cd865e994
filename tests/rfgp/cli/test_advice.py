"""`rfgp advise`: candidates with scores and costs, and the command that fits the best."""

import json
import shlex

import numpy as np
import pytest
from commands import run, succeed

import rfgp

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")


def written(path, n=80):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n)
    np.savetxt(path, np.c_[X, y], delimiter=",", header="a,b,y", comments="")
    return X, y


def typed(out):
    """Return the words of the command that is printed."""
    return shlex.split(next(line for line in out.splitlines() if line.startswith("Type: ")).removeprefix("Type: "))


def test_an_average_of_a_table_is_selected_again_by_the_command(monkeypatch, capsys, tmp_path):
    X, y = written(tmp_path / "t.csv")
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "t.csv", "--target", "y")
    selection = rfgp.GP(seed=0).select(X, y)
    assert all(trial.name in out for trial in selection.trials)
    assert selection.reason in out
    assert not list(tmp_path.glob("t-fit"))
    succeed(monkeypatch, capsys, *typed(out)[1:], "--no-compare", "--out", tmp_path / "o")
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    assert gp.selection.parts.keys() == selection.parts.keys()
    assert len(gp.members) == len(selection.parts) > 1
    limits = ("--target", "y", "--time-limit", "9s", "--seed", "5", "--approximation", "Exact", "--memory", "1GB")
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "t.csv", *limits)
    assert out.splitlines()[-1].endswith("--approximation Exact --time-limit 9s --memory 1GB --seed 5")


def test_the_command_fits_the_best_kernel_with_the_same_table(monkeypatch, capsys, tmp_path):
    written(tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_text().replace(",", ";")
    lines = [f"{line};{'ab'[i % 2]}" for i, line in enumerate(text.splitlines()[1:])]
    (tmp_path / "t.csv").write_text("\n".join(["a;b;y;kind", *lines, "-;1;2;a"]))
    given = ("--target", "y", "--missing-mark", "-", "--missing", "mean", "--seed", "2")
    chosen = ("--approximation", "RandomFeatures(16)", "--time-limit", "1min", "--json")
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "t.csv", *given, *chosen)
    found = json.loads(out)
    words = shlex.split(found["command"])
    assert {"--missing-mark=-", "--missing=mean", "--kernel", "--approximation"} <= {*words}
    assert "RandomFeatures(num_frequencies=16)" in words
    assert "--time-limit" not in words
    succeed(monkeypatch, capsys, *words[1:], "--no-compare", "--out", tmp_path / "o")
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    best = next(each for each in found["candidates"] if each["name"] == found["best"])
    (term,) = gp.kernel.terms()
    assert best["options"]["kernel"].startswith(type(term.factors[0]).__name__)
    assert term.factors[0].columns == ("a", "b", "kind=a", "kind=b")


def test_a_time_limit_is_kept_and_figures_are_for_programs(monkeypatch, capsys, tmp_path):
    written(tmp_path / "t.csv")
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "t.csv", "--time-limit", "1e-6s", "--json")
    found = json.loads(out)
    assert {*found} == {"best", "weights", "reason", "candidates", "baselines", "command"}
    assert sum("predicted time" in each["status"] for each in found["candidates"]) == len(found["candidates"]) - 1
    assert found["command"].startswith("rfgp fit ")


@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")
def test_graphs_and_meshes_are_measured(monkeypatch, capsys, tmp_path):
    import networkx as nx

    nx.write_gml(nx.path_graph(40), tmp_path / "g.gml")
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "g.gml")
    assert "chebyshev(" in out
    assert 'Type: rfgp.GraphGP(graph, kernel="diffusion", features="' in out
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "g.gml", "--time-limit", "1e-9s")
    assert "the cheapest, because none is within the limits; without limits " in out
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "g.gml", "--json")
    sizes = sorted({each["bytes"] for each in json.loads(out)["candidates"]})
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "g.gml", "--json", "--memory", str(sizes[0] + 1))
    found = json.loads(out)
    kept = [each for each in found["candidates"] if not each["status"]]
    assert 0 < len(kept) < len(found["candidates"])
    assert found["best"] == min(kept, key=lambda each: each["error_of_the_kernel"])["name"]
    assert "the best within the limits" in found["reason"]
    (tmp_path / "m.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\nv 2 0 1\nf 1 2 3\nf 2 4 3\nf 2 5 4\n")
    out, _ = succeed(monkeypatch, capsys, "advise", tmp_path / "m.obj")
    assert "Type: rfgp mesh" in out


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")  # large prices have large errors
def test_a_skewed_target_gets_a_hint_of_its_logarithm(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 60)
    prices = np.exp(3 + 2 * x + 0.1 * rng.standard_normal(60))
    for name, y in (("skewed", prices), ("plain", 5 + np.sin(3 * x))):
        np.savetxt(tmp_path / f"{name}.csv", np.c_[x, y], delimiter=",", header="x,price", comments="")
    hint = "price is positive, from"
    for command in (("advise",), ("fit", "--no-compare", "--out", tmp_path / "o")):
        given = (command[0], tmp_path / "skewed.csv", *command[1:])
        _, out, err = run(monkeypatch, capsys, *given)
        assert (err.count(hint), out.count(hint)) == (1, int(command[0] == "fit"))
        assert "A model of its logarithm may be better (--log)." in " ".join(err.split())
        _, _, err = run(monkeypatch, capsys, *given, "--log")
        assert hint not in err
        _, _, err = run(monkeypatch, capsys, command[0], tmp_path / "plain.csv", *command[1:])
        assert hint not in err
