"""Models of terms in files: what is loaded answers as what was saved, and what cannot be saved or read is named."""

import copy
import pickle
import warnings
from dataclasses import dataclass
from functools import partial

import field_cases
import numpy as np
import pytest
import torch
import trimesh
from gp_cases import KERNELS, NEW, ROWS, SEASON, SPACE, STORE, TREND, Y, model
from model_files import argument, assert_refused, changed, draw, leaf, option, rewrite, tensor, term
from model_files import assert_same as assert_same_law
from safetensors.torch import load_file

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.saving import values

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")

APPROXIMATIONS = ["auto", rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(7), rfgp.Vecchia(5)]
NEAR = rfgp.InducingPoints(6, residual=rfgp.Vecchia(4, seed=3))
OF_NODES = [
    rfgp.RandomWalks(8, lengths="sigma"),
    rfgp.RandomWalks(8, lengths="learned"),
    rfgp.RandomWalks(8, p_halt="auto", transitions="uniform"),
    rfgp.RandomWalks(8, p_halt=np.array([1.0, 0.8, 0.5]), seed=9),
    rfgp.RandomWalks(8, exact_hops=graphs.HopRule([1, 3, 5])),
    rfgp.Chebyshev(),
    rfgp.Taylor(3),
    rfgp.TruncatedSpectrum(10),
    rfgp.RationalPrecision(2),
    rfgp.SparsePrecision(),
    rfgp.Exact(),
]
GRID = graphs.Graph.from_grid((5, 6))
LABELS, VALUES = list(GRID.labels), np.arange(30.0) % 7
TWO_OUTPUTS = np.column_stack([Y, 3 * Y[::-1]])
OTHER_LEVELS = {**NEW, "store": np.array(["z", "y", "z", "a", "b", "c", "a", "a", "b"])}
BASE = TREND + STORE


def served(kernel, rows, y, approximations, **options):
    """Return the conditioned models of those approximations that serve a kernel."""
    found = []
    for approximation in approximations:
        try:
            found.append(rfgp.GP(kernel, approximation=approximation, seed=0, **options).condition(rows, y))
        except (rfgp.InvalidArgumentError, graphs.InvalidArgumentError):
            continue
    return found


def assert_same(a, b):
    """Predictions are the same, of the whole and of each term, to the last bit."""
    assert_same_law(a, b)
    assert list(a.terms) == list(b.terms)
    for name, of_term in a.terms.items():
        np.testing.assert_array_equal(of_term.mean, b.terms[name].mean)
        np.testing.assert_array_equal(of_term.std, b.terms[name].std)


def assert_saved(gp, new, tmp_path, data=None):
    """A model goes through a file unchanged, and so does the loaded one."""
    file, second = tmp_path / "m.safetensors", tmp_path / "n.safetensors"
    gp.metadata = {"unit": "mm"}
    gp.save(file, data=data)
    again = rfgp.load(file)
    assert type(again) is rfgp.GP
    assert repr(again) == repr(gp)
    assert repr(again.kernel) == repr(gp.kernel)
    for attribute in ("fit_report", "metadata", "num_observations", "seed"):
        assert getattr(again, attribute) == getattr(gp, attribute)
    for name, quantity in gp.hyperparameters.quantities.items():
        found = again.hyperparameters.quantities[name]
        for flag in ("saturates", "is_variance", "is_fixed", "is_positive"):
            assert getattr(found, flag) == getattr(quantity, flag), (name, flag)
    for name, report in gp.terms.items():
        assert repr(again.terms[name].approximation) == repr(report.approximation)
    assert_same(again.predict(new), gp.predict(new))
    again.save(second, data=data)
    assert second.read_bytes() == file.read_bytes()
    return again


# --- what goes through a file ------------------------------------------------------------------------


@pytest.mark.parametrize("case", KERNELS)
def test_sums_and_products_predict_bit_for_bit(case, tmp_path):
    models = [
        model(case, one.spec.options.approximations).condition(ROWS, Y)
        for one in served(KERNELS[case], ROWS, Y, APPROXIMATIONS)
    ]
    assert len(models) > 1
    for gp in models:
        assert_saved(gp, NEW, tmp_path)


@pytest.mark.parametrize("case", field_cases.CASES)
def test_fields_predict_bit_for_bit(case, tmp_path):
    kernel, rows = field_cases.kernels()[case], field_cases.ROWS
    for gp in served(kernel, rows, field_cases.Y, ["auto", rfgp.Exact(), rfgp.InducingPoints(7)]):
        assert_saved(gp, field_cases.NEW, tmp_path)


@pytest.mark.parametrize("approximation", OF_NODES, ids=repr)
def test_nodes_predict_bit_for_bit(approximation, tmp_path):
    is_rational = isinstance(approximation, rfgp.RationalPrecision)
    kernel = graphs.kernels.Matern(1.5, 1.5) if is_rational else graphs.kernels.RegularizedLaplacian(2, 2.0)
    gp = rfgp.GP(k.Nodes(GRID, kernel), approximation=approximation, seed=0).condition(LABELS[:20], VALUES[:20])
    again = assert_saved(gp, LABELS[20:], tmp_path)
    assert again.spec.schema.columns[0].nodes.labels == GRID.labels


FEW = rfgp.RandomFeatures(4, seed=2)
OF_NODE_PRODUCTS = [
    rfgp.RandomWalks(8, lengths="sigma", columns=FEW),
    rfgp.RandomWalks(8, exact_hops=graphs.HopRule([1, 3, 5])),
    rfgp.Chebyshev(3),
    rfgp.Taylor(3, columns=FEW),
    rfgp.TruncatedSpectrum(5, columns=FEW),
]


@pytest.mark.parametrize("other", ["rbf", "periodic", "groups"])
@pytest.mark.parametrize("approximation", OF_NODE_PRODUCTS, ids=repr)
def test_products_with_nodes_predict_bit_for_bit(approximation, other, tmp_path):
    columns = {
        "rbf": k.RBF("hour"),
        "periodic": k.Periodic("hour", 24.0) * k.Linear("pressure"),
        "groups": k.Matern("hour") * k.Group("sensor"),
    }
    kernel = k.Nodes(field_cases.ring(), "diffusion") * columns[other] + k.Linear("pressure")
    gp = rfgp.GP(kernel, seed=0).condition(field_cases.ROWS, field_cases.Y)
    name = next(iter(gp.terms))
    gp = gp.with_approximation({name: approximation})
    again = assert_saved(gp, field_cases.NEW, tmp_path)
    assert repr(again.terms[name].approximation) == repr(approximation)


LEAVES = {
    "RBF": lambda: k.RBF(("t", "p"), ard=False),
    "Matern": lambda: k.Matern("t", nu=2.2, lengthscale=np.float64(2.0)),
    "RationalQuadratic": lambda: k.RationalQuadratic("t", alpha=3),
    "Stationary": lambda: k.Stationary(("t", "p"), spectrum=rfgp.spectra.ProductCauchy(), lengthscale=[1.0, 3.0]),
    "Periodic": lambda: k.Periodic("t", 2.0, learn_period=True),
    "Harmonics": lambda: k.Harmonics("t", 2.0, num_harmonics=3),
    "Linear": lambda: k.Linear(("p", "q"), origin=np.array([1.0, 0.5])),
    "Polynomial": lambda: k.Polynomial(("p", "q"), degree=2),
    "Constant": lambda: k.Constant() + k.RBF("t"),
    "Group": lambda: k.Group(("store", "year")),
    "Categorical": lambda: k.Categorical("store"),
    "Coregionalization": lambda: k.Coregionalization("store", rank=2),
    "Additive": lambda: k.Additive(k.Matern, columns=("t", "p"), order=2, name="sum"),
    "Centered": lambda: k.Centered("t", k.RBF("t", lengthscale=1.0)) + k.Group("store"),
    "Nodes": lambda: k.Nodes(field_cases.ring(), graphs.kernels.FreeModulation(factors=(0.8, 1.2))),
    "Roads": lambda: k.Roads(field_cases.network(), 2, boundary="stationary", lengthscale=300.0),
    "Mesh": lambda: k.Mesh(trimesh.creation.icosphere(1), within=np.inf),
}


def test_registries_hold_all_kernels_and_approximations():
    own = {name for name, kind in vars(k).items() if isinstance(kind, type) and issubclass(kind, k.Kernel)}
    assert own - {"Kernel", "Sum"} == set(values.KERNELS.names) == set(LEAVES)
    names = vars(rfgp.approximations).items()
    found = {n for n, kind in names if isinstance(kind, type) and issubclass(kind, rfgp.approximations.Approximation)}
    assert found - {"Approximation"} == set(values.APPROXIMATIONS.names)


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_predict_bit_for_bit(name, tmp_path):
    kernel = LEAVES[name]()
    is_field = name in ("Nodes", "Roads", "Mesh")
    rows, y, new = (field_cases.ROWS, field_cases.Y, field_cases.NEW) if is_field else (ROWS, Y, NEW)
    models = served(kernel, rows, y, APPROXIMATIONS)
    assert len(models) > 2
    for gp in models:
        again = assert_saved(gp, new, tmp_path)
        assert repr(again.spec.options.kernel) == repr(kernel)


def test_kernels_without_columns_and_unnamed_arrays(tmp_path):
    rows, new = (np.column_stack([table["t"], table["p"]]) for table in (ROWS, NEW))
    for kernel in (
        k.RBF(),
        k.Constant(),
        k.Additive(name="a") + k.Linear(1),
        k.Additive(partial(k.Matern, nu=2.5, lengthscale=2)) + k.Linear(1),
        k.Additive(partial(k.Polynomial, degree=3), (0, 1), order=2),
        2.0 * (k.RBF() + k.Constant()).named("all"),
    ):
        assert_saved(rfgp.GP(kernel, seed=0).condition(rows, Y), new, tmp_path)
    tensors = rfgp.GP(k.RBF(), seed=0).condition(torch.tensor(rows), torch.tensor(Y))
    assert_saved(tensors, torch.tensor(new), tmp_path)


@pytest.mark.parametrize(
    "features",
    [
        rfgp.RandomFeatures(6, coupling="structured"),
        rfgp.RandomFeatures(6, coupling=rfgp.couplings.FastSimplex(2), seed=3),
        rfgp.RandomFeatures(6, coupling=rfgp.couplings.Copula([[1, 0.3], [0.3, 1]])),
        rfgp.RandomFeatures(6, coupling=rfgp.couplings.Energy(weighted=True)),
        rfgp.RandomFeatures(6, kind="laplace", coupling="orthogonal-antithetic"),
        rfgp.InducingPoints(6, init="pivoted-cholesky", method="vfe"),
        rfgp.InducingPoints(6, method="sor", seed=4),
        NEAR,
        rfgp.InducingPoints(6, residual=rfgp.Vecchia(4, condition_on="latent"), seed=4),
        rfgp.Vecchia(4, condition_on="latent"),
    ],
    ids=repr,
)
def test_draws_are_kept(features, tmp_path):
    gp = rfgp.GP(k.RBF(("t", "p"), lengthscale=9.0), approximation=features, seed=0).condition(ROWS, Y)
    assert_saved(gp, NEW, tmp_path)


@pytest.mark.parametrize(
    "approximation",
    [
        rfgp.RandomFeatures(6, learn_frequencies=True, coupling="iid"),
        rfgp.InducingPoints(6, learn_locations=True),
        rfgp.InducingPoints(6, learn_locations=True, residual=rfgp.Vecchia(4)),
    ],
    ids=repr,
)
def test_learned_draws_are_kept(approximation, tmp_path):
    gp = rfgp.GP(k.RBF(("t", "p"), name="smooth"), approximation=approximation, seed=0)
    gp.fit(ROWS, Y, max_iterations=4)
    again = assert_saved(gp, NEW, tmp_path, data=True)
    (before,), (after,) = gp.spec.term_priors, again.spec.term_priors
    ((path, draw),) = before.learnable.items()
    np.testing.assert_array_equal(after.learnable[path], draw)
    assert_same(again.fit(ROWS, Y, max_iterations=4).predict(NEW), gp.fit(ROWS, Y, max_iterations=4).predict(NEW))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "approximation", [rfgp.RandomFeatures(6), rfgp.InducingPoints(7), NEAR, rfgp.Exact()], ids=repr
)
def test_types_of_numbers_are_kept(approximation, dtype, tmp_path):
    gp = rfgp.GP(k.RBF(("t", "p")), approximation=approximation, seed=0, dtype=dtype).condition(ROWS, Y)
    assert assert_saved(gp, NEW, tmp_path).hyperparameters.lengthscale.dtype == dtype


LIKELIHOODS = {
    "bernoulli": np.median(Y) < Y,
    "categorical": np.digitize(Y, [5.0, 6.5]),
    "poisson": np.round(Y),
    "student-t": Y,
    "gamma": Y,
    "heteroscedastic": Y,
}


@pytest.mark.parametrize("likelihood", [*LIKELIHOODS, rfgp.likelihoods.NegativeBinomial(dispersion=2.0)], ids=str)
def test_likelihoods_predict_bit_for_bit(likelihood, tmp_path):
    y = LIKELIHOODS.get(likelihood, np.round(Y)) if isinstance(likelihood, str) else np.round(Y)
    for gp in served(BASE, ROWS, np.asarray(y, dtype=float), [*APPROXIMATIONS[:4], NEAR], likelihood=likelihood):
        again = assert_saved(gp, NEW, tmp_path)
        a, b = (one.predict(NEW).observed() for one in (again, gp))
        if hasattr(a, "mean"):
            np.testing.assert_array_equal(a.mean, b.mean)


@pytest.mark.parametrize("approximation", APPROXIMATIONS, ids=repr)
def test_kernels_of_the_noise_predict_bit_for_bit(approximation, tmp_path):
    likelihood = rfgp.likelihoods.Heteroscedastic(kernel=0.5 * k.RBF("q", lengthscale=2.0) + k.Group("store"))
    gp = rfgp.GP(BASE, likelihood, approximation, seed=0).condition(ROWS, Y)
    again = assert_saved(gp, NEW, tmp_path)
    assert repr(again.spec.options.likelihood) == repr(likelihood)
    np.testing.assert_array_equal(again.predict(NEW).observed().variance, gp.predict(NEW).observed().variance)
    bound = gp.log_marginal_likelihood().item()
    assert again.condition(ROWS, Y).log_marginal_likelihood().item() == pytest.approx(bound, abs=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        lambda options, *_: options.pop("noise"),
        lambda options, *_: options["likelihood"].pop("kernel"),
        lambda options, *_: options["likelihood"].update(kernel=1.0),
        lambda options, *_: options["noise"].update(draws=[]),
        lambda options, *_: options["noise"].update(resolved=options["resolved"]),
        lambda options, *_: options["noise"]["resolved"]["terms"][0].update(name="other"),
        lambda options, tensors, _: tensors.pop("noise.draw.0.frequencies"),
    ],
)
def test_forged_kernels_of_the_noise_are_refused(change, tmp_path):
    likelihood = rfgp.likelihoods.Heteroscedastic(kernel=k.RBF("q"))
    rfgp.GP(BASE, likelihood, rfgp.RandomFeatures(4), seed=0).condition(ROWS, Y).save(tmp_path / "m")
    assert_refused(tmp_path / "m", change)


def test_classes_by_laplace_predict_bit_for_bit(tmp_path):
    y = LIKELIHOODS["categorical"].astype(float)
    gp = rfgp.GP(BASE, "categorical", rfgp.RandomFeatures(4), inference="laplace", seed=0).condition(ROWS, y)
    gp.save(tmp_path / "m")
    again = rfgp.load(tmp_path / "m")
    found, expected = (one.predict(NEW).observed().probabilities for one in (again, gp))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("approximation", APPROXIMATIONS[:4], ids=repr)
def test_several_outputs_predict_bit_for_bit(approximation, tmp_path):
    gp = rfgp.GP(TREND + SEASON + STORE, approximation=approximation, seed=0).condition(ROWS, TWO_OUTPUTS)
    assert_saved(gp, NEW, tmp_path)


def test_options_are_kept(tmp_path):
    tight = torch.distributions.LogNormal(torch.tensor(0.0), torch.tensor(0.1))
    options = {
        "priors": {"trend.lengthscale": tight, "noise": None},
        "start": {"trend.outputscale": np.float64(2.0), "linear(p).variance": np.array([0.5])},
        "mean": "zero",
        "standardize": False,
        "approximation": {"trend": rfgp.RandomFeatures(6, learn_frequencies=False, seed=2)},
    }
    gp = rfgp.GP(TREND + k.Linear("p"), seed=7, **options).fit(ROWS, Y, max_iterations=5)
    again = assert_saved(gp, NEW, tmp_path)
    found = again.spec.options
    assert (found.mean, found.standardize, found.seed) == ("zero", False, 7)
    assert found.approximations == options["approximation"]
    assert found.start["linear(p).variance"].tolist() == [0.5]
    assert found.starts == gp.spec.options.starts
    assert found.hyperpriors["trend.lengthscale"].loc == tight.loc
    assert again.hyperparameters.log_prior() == gp.hyperparameters.log_prior()


def test_a_budget_of_features_is_kept(tmp_path):
    gp = rfgp.GP(TREND + SPACE, approximation=rfgp.RandomFeatures(), budget=40, seed=0).fit(ROWS, Y, max_iterations=3)
    again = assert_saved(gp, NEW, tmp_path, data=True)
    assert again.spec.options.budget == 40
    assert_same(again.fit(ROWS, Y, max_iterations=3).predict(NEW), gp.fit(ROWS, Y, max_iterations=3).predict(NEW))


def test_models_with_noise_and_weights_keep_their_rows(tmp_path):
    noise, weight = np.full(60, 0.1), np.full(60, 2.0)
    gp = rfgp.GP(BASE, seed=0).condition(ROWS, Y, noise=noise, sample_weight=weight)
    again = assert_saved(gp, NEW, tmp_path, data=True)
    assert again.log_marginal_likelihood().item() == gp.log_marginal_likelihood().item()


# --- shared parts ------------------------------------------------------------------------------------


def test_shared_leaves_and_graphs_stay_shared(tmp_path):
    graph, network = field_cases.ring(), field_cases.network()
    nodes = k.Nodes(graph, "diffusion", name="nodes")
    kernel = nodes + (nodes * k.Group("sensor")).named("own") + k.Roads(network) + k.Roads(network, 2).named("smooth")
    gp = rfgp.GP(kernel, approximation=rfgp.InducingPoints(9), seed=0).condition(field_cases.ROWS, field_cases.Y)
    again = assert_saved(gp, field_cases.NEW, tmp_path)
    for found in (again.spec.kernel, again.spec.options.kernel):
        first, second, rough, smooth = found.terms()
        assert first.factors[0] is second.factors[0]
        assert rough.factors[0].network is smooth.factors[0].network
        assert first.factors[0].graph is again.spec.schema.columns[0].nodes
    tensors = load_file(tmp_path / "m.safetensors")
    assert sum(name.endswith(".indptr") for name in tensors) == 1
    assert sum(name.endswith(".first") for name in tensors) == 1


def test_products_of_shared_leaves_share_hyperparameters(tmp_path):
    gp = model("shared lengthscale", rfgp.RandomFeatures(6)).fit(ROWS, Y, max_iterations=3)
    again = assert_saved(gp, NEW, tmp_path)
    assert [name for name in again.hyperparameters.names if name.endswith("lengthscale")] == ["trend.lengthscale"]


# --- after loading -----------------------------------------------------------------------------------

STEPS = {
    "update": lambda gp: gp.update(OTHER_LEVELS, np.arange(9.0)),
    "condition": lambda gp: gp.condition(ROWS, Y[::-1].copy()),
    "exact": lambda gp: gp.exact(),
    "points": lambda gp: gp.with_approximation(rfgp.InducingPoints(6)),
    "features": lambda gp: gp.with_approximation({"trend": rfgp.RandomFeatures(3)}),
    "fit": lambda gp: gp.fit(ROWS, Y, max_iterations=3),
    "copy of more levels": lambda gp: gp.update(OTHER_LEVELS, np.arange(9.0)).exact(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("case", ["season and groups", "every kind"])
def test_with_rows_everything_works_on(case, step, tmp_path):
    """Each pair of a case, a step and an approximation occurs."""
    place = list(STEPS).index(step) + (case == "every kind")
    for approximation in (rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(7))[place % 2 :: 2]:
        gp = model(case, approximation).condition(ROWS, Y)
        gp.save(tmp_path / "m", data=True)
        again = rfgp.load(tmp_path / "m")
        assert again.log_marginal_likelihood().item() == gp.log_marginal_likelihood().item()
        assert {name: term.share for name, term in again.terms.items()} == {n: t.share for n, t in gp.terms.items()}
        assert_same(STEPS[step](again).predict(NEW), STEPS[step](gp).predict(NEW))


def test_levels_that_came_later_are_kept(tmp_path):
    gp = model("season and groups", rfgp.RandomFeatures(6)).condition(ROWS, Y)
    gp.update(OTHER_LEVELS, np.arange(9.0))
    again = assert_saved(gp, OTHER_LEVELS, tmp_path)
    assert again.spec.columns.num_levels == gp.spec.columns.num_levels
    new = {**NEW, "store": np.array(["w"] * 9)}
    assert_same(again.predict(new), gp.predict(new))


def test_levels_of_later_predictions_have_their_prior(tmp_path):
    gp = model("every kind", rfgp.RandomFeatures(6)).condition(ROWS, Y)
    assert_same(assert_saved(gp, NEW, tmp_path).predict(OTHER_LEVELS), gp.predict(OTHER_LEVELS))


def test_error_without_rows_names_a_remedy(tmp_path):
    gp = model("every kind", rfgp.RandomFeatures(6)).condition(ROWS, Y)
    gp.save(tmp_path / "m")
    assert not any(name.startswith("data.") for name in load_file(tmp_path / "m"))
    again = rfgp.load(tmp_path / "m")
    calls = [again.exact, again.log_marginal_likelihood, again.leave_one_out]
    calls += [lambda: again.with_approximation(rfgp.InducingPoints(5))]
    calls += [lambda: again.update(OTHER_LEVELS, np.arange(9.0)), lambda: again.save(tmp_path / "n", data=True)]
    for call in calls:
        with pytest.raises(rfgp.NotFittedError, match="saved without data"):
            call()
    assert {term.share for term in again.terms.values()} == {None}
    functions = [one.sample_functions(3, seed=0)(NEW) for one in (again, gp)]
    np.testing.assert_array_equal(*functions)
    y = np.arange(9.0)
    assert_same(rfgp.load(tmp_path / "m").update(NEW, y).predict(NEW), gp.update(NEW, y).predict(NEW))
    gp.condition(ROWS, Y)
    assert_same(again.condition(ROWS, Y).predict(NEW), gp.predict(NEW))
    assert_same(again.exact().predict(NEW), gp.exact().predict(NEW))
    assert sum(term.share for term in again.terms.values()) == pytest.approx(1)


def test_hyperparameters_that_were_set_are_kept(tmp_path):
    gp = model("two smooth", rfgp.RandomFeatures(6)).condition(ROWS, Y)
    gp.hyperparameters["trend.lengthscale"] = 0.5
    assert_saved(gp, NEW, tmp_path)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda gp: pickle.loads(pickle.dumps(gp))], ids=["copied", "pickled"])
def test_copies_of_loaded_models_predict_the_same(way, tmp_path):
    for case in ("every kind", "shared lengthscale"):
        gp = model(case, rfgp.RandomFeatures(6)).condition(ROWS, Y)
        gp.save(tmp_path / "m")
        assert_same(way(rfgp.load(tmp_path / "m")).predict(NEW), gp.predict(NEW))


# --- rows in files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approximation", "is_needed"),
    [
        (rfgp.Exact(), True),
        ({"space": rfgp.Vecchia(4), "trend": rfgp.RandomFeatures(4)}, True),
        ({"space": NEAR, "trend": rfgp.RandomFeatures(4)}, True),
        (rfgp.RandomFeatures(4), False),
        (rfgp.InducingPoints(4), False),
    ],
    ids=repr,
)
def test_rows_go_along_if_predictions_need_them(approximation, is_needed, tmp_path):
    gp, file = model("two smooth", approximation).condition(ROWS, Y), tmp_path / "m.safetensors"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gp.save(file)
    found = [one for one in told if issubclass(one.category, rfgp.DataSavedWarning)]
    assert len(found) == is_needed
    assert any(name.startswith("data.") for name in load_file(file)) == is_needed
    if is_needed:
        assert "'space'" in str(found[0].message)
        assert found[0].filename == __file__
        before = file.read_bytes()
        with pytest.raises(rfgp.InvalidArgumentError, match="data=True"):
            gp.save(file, data=False)
        assert file.read_bytes() == before
    with warnings.catch_warnings():
        warnings.simplefilter("error", rfgp.DataSavedWarning)
        gp.save(file, data=True)
    assert any(name.startswith("data.") for name in load_file(file))


# --- what cannot be saved ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Own(k.RBF):
    """A kernel of a user."""


class OwnApproximation(rfgp.Exact):
    """An approximation of a user."""


class OwnCoupling(rfgp.couplings.IID):
    """A coupling of a user."""


class OwnSpectrum(rfgp.spectra.Gaussian):
    """A spectrum of a user."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rfgp.GP(Own("t", name="mine") + STORE), r"term 'mine'.*kernel must be one of"),
        (lambda: rfgp.GP(Own("t")), r"term 'own\(t\)'.*kernel must be one of"),
        (lambda: rfgp.GP((STORE * Own("t")).named("mine")), r"term 'mine'.*kernel must be one of"),
        (lambda: rfgp.GP(k.Additive(lambda key: k.RBF(key), columns=("t", "p"))), r"term 'additive\(t, p\)'.*class"),
        (lambda: rfgp.GP(k.Additive(Own, columns=("t", "p"))), r"term 'additive\(t\)'.*kernel must be one of"),
        (lambda: rfgp.GP(k.Additive(partial(k.RBF, ard=len), columns=("t", "p"))), r"'additive\(t\)'.*class"),
        (
            lambda: rfgp.GP(BASE, rfgp.likelihoods.Heteroscedastic(kernel=Own("t"))),
            r"'noise.own\(t\)'.*kernel must be one of",
        ),
        (
            lambda: rfgp.GP(k.Stationary("t", spectrum=OwnSpectrum(), name="mine")),
            r"term 'mine'.*spectrum must be one of",
        ),
        (
            lambda: rfgp.GP(BASE, approximation={"trend": OwnApproximation()}),
            r"term 'trend'.*approximation must be one of",
        ),
        (lambda: rfgp.GP(BASE, approximation=OwnApproximation()), r"term 'trend'.*approximation must be one of"),
        (
            lambda: rfgp.GP(BASE, approximation={"trend": rfgp.RandomFeatures(4, coupling=OwnCoupling())}),
            r"term 'trend'.*coupling must be one of",
        ),
        (
            lambda: rfgp.GP(BASE, priors={"noise": torch.distributions.Chi2(torch.tensor(2.0))}),
            "prior of noise is a Chi2",
        ),
    ],
)
def test_classes_of_users_are_refused_by_name(make, message, tmp_path):
    gp = make().condition(ROWS, Y)
    expected = gp.predict(NEW).mean
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        gp.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(gp.predict(NEW).mean, expected)


def test_labels_that_json_has_not_are_refused(tmp_path):
    graph = graphs.Graph.from_edges([(frozenset("a"), 1), (1, 2)])
    gp = rfgp.GP(k.Nodes(graph), seed=0).condition([1, 2], [0.0, 1.0])
    with pytest.raises(rfgp.InvalidArgumentError, match="node label frozenset"):
        gp.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_infinite_parameters_of_priors_are_refused(tmp_path):
    prior = torch.distributions.Uniform(0.0, np.inf, validate_args=False)
    gp = rfgp.GP(TREND, priors={"noise": prior}, seed=0).condition(ROWS, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match="must be finite"):
        gp.save(tmp_path / "m", data=True)
    assert not (tmp_path / "m").exists()


def test_models_without_rows_cannot_be_saved(tmp_path):
    with pytest.raises(rfgp.NotFittedError):
        rfgp.GP(TREND).save(tmp_path / "m")


# --- files that are not right ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file with a level, a series, frequencies, points and rows."""
    path = tmp_path_factory.mktemp("saved") / "m.safetensors"
    kernel = TREND + SPACE + SEASON + k.Coregionalization("store", rank=2, name="store")
    approximation = {"trend": rfgp.RandomFeatures(4), "space": rfgp.InducingPoints(5), "season": rfgp.RandomFeatures(4)}
    rfgp.GP(kernel, approximation=approximation, seed=0).condition(ROWS, Y).save(path, data=True)
    return path


@pytest.fixture(scope="module")
def saved_fields(tmp_path_factory):
    """A file with a graph, roads and a mesh."""
    path = tmp_path_factory.mktemp("fields") / "m.safetensors"
    gp = rfgp.GP(field_cases.kernels()["all domains"], seed=0).condition(field_cases.ROWS, field_cases.Y)
    gp.save(path, data=True)
    return path


@pytest.fixture(scope="module")
def saved_walks(tmp_path_factory):
    """A file with walks."""
    path = tmp_path_factory.mktemp("walks") / "m.safetensors"
    gp = rfgp.GP(k.Nodes(GRID), approximation=rfgp.RandomWalks(4, lengths="sigma"), seed=0)
    gp.condition(LABELS[:20], VALUES[:20]).save(path)
    return path


EXACT = {"role": "approximation", "name": "Exact", "arguments": {}}


@pytest.mark.parametrize(
    "change",
    [
        leaf(0, name="os.system"),
        leaf(0, name="Kernel"),
        leaf(0, role="__builtins__"),
        leaf(0, role="approximation", name="Exact", arguments={}),
        leaf(0, arguments={"columns": ["t"], "covariance": 1}),
        leaf(0, arguments={}),
        leaf(0, arguments=None),
        argument(0, "columns", ["nothing"]),
        argument(0, "columns", ["t", "p"]),
        argument(0, "lengthscale", "long"),
        argument(0, "lengthscale", {"number": "nan"}),
        argument(0, "lengthscale", {"number": "1e5"}),
        argument(0, "lengthscale", {"object": 0}),
        argument(0, "lengthscale", {"class": "RBF"}),
        argument(0, "spectrum", {"role": "spectrum", "name": "gaussian", "arguments": {}}),
        argument(3, "rank", 10**15),
        argument(3, "rank", 1),
        term(0, factors=[7]),
        term(0, factors=[-1]),
        term(0, factors=[]),
        term(0, factors=[True]),
        term(0, name="space"),
        term(0, name=""),
        term(0, variance=-1.0),
        term(0, variance="1"),
        term(0, given=["a", "b"]),
        lambda options, *_: options["resolved"].update(terms=[]),
        lambda options, *_: options["resolved"].update(leaves=[]),
        lambda options, *_: options["resolved"].update(terms=None),
        lambda options, *_: options["resolved"]["terms"].pop(),
        option("kernel", None),
        option("kernel", {"leaves": [], "terms": None}),
        option("likelihood", {"name": "os.system"}),
        option("likelihood", {"name": "poisson"}),
        option("inference", "laplace"),
        option("mean", "linear"),
        option("standardize", 1),
        option("seed", "0"),
        option("dtype", "object"),
        option("start", {"nothing": 1.0}),
        option("priors", {"noise": {"distribution": "__import__", "arguments": {}}}),
        option("approximation", {"role": "approximation", "name": "eval", "arguments": {}}),
        option("approximation", {"terms": {"trend": {"role": "kernel", "name": "Constant", "arguments": {}}}}),
        option("approximations", []),
        option("approximations", [EXACT] * 4),
        option("draws", []),
        option("nodes", [0]),
        option("objects", [{"kind": "os"}]),
        option("objects", [{"kind": "graph"}]),
        option("schema", {"version": 1, "columns": []}),
        lambda options, *_: options["schema"]["columns"][3].update(levels=["a"]),
        lambda options, *_: options["schema"]["columns"].pop(),
        draw(0, form="os"),
        draw(0, form="kernel"),
        draw(0, form="neighbors"),
        draw(0, has_frequencies=False),
        draw(2, series=[]),
        draw(2, series=[None]),
        draw(2, series=[{"role": "kernel", "name": "Linear", "arguments": {"columns": ["t"]}}]),
        draw(2, series=[{"role": "kernel", "name": "Harmonics", "arguments": {"columns": ["p"], "period": 2.5}}]),
        draw(2, series=[{"role": "kernel", "name": "Harmonics", "arguments": {"columns": ["t"], "period": 2.5}}]),
        changed("draw.0.frequencies", lambda t: torch.cat([t, t], 1)),
        changed("draw.0.frequencies", lambda t: t[:3]),
        changed("draw.0.weights", lambda t: -t),
        changed("draw.1.points", lambda t: t + 1e200),
        changed("draw.1.points", lambda t: t.float()),
        changed("draw.1.points", lambda t: torch.cat([t, t])),
        changed("columns.spread", lambda t: -t),
        changed("columns.spread", lambda t: t.float()),
        changed("scaling.inputs.scale", lambda t: 2 * t),
        changed("scaling.inputs.location", lambda t: t + 1),
        changed("data.inputs", lambda t: t.index_fill(1, torch.tensor([3]), 3.0)),
        changed("data.inputs", lambda t: t.index_fill(1, torch.tensor([3]), -1.0)),
        changed("data.inputs", lambda t: t.index_fill(1, torch.tensor([3]), 0.5)),
        changed("data.inputs", lambda t: t[:, :3]),
        changed("hyperparameters.store.loadings.raw", lambda t: t[:, :1]),
        changed("hyperparameters.store.loadings.raw", lambda t: t + 1e200),
        changed("hyperparameters.store.diagonal.low", lambda t: -t),
        changed("hyperparameters.trend.lengthscale.start", lambda t: -t),
        lambda options, tensors, header: header["hyperparameters"].pop(),
        lambda options, tensors, header: header["hyperparameters"].reverse(),
        lambda options, tensors, header: header.update({"class": "GraphGP"}),
        lambda options, tensors, header: options.pop("objects"),
        lambda options, tensors, header: options.clear(),
        lambda options, tensors, header: tensors.pop("draw.0.frequencies"),
        lambda options, tensors, header: tensors.pop("draw.1.points"),
        lambda options, tensors, header: tensors.pop("columns.spread"),
    ],
)
def test_forged_contents_are_refused(saved, change):
    assert_refused(saved, change)


@pytest.mark.parametrize(
    "change",
    [
        option("nodes", [1]),
        option("nodes", [9]),
        option("nodes", [True]),
        argument(0, "network", "roads.geojson"),
        argument(0, "network", {"object": 9}),
        argument(1, "mesh", "ball.ply"),
        argument(1, "mesh", {"object": 0}),
        argument(2, "graph", None),
        argument(2, "kernel", {"role": "graph kernel", "name": "os.system", "arguments": {}}),
        changed("object.0.first", lambda t: t.flip(0)),
        changed("object.1.faces", lambda t: t + 10**6),
        changed("object.2.indices", lambda t: t + 10**6),
        changed("object.2.indptr", lambda t: t.flip(0)),
        changed("data.inputs", lambda t: t + 1e6),
        changed("predictor.inputs", lambda t: t + 1e6),
        changed("predictor.inputs", lambda t: -t),
    ],
)
def test_forged_graphs_roads_and_meshes_are_refused(saved_fields, change):
    assert_refused(saved_fields, change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (draw(0, generator=3), "generator .*got 3"),
        (draw(0, permutation=None), "sigma walks"),
        (draw(0, permutation=list(range(20_000))), "sigma walks"),
        (draw(0, tuples=[[0, 1], [1, 0]]), "learned walks"),
        (draw(0, hop_limits=[]), "integer limits"),
        (draw(0, halt=2.0), "halt must"),
        (draw(0, size={"seed": 1}), "valid size"),
    ],
)
def test_forged_walks_are_refused(saved_walks, change, message):
    assert_refused(saved_walks, change, message)


@pytest.mark.parametrize(
    "inner",
    [
        [{"class": "RBF"}],
        [{"class": "os.system"}, {"mapping": []}],
        ["RBF", {"mapping": []}],
        [{"class": "RBF"}, {"mapping": [["nothing", 1]]}],
        [{"class": "RBF"}, {"mapping": [[1, 1]]}],
        [{"class": "Polynomial"}, {"mapping": [["degree", 10**9]]}],
        [{"class": "RBF"}, 1],
    ],
    ids=repr,
)
def test_forged_partials_are_refused(inner, tmp_path):
    kernel = k.Additive(partial(k.RBF, lengthscale=1.0), columns=("t", "p"))
    rfgp.GP(kernel, seed=0).condition(ROWS, Y).save(tmp_path / "m", data=True)

    def change(options, *_):
        options["kernel"]["leaves"][0]["arguments"]["base"]["partial"] = inner

    assert_refused(tmp_path / "m", change)


@pytest.mark.parametrize("base", [{"class": "Mesh"}, {"partial": [{"class": "Mesh"}, {"mapping": []}]}], ids=repr)
def test_forged_bases_open_no_file(base, tmp_path, monkeypatch):
    """The kernel of a mesh takes the path of a file, and a base is called with the key of a column."""
    mesh = str(tmp_path / "x.ply")
    trimesh.creation.icosphere(1).export(mesh)
    rfgp.GP(k.Additive(k.RBF, columns=("t", "p")), seed=0).condition(ROWS, Y).save(tmp_path / "m", data=True)

    def change(options, *_):
        options["kernel"]["leaves"][0]["arguments"] |= {"base": base, "columns": [mesh, "p"]}

    rewrite(tmp_path / "m", tmp_path / "forged", change)
    read = []
    monkeypatch.setattr(graphs.precisions.mesh, "read_mesh", read.append)
    with pytest.raises(rfgp.ModelFileError):
        rfgp.load(tmp_path / "forged")
    assert read == []


def test_a_correlation_above_one_is_refused(tmp_path):
    gp = rfgp.GP(k.Categorical("store") + TREND, approximation=rfgp.RandomFeatures(4), seed=0).condition(ROWS, Y)
    gp.save(tmp_path / "m")
    assert_refused(
        tmp_path / "m",
        changed("hyperparameters.categorical(store).correlation.raw", abs),
        "positive definite covariance",
    )


@pytest.mark.parametrize("name", ["saved", "saved_fields", "saved_walks"])
def test_an_honest_rewrite_is_accepted(name, request, tmp_path):
    """Without this, the tests above would pass on a `rewrite` that breaks every file."""
    path = request.getfixturevalue(name)
    rewrite(path, tmp_path / "same", lambda *_: None)
    new = {"saved": NEW, "saved_fields": field_cases.NEW, "saved_walks": LABELS}[name]
    assert_same(rfgp.load(tmp_path / "same").predict(new), rfgp.load(path).predict(new))


def odd(value):
    """Yield tensors that none of a model's can be in the place of: other shapes, other kinds."""
    yield value[None]
    yield value.to(torch.complex64)
    for axis in range(value.ndim):
        yield value.narrow(axis, 0, 0)
        yield torch.cat([value, value.narrow(axis, 0, 1)], axis)
    if value.dtype.is_floating_point:
        yield torch.full_like(value, torch.nan)


HARMLESS = ("object.1.faces", "object.1.vertices", "object.0.coordinates")
"""Faces that are listed twice and vertices on no face are left out; coordinates may have three dimensions."""


ROWS_OF_NUMBERS = np.column_stack([ROWS["t"], ROWS["p"]])
OTHERS = {
    "two outputs": lambda: rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid").condition(
        ROWS_OF_NUMBERS, TWO_OUTPUTS
    ),
    "more features than rows": lambda: rfgp.SparseSpectrumGP(num_frequencies=32, coupling="iid", ard=False).condition(
        ROWS_OF_NUMBERS, Y
    ),
    "exact": lambda: rfgp.ExactGP().condition(ROWS_OF_NUMBERS, Y),
    "chebyshev": lambda: rfgp.GraphGP(GRID, features="chebyshev", degree=2).condition(LABELS[::2], VALUES[::2]),
    "spectrum": lambda: rfgp.GraphGP(GRID, features="spectrum", rank=5).condition(LABELS[::2], VALUES[::2]),
}


@pytest.mark.parametrize("name", ["saved", "saved_fields", "saved_walks", *OTHERS])
def test_tensors_of_other_shapes_and_kinds_are_refused(name, request, tmp_path):
    """Each in turn, in a file whose checksum is right: refused when it is loaded, not in a prediction."""
    path = tmp_path / "m"
    if name in OTHERS:
        OTHERS[name]().save(path, data=True)
    else:
        path = request.getfixturevalue(name)
    for key, value in ((key, value) for key, value in load_file(path).items() if key not in HARMLESS):
        for other in odd(value):
            assert_refused(path, tensor(key, other), "consistent model")
