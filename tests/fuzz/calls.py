"""Public calls with arrays of odd shapes, types and sizes, and with odd options; answers against formulas in numpy."""

from functools import lru_cache

import numpy as np
import torch
from hypothesis import strategies as st

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.sampling import SoftmaxSampler
from tests.fuzz import twin
from tests.fuzz.arrays import arrays, build, is_plain
from tests.fuzz.rules import FoundError, is_error, outcome
from tests.fuzz.session import graph_of
from tests.fuzz.targets import Target

ODD = st.sampled_from([0, -1, 1.5, True, None, "3", "x", [2], float("nan"), 2**40, 3.25])
"""In the place of a number. A size as large as these is refused before it is allocated."""


def mostly(strategy, odd=ODD, share=8):
    """Draw from a strategy, and now and then something odd."""
    return st.integers(0, share).flatmap(lambda k: strategy if k else odd)


def _numbers(values):
    return np.asarray(values.detach() if isinstance(values, torch.Tensor) else values, dtype=float)


def _is_finite(values, what):
    if not np.isfinite(_numbers(values)).all():
        raise FoundError(f"{what} is not finite")


def _close(found, expected, what, tolerance=1e-6):
    found, expected = _numbers(found), _numbers(expected)
    if found.shape != expected.shape:
        raise FoundError(f"{what} has shape {found.shape}, not {expected.shape}")
    unit = np.abs(expected).max(initial=1e-12)
    if not np.allclose(found, expected, rtol=tolerance, atol=tolerance * unit, equal_nan=True):
        raise FoundError(f"{what} is off by {np.abs(found - expected).max() / unit:.1e}")


# --- processes on tables -----------------------------------------------------------------------------


@st.composite
def _table_calls(draw):
    n, d = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    k = draw(st.sampled_from([(), (), (1,), (2,)]))
    options = {"standardize": draw(st.booleans()), "ard": draw(st.booleans())}
    for name in draw(st.lists(st.sampled_from(["lengthscale", "outputscale", "noise"]), max_size=1)):
        options[name] = draw(mostly(st.sampled_from([0.5, 1e-9, 1e9, [1.0] * d])))
    return {
        "kind": draw(st.sampled_from(["fourier", "laplace", "exact"])),
        "m": draw(mostly(st.integers(1, 20))),
        "how": draw(st.sampled_from(["fit", "condition", "update"])),
        "X": draw(arrays((n, d))),
        "y": draw(arrays((n, *k))),
        "noise": draw(st.one_of(st.none(), arrays((n,)))),
        "weight": draw(st.one_of(st.none(), arrays((n,)))),
        "new": draw(arrays((4, d), odd=0.2)),
        "options": options,
        "seed": draw(mostly(st.just(0), share=20)),
    }


def _positive(values):
    return np.abs(values) if isinstance(values, np.ndarray) and values.dtype == float else values


def _table_call(case):
    X, y, new = build(case["X"]), build(case["y"]), build(case["new"])
    more = {"noise": _positive(build(case["noise"])), "sample_weight": _positive(build(case["weight"]))}
    gp = outcome(lambda: _table_model(case))
    if is_error(gp):
        return
    if case["how"] == "update" and is_error(outcome(lambda: gp.condition(X, y))):
        return
    call = {"fit": lambda: gp.fit(X, y, max_iterations=2, **more)}.get(
        case["how"], lambda: getattr(gp, case["how"])(X, y, **more)
    )
    if is_error(outcome(call)):
        return
    p = outcome(lambda: gp.predict(new))
    mean = outcome(lambda: p.mean) if not is_error(p) else p
    variance = outcome(lambda: p.variance) if not is_error(p) else p
    if is_error(mean) or is_error(variance):
        return
    likelihood = outcome(gp.log_marginal_likelihood)
    if not is_error(likelihood):
        _is_finite(likelihood, "the log marginal likelihood")
    _is_finite(mean, "a mean")
    _is_finite(variance, "a variance")
    if (_numbers(variance) < 0).any():
        raise FoundError("a variance is negative")
    if (
        all(is_plain(case[name]) for name in ("X", "y", "new"))
        and case["how"] != "update"
        and case["options"]["standardize"]
    ):
        _table_twin(case, gp, X, y, new, mean, more)


def _table_model(case):
    if case["kind"] == "exact":
        return rfgp.ExactGP(**case["options"])
    sizes = {"num_frequencies": case["m"], "coupling": "iid", "seed": case["seed"]}
    return rfgp.SparseSpectrumGP(kind=case["kind"], **sizes, **case["options"])


def _table_twin(case, gp, X, y, new, mean, more):
    """The mean by inverses, where the numbers are such that an inverse is exact."""
    if more["sample_weight"] is not None or case["kind"] == "laplace" or not is_plain(case["noise"] or case["X"]):
        return
    h = {name.rpartition(".")[2]: _numbers(gp.hyperparameters[name]) for name in gp.hyperparameters.names}
    a, b = (_numbers(build({**case[name], "form": "numpy"})) / h["lengthscale"] for name in ("X", "new"))
    if case["kind"] == "exact":
        K, cross, prior = (twin.stationary("gaussian", *pair) for pair in ((a, a), (b, a), (b, b)))
    else:
        f = gp.feature_map.frequencies
        fa, fb = (twin.fourier(x, f.dense().numpy(), f.weights.numpy()) for x in (a, b))
        K, cross, prior = fa @ fa.T, fb @ fa.T, fb @ fb.T
    y = _numbers(build({**case["y"], "form": "numpy"}))
    for j in range(1 if y.ndim == 1 else y.shape[1]):
        scale, noise, center = (
            float(h[name].reshape(-1)[min(j, h[name].size - 1)]) for name in ("outputscale", "noise", "mean")
        )
        wide = noise + (0 if more["noise"] is None else _numbers(more["noise"])) + np.zeros(len(a))
        column = y if y.ndim == 1 else y[:, j]
        if noise < 1e-4 * scale:
            continue
        expected = twin.posterior(scale * K, scale * cross, scale * prior, column, wide, center)[0]
        found = _numbers(mean)
        _close(found if found.ndim == 1 else found[:, j], expected, "the mean", 1e-5)


# --- processes on graphs -----------------------------------------------------------------------------

_LABELS = st.one_of(st.integers(0, 13).map(lambda k: f"n{k}"), st.sampled_from(["nowhere", 3, None, 1.5, ["n1"], True]))


@st.composite
def _graph_calls(draw):
    n = draw(st.integers(1, 9))
    nodes = draw(st.lists(st.integers(0, 13).map(lambda k: f"n{k}"), min_size=n, max_size=n))
    return {
        "what": draw(st.sampled_from(["gp", "classifier", "regressor"])),
        "nodes": draw(mostly(st.just(nodes), st.one_of(st.lists(_LABELS, max_size=6), ODD))),
        "y": draw(arrays((n,))),
        "classes": draw(
            mostly(
                st.lists(st.sampled_from(["a", "b", "c"]), min_size=n, max_size=n),
                st.sampled_from([[1.5] * n, [None] * n, "ab", [["a"]] * n]),
            )
        ),
        "new": draw(mostly(st.just(["n0", "n5"]), st.one_of(st.lists(_LABELS, max_size=4), ODD))),
        "features": draw(mostly(st.sampled_from(["auto", "walks", "chebyshev", "spectrum", "exact"]))),
        "kernel": draw(mostly(st.sampled_from(["diffusion", "matern", "random-walk", "inverse-cosine"]))),
        "walkers": draw(mostly(st.integers(1, 8))),
        "halt": draw(mostly(st.floats(0.05, 0.9))),
        "degree": draw(mostly(st.sampled_from([None, 1, 3]))),
        "rank": draw(mostly(st.sampled_from([None, 1, 14]))),
    }


@lru_cache
def _graph():
    return graph_of(0)[0]


def _graph_call(case):
    g, new = _graph(), case["new"]
    if case["what"] == "classifier":
        _classify(case, g, new)
        return
    if case["what"] == "regressor":
        model = outcome(lambda: rfgp.sklearn.GraphGPRegressor(g, kernel=case["kernel"], random_state=0))
        if is_error(model):
            return
        fitted = outcome_of_scikit(lambda: model.fit(case["nodes"], build(case["y"])))
        answer = fitted if is_error(fitted) else outcome_of_scikit(lambda: model.predict(new))
        if not is_error(answer):
            _is_finite(answer, "a mean")
        return
    sizes = {"num_walkers": case["walkers"], "p_halt": case["halt"], "degree": case["degree"], "rank": case["rank"]}
    gp = outcome(lambda: rfgp.GraphGP(g, case["kernel"], case["features"], seed=0, **sizes))
    if is_error(gp) or is_error(outcome(lambda: gp.fit(case["nodes"], build(case["y"]), max_iterations=2))):
        return
    p = outcome(lambda: gp.predict(new))
    for name in ("mean", "variance") if not is_error(p) else ():
        value = outcome(lambda name=name: getattr(p, name))
        if not is_error(value):
            _is_finite(value, f"a {name}")


def _classify(case, g, new):
    options = {"kernel": case["kernel"], "features": case["features"], "random_state": 0, "max_iter": 2}
    model = outcome(lambda: rfgp.sklearn.GraphGPClassifier(g, **options))
    if is_error(model) or is_error(outcome_of_scikit(lambda: model.fit(case["nodes"], case["classes"]))):
        return
    found = outcome_of_scikit(lambda: model.predict_proba(new))
    if is_error(found):
        return
    _close(found.sum(1), np.ones(len(found)), "the sum of probabilities")
    if (found < 0).any():
        raise FoundError("a probability is negative")
    labels = outcome_of_scikit(lambda: model.predict(new))
    if not is_error(labels) and list(labels) != list(model.classes_[found.argmax(1)]):
        raise FoundError("a class is not the most probable one")


def outcome_of_scikit(call):
    """The outcome of a call of an adapter, which may refuse as scikit-learn's own do: by ValueError and TypeError.

    `check_estimator` asks for these, and its NotFittedError is a ValueError.
    """

    def tried():
        try:
            return call()
        except (ValueError, TypeError) as error:
            return error

    return outcome(tried)


# --- features, couplings -----------------------------------------------------------------------------


@st.composite
def _feature_calls(draw):
    m, d, n = (draw(st.integers(1, 6)) for _ in range(3))
    return {
        "kind": draw(st.sampled_from(["fourier", "laplace", "positive", "trigonometric", "exponential", "hybrid"])),
        "omega": draw(arrays((m, d), odd=0.15)),
        "x": draw(arrays(draw(st.sampled_from([(n, d), (2, n, d), (d,)])), odd=0.3)),
    }


def _pair(kind, omega, **options):
    softmax = rfgp.features.softmax
    makers = {"positive": softmax.Positive, "trigonometric": softmax.Trigonometric, "exponential": _exponential}
    if kind == "hybrid":
        base, other = softmax.Trigonometric(omega, **options), softmax.Positive(omega, **options)
        return softmax.Hybrid(base, [(softmax.coefficients.Constant(0.5), other)])
    return makers[kind](omega, **options)


def _exponential(omega, **options):
    size = omega.shape[-1] if isinstance(omega, torch.Tensor) and omega.ndim else 1
    return rfgp.features.softmax.Exponential(omega, torch.full((size,), 0.7, dtype=torch.float64), **options)


def _as_tensor(value):
    return (
        torch.as_tensor(value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.dtype.isnative
        else value
    )


def _tensor_of(spec):
    value = build(spec)
    try:
        return _as_tensor(value)
    except ValueError:  # negative strides
        return torch.as_tensor(value.copy())


def _feature_call(case):
    omega, x = _tensor_of(case["omega"]), _tensor_of(case["x"])
    is_pair = case["kind"] not in ("fourier", "laplace")
    phi = outcome(lambda: _pair(case["kind"], omega) if is_pair else rfgp.features.by_name(case["kind"])(omega))
    found = phi if is_error(phi) else outcome(lambda: (phi.left if is_pair else phi)(x))
    if is_error(found):
        return
    if is_plain(case["omega"]) and is_plain(case["x"]):
        _is_finite(found, "a feature")
        w, flat = np.ones(len(omega)), _numbers(x).reshape(-1, x.shape[-1])
        if not is_pair:
            expected = {"fourier": twin.fourier, "laplace": twin.laplace}[case["kind"]](flat, _numbers(omega), w)
            _close(found.reshape(len(flat), expected.shape[1]), expected, "a feature", 1e-9)
        elif case["kind"] == "positive":
            expected = twin.laplace(flat, _numbers(omega), w) * np.exp((flat**2).sum(1) / 2)[:, None]
            _close(found.reshape(len(flat), expected.shape[1]), expected, "a feature", 1e-9)


SPECTRA = ["gaussian", "matern", "rational-quadratic", "product-laplace", "product-cauchy"]
METRICS = ["rmse", "nlpd", "standardized_residuals", "interval_coverage", "kl_divergence"]
METRICS += ["relative_frobenius_error", "log_prob", "expected_posterior_kl"]


@st.composite
def _coupling_calls(draw):
    names = [*rfgp.couplings.names(), "iid-antithetic", "energy-antithetic", "structured-antithetic"]
    return {
        "name": draw(mostly(st.sampled_from([name for name in names if name != "energy"]))),
        "m": draw(mostly(st.integers(1, 40))),
        "d": draw(mostly(st.integers(1, 9))),
        "spectrum": draw(mostly(st.sampled_from(SPECTRA), share=20)),
        "generator": draw(mostly(st.just(0), st.sampled_from([None, 3, "x"]), share=20)),
    }


def _coupling_call(case):
    coupling = outcome(lambda: rfgp.couplings.by_name(case["name"]))
    if is_error(coupling):
        return
    generator = torch.Generator().manual_seed(0) if case["generator"] == 0 else case["generator"]
    spectrum = outcome(lambda: rfgp.spectra.by_name(case["spectrum"]))
    if is_error(spectrum):
        return
    drawn = outcome(lambda: coupling.sample(case["m"], case["d"], spectrum=spectrum, generator=generator))
    if is_error(drawn):
        return
    dense = drawn.dense()
    if tuple(dense.shape) != (case["m"], case["d"]):
        raise FoundError(f"{case['m']} frequencies in {case['d']} dimensions have shape {tuple(dense.shape)}")
    _is_finite(dense, "a frequency")
    _is_finite(drawn.weights, "a weight")
    x = torch.eye(case["d"], dtype=torch.float64)
    _close(drawn.project(x), dense.T, "a projection", 1e-9)


# --- metrics -----------------------------------------------------------------------------------------


@st.composite
def _metric_calls(draw):
    return {
        "name": draw(st.sampled_from(METRICS)),
        "y": draw(arrays(draw(st.sampled_from([(4,), (4, 4)])), odd=0.5)),
        "other": draw(arrays((4,), odd=0.5)),
        "levels": draw(mostly(st.just([0.5, 0.9]))),
        "count": draw(mostly(st.integers(1, 3))),
    }


@lru_cache
def _law():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 2))
    gp = rfgp.ExactGP().condition(X, X[:, 0])
    return gp.predict(X[:4] + 0.1), gp


def _metric_call(case):
    p, _ = _law()
    y, other = build(case["y"]), build(case["other"])
    calls = {
        "rmse": lambda: rfgp.metrics.rmse(y, other),
        "nlpd": lambda: rfgp.metrics.nlpd(y, p),
        "standardized_residuals": lambda: rfgp.metrics.standardized_residuals(y, p),
        "interval_coverage": lambda: rfgp.metrics.interval_coverage(other, p, case["levels"]),
        "kl_divergence": lambda: rfgp.metrics.kl_divergence(p, p),
        "relative_frobenius_error": lambda: rfgp.metrics.relative_frobenius_error(y, other),
        "log_prob": lambda: p.log_prob(y),
        "expected_posterior_kl": lambda: rfgp.metrics.expected_posterior_kl(_gram(y), _gram(y), case["count"], 0.1),
    }
    found = outcome(calls[case["name"]])
    if is_error(found):
        return
    if case["name"] == "rmse" and is_plain(case["y"]) and is_plain(case["other"]):
        _close(found, np.sqrt(np.mean((_numbers(y) - _numbers(other)) ** 2)), "the RMSE", 1e-12)


def _gram(y):
    y = _as_tensor(y) if isinstance(y, np.ndarray) and y.flags.c_contiguous else y
    return y @ y.mT if isinstance(y, torch.Tensor) and y.ndim == 2 and y.is_floating_point() else y


# --- attention and sampling --------------------------------------------------------------------------


@st.composite
def _attention_calls(draw):
    L, S, E, H = (draw(st.integers(1, 5)) for _ in range(4))
    batch = draw(st.sampled_from([(), (2,), (2, H)]))
    return {
        "kind": draw(st.sampled_from(["positive", "hybrid", "exponential", "trigonometric"])),
        "kernel": draw(st.sampled_from(["softmax", "gaussian"])),
        "omega": draw(arrays((6, E), odd=0.1)),
        "query": draw(arrays((*batch, L, E), odd=0.15)),
        "key": draw(arrays((*batch, S, E), odd=0.15)),
        "value": draw(arrays((*batch, S, 3), odd=0.15)),
        "causal": draw(st.booleans()),
        "scale": draw(mostly(st.sampled_from([None, 1.0, 0.1]))),
        "chunk": draw(mostly(st.sampled_from([1, 2, 64]))),
    }


def _attention_call(case):
    omega, q, k, v = (_tensor_of(case[name]) for name in ("omega", "query", "key", "value"))
    pair = outcome(lambda: _pair(case["kind"], omega, kernel=case["kernel"]))
    if is_error(pair):
        return
    options = {"is_causal": case["causal"], "scale": case["scale"], "chunk_size": case["chunk"]}
    found = outcome(lambda: rfgp.attention.random_feature_attention(q, k, v, pair, **options))
    if is_error(found) or not all(is_plain(case[name]) for name in ("omega", "query", "key", "value")):
        return
    _is_finite(found, "attention")
    if case["kind"] != "positive" or case["kernel"] != "softmax":
        return
    q, k, v, w = (_numbers(t) for t in (q, k, v, omega))
    scale = q.shape[-1] ** -0.5 if case["scale"] is None else case["scale"]
    features = [np.exp(x @ w.T - (x**2).sum(-1, keepdims=True) / 2) for x in (q * np.sqrt(scale), k * np.sqrt(scale))]
    weights = features[0] @ np.swapaxes(features[1], -1, -2)
    if case["causal"]:
        weights = weights * np.tril(np.ones(weights.shape[-2:]))
    total = weights.sum(-1, keepdims=True)
    if np.isfinite(total).all() and (total > 0).all():  # where the twin, which subtracts no largest exponent, can tell
        _close(found, weights @ v / total, "attention", 1e-6)


@st.composite
def _sampling_calls(draw):
    d = draw(st.integers(1, 4))
    return {
        "kind": draw(st.sampled_from(["positive", "hybrid", "exponential", "trigonometric"])),
        "omega": draw(arrays((6, d), odd=0.1)),
        "classes": draw(arrays((5, d), odd=0.2)),
        "queries": draw(arrays((3, d), odd=0.3)),
        "count": draw(mostly(st.integers(1, 5))),
        "ground": draw(mostly(st.sampled_from(["index", "vectors"]))),
    }


def _sampling_call(case):
    omega, classes, queries = (_tensor_of(case[name]) for name in ("omega", "classes", "queries"))
    pair = outcome(lambda: _pair(case["kind"], omega))
    sampler = pair if is_error(pair) else outcome(lambda: SoftmaxSampler(pair, classes))
    if is_error(sampler):
        return
    probabilities = outcome(lambda: sampler.probabilities(queries))
    if not is_error(probabilities):
        _is_finite(probabilities, "a probability")
        sums = _numbers(probabilities).sum(1)
        if not (np.isclose(sums, 1, atol=1e-3) | (sums == 0)).all():
            raise FoundError("probabilities do not add up to 1")
    drawn = outcome(lambda: sampler.sample(queries, case["count"], generator=torch.Generator().manual_seed(0)))
    if not is_error(drawn) and drawn.numel() and not (0 <= int(drawn.min()) <= int(drawn.max()) < len(classes)):
        raise FoundError("a class is drawn that there is not")
    outcome(lambda: sampler.report(queries, ground=case["ground"]))


# --- adapters ----------------------------------------------------------------------------------------


@st.composite
def _adapter_calls(draw):
    n, d = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    return {
        "what": draw(st.sampled_from(["regressor", "features", "botorch", "gpytorch", "split"])),
        "X": draw(arrays((n, d))),
        "y": draw(arrays(draw(st.sampled_from([(n,), (n, 1), (n, 2)])))),
        "new": draw(arrays((3, d), odd=0.2)),
        "m": draw(mostly(st.integers(1, 6))),
        "lengthscale": draw(mostly(st.sampled_from([1.0, "scale", [1.0] * d]))),
        "nodes": draw(
            mostly(st.lists(st.integers(0, 13), min_size=1, max_size=5), st.sampled_from([[99], [-1], [0.5], []]))
        ),
        "index": draw(mostly(st.integers(0, 9))),
        "draw": draw(st.sampled_from(["walks", "chebyshev", "spectral"])),
    }


def _adapter_call(case):
    {"split": _split, "gpytorch": _node_kernel, "botorch": _botorch}.get(case["what"], _scikit)(case)


def _scikit(case):
    X, y, new = (build(case[name]) for name in ("X", "y", "new"))
    if case["what"] == "regressor":
        make = rfgp.sklearn.GPRegressor
        model = outcome_of_scikit(lambda: make(k.RBF(), rfgp.RandomFeatures(case["m"], coupling="iid"), random_state=0))
        calls = [lambda: model.fit(X, y), lambda: model.predict(new), lambda: model.predict(new, return_std=True)[1]]
    else:
        make = rfgp.sklearn.RandomFeatures
        model = outcome_of_scikit(
            lambda: make(case["m"], coupling="iid", lengthscale=case["lengthscale"], random_state=0)
        )
        calls = [lambda: model.fit(X), lambda: model.transform(new)]
    for call in [] if is_error(model) else calls:
        found = outcome_of_scikit(call)
        if is_error(found):
            return
        if found is not model:
            _is_finite(found, "an answer")


def _node_kernel(case):
    """The kernel of positions is Phi Phi^T."""
    g, kernel = _graph(), graphs.kernels.Diffusion(1.5)
    makers = {
        "walks": lambda: graphs.sample_walks(g, num_walkers=4, seed=0),
        "chebyshev": lambda: graphs.chebyshev_features(g, degree=3),
    }
    features = makers.get(case["draw"], lambda: graphs.spectral_features(g, rank=5))()
    module = rfgp.gpytorch.GraphFeatureKernel(features, kernel)
    x = (
        torch.as_tensor(np.array(case["nodes"], dtype=float))[:, None]
        if isinstance(case["nodes"], list)
        else case["nodes"]
    )
    found = outcome(lambda: module(x).to_dense())
    if is_error(found):
        return
    phi = features.features(kernel).toarray()[[int(k) for k in case["nodes"]]]
    _close(found, phi @ phi.T, "a graph kernel", 1e-5)  # GPyTorch's parameters are of single precision


def _botorch(case):
    """BoTorch refuses what its own models refuse, by its own errors."""
    import botorch
    import gpytorch

    X, y, new = (_tensor_of(case[name]) for name in ("X", "y", "new"))

    def made():
        try:
            model = rfgp.botorch.RandomFeatureGP(X, y, num_frequencies=case["m"], coupling="iid", seed=0)
            return model.posterior(new).mean
        except (botorch.exceptions.BotorchError, gpytorch.utils.errors.NanError) as error:
            return error

    if all(isinstance(t, torch.Tensor) for t in (X, y, new)) and new.ndim > 1:  # `posterior` is BoTorch's own
        found = outcome(made)
        if not is_error(found) and all(is_plain(case[name]) for name in ("X", "y", "new")):
            _is_finite(found, "a mean")


def _split(case):
    found = outcome(lambda: rfgp.datasets.split("concrete", case["index"]))
    if not is_error(found) and np.intersect1d(found.train, found.test).size:
        raise FoundError("a split has rows in both parts")


@st.composite
def _dask_calls(draw):
    n, d = draw(st.integers(2, 8)), draw(st.integers(1, 3))
    return {
        "X": draw(arrays((n, d))),
        "y": draw(arrays((n,))),
        "chunks": draw(st.sampled_from([1, 2, 8])),
        "others": draw(st.sampled_from([1, 2, 8])),
        "is_lazy": draw(st.booleans()),
    }


@lru_cache
def _cluster():
    from distributed import Client

    return Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)


def _dask_call(case):
    """A model of rows on a cluster is the one of the rows in blocks here."""
    import dask.array as da

    X, y, client = build(case["X"]), build(case["y"]), _cluster()

    def made():
        if not case["is_lazy"]:
            return rfgp.dask.Partitions(X, y, client=client)
        rows = da.from_array(X, chunks=case["chunks"]), da.from_array(y, chunks=case["others"])
        return rfgp.dask.Partitions(*rows, client=client)

    if case["is_lazy"] and not all(isinstance(t, np.ndarray) and t.ndim for t in (X, y)):
        return
    rows = outcome(made)
    if is_error(rows):
        return
    gp = rfgp.SparseSpectrumGP(num_frequencies=3, coupling="iid", seed=0)
    if is_error(outcome(lambda: gp.condition(rows))):
        return
    here = rfgp.SparseSpectrumGP(num_frequencies=3, coupling="iid", seed=0)
    result = outcome(lambda: here.condition(rfgp.tables.Batches([(X, y)])))
    if is_error(result):
        raise FoundError(f"a cluster takes rows that are refused here: {result}")
    new = np.zeros((2, X.shape[1]))
    _close(gp.predict(new).mean, here.predict(new).mean, "a mean", 1e-6)


TARGETS = [
    Target("tables", _table_call, _table_calls),
    Target("graphs", _graph_call, _graph_calls, share=0.3),
    Target("features", _feature_call, _feature_calls),
    Target("couplings", _coupling_call, _coupling_calls),
    Target("metrics", _metric_call, _metric_calls),
    Target("attention", _attention_call, _attention_calls),
    Target("sampling", _sampling_call, _sampling_calls),
    Target("adapters", _adapter_call, _adapter_calls),
    Target("dask", _dask_call, _dask_calls, share=0.3),
]
