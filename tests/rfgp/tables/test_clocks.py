"""Dates of files are on the clock of their zone, exact to the tick, in every reader."""

import numpy as np
import pandas as pd
import pytest
from commands import fail, succeed

import rfgp
from rfgp import kernels as k
from rfgp.tables import CSV, Parquet, read_inputs, read_table

ZONE = "Europe/Berlin"
HOURS = pd.date_range("2024-03-20", periods=24 * 20, freq="h", tz=ZONE)
F = np.sin(2 * np.pi * HOURS.hour.to_numpy() / 24)


def hourly():
    """Return a table of hours and a season of a day with noise."""
    return pd.DataFrame({"t": HOURS, "y": F + 0.05 * np.random.default_rng(0).normal(size=len(HOURS))})


FRAME = hourly()
KERNEL = k.Periodic("t", period=1.0) + k.RBF("t")


def saved(folder, frame=FRAME):
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet", index=False)
    return folder


DATA = {
    "pandas": lambda folder: FRAME,
    "Parquet": lambda folder: Parquet(folder / "t.parquet", "y"),
    "a file": lambda folder: read_table(folder / "t.parquet", "y", dates="days").frame().assign(y=FRAME.y),
    "a text file": lambda folder: read_table(folder / "t.csv", "y", dates="days").frame().assign(y=FRAME.y),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_seasons_follow_the_local_clock(data, tmp_path):
    rows = data(saved(tmp_path))
    gp = rfgp.GP(KERNEL, approximation=rfgp.RandomFeatures(32), seed=0).fit(
        rows, *["y"] * isinstance(rows, pd.DataFrame)
    )
    new = rows[["t"]] if isinstance(rows, pd.DataFrame) else FRAME[["t"]]
    assert gp.hyperparameters["noise"].item() == pytest.approx(0.0025, rel=0.2)
    assert np.sqrt(np.mean((gp.predict(new).mean - F) ** 2)) < 0.02


def test_models_convert_other_zones_after_update_and_loading(tmp_path):
    gp = rfgp.GP(k.RBF("t"), approximation=rfgp.EquispacedFourier(), seed=0)
    gp.condition(FRAME[:300], "y").update(FRAME[300:], "y").forget(FRAME[:2], "y")
    gp.save(tmp_path / "m.safetensors")
    right = gp.predict(FRAME[["t"]]).mean
    for model in (gp, rfgp.load(tmp_path / "m.safetensors")):
        tokyo = FRAME[["t"]].assign(t=FRAME.t.dt.tz_convert("Asia/Tokyo"))
        np.testing.assert_allclose(model.predict(tokyo).mean, right, atol=1e-9)
        with pytest.raises(rfgp.DataError, match="time zone"):
            model.predict(FRAME[["t"]].assign(t=FRAME.t.dt.tz_localize(None)))
        with pytest.raises(rfgp.DataError, match="time zone"):
            model.update(FRAME.assign(t=FRAME.t.dt.tz_localize(None)), "y")


def test_files_of_another_kind_of_clock_are_refused(tmp_path):
    folder = saved(tmp_path)
    schemas = [read_table(folder / name, "y", dates="days").schema for name in ("t.csv", "t.parquet")]
    FRAME.assign(t=FRAME.t.dt.tz_localize(None)).to_csv(folder / "naive.csv", index=False)
    FRAME.assign(t=FRAME.t.dt.tz_convert("Asia/Tokyo")).to_csv(folder / "tokyo.csv", index=False)
    for schema in schemas:
        with pytest.raises(rfgp.DataError, match="must have a time zone"):
            read_inputs(folder / "naive.csv", schema)
    with pytest.raises(rfgp.DataError, match="UTC offsets"):
        read_inputs(folder / "tokyo.csv", schemas[0])
    np.testing.assert_allclose(
        read_inputs(folder / "tokyo.csv", schemas[1]).X, read_inputs(folder / "t.parquet", schemas[1]).X
    )
    with pytest.raises(rfgp.DataError, match="one offset"):
        rfgp.GP(KERNEL, seed=0).condition(CSV(folder / "t.csv", "y"))


def test_command_line_keeps_zones(monkeypatch, capsys, tmp_path):
    folder = saved(tmp_path, FRAME[:240])
    words = ["--kernel", "Periodic(t, period=1)", "--no-compare", "--out", folder / "o"]
    succeed(monkeypatch, capsys, "fit", folder / "t.parquet", "--target", "y", *words)
    model, naive = folder / "o" / "model.safetensors", FRAME.assign(t=FRAME.t.dt.tz_localize(None))
    succeed(monkeypatch, capsys, "predict", model, folder / "t.parquet", "--out", folder / "p.csv")
    assert np.abs(pd.read_csv(folder / "p.csv")["mean"] - F[:240]).max() < 0.1
    assert np.abs(rfgp.load(model).predict(FRAME[["t"]]).mean - F).max() < 0.1
    naive.to_csv(folder / "naive.csv", index=False)
    assert "must have a time zone" in fail(monkeypatch, capsys, "predict", model, folder / "naive.csv")


@pytest.mark.parametrize("step", ["1s", "1us", "100ns"])
def test_fast_ticks_of_all_readers_are_exact(step, tmp_path):
    y = np.sin(np.arange(80) / 5)
    t = pd.Timestamp("2024-05-01T23:59:59.99999") + np.arange(80) * pd.Timedelta(step).as_unit("ns")
    frame = pd.DataFrame({"t": t, "y": y})
    frame["t"] = frame["t"].astype("M8[ns]")
    folder = saved(tmp_path, frame)
    gp = rfgp.GP(k.RBF("t"), seed=0).fit(frame, "y")
    gp.save(folder / "m.safetensors", data=True)
    files = [read_table(folder / name, "y", dates="days") for name in ("t.csv", "t.parquet")]
    inputs = [
        read_inputs(folder / "t.csv", files[0].schema).frame(),
        *(table.frame() for table in files),
        {"t": list(t)},
    ]
    for model in (gp, rfgp.load(folder / "m.safetensors")):
        assert all(np.abs(model.predict(X).mean - y).max() < 3e-6 for X in inputs)
    for source in (CSV(folder / "t.csv", "y"), Parquet(folder / "t.parquet", "y")):
        there, here = (rfgp.GP(gp.kernel, approximation=rfgp.InducingPoints(80), seed=0) for _ in range(2))
        here.condition(frame, "y")
        np.testing.assert_allclose(there.condition(source).predict(files[0].frame()).mean, here.predict(frame).mean)
