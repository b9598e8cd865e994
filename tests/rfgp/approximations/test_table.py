"""Every kernel and every product of two with every approximation: dense algebra, or a refusal that says why."""

import numpy as np
import pytest
from field_cases import NEW, ROWS, Y
from term_table import APPROXIMATIONS, LEAVES, OF_PRODUCTS, PAGE, kernel_of, pairs, redrawn, refusal_of

import rfgp


def check(approximation, *names):
    """Compare a model with dense algebra of its prior covariance, or expect the refusal."""
    value, why = APPROXIMATIONS[approximation], refusal_of(approximation, *names)
    gp = rfgp.GP(kernel_of(*names), approximation=value, start={"noise": 0.2, "mean": 0.3}, seed=0)
    if why is not None:
        with pytest.raises(rfgp.InvalidArgumentError, match="cannot be used for the term 'term', because"):
            gp.condition(ROWS, Y)
        return
    gp.condition(ROWS, Y)
    n, both = len(Y), {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
    kernel = gp.prior_covariance(both).detach().numpy()
    total, residual = kernel[:n, :n] + 0.2 * np.eye(n), Y - 0.3
    sign, log_determinant = np.linalg.slogdet(2 * np.pi * total)
    assert sign == 1
    expected = -0.5 * (log_determinant + residual @ np.linalg.solve(total, residual))
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, abs=1e-4, rel=1e-6)
    mean = 0.3 + kernel[n:, :n] @ np.linalg.solve(total, residual)
    found = gp.predict(NEW)
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    left = np.diag(kernel)[n:] - np.einsum("ij,ji->i", kernel[n:, :n], np.linalg.solve(total, kernel[:n, n:]))
    np.testing.assert_allclose(found.variance, left, atol=1e-5)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_leaves(leaf, approximation):
    check(approximation, leaf)


@pytest.mark.slow
@pytest.mark.thinned(2000, slow=5)
@pytest.mark.parametrize("approximation", OF_PRODUCTS)
@pytest.mark.parametrize("pair", pairs(), ids=":".join)
def test_products(pair, approximation):
    check(approximation, *pair)


@pytest.mark.slow
def test_the_page_shows_the_table():
    text = PAGE.read_text(encoding="utf-8")
    assert redrawn(text) == text, "python tests/support/term_table.py draws it again"
