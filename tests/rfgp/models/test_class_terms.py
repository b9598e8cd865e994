"""Terms of several classes by Laplace's approximation, against dense matrices of all classes in numpy."""

from functools import cache

import numpy as np
import pytest
from scipy.special import softmax

import rfgp
from rfgp import kernels as k

N, CLASSES = 40, 3
MEAN = [0.3, -0.2, 0.1]
START = {
    "wave.outputscale": 0.8,
    "wave.lengthscale": 0.7,
    "slope.variance": 0.4,
    "bend.outputscale": 0.6,
    "bend.offset": 0.5,
    "site.outputscale": 0.9,
    "mean": MEAN,
}
FACTORS = {
    "wave": k.RBF("t", name="wave"),
    "slope": k.Linear("u", origin=0.5, name="slope"),
    "bend": k.Polynomial("t", degree=2, origin=1.0, scale=2.0, name="bend"),
    "site": k.Group("site", name="site"),
}
FORMULAS = {
    "wave": lambda a, b: 0.8 * np.exp(-0.5 * np.subtract.outer(a["t"], b["t"]) ** 2 / 0.7**2),
    "slope": lambda a, b: 0.4 * np.multiply.outer(a["u"] - 0.5, b["u"] - 0.5),
    "bend": lambda a, b: 0.6 * (0.5 + np.multiply.outer(a["t"] - 1, b["t"] - 1) / 4) ** 2,
    "site": lambda a, b: 0.9 * np.equal.outer(a["site"], b["site"]),
}
CASES = {
    "dense, two terms": ("wave", "site"),
    "dense, three terms": ("wave", "slope", "site"),
    "low-rank, two terms": ("slope", "site"),
    "low-rank, three terms": ("bend", "slope", "site"),
}


def rows(n, seed, sites):
    rng = np.random.default_rng(seed)
    return {"t": rng.uniform(0, 3, n), "u": rng.normal(size=n), "site": rng.choice(list(sites), n)}


ROWS, NEW = rows(N, 0, "abcd"), rows(7, 1, "abxy")
LABELS = np.random.default_rng(2).integers(0, CLASSES, N)


def model(case):
    names = CASES[case]
    kernel = sum((FACTORS[name] for name in names[1:]), start=FACTORS[names[0]])
    start = {path: value for path, value in START.items() if path.split(".")[0] in (*names, "mean")}
    return rfgp.GP(kernel, "categorical", rfgp.Exact(), inference="laplace", start=start, seed=0)


def covariance(names, a, b):
    return sum((FORMULAS[name](a, b) for name in names), start=np.zeros((len(a["t"]), len(b["t"]))))


@cache
def mode(case):
    """Return a (C, n) with f = m + K a at the mode, and T = (K + W^-1)^-1 there, (C, n, C, n)."""
    K = np.kron(np.eye(CLASSES), covariance(CASES[case], ROWS, ROWS))
    mean, f = np.repeat(MEAN, N), np.repeat(MEAN, N)
    hot = (np.arange(CLASSES)[:, None] == LABELS).reshape(-1)
    for _ in range(50):
        p = softmax(f.reshape(CLASSES, N), axis=0)
        blocks = np.einsum("ci,ce->cei", p, np.eye(CLASSES)) - np.einsum("ci,di->cdi", p, p)
        W = np.einsum("cdi,ij->cidj", blocks, np.eye(N)).reshape(CLASSES * N, CLASSES * N)
        T = np.linalg.solve(np.eye(len(K)) + W @ K, W)
        b = W @ (f - mean) + hot - p.reshape(-1)
        a = b - T @ (K @ b)
        f = mean + K @ a
    return a.reshape(CLASSES, N), T.reshape(CLASSES, N, CLASSES, N)


def expected(case, first, second):
    """Return the posterior means (n, C) of the first terms and covariances (n, n, C, C) with the second."""
    a, T = mode(case)
    left, right = (covariance(names, NEW, ROWS) for names in (first, second))
    shared = covariance([name for name in first if name in second], NEW, NEW)
    prior = np.einsum("ij,cd->ijcd", shared, np.eye(CLASSES))
    return left @ a.T, prior - np.einsum("ip,cpdq,jq->ijcd", left, T, right)


def by_class(joint):
    return np.einsum("ijcc->ijc", joint)


def subsets(case):
    names = CASES[case]
    return [*([name] for name in names), names[:2], names[1:], names]


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)


@pytest.fixture(params=["conditioned", "loaded"])
def models(request, tmp_path):
    """Return a map of a case to its model, before or after it is saved."""

    def make(case):
        gp = model(case).condition(ROWS, LABELS)
        if request.param == "conditioned":
            return gp
        gp.save(tmp_path / "classes.rfgp", data=case.startswith("dense"))
        return rfgp.load(tmp_path / "classes.rfgp")

    return make


@pytest.mark.parametrize("case", CASES)
def test_terms_match_dense_matrices_of_all_classes(models, case):
    p = models(case).predict(NEW)
    assert list(p.terms) == list(CASES[case])
    for names in subsets(case):
        mean, joint = expected(case, names, names)
        found = p.of(*names)
        close(found.mean, mean)
        close(found.covariance, by_class(joint))
        close(found.variance, np.einsum("iicc->ic", joint))
        close(found.latent.function_covariance(), np.einsum("iicd->icd", joint))
        root, size = found.latent.root().numpy(), CLASSES * len(NEW["t"])
        close(root @ root.T, np.einsum("ijcd->cidj", joint).reshape(size, size))


@pytest.mark.parametrize("case", CASES)
def test_covariances_between_terms_match_dense_matrices(models, case):
    p = models(case).predict(NEW)
    for first in subsets(case):
        for second in subsets(case):
            close(p.cross_covariance(first, second), by_class(expected(case, first, second)[1]))


@pytest.mark.parametrize("case", CASES)
def test_the_rest_is_the_sum_of_other_terms(case):
    p, names = model(case).condition(ROWS, LABELS).predict(NEW), CASES[case]
    close(p.without(names[0]).mean, expected(case, names[1:], names[1:])[0])
    close(MEAN + sum(term.mean for term in p.terms.values()), p.mean)
    with pytest.raises(rfgp.InvalidArgumentError, match="among"):
        p.of("tide")


@pytest.mark.parametrize("case", CASES)
def test_functions_of_a_term_are_drawn_at_points(case):
    term = model(case).condition(ROWS, LABELS).predict(NEW).terms["site"]
    draws = term.sample(4000, seed=0)
    assert (np.abs(draws.mean(0) - term.mean) < 5 * term.std / 4000**0.5).all()
    np.testing.assert_allclose(draws.std(0), term.std, rtol=0.07)


@pytest.mark.parametrize("count", [CLASSES, 7])  # as many points as classes, and more
@pytest.mark.parametrize("case", CASES)
def test_differences_from_the_mean_match_dense_matrices(case, count):
    some = {name: column[:count] for name, column in NEW.items()}
    p = model(case).condition(ROWS, LABELS).predict(some)
    less = np.eye(count) - 1 / count
    for names in subsets(case):
        mean, joint = (part[:count] for part in expected(case, names, names))
        joint = np.einsum("pi,ijcd,qj->pqcd", less, joint[:, :count], less)
        for found in (p.of(*names).centered(), p.of(*names).linear(less)):
            close(found.mean, less @ mean)
            close(found.covariance, by_class(joint))
            close(found.variance, np.einsum("iicc->ic", joint))
            close(found.latent.function_covariance(), np.einsum("iicd->icd", joint))
            root, size = found.latent.root().numpy(), CLASSES * count
            close(root @ root.T, np.einsum("ijcd->cidj", joint).reshape(size, size))
        assert found.sample(2, seed=0).shape == (2, count, CLASSES)


@pytest.mark.parametrize(("case", "kind"), [(case, case.split(",")[0]) for case in CASES])
def test_cases_are_solved_as_named(case, kind):
    tensors = model(case).condition(ROWS, LABELS).predict(NEW).process.tensors()
    assert ("class_matrices" in tensors) == (kind == "dense")


def test_shares_of_terms_are_known():
    gp = model("dense, three terms").condition(ROWS, LABELS)
    assert sum(gp.terms[name].share for name in CASES["dense, three terms"]) == pytest.approx(1)
