"""Rows that are read in blocks: whatever they come from, the model is that of the same rows in memory."""

import gzip
import re
from itertools import chain, repeat

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import rfgp
from rfgp.rows import Chunk, source_summary, sources
from rfgp.rows.sources import ArraySource
from rfgp.tables import CSV, Batches, Parquet


def drawn(n, seed=0):
    """Inputs of three scales, targets, variances and weights of n rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -3.0]
    y = 3 + 2 * np.sin(X[:, 0]) + 0.1 * X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y, rng.uniform(0.01, 0.2, n), rng.integers(1, 4, n).astype(float)


X, Y, NOISE, WEIGHT = drawn(400)
NAMES = ["a", "b", "c"]
NEW = X[:7] + 0.1


def columns(n=400):
    return {name: X[:n, i] for i, name in enumerate(NAMES)} | {"y": Y[:n]}


def blocks(size=90):
    return lambda: ((X[i : i + size], Y[i : i + size]) for i in range(0, 400, size))


@pytest.fixture
def folder(tmp_path, limits):
    limits(min_blocked_bytes=0)  # or small arrays on disk are taken into memory
    pq.write_table(pa.table(columns()), tmp_path / "rows.parquet", row_group_size=70)
    extra = {"noise": NOISE, "weight": WEIGHT, "z": -2 * Y}
    pq.write_table(pa.table(columns() | extra), tmp_path / "more.parquet")
    text = "a,b,c,y\n" + "".join(",".join(f"{v:.17g}" for v in (*x, y)) + "\n" for x, y in zip(X, Y, strict=True))
    (tmp_path / "rows.csv").write_text(text)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "bare.csv").write_text(text.split("\n", 1)[1])
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "parts").mkdir()
    for i in range(3):
        part = {name: column[i * 140 : (i + 1) * 140] for name, column in columns().items()}
        pq.write_table(pa.table(part), tmp_path / "parts" / f"{i}.parquet")
    return tmp_path


MAKERS = {
    "parquet": lambda folder: (Parquet(folder / "rows.parquet", target="y"),),
    "many files": lambda folder: (Parquet(folder / "parts", target="y"),),
    "columns": lambda folder: (Parquet(str(folder / "more.parquet"), target="y", columns=NAMES),),
    "csv": lambda folder: (CSV(folder / "rows.csv", target="y"),),
    "csv.gz": lambda folder: (CSV(folder / "rows.csv.gz", target="y"),),
    "no header": lambda folder: (CSV(folder / "bare.csv", target="3"),),
    "named": lambda folder: (CSV(folder / "bare.csv", target="y", names=[*NAMES, "y"]),),
    "pairs": lambda folder: (Batches(blocks()),),
    "list": lambda folder: (Batches([(X[:399], Y[:399]), (X[399:], Y[399:])]),),
    "empty blocks": lambda folder: (Batches([(X[:9], Y[:9]), (X[:0], Y[:0]), (X[9:], Y[9:])]),),
    "matrix": lambda folder: (Batches([np.c_[X, Y]], target=-1),),
    "dictionaries": lambda folder: (Batches([columns()], target="y"),),
    "frames": lambda folder: (Batches(lambda: iter([pd.DataFrame(columns())]), target="y"),),
    "tensors": lambda folder: (Batches([(torch.as_tensor(X), torch.as_tensor(Y))]),),
    "memmap": lambda folder: (np.load(folder / "X.npy", mmap_mode="r"), Y),
}


def model(**options):
    return rfgp.SparseSpectrumGP(num_frequencies=12, seed=0, **options)


@pytest.mark.parametrize("name", MAKERS)
def test_a_source_is_its_rows(name, folder):
    kept, source = model().condition(X, Y), MAKERS[name](folder)
    gp = model().condition(*source)
    assert gp.num_observations == 400
    for quantity in gp.hyperparameters.names:
        ours, expected = (getattr(m.hyperparameters, quantity).detach() for m in (gp, kept))
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gp.predict(NEW).mean, kept.predict(NEW).mean, rtol=1e-9)
    np.testing.assert_allclose(gp.predict(NEW).variance, kept.predict(NEW).variance, rtol=1e-8)
    assert gp.log_marginal_likelihood().item() == pytest.approx(kept.log_marginal_likelihood().item(), rel=1e-10)
    np.testing.assert_allclose(gp.leave_one_out().mean, kept.leave_one_out().mean, rtol=1e-9)
    points = CSV(folder / "rows.csv", columns=NAMES)
    np.testing.assert_allclose(gp.predict(points).mean, kept.predict(X).mean, rtol=1e-8)
    np.testing.assert_allclose(gp.predict(points).observed().variance, kept.predict(X).observed().variance, rtol=1e-8)


@pytest.mark.parametrize("whole", [True, False], ids=["sample is all", "sample"])
def test_a_fit_is_near_that_in_memory(whole, folder, limits):
    if not whole:
        limits(sample_rows=250)
    kept = model().fit(X, Y)
    gp = model().fit(Parquet(folder / "rows.parquet", target="y"))
    assert gp.fit_report.stages[0].rows == (400 if whole else 250)
    if whole:
        assert gp.fit_report.log_marginal_likelihood == pytest.approx(kept.fit_report.log_marginal_likelihood, rel=1e-6)
    else:  # the optimum of a sample costs some of the likelihood, but noise and scale are those of all rows
        gap = kept.fit_report.log_marginal_likelihood - gp.fit_report.log_marginal_likelihood
        assert 0 < gap < 20
        assert gp.hyperparameters.noise.item() == pytest.approx(kept.hyperparameters.noise.item(), rel=0.2)
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-9)


def test_the_size_of_blocks_changes_nothing_but_rounding(limits):
    limits(sample_rows=200)
    found = [model().fit(Batches(blocks(size))).predict(NEW).mean for size in (400, 33, 7)]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)
    twice = model().fit(Batches(blocks(400))).predict(NEW).mean
    np.testing.assert_array_equal(twice, found[0])


def test_noise_and_weights_come_from_columns(folder):
    source = Parquet(folder / "more.parquet", target="y", columns=NAMES, noise="noise", sample_weight="weight")
    gp, kept = model().fit(source), model().fit(X, Y, noise=NOISE, sample_weight=WEIGHT)
    assert gp.log_marginal_likelihood().item() == pytest.approx(kept.log_marginal_likelihood().item(), rel=1e-5)
    plain = model().fit(X, Y)
    assert abs(kept.log_marginal_likelihood().item() - plain.log_marginal_likelihood().item()) > 1


def test_several_targets_from_a_file(folder):
    source = Parquet(folder / "more.parquet", target=["y", "z"], columns=NAMES)
    gp = model().condition(source)
    assert gp.predict(NEW).mean.shape == (7, 2)
    np.testing.assert_allclose(gp.predict(NEW).mean[:, 1], -2 * gp.predict(NEW).mean[:, 0], rtol=1e-9)


def test_an_update_reads_only_the_new_rows(folder):
    reads = []

    def counted():
        reads.append(1)
        return iter([(X[:300], Y[:300])])

    gp, kept = model().fit(Batches(counted)), model()
    before, added = len(reads), []

    def new():
        for i in range(390, 400):
            added.append(i)
            yield X[i : i + 1], Y[i : i + 1]

    gp.update(X[300:390], Y[300:390]).update(Batches(new))
    gp.predict(NEW).variance.sum()
    assert len(reads) == before
    assert added == [390, 390, *range(390, 400)]  # the columns and the types of the first block are looked at before
    assert gp.num_observations == 400
    kept.condition(X[:300], Y[:300])  # the same scaling
    kept.hyperparameters.load_state_dict(gp.hyperparameters.state_dict())
    kept.condition(X, Y)
    np.testing.assert_allclose(gp.predict(NEW).mean, kept.predict(NEW).mean, rtol=1e-7)
    np.testing.assert_allclose(gp.predict(NEW).variance, kept.predict(NEW).variance, rtol=1e-7)
    assert gp.log_marginal_likelihood().item() == pytest.approx(kept.log_marginal_likelihood().item(), rel=1e-9)


def test_an_update_of_a_source_without_a_posterior_counts_it():
    gp = model().condition(X[:300], Y[:300])
    gp.update(Batches([(X[300:], Y[300:])]))
    assert gp.num_observations == 400
    whole = model().condition(X[:300], Y[:300]).condition(X, Y)
    np.testing.assert_allclose(gp.predict(NEW).mean, whole.predict(NEW).mean, rtol=1e-8)


@pytest.mark.parametrize("ready", [True, False])
def test_a_bad_update_is_refused_and_nothing_is_lost(ready):
    gp = model().condition(X, Y)
    before = gp.predict(NEW).mean if ready else None
    for bad, message in (
        ([(X[:9], Y[:9]), (X[9:18], with_value(12, np.inf)[9:18])], "in row 12"),
        ([(X[:9, :2], Y[:9])], "X must have 3 columns"),
        ([(X[:9], np.c_[Y, Y][:9])], r"got shape \(n, 2\)"),
        ([(X[:0], Y[:0])], "must have rows"),
    ):
        with pytest.raises(rfgp.DataError, match=message):
            gp.update(Batches(bad))
    assert gp.num_observations == 400
    if ready:
        np.testing.assert_array_equal(gp.predict(NEW).mean, before)
    np.testing.assert_allclose(gp.predict(NEW).mean, model().condition(X, Y).predict(NEW).mean, rtol=1e-12)


def test_mixed_types_are_refused_as_in_arrays():
    with pytest.raises(rfgp.DataError, match=r"one dtype, got torch.float32 and torch.float64"):
        model().condition(Batches([(X.astype(np.float32), Y)]))
    model(dtype=torch.float64).condition(Batches([(X.astype(np.float32), Y)]))


def test_columns_are_matched_by_name(folder, tmp_path):
    swapped = [{"c": X[200:, 2], "y": Y[200:], "a": X[200:, 0], "b": X[200:, 1]}]
    gp = model().condition(Batches([columns(200), *swapped], target="y"))
    kept = model().condition(X, Y)
    np.testing.assert_allclose(gp.predict(NEW).mean, kept.predict(NEW).mean, rtol=1e-9)
    turned = [{"b": NEW[:, 1], "a": NEW[:, 0], "c": NEW[:, 2], "more": NEW[:, 0]}]
    gp.save(tmp_path / "m.safetensors")
    for loaded in (gp, rfgp.load(tmp_path / "m.safetensors")):
        for points in (Batches(turned), Batches(turned, columns=NAMES)):
            np.testing.assert_allclose(loaded.predict(points).mean, kept.predict(NEW).mean, rtol=1e-9)
        for ask in (lambda m, rows: m.predict(rows).mean, lambda m, rows: m.update(rows)):
            with pytest.raises(rfgp.DataError, match="X has no column 'a', which rbf reads"):
                ask(loaded, Batches([{"b": Y, "c": Y, "y": Y}], "y"))


@pytest.mark.parametrize("first", [None, NOISE])
def test_blocks_of_different_fields_are_refused(first):
    second = NOISE[200:] if first is None else None
    blocks = [Chunk(X[:200], Y[:200], None if first is None else first[:200]), Chunk(X[200:], Y[200:], second)]
    with pytest.raises(rfgp.DataError, match=r"same of noise and sample_weight, got (noise|neither) after"):
        model().condition(Batches(blocks))


def test_float32_columns_stay_float32(folder):
    pq.write_table(pa.table({k: v.astype(np.float32) for k, v in columns().items()}), folder / "f.parquet")
    gp = model().condition(Parquet(folder / "f.parquet", target="y"))
    assert gp.predict(Parquet(folder / "f.parquet", columns=NAMES)).mean.dtype == np.float32


def test_joint_distribution_of_a_source_is_refused(folder):
    p = model().condition(X, Y).predict(CSV(folder / "rows.csv", columns=NAMES))
    for ask in (lambda: p.covariance, lambda: p.sample(2)):
        with pytest.raises(rfgp.InvalidArgumentError, match="rows in memory"):
            ask()


def test_a_source_is_not_saved(folder):
    gp = model().condition(Parquet(folder / "rows.parquet", target="y"))
    with pytest.raises(rfgp.DataError, match="in memory for a file with data=True"):
        gp.save(folder / "m.safetensors", data=True)
    gp.save(folder / "m.safetensors")
    np.testing.assert_array_equal(rfgp.load(folder / "m.safetensors").predict(NEW).mean, gp.predict(NEW).mean)


def with_value(row, value):
    y = Y.copy()
    y[row] = value
    return y


CHANGING = chain([400, 400, 400], repeat(300))
BAD = {
    "no target": (lambda f: (Parquet(f / "rows.parquet"),), rfgp.DataError, "must have targets"),
    "unknown": (lambda f: (Parquet(f / "rows.parquet", target="q"),), rfgp.InvalidArgumentError, "no column 'q'; it"),
    "twice": (
        lambda f: (Parquet(f / "rows.parquet", target="y", columns=["a", "y"]),),
        rfgp.InvalidArgumentError,
        "must be named once, got 'y' twice",
    ),
    "missing file": (lambda f: (Parquet(f / "no.parquet", target="y"),), rfgp.DataError, "There is no file"),
    "not Parquet": (lambda f: (Parquet(f / "rows.csv", target="y"),), rfgp.DataError, "does not begin as such a file"),
    "no CSV": (lambda f: (CSV(f / "rows.parquet", target="y"),), rfgp.DataError, "looks like a Parquet file"),
    "text": (lambda f: (CSV(f / "text.csv", target="y"),), rfgp.DataError, "holds text such as 'red' among numbers"),
    "gap": (
        lambda f: (CSV(f / "gap.csv", target="y"),),
        rfgp.DataError,
        "Column 'a' has 1 missing value, the first in row 1",
    ),
    "strings": (
        lambda f: (Parquet(f / "text.parquet", target="y"),),
        rfgp.DataError,
        "Column 'a' has .* different texts",
    ),
    "not finite": (
        lambda f: (Batches([(X[:90], Y[:90]), (X[90:], with_value(97, np.nan)[90:])]),),
        rfgp.DataError,
        r"y has 1 value that is not finite, the first \(nan\) in row 97",
    ),
    "widths": (lambda f: (Batches([(X[:90], Y[:90]), (X[90:, :2], Y[90:])]),), rfgp.DataError, "X must have 3 columns"),
    "lengths": (lambda f: (Batches([(X[:90], Y[:80])]),), rfgp.DataError, "y must have 90 rows like X, got 80"),
    "outputs": (lambda f: (Batches([(X, Y), (X, np.c_[Y, Y])]),), rfgp.DataError, "must have 1 target, got 2"),
    "nothing": (lambda f: (Batches([]),), rfgp.DataError, "must have rows"),
    "one row": (lambda f: (Batches([(X[:1], Y[:1])]),), rfgp.DataError, "at least two observations"),
    "constant": (lambda f: (Batches([(X, 0 * Y)]),), rfgp.DataError, "target is constant"),
    "y beside": (lambda f: (Batches(blocks()), Y), rfgp.DataError, "must be part of a source"),
    "no y": (lambda f: (X,), rfgp.DataError, "y must have targets"),
    "changing": (
        lambda f: (Batches(lambda: ((X[:n], Y[:n]) for n in [next(CHANGING)])),),
        rfgp.DataError,
        "must not change",
    ),
    "memmap": (
        lambda f: (np.load(f / "X.npy", mmap_mode="r"), Y[:9]),
        rfgp.DataError,
        "y must have 400 rows like X, got shape",
    ),
    "iterator": (lambda f: (Batches(iter([(X, Y)])),), rfgp.InvalidArgumentError, "read more than once"),
    "folder": (lambda f: (Parquet(f / "empty", target="y"),), rfgp.DataError, r"There is no file \*.parquet in"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sources_are_named_and_nothing_is_lost(name, folder):
    (folder / "text.csv").write_text("a,y\nred,3\n" + "".join(f"{i},{i}\n" for i in range(60)))
    (folder / "gap.csv").write_text("a,y\n1,2\n,3\n")
    (folder / "empty").mkdir()
    pq.write_table(pa.table({"a": [f"x{i}" for i in range(60)], "y": np.arange(60.0)}), folder / "text.parquet")
    make, error, message = BAD[name]
    gp = model().condition(X, Y)
    before = gp.predict(NEW).mean
    with pytest.raises(error, match=message):
        gp.fit(*make(folder))
    np.testing.assert_array_equal(gp.predict(NEW).mean, before)


def test_graphs_need_rows_in_memory():
    import graphs

    gp = rfgp.GraphGP(graphs.Graph.from_edges([(0, 1), (1, 2)]))
    with pytest.raises(rfgp.InvalidArgumentError, match="'nodes' needs all rows in memory"):
        gp.fit(Batches([{"node": np.arange(400) % 3, "y": Y}], "y"))


class TestSurvey:
    def test_moments_of_weighted_rows_are_those_of_repeated_ones(self):
        parts = [Chunk(X[i : i + 37], Y[i : i + 37], None, WEIGHT[i : i + 37]) for i in range(0, 400, 37)]
        found = source_summary.summarize_source(Batches(parts), None, 0)
        rows = np.repeat(np.arange(400), WEIGHT.astype(int))
        np.testing.assert_allclose(found.inputs.mean, X[rows].mean(0), rtol=1e-13)
        np.testing.assert_allclose(found.inputs.deviation, X[rows].std(0, ddof=1), rtol=1e-13)
        rare = source_summary.summarize_source(
            Batches([part._replace(sample_weight=1e-3 * part.sample_weight) for part in parts]), None, 0
        )
        np.testing.assert_allclose(rare.inputs.deviation, X[rows].std(0) * (400 / 399) ** 0.5, rtol=1e-12)

    def test_moments_are_those_of_all_rows(self):
        whole = X + 1e6
        found = source_summary.summarize_source(
            Batches([(whole[i : i + 37], Y[i : i + 37]) for i in range(0, 400, 37)]), None, 0
        )
        np.testing.assert_allclose(found.inputs.mean, whole.mean(0), rtol=1e-14)
        affine = found.inputs.standardizing(torch.empty(0, dtype=torch.float64))
        np.testing.assert_allclose(affine.scale, whole.std(0, ddof=1), rtol=1e-9)
        assert (found.num_rows, found.observations, found.is_homoscedastic, found.is_vector) == (400, 400, True, True)

    @pytest.mark.slow
    def test_the_sample_is_uniform(self, limits):
        """Each row is in a sample of 40 of 400 with probability 1/10; the mean rank of a sample is 199.5."""
        from checks import assert_mean

        limits(sample_rows=40)
        ranks, repeats = np.arange(400.0), 1000
        source = Batches([(ranks[i : i + 134, None], Y[i : i + 134]) for i in range(0, 400, 134)])
        taken = np.zeros((repeats, 400))
        places = np.zeros((repeats, 2))
        for seed in range(repeats):
            rows = source_summary.summarize_source(source, None, seed).sample.X[:, 0].numpy().astype(int)
            assert len(set(rows)) == 40
            taken[seed, rows] = 1
            places[seed] = rows[0], rows[:20].mean()
        assert_mean(taken.reshape(repeats, 20, 20).sum(2), np.full(20, 2.0))
        assert_mean(places, np.full(2, 199.5))

    def test_it_does_not_depend_on_the_blocks(self, limits):
        limits(sample_rows=50)
        found = [source_summary.summarize_source(Batches(blocks(size)), None, 3).sample.X for size in (400, 11, 1)]
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])


def test_rebatching_keeps_every_row():
    reads = [Chunk(torch.as_tensor(X[a:b])) for a, b in ((0, 3), (3, 4), (4, 200), (200, 400))]
    found = list(sources.rebatched(iter(reads), 30))
    assert [len(chunk.X) for chunk in found] == [30] * 13 + [10]
    assert torch.equal(torch.cat([chunk.X for chunk in found]), torch.as_tensor(X))


def test_arrays_are_read_in_slices(limits):
    limits(chunk_rows=150)
    chunks = list(ArraySource(X, Y, sample_weight=WEIGHT).chunks())
    assert [len(chunk.X) for chunk in chunks] == [150, 150, 100]
    assert chunks[0].noise is None
    np.testing.assert_array_equal(np.concatenate([chunk.sample_weight for chunk in chunks]), WEIGHT)
    assert isinstance(chunks[0], Chunk)


SPELLED = [
    ("a;y\n1.234,5;2\n-0,25;1.000.000\n", {"decimal": ",", "thousands": "."}),
    ('a,y\n"1,234.5",2\n -0.25,"1,000,000"\n', {"thousands": ","}),
    ("a\ty\n1 234,5\t2\n-0,25\t1 000 000,\n", {"decimal": ",", "thousands": " "}),
]


@pytest.mark.parametrize(("text", "marks"), SPELLED)
def test_marks_within_numbers_in_blocks(text, marks, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    (chunk,) = CSV(tmp_path / "t.csv", "y", **marks).chunks()
    assert (chunk.X.tolist(), chunk.y.tolist()) == ([[1234.5], [-0.25]], [2, 1_000_000])
    table = rfgp.tables.read_table(tmp_path / "t.csv", target="y", **marks)
    np.testing.assert_array_equal(table.X, chunk.X)


@pytest.mark.parametrize("cell", ["12.34,5", "1,5,2", "x", "1.2345"])
def test_a_cell_that_is_no_number_with_these_marks(cell, tmp_path):
    (tmp_path / "t.csv").write_text(f"a;y\n1,5;2\n{cell};3\n")
    source = CSV(tmp_path / "t.csv", "y", decimal=",", thousands=".")
    with pytest.raises(rfgp.DataError, match=rf"column 'a' must hold numbers .* got '{re.escape(cell)}'"):
        list(source.chunks())
    (tmp_path / "t.csv").write_text("a;y\n1,5;2\n;3\n")
    with pytest.raises(rfgp.DataError, match="column 'a' has a missing cell in row 1"):
        list(CSV(tmp_path / "t.csv", "y", decimal=",").chunks())
    with pytest.raises(rfgp.InvalidArgumentError, match="decimal must be one of"):
        CSV(tmp_path / "t.csv", "y", decimal=";")
