"""`rfgp advise`: what each choice would cost and bring, and a command that does it."""

import json
import shlex

import numpy as np
import pytest
from commands import run

import rfgp

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")


def written(path, n=80):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n)
    np.savetxt(path, np.c_[X, y], delimiter=",", header="a,b,y", comments="")
    return X, y


def test_a_table_is_measured_and_the_command_makes_that_model(monkeypatch, capsys, tmp_path):
    X, y = written(tmp_path / "t.csv")
    code, out, err = run(monkeypatch, capsys, "advise", tmp_path / "t.csv", "--target", "y")
    assert code == 0, err
    choice = rfgp.TableGP(seed=0).advise(X, y)
    assert all(trial.name in out for trial in choice.trials)
    assert choice.reason in out
    assert not list(tmp_path.glob("t-fit"))
    command = shlex.split(next(line for line in out.splitlines() if line.startswith("Type: ")).removeprefix("Type: "))
    code, _, err = run(monkeypatch, capsys, *command[1:], "--no-compare", "--out", tmp_path / "o")
    assert code == 0, err
    gp = rfgp.load(tmp_path / "o" / "model.safetensors")
    assert gp.options.features == "exact"
    assert gp.selection.parts.keys() == choice.parts.keys()
    assert len(gp.members) == len(choice.parts) > 1
    code, out, err = run(
        monkeypatch, capsys, "advise", tmp_path / "t.csv", "--target", "y", "--budget", "9s", "--seed", "5"
    )
    assert code == 0, err
    assert "--features=exact --budget=9s --seed=5" in out


def test_a_budget_is_kept_and_figures_are_for_programs(monkeypatch, capsys, tmp_path):
    written(tmp_path / "t.csv")
    code, out, err = run(monkeypatch, capsys, "advise", tmp_path / "t.csv", "--budget", "1e-6s", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert sum("over the budget" in each["remark"] for each in found["candidates"]) == len(found["candidates"]) - 1
    assert found["command"].startswith("rfgp fit ")


@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")
def test_graphs_and_meshes_are_measured(monkeypatch, capsys, tmp_path):
    import networkx as nx

    nx.write_gml(nx.path_graph(40), tmp_path / "g.gml")
    code, out, err = run(monkeypatch, capsys, "advise", tmp_path / "g.gml")
    assert code == 0, err
    assert "chebyshev(" in out
    assert 'Type: rfgp.GraphGP(graph, kernel="diffusion", features="' in out
    code, out, err = run(monkeypatch, capsys, "advise", tmp_path / "g.gml", "--budget", "1e-9s")
    assert code == 0, err
    assert "the cheapest, for nothing keeps to the limits; without them " in out
    code, out, err = run(monkeypatch, capsys, "advise", tmp_path / "g.gml", "--json")
    sizes = sorted({each["bytes"] for each in json.loads(out)["candidates"]})
    code, out, err = run(monkeypatch, capsys, "advise", tmp_path / "g.gml", "--json", "--memory", str(sizes[0] + 1))
    found = json.loads(out)
    kept = [each for each in found["candidates"] if not each["remark"]]
    assert 0 < len(kept) < len(found["candidates"])
    assert found["best"] == min(kept, key=lambda each: each["error_of_the_kernel"])["name"]
    assert "the best that keeps to the limits" in found["reason"]
    (tmp_path / "m.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\nv 2 0 1\nf 1 2 3\nf 2 4 3\nf 2 5 4\n")
    code, out, err = run(monkeypatch, capsys, "advise", tmp_path / "m.obj")
    assert code == 0, err
    assert "Type: rfgp mesh" in out


def test_nothing_open_is_nothing_to_advise():
    with pytest.raises(rfgp.InvalidArgumentError, match="Every option is named"):
        rfgp.TableGP("exact", "gaussian", local=None).advise(np.zeros((3, 1)), np.arange(3.0))
