"""A GP of rows that are read in blocks is that of the same rows in memory."""

import weakref

import numpy as np
import pandas as pd
import pytest

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.rows import sources
from rfgp.tables import CSV, Batches, Parquet
from rfgp.tables import sources as tables

ROWS = 600
KERNEL = (
    k.RBF("t", name="trend")
    + k.Matern("day", nu=1.5, name="season")
    + k.Group("store")
    + k.Categorical("zip", correlation=0.3)
    + k.Linear(["t"])
    + k.RBF("t") * k.Group("open")
)
FEATURES = rfgp.RandomFeatures(12)
pytestmark = pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")


def drawn(seed=0):
    """A table of numbers, dates, texts, integers and booleans, with its target and its weights."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, ROWS), "D")
    store, zips = rng.choice(["west", "north", "south"], ROWS), rng.integers(100, 104, ROWS)
    frame = pd.DataFrame({"t": rng.uniform(0, 10, ROWS), "day": days, "store": store, "zip": zips})
    frame["open"] = rng.random(ROWS) < 0.5
    frame["y"] = np.sin(frame.t) + 0.5 * (frame.store == "north") + 0.1 * rng.standard_normal(ROWS)
    frame["count"] = rng.poisson(np.exp(frame.y)).astype(float)
    frame["weight"] = rng.integers(1, 4, ROWS).astype(float)
    frame["noise"] = rng.uniform(0.01, 0.1, ROWS)
    return frame


FRAME = drawn()
X = FRAME[["t", "day", "store", "zip", "open"]]
Y = FRAME["y"].to_numpy()
INPUTS = list(X.columns)


def pieces(frame, size=90):
    """The rows of a frame, read in blocks as from a database."""
    return lambda: (frame.iloc[first : first + size] for first in range(0, len(frame), size))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows")
    FRAME.to_parquet(path / "rows.parquet", row_group_size=70)
    FRAME.to_csv(path / "rows.csv", index=False)
    FRAME.to_csv(path / "rows.csv.gz", index=False)
    marked = FRAME.drop(columns="day").assign(t=FRAME.t.map("{:.17g}".format).str.replace(".", ","))
    marked["y"] = FRAME.y.map("{:.17g}".format).str.replace(".", ",")
    marked.assign(day=FRAME.day).to_csv(path / "marked.csv", index=False, sep=";")
    (path / "parts").mkdir()
    for number in range(3):
        FRAME[number * 200 : (number + 1) * 200].to_parquet(path / "parts" / f"{number}.parquet")
    return path


MAKERS = {
    "parquet": lambda folder, y, **o: Parquet(folder / "rows.parquet", y, columns=INPUTS, **o),
    "files": lambda folder, y, **o: Parquet(folder / "parts", y, columns=INPUTS, **o),
    "csv": lambda folder, y, **o: CSV(folder / "rows.csv", y, columns=INPUTS, **o),
    "csv.gz": lambda folder, y, **o: CSV(folder / "rows.csv.gz", y, **o),
    "frames": lambda folder, y, **o: Batches(pieces(FRAME), y, columns=INPUTS, **o),
    "dicts": lambda folder, y, **o: Batches(lambda: map(dict, pieces(FRAME)()), y, **o),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, limits):
    """Blocks of files and arrays of fewer rows than there are."""
    monkeypatch.setattr(tables, "BATCH_ROWS", 128)
    monkeypatch.setattr(tables, "BATCH_BYTES", 2**13)
    limits(chunk_rows=150, min_blocked_bytes=0)


def model(kernel=KERNEL, approximation=FEATURES, **options):
    return rfgp.GP(kernel, approximation=approximation, seed=0, **options)


def assert_same(one, other, points=X, tolerance=1e-10):
    a, b = one.predict(points), other.predict(points)
    np.testing.assert_allclose(a.mean, b.mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(a.variance, b.variance, rtol=100 * tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MAKERS)
def test_conditioning_is_that_of_rows_in_memory(name, folder):
    kept, gp = model().condition(X, Y), model().condition(MAKERS[name](folder, "y"))
    assert gp.num_observations == ROWS
    assert_same(gp, kept)
    likelihoods = [one.log_marginal_likelihood().item() for one in (gp, kept)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], rel=1e-11)
    np.testing.assert_allclose(gp.leave_one_out().variance, kept.leave_one_out().variance, rtol=1e-9)
    levels = {column.key: column.levels for column in gp.state.spec.schema.columns if column.levels}
    assert levels == {"store": ("north", "south", "west"), "zip": (100, 101, 102, 103), "open": (False, True)}


@pytest.mark.parametrize("name", MAKERS)
def test_predictions_in_blocks_are_those_in_memory(name, folder):
    gp = model().condition(X, Y)
    found, kept = gp.predict(MAKERS[name](folder, None)), gp.predict(X)
    for one, other in ((found, kept), (found.observed(), kept.observed()), (found.terms["season"], kept.of("season"))):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-8, atol=1e-12)
    assert isinstance(found.mean, np.ndarray)


def test_marks_within_numbers_are_read(folder):
    options = {"decimal": ",", "columns": INPUTS}
    gp = model().condition(CSV(folder / "marked.csv", "y", **options))
    assert_same(gp, model().condition(X, Y))
    np.testing.assert_allclose(gp.predict(CSV(folder / "marked.csv", **options)).mean, gp.predict(X).mean, rtol=1e-10)


APPROXIMATIONS = {
    "fitc": rfgp.InducingPoints(20),
    "vfe": rfgp.InducingPoints(20, method="vfe"),
    "pivots": rfgp.InducingPoints(20, init="pivoted-cholesky", method="sor"),
    "laplace": rfgp.RandomFeatures(10, kind="laplace", coupling="iid"),
}


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_weights_of_every_kind_are_read_in_blocks(name, folder):
    kernel = k.RBF("t", name="trend") + k.Polynomial(["t"], degree=2) + k.Group("store") + k.Constant()
    options = {"kernel": kernel, "approximation": {"trend": APPROXIMATIONS[name]}}
    gp, kept = (model(**options) for _ in range(2))
    kept.condition(X, Y)
    gp.condition(X, Y).condition(MAKERS["parquet"](folder, "y"))  # the same draws
    assert_same(gp, kept, tolerance=1e-8)


@pytest.mark.parametrize("likelihood", ["poisson", "student-t", "negative-binomial"])
def test_other_likelihoods_are_read_in_blocks(likelihood, folder):
    gp = model(likelihood=likelihood).condition(MAKERS["parquet"](folder, "count"))
    kept = model(likelihood=likelihood).condition(X, FRAME["count"].to_numpy())
    assert_same(gp, kept, tolerance=1e-7)


@pytest.mark.parametrize("name", ["parquet", "csv", "frames"])
def test_noise_weights_and_several_targets_are_columns(name, folder):
    source = MAKERS[name](folder, ["y", "y2"] if name == "frames" else "y", noise="noise", sample_weight="weight")
    if name == "frames":
        source = Batches(pieces(FRAME.assign(y2=-2 * Y)), ["y", "y2"], columns=INPUTS, sample_weight="weight")
    gp = model().condition(source)
    y, noise = (np.c_[Y, -2 * Y], None) if name == "frames" else (Y, FRAME["noise"].to_numpy())
    assert_same(gp, model().condition(X, y, noise=noise, sample_weight=FRAME["weight"].to_numpy()))


def test_a_fit_is_close_to_that_in_memory(folder):
    gp = model().fit(MAKERS["parquet"](folder, "y"), max_iterations=100)
    kept = model().fit(X, Y, max_iterations=100)
    found, wanted = (one.fit_report.log_marginal_likelihood for one in (gp, kept))
    assert found == pytest.approx(wanted, abs=1.0)  # rounding decides between maxima that are 0.6 apart
    assert gp.hyperparameters.noise.item() == pytest.approx(kept.hyperparameters.noise.item(), rel=0.01)
    assert found == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-9)


def test_features_of_nodes_are_read_in_blocks():
    graph = graphs.Graph.from_edges([(number, (number + 1) % 30) for number in range(30)])
    frame = FRAME[["y"]].assign(node=(3 * FRAME.t).astype(int))
    gp, kept = (model(k.Nodes(graph), rfgp.TruncatedSpectrum(10)) for _ in range(2))
    gp.fit(Batches(pieces(frame), "y"))
    kept.fit(frame[["node"]], Y)
    assert_same(gp, kept, frame, 1e-5)


def test_a_fit_of_many_rows_reads_all_of_them(limits):
    limits(subset_rows=100, sample_rows=200)
    kernel = k.RBF("t", name="trend") + k.Group("store")
    gp = model(kernel).fit(Batches(pieces(FRAME), "y"), max_iterations=30)
    kept = model(kernel).fit(X, Y, max_iterations=30)
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-9)
    gap = kept.log_marginal_likelihood().item() - gp.log_marginal_likelihood().item()
    assert abs(gap) < 1


@pytest.mark.parametrize("as_source", [True, False])
def test_an_update_adds_rows_and_levels(as_source, tmp_path):
    more = FRAME[400:].assign(store=FRAME.store[400:].where(FRAME.t[400:] > 1, "new"))
    gp, kept = model().condition(Batches(pieces(FRAME[:400]), "y")), model().condition(X[:400], Y[:400])
    if as_source:
        gp.update(Batches(pieces(more), "y"))
    else:
        gp.update(more[INPUTS], Y[400:])
    kept.update(more[INPUTS], Y[400:])
    assert gp.state.spec.schema.columns == kept.state.spec.schema.columns
    assert_same(gp, kept, more[INPUTS])
    gp.save(tmp_path / "model.safetensors")
    assert_same(rfgp.load(tmp_path / "model.safetensors"), kept, more[INPUTS])


def test_an_update_without_new_levels_reads_new_rows_only():
    reads = []

    def read():
        reads.append(1)
        return pieces(FRAME[:400])()

    gp = model().condition(Batches(read, "y"))
    before = len(reads)
    gp.update(Batches(pieces(FRAME[400:]), "y"))
    assert_same(gp, model().condition(X[:400], Y[:400]).update(X[400:], Y[400:]))
    assert len(reads) == before


def test_new_levels_in_blocks_have_their_prior():
    gp = model().condition(X, Y)
    new = X.assign(store=np.where(X.t > 5, "unseen", X.store))
    found, kept = gp.predict(Batches(pieces(new, 37))), gp.predict(new)
    np.testing.assert_allclose(found.variance, kept.variance, rtol=1e-9)


@pytest.mark.parametrize("kernel", [k.RBF(), k.RBF([0, 2]) + k.Linear(1)])
@pytest.mark.parametrize("kind", ["memmap", "pairs"])
def test_columns_of_arrays_are_read_by_number(kind, kernel, tmp_path):
    values = np.c_[X.t, X.zip, Y + 0.1 * X.t]
    np.save(tmp_path / "X.npy", values)
    on_disk = np.load(tmp_path / "X.npy", mmap_mode="r")
    of_pairs = Batches([(values[:250], Y[:250]), (values[:0], Y[:0]), (values[250:], Y[250:])])
    source = (on_disk, Y) if kind == "memmap" else (of_pairs,)
    gp, kept = model(kernel).condition(*source), model(kernel).condition(values, Y)
    assert_same(gp, kept, values)
    np.testing.assert_allclose(gp.predict(on_disk).mean, kept.predict(values).mean, rtol=1e-10)


def test_columns_of_a_file_without_header_have_numbers(tmp_path):
    FRAME[["t", "store", "y"]].to_csv(tmp_path / "bare.csv", index=False, header=False)
    kernel = k.RBF("t") + k.Group("store")
    named = model(kernel).condition(CSV(tmp_path / "bare.csv", "y", names=["t", "store", "y"]))
    assert_same(named, model(kernel).condition(X[["t", "store"]], Y))
    FRAME[["t", "zip", "y"]].to_csv(tmp_path / "numbers.csv", index=False, header=False)
    kernel, values = k.RBF(0) + k.Group(1), X[["t", "zip"]].to_numpy()
    numbered = model(kernel).condition(CSV(tmp_path / "numbers.csv", "2"))
    assert_same(numbered, model(kernel).condition(values, Y), values)


def test_columns_of_float32_stay_float32(tmp_path):
    single = FRAME[["t", "noise", "y"]].astype(np.float32)
    single.to_parquet(tmp_path / "single.parquet")
    gp = model(k.RBF("t")).condition(Parquet(tmp_path / "single.parquet", "y", columns=["t"]))
    assert gp.predict({"t": single.t.to_numpy()}).mean.dtype == np.float32
    assert_same(gp, model(k.RBF("t")).condition(single[["t"]], single.y.to_numpy()), single[["t"]], 1e-5)
    mixed = model(k.RBF("t")).condition(Batches(lambda: [FRAME.assign(t=single.t)], "y"))
    assert mixed.predict(X).mean.dtype == np.float64


def test_arrays_with_a_shape_of_chunks_are_no_source():
    class Chunked(np.ndarray):
        """An array as those of Dask and HDF5, whose `chunks` are numbers."""

        chunks = (100, 2)

    values = X[["t", "zip"]].to_numpy(dtype=float)
    kernel = k.RBF(0) + k.Linear(1)
    assert_same(model(kernel).condition(values.view(Chunked), Y), model(kernel).condition(values, Y), values)


class Counting:
    """Rows made when they are asked for, and the most of them that were alive at once."""

    def __init__(self, size, count):
        self.size, self.count, self.alive, self.most = size, count, 0, 0

    def frame(self, number):
        rng = np.random.default_rng(number)
        t = rng.uniform(0, 10, self.size)
        names = rng.choice(["a", "b", "c"], self.size)
        return {"t": t, "store": names, "y": np.sin(t) + (names == "a") + 0.1 * rng.standard_normal(self.size)}

    def read(self):
        for number in range(self.count):
            found = self.frame(number)
            self.alive += self.size
            self.most = max(self.most, self.alive)
            weakref.finalize(found["t"], self._drop)
            yield found
            del found

    def _drop(self):
        self.alive -= self.size


def test_rows_in_memory_are_bounded_by_blocks(monkeypatch, limits):
    limits(sample_rows=600, subset_rows=200)
    largest, numbers = [], sources.standardized

    def counted(chunk, scaling):
        largest.append(len(chunk.X))
        return numbers(chunk, scaling)

    monkeypatch.setattr(sources, "standardized", counted)
    rows = Counting(250, 60)
    kernel = k.RBF("t", name="trend") + k.Group("store")
    gp = model(kernel).fit(Batches(rows.read, "y"), max_iterations=4)
    gp.condition(Batches(rows.read, "y")).update(Batches(rows.read, "y"))
    assert gp.num_observations == 2 * 250 * 60
    p = gp.predict(Batches(rows.read))
    assert len(p.mean) == len(p.variance) == 250 * 60
    assert rows.most <= 3 * 250
    assert max(largest) <= 8192


REFUSED = {
    "covariance": (k.RBF("t", name="trend"), rfgp.Exact()),
    "neighbors": (k.RBF("t", name="trend"), rfgp.Vecchia(5)),
    "residual": (k.RBF("t", name="trend"), rfgp.InducingPoints(5, residual=rfgp.Vecchia(5))),
    "precision": (k.Group("t") + k.Matern("t", nu=1.5, name="trend"), {"trend": rfgp.SparsePrecision()}),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("call", ["fit", "condition", "update"])
def test_terms_that_need_rows_in_memory_are_named(name, call):
    kernel, approximation = REFUSED[name]
    frame = FRAME.assign(t=FRAME.t.round(1) if name != "precision" else FRAME.zip)
    gp = model(kernel, approximation)
    if call != "fit":
        gp.condition(frame[["t"]], Y)
    with pytest.raises(rfgp.InvalidArgumentError, match=r"term 'trend' needs all rows in memory.*RandomFeatures"):
        getattr(gp, call)(Batches(pieces(frame), "y"))
    if call != "fit":
        assert gp.num_observations == ROWS


def test_other_approximations_of_rows_in_blocks_are_checked(folder):
    gp = model().condition(MAKERS["parquet"](folder, "y"))
    with pytest.raises(rfgp.InvalidArgumentError, match="needs all rows in memory"):
        gp.exact()
    points = gp.with_approximation({"trend": rfgp.InducingPoints(20)})
    kept = model().condition(X, Y).with_approximation({"trend": rfgp.InducingPoints(20)})
    assert np.abs(points.predict(X).mean - kept.predict(X).mean).max() < 0.05
    with pytest.raises(rfgp.InvalidArgumentError, match="Variational inference needs all rows"):
        model(likelihood="heteroscedastic").condition(MAKERS["parquet"](folder, "y"))


def test_planned_approximations_read_blocks(folder):
    gp = rfgp.GP(KERNEL + k.RBF("t") * k.Linear("t"), seed=0).condition(MAKERS["parquet"](folder, "y"))
    names = {type(term.approximation) for term in gp.terms.values()}
    assert names == {rfgp.Exact, rfgp.RandomFeatures}


def with_cell(column, row, value):
    frame = FRAME.astype({column: object})
    frame.loc[row, column] = value
    return frame


BAD = {
    "missing number": (with_cell("t", 431, None), "Column 't' has 1 missing value, the first in row 431"),
    "missing level": (with_cell("store", 77, None), "Column 'store' has 1 missing value, the first in row 77"),
    "missing date": (with_cell("day", 500, None), "Column 'day' has 1 missing value, the first in row 500"),
    "infinite": (with_cell("t", 98, np.inf), "'t' has 1 value that is not finite, the first .inf. in row 98"),
    "text": (with_cell("t", 300, "high"), "Column 't' .*text"),
    "level of another type": (with_cell("zip", 555, "x"), "Column 'zip' .*text"),
    "no column": (FRAME.drop(columns="zip"), "X has no column 'zip', which categorical.* reads. Its columns are: t"),
}


OF_TWO_TYPES = ("text", "level of another type")  # which a column of Parquet cannot be
CASES = [(n, s) for n in BAD for s in ("parquet", "csv", "frames") if s != "parquet" or n not in OF_TWO_TYPES]


@pytest.mark.parametrize(("name", "source"), CASES)
def test_bad_cells_are_named_by_column_and_row(name, source, tmp_path):
    frame, message = BAD[name]
    if source == "parquet":
        frame.convert_dtypes().to_parquet(tmp_path / "bad.parquet")
    frame.to_csv(tmp_path / "bad.csv", index=False)
    made = {"parquet": lambda: Parquet(tmp_path / "bad.parquet", "y"), "csv": lambda: CSV(tmp_path / "bad.csv", "y")}
    rows = made.get(source, lambda: Batches(pieces(frame), "y"))()
    gp = model().condition(X, Y)
    before = gp.predict(X[:9]).mean
    for call in (gp.condition, gp.update, gp.fit, lambda rows: gp.predict(rows).mean):
        with pytest.raises(rfgp.DataError, match=message):
            call(rows)
    with pytest.raises(rfgp.DataError, match=message):
        model().condition(rows)
    np.testing.assert_array_equal(gp.predict(X[:9]).mean, before)


@pytest.mark.parametrize("call", ["fit", "condition"])
def test_targets_belong_to_the_source(call, folder):
    with pytest.raises(rfgp.DataError, match="must be part of a source"):
        getattr(model(), call)(MAKERS["parquet"](folder, None), "y")
    with pytest.raises(rfgp.DataError, match="must have targets"):
        getattr(model(), call)(MAKERS["parquet"](folder, None))
    with pytest.raises(rfgp.DataError, match="must have rows"):
        getattr(model(), call)(Batches([]))
