"""Each kernel against its formula in numpy, and its features, gradients and refusals."""

import dataclasses

import numpy as np
import pytest
import torch
from kernel_formulas import LEAVES, TABLE

import rfgp
from rfgp import kernels as k
from rfgp.columns import Schema, Table
from rfgp.kernels import ColumnSummary
from rfgp.kernels.terms import bind, requests_of

CASES = pytest.mark.parametrize(("kernel", "values", "expected"), LEAVES.values(), ids=LEAVES)


@CASES
def test_matrices_are_those_of_the_formula(kernel, values, expected):
    found = kernel.matrix(TABLE, values=values)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    some = {name: column[:2] for name, column in TABLE.items()}
    np.testing.assert_allclose(kernel.matrix(TABLE, some, values=values), expected[:, :2], rtol=1e-12, atol=1e-13)


@CASES
def test_variances_are_the_diagonal(kernel, values, expected):
    term, a, own, _ = _bound(kernel, values)
    np.testing.assert_allclose(term.variances(a, own), np.diag(expected), rtol=1e-12, atol=1e-13)


@CASES
def test_features_of_finitely_many_functions_give_the_kernel(kernel, values, expected):
    term, a, own, summary = _bound(kernel, values)
    ((factor, places, prefix),) = term.parts()
    functions = factor.functions(summary)
    values = {path.removeprefix(prefix): value for path, value in own.items()}
    if functions is not None:
        phi = functions.features(a[:, places], values)
        assert phi.shape == (5, functions.size)
        np.testing.assert_allclose(phi @ phi.mT, expected, rtol=1e-12, atol=1e-13)
    assert (functions is None) == (factor.measure is not None or type(factor) in (k.Periodic, k.Centered))


@CASES
def test_gradients_are_those_of_differences(kernel, values, expected):
    term, a, own, _ = _bound(kernel, values)
    names = [name for name, value in own.items() if value.is_floating_point() and "num_levels" not in name]

    def matrix(*given):
        return term.covariance(a, a[:3], {**own, **dict(zip(names, given, strict=True))})

    given = [own[name].clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(matrix, given, atol=1e-6)


def _bound(kernel, values):
    """Return the one term of a kernel with the rows of the table, its values by path and the summary of the rows."""
    schema = Schema.fit(requests_of(kernel.terms()), Table.of(TABLE))
    (term,) = bind(kernel.terms(), schema.column_of)
    a = schema.read(Table.of(TABLE))
    summary = ColumnSummary.of(a, tuple(column.num_levels for column in schema.columns))
    ((factor, places, prefix),) = term.parts()
    own = {f"{prefix}{name}": one.start for name, one in factor.hyperparameters(summary.select(places)).items()}
    own |= {f"{prefix}{name}": value for name, value in factor.constants(summary.select(places)).items()}
    given = {**factor.starts, **values}
    for name, value in given.items():
        if value is not None:
            like = own[f"{prefix}{name}"]
            own[f"{prefix}{name}"] = torch.as_tensor(value, dtype=torch.float64).expand(like.shape)
    if term.outputscale is not None:
        own[term.outputscale] = torch.ones((), dtype=torch.float64)
    return term, a, own, summary.select(places)


@pytest.mark.parametrize("lengthscale", [0.05, 0.2, 1.0])
def test_the_series_of_a_periodic_kernel_misses_its_tail_only(lengthscale):
    kernel = k.Periodic("t", 1.3, lengthscale=lengthscale)
    series = kernel.series({"lengthscale": torch.tensor(lengthscale)})
    rows = {"t": np.linspace(-1, 2, 40)}
    assert (series.matrix(rows) - kernel.matrix(rows)).abs().max() < 1.01e-6
    fewer = dataclasses.replace(series, num_harmonics=series.num_harmonics - 1)
    assert (fewer.matrix(rows) - kernel.matrix(rows)).abs().max() > 1e-6


def test_matrices_are_differentiable_in_rows():
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    kernel = k.RBF(lengthscale=1.0) * k.Matern(lengthscale=2.0, nu=2.5)
    assert torch.autograd.gradcheck(kernel.matrix, x)
    assert torch.autograd.gradcheck(lambda x: kernel.matrix(x, x + 0.1), x)


def test_levels_that_no_row_has_are_independent_of_others():
    seen, new = {"store": ["a", "b"]}, {"store": ["b", "z", "z", "y"]}
    assert k.Group("store").matrix(seen, new).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]
    assert k.Categorical("store", correlation=0.5).matrix(seen, new)[1].tolist() == [1, 0.5, 0.5, 0.5]
    values = {"loadings": [[1.0], [1.0]], "diagonal": [1.0, 1.0]}
    assert k.Coregionalization("store").matrix(seen, new, values)[1].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: k.RBF(lengthscale=-1.0), "lengthscale must be positive"),
        (lambda: k.RBF(lengthscale=[[1.0]]), "lengthscale must be positive"),
        (lambda: k.RBF(lengthscale="long"), "lengthscale must be a number"),
        (lambda: k.RBF(()), "at least one and distinct"),
        (lambda: k.RBF(("a", "a")), "at least one and distinct"),
        (lambda: k.RBF(("a", 1.5)), "a name or a number, got 1.5"),
        (lambda: k.RBF(True), "must be a name or a number|must be a name"),
        (lambda: k.RBF(name=" "), "text that is not empty"),
        (lambda: k.Matern(nu=0.0), "nu"),
        (lambda: k.Stationary(spectrum="no such"), "no such"),
        (lambda: k.RationalQuadratic(alpha=-1.0), "alpha"),
        (lambda: k.Periodic("t", 0.0), "period must be a positive number"),
        (lambda: k.Periodic(("t", "p"), 1.0), "one column"),
        (lambda: k.Periodic("t", 1.0, lengthscale=-1), "lengthscale must be a positive number"),
        (lambda: k.Polynomial(degree=0), "degree"),
        (lambda: k.Categorical("store", correlation=1.0), "from 0 to below 1"),
        (lambda: k.Coregionalization(("a", "b")), "one column"),
        (lambda: k.Coregionalization("a", rank=0), "rank"),
        (lambda: k.Additive(order=3), "order must be 1 or 2"),
        (lambda: k.Additive(base=3), "base must map the key"),
        (lambda: k.Additive(base=lambda key: 3, columns=("a", "b")).terms(), "base must return a kernel"),
        (lambda: k.Centered("a", k.RBF("b")), "one column of its base kernel"),
        (lambda: k.Centered("a", k.RBF("a"), points=()), "points must have at least one value"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("kernel", "values", "error", "message"),
    [
        (k.RBF("t"), {}, rfgp.InvalidArgumentError, r"values of rbf\(t\).lengthscale"),
        (k.RBF("t", lengthscale=1.0), {"nu": 1.0}, rfgp.InvalidArgumentError, "nu"),
        (k.RBF("x", lengthscale=1.0), {}, rfgp.DataError, "no column 'x'"),
        (k.RBF("store", lengthscale=1.0), {}, rfgp.DataError, "store"),
        (k.RBF(("t", "p"), lengthscale=(1.0, 1.0, 1.0)), {}, rfgp.InvalidArgumentError, "lengthscale"),
        (k.Linear(("t", "p"), origin=(1.0, 2.0, 3.0)), {}, rfgp.InvalidArgumentError, "origin must be one number or 2"),
        (k.Centered("t", k.RBF("t", lengthscale=1.0)), {}, rfgp.InvalidArgumentError, "points for its integrals"),
    ],
)
def test_matrices_that_cannot_be_are_named(kernel, values, error, message):
    with pytest.raises(error, match=message):
        kernel.matrix(TABLE, values=values)
