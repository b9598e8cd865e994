"""Sums, products, names, variances and shared objects."""

import numpy as np
import pytest
from kernel_formulas import LEAVES, TABLE

import rfgp
from rfgp import kernels as k

A, B = k.RBF("t", lengthscale=1.3), k.Matern("p", lengthscale=0.7, nu=0.5)
C = k.Group("store")
KA, KB, KC = (kernel.matrix(TABLE).numpy() for kernel in (A, B, C))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (A + B, KA + KB),
        (A * B, KA * KB),
        ((A + B) * C, KA * KC + KB * KC),
        (C * (A + B), KA * KC + KB * KC),
        ((A + B) * (A + C), KA * KA + KA * KC + KB * KA + KB * KC),
        (A * B * C, KA * KB * KC),
        (sum([A, B, C]), KA + KB + KC),
        ((A + B).named("x") * C.named("y") + C, KA * KC + KB * KC + KC),
    ],
)
def test_matrices_of_sums_and_products(kernel, expected):
    np.testing.assert_allclose(kernel.matrix(TABLE), expected, rtol=1e-13)


@pytest.mark.parametrize("first", LEAVES)
@pytest.mark.parametrize("second", LEAVES)
def test_every_pair_of_leaves_multiplies_and_adds(first, second):
    (one, values, left), (two, others, right) = LEAVES[first], LEAVES[second]
    if first == second:
        (two, others, right) = (one.named("other"), {}, left)
    given = {f"one.{name}": value for name, value in values.items()}
    sums = one.named("one") + two.named("two")
    known = given | {f"{'one' if first == second else 'two'}.{name}": value for name, value in others.items()}
    np.testing.assert_allclose(sums.matrix(TABLE, values=known), left + right, rtol=1e-12, atol=1e-13)
    (product,) = (one.named("one") * two.named("two")).named("both").terms()
    paths = {f"both.{name}": value for name, value in known.items()}
    kernel = (one.named("one") * two.named("two")).named("both")
    np.testing.assert_allclose(kernel.matrix(TABLE, values=paths), left * right, rtol=1e-12, atol=1e-13)
    assert len(product.factors) == 2


def test_terms_have_default_names():
    names = [term.name for term in (k.RBF() + k.RBF(("lon", "lat")) + k.Group("sensor") * k.Matern("t")).terms()]
    assert names == ["rbf", "rbf(lon, lat)", "group(sensor):matern(t)"]
    assert [term.name for term in (A + A + k.RBF("t") + k.Constant()).terms()] == [
        "rbf(t)",
        "rbf(t)_2",
        "rbf(t)_3",
        "constant",
    ]
    assert [term.name for term in ((A + B) * C).named("x").terms()] == [
        "x.rbf(t):group(store)",
        "x.matern(p):group(store)",
    ]


def test_given_names_stay_and_clashes_are_errors():
    kernel = k.RBF("t", name="trend") + k.RBF("t").named("other") * C
    assert [term.name for term in kernel.terms()] == ["trend", "other:group(store)"]
    with pytest.raises(rfgp.InvalidArgumentError, match=r"unique names, got .trend."):
        (k.RBF("t", name="trend") + k.Matern("p", name="trend")).terms()
    with pytest.raises(rfgp.InvalidArgumentError, match="text that is not empty"):
        A.named("")


def test_one_object_used_twice_shares_its_hyperparameters():
    values = {"rbf(t).lengthscale": 2.0}
    shared, own = k.RBF("t"), k.RBF("t")
    found = (shared + shared * C).matrix(TABLE, values=values)
    longer = k.RBF("t", lengthscale=2.0).matrix(TABLE)
    np.testing.assert_allclose(found, longer * (1 + C.matrix(TABLE)))
    with pytest.raises(rfgp.InvalidArgumentError, match=r"values of rbf\(t\):group\(store\)\.rbf\.lengthscale"):
        (shared + own * C).matrix(TABLE, values=values)


def test_numbers_are_starting_variances():
    assert [term.variance for term in (2.0 * A + B * 3 + C).terms()] == [2.0, 3.0, None]
    assert [term.variance for term in (2.0 * (A + 4.0 * B) * (3.0 * C)).terms()] == [6.0, 24.0]
    np.testing.assert_allclose((2.0 * A).matrix(TABLE), KA)  # `matrix` is at output scales of 1
    np.testing.assert_allclose((2.0 * A).matrix(TABLE, values={"outputscale": 2.5}), 2.5 * KA)
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(rfgp.InvalidArgumentError, match="positive and finite"):
            wrong * A
    for wrong in (True, "2", None, np.ones(2)):
        with pytest.raises(TypeError):
            A * wrong
    with pytest.raises(TypeError):
        A + 1.0


def test_kernels_are_values():
    with pytest.raises(AttributeError):
        A.lengthscale = 2.0
    assert repr(A + 2.0 * B * C) == (
        "RBF('t', lengthscale=1.3) + 2 * Matern('p', lengthscale=0.7, nu=0.5) * Group('store')"
    )
    assert repr(k.RBF()) == "RBF()"


def test_additive_terms_have_zero_mean_over_the_rows():
    kernel = k.Additive(lambda key: k.RBF(key, lengthscale=1.0), order=2)
    rows = {name: TABLE[name] for name in ("t", "p")}
    gp = rfgp.GP(kernel, seed=0, standardize=False).condition(rows, np.arange(5.0))
    assert [term.name for term in gp.kernel.terms()] == ["additive(t)", "additive(p)", "additive(t, p)"]
    quantiles = {n: np.quantile(TABLE[n], (np.arange(64) + 0.5) / 64) for n in rows}
    for term in gp.kernel.terms()[:2]:
        grid = {"t": quantiles["t"], "p": quantiles["p"]}
        kernel = k.Sum((term,))
        assert kernel.matrix(grid).mean(0).abs().max() < 1e-12
        assert kernel.matrix(grid).diagonal().min() > 0.01
