"""Commands on meshes and roads: what they write agrees with the models that they save."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import trimesh
from commands import command, figures

import graphs
import rfgp

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning"),
    pytest.mark.filterwarnings("ignore::graphs.GraphWarning"),
]

ROADS = Path(__file__).parents[3] / "data" / "roads.geojson"
MODEL = "o/model.safetensors"
FAST = "--kernel diffusion --features walks --num-walkers 8 --no-compare --out o"
FILES = {"mean.ply", "sd.ply", "mean.glb", "sd.glb", "nodes.csv", "model.safetensors", "report.html"}


def names_in(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def ball(tmp_path):
    """A folder with a mesh of 320 faces, and values at some."""
    trimesh.creation.icosphere(subdivisions=2).export(tmp_path / "ball.ply")
    rows = [f"{i},{i % 7},{i % 5},{'abcde'[i % 5]}\n" for i in range(0, 320, 4)]
    (tmp_path / "v.csv").write_text("FACE,stress/MPa,heat,specimen\n" + "".join(rows))
    return tmp_path


def test_mesh_writes_pictures_and_numbers(ball):
    answer = figures(f"mesh ball.ply --values v.csv --target heat {FAST}", ball)
    assert set(answer["files"]) == FILES == names_in(ball / "o")
    assert answer["train"] + answer["test"] == 80
    found = pd.read_csv(ball / "o" / "nodes.csv")
    np.testing.assert_allclose(found["mean"], rfgp.load(ball / MODEL).predict(range(320)).mean, rtol=1e-12)
    assert list(found.observed[:5]) == pytest.approx([0, np.nan, np.nan, np.nan, 4], nan_ok=True)


@pytest.mark.slow
def test_mesh_has_a_whittle_matern_field_of_near_points_without_a_kernel(ball):
    rows = "".join(f"{x},{y},0.9,{x}\n" for x in np.linspace(-0.5, 0.5, 6) for y in (-0.2, 0.2))
    (ball / "far.csv").write_text(f"X,Y,Z,heat\n{rows}0,0,3,1\n")
    line = "mesh ball.ply --values far.csv --alpha 3 --no-compare --out o"
    assert "got row 12 at a distance of 2" in command(line, ball, 1).err
    command(f"{line} --within 3", ball)
    gp, found = rfgp.load(ball / MODEL), pd.read_csv(ball / "o" / "nodes.csv")
    law = gp.predict(trimesh.load(ball / "ball.ply").triangles_center)
    assert (type(gp), gp.num_observations, gp.kernel.terms()[0].factors[0].alpha) == (rfgp.MeshGP, 13, 3)
    assert gp.within == 3
    np.testing.assert_allclose(found["mean"], law.mean, rtol=1e-6)
    np.testing.assert_allclose(found["sd"], law.std, rtol=1e-6)


@pytest.mark.slow
def test_each_of_several_targets_has_a_folder(ball):
    line = f"mesh ball.ply --values v.csv --target stress/MPa --target heat {FAST}"
    answer = figures(line, ball)
    assert list(answer) == ["stress/MPa", "heat"]
    assert names_in(ball / "o") == {"stress_MPa", "heat"}
    for name, folder in (("stress/MPa", "stress_MPa"), ("heat", "heat")):
        assert names_in(ball / "o" / folder) == FILES == set(answer[name]["files"])
        assert name in (ball / "o" / folder / "report.html").read_text()
    mean = pd.read_csv(ball / "o" / "heat" / "nodes.csv")["mean"]
    (ball / "o" / "heat" / "mean.ply").rename(ball / "result.ply")
    command(f"mesh result.ply --target mean --target sd {FAST}".replace("-out o", "-out p"), ball)
    observed = pd.read_csv(ball / "p" / "mean" / "nodes.csv").observed
    np.testing.assert_allclose(observed, mean, rtol=1e-6)


def test_mesh_without_values_names_the_generated_field(ball):
    answer = command("mesh ball.ply --known 0.12 --no-compare --out o", ball)
    assert "interpolated from a random 38 of 320 faces" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "values"])
def test_mesh_kernel_reads_further_columns(source, tmp_path):
    ball, rng = trimesh.creation.icosphere(2), np.random.default_rng(0)
    thickness = rng.uniform(1, 5, len(ball.vertices)).round(2)
    ball.vertex_attributes["thickness" if source == "file" else "other"] = thickness
    ball.export(tmp_path / "ball.ply", include_attributes=True)
    stress = ball.vertices[:, 2] + 2 * thickness + 0.05 * rng.normal(size=len(thickness))
    table = pd.DataFrame({"vertex": np.arange(len(stress)), "thickness": thickness, "stress": stress})
    table.loc[rng.permutation(len(stress))[:80], "stress"] = np.nan
    known = table.dropna().drop(columns="thickness") if source == "file" else table
    known.to_csv(tmp_path / "v.csv", index=False)
    line = "mesh ball.ply --values v.csv --missing drop --no-compare --out o --kernel 'Mesh() + Linear(thickness)'"
    answer = figures(line, tmp_path)
    assert answer["rmse"] < 0.3 < 1 < answer["target_sd"]
    assert np.sqrt(np.mean((pd.read_csv(tmp_path / "o" / "nodes.csv")["mean"] - stress) ** 2)) < 0.2


# --- roads -------------------------------------------------------------------------------------------------------


def changed(path, of_sensor, of_road=lambda road, given: given):
    """Write roads.geojson again with other properties of each sensor and of each road."""
    content = json.loads(ROADS.read_text())
    for kind, properties in (("LineString", of_road), ("Point", of_sensor)):
        features = [feature for feature in content["features"] if feature["geometry"]["type"] == kind]
        for number, feature in enumerate(features):
            feature["properties"] = properties(number, feature["properties"])
    path.write_text(json.dumps(content))


@pytest.mark.slow
def test_traffic_reads_and_writes_geojson(tmp_path):
    changed(tmp_path / "r.geojson", lambda number, given: {"speed": None if number < 5 else given["value"]})
    options = "--target speed --alpha 2 --boundary stationary --compare --out o"
    answer = figures(f"traffic r.geojson {options}", tmp_path)
    assert answer["train"] + answer["test"] == 115
    assert list(answer["others"]) == ["64 walkers a node, diffusion on the graph"]
    report = (tmp_path / "o" / "report.html").read_text()
    assert "the Whittle-Matern field of alpha 2 along the roads (stationary at free ends), exactly" in report
    features = json.loads((tmp_path / "o" / "roads.geojson").read_text())["features"]
    sensors = [feature["properties"] for feature in features if feature["geometry"]["type"] == "Point"]
    assert [sensor["speed"] is None for sensor in sensors] == [True] * 5 + [False] * 115
    gp, roads = rfgp.load(tmp_path / MODEL), graphs.read_roads(tmp_path / "r.geojson", "speed")
    assert (type(gp), gp.num_observations) == (rfgp.RoadGP, 115)
    law = gp.predict(np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1))
    low, high = law.observed().interval(0.95)
    expected = {"mean": law.mean, "sd": law.std, "observed_sd": law.observed().std, "low": low, "high": high}
    for name, values in expected.items():
        np.testing.assert_allclose([sensor[f"gp_{name}"] for sensor in sensors], values, rtol=1e-6)
    head = (tmp_path / "o" / "nodes.csv").read_text().splitlines()[0]
    assert head == "node,longitude,latitude,observed,mean,sd,observed_sd,low,high"


def test_traffic_names_directions(tmp_path):
    changed(tmp_path / "r.geojson", lambda _, given: given, lambda road, _: {"oneway": "yes" if road < 3 else "no"})
    answer = command("traffic r.geojson --out o --json", tmp_path)
    assert json.loads(answer.out)["others"] == {}
    assert "3 of 194 roads are one-way or roundabouts in the file. Their direction is ignored" in answer.err


@pytest.mark.slow
def test_traffic_kernel_reads_properties_of_roads(tmp_path):
    limits = np.random.default_rng(0).choice([30.0, 50.0, 80.0], 194)
    changed(
        tmp_path / "r.geojson",
        lambda _, given: {**given, "value": given["value"] + 0.8 * limits[given["edge"]]},
        lambda road, _: {"maxspeed": str(limits[road]), "highway": "track" if road > 4 else None},
    )
    line = "traffic r.geojson --no-compare --out o"
    answer = figures(f"{line} --kernel 'Roads() + Linear(maxspeed)'", tmp_path)
    assert answer["rmse"] < 0.3 * answer["target_sd"]
    features = json.loads((tmp_path / "o" / "roads.geojson").read_text())["features"]
    piece = next(f["properties"] for f in features if f["geometry"]["type"] == "LineString")
    road, ends = piece["source_edge"], [piece["source_begin"], piece["source_end"]]
    law = rfgp.load(tmp_path / MODEL).predict({"road": [road] * 2, "maxspeed": [limits[road]] * 2, "fraction": ends})
    assert piece["gp_mean"] == pytest.approx(law.mean.mean(), rel=1e-6)
    for kernel, word in (
        ("Roads() + Linear(maxsped)", "Did you mean 'maxspeed'"),
        ("Roads() + Group(highway)", "none for 5 of 194 roads"),
        ("Linear(maxspeed)", "the term Roads()"),
    ):
        assert word in command(f"{line} --kernel '{kernel}'", tmp_path, 1).err


@pytest.mark.slow
def test_fields_are_held_out_by_a_property_or_a_column(ball):
    line = f"mesh ball.ply --values v.csv --target heat --holdout-by specimen {FAST}"
    assert figures(line, ball)["test_groups"] == 2
    changed(
        ball / "r.geojson",
        lambda number, given: {"value": given["value"], "half": given["value"] / 2, "at": f"company {number % 7}"},
    )
    line = f"traffic r.geojson --target value --target half {FAST}".replace("--out o", "--out p")
    answer = figures(f"{line} --holdout-by at", ball)
    assert [answer[name]["test_groups"] for name in ("value", "half")] == [2, 2]
    assert names_in(ball / "p" / "half") == {"roads.geojson", "nodes.csv", "model.safetensors", "report.html"}
    command(f"{line} --holdout-by owner", ball, 1)
    command(f"{line} --holdout-by at --holdout last", ball, 1)
