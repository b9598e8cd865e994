"""Settings around a call change neither numbers nor later gradients."""

import multiprocessing
import os
import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

import graphs
import rfgp


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def errors_of_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


SURROUNDINGS = {
    "float16, errstate": lambda: (default_dtype(torch.float16), np.errstate(all="raise")),
    "bfloat16, no_grad": lambda: (default_dtype(torch.bfloat16), torch.no_grad()),
    "float64, warnings": lambda: (default_dtype(torch.float64), errors_of_warnings()),
    "meta, inference_mode": lambda: (torch.device("meta"), torch.inference_mode()),
}


X = np.random.default_rng(0).standard_normal((60, 2))
Y = np.sin(X[:, 0])


def features(**options):
    return rfgp.SparseSpectrumGP(seed=0, **{"num_frequencies": 8, **options})


def nodes(features):
    graph = graphs.Graph.from_edges([(i, i + 1) for i in range(120)])
    seen = list(range(0, 120, 3))
    options = {"rank": 20} if features == "spectrum" else {"num_walkers": 8}
    gp = rfgp.GraphGP(graph, kernel=graphs.kernels.Diffusion(2.0), features=features, seed=0, **options)
    return gp, seen, np.sin(np.array(seen) / 9)


MODELS = {
    "learned": lambda: (features(learn_frequencies=True), X, Y),
    "exact": lambda: (rfgp.ExactGP(), X, Y),
    "walks": lambda: nodes("walks"),
    "spectrum": lambda: nodes("spectrum"),
}


def said(make, path):
    """Return what a model of everything answers: fitted, asked, grown, saved and loaded."""
    gp, X, y = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rfgp.RfgpWarning)
        gp.fit(X, y, max_iterations=3)
    gp.update(X[:2], y[:2])
    p = gp.predict(X)
    out = [p.mean, p.variance, p.observed().variance, p.covariance, gp.leave_one_out().mean]
    out += [gp.log_marginal_likelihood().item(), gp.prior_covariance(X).numpy(), p.observed().log_prob(y)]
    out += [p.sample(2, generator=torch.Generator("cpu").manual_seed(0))]
    if not isinstance(gp, rfgp.ExactGP):
        out += [gp.exact().predict(X).variance, gp.sample_functions(2, seed=0)(X)]
        (name, own) = next(iter(gp.spec.approximations.items()))
        assert gp.with_approximation({name: replace(own, seed=1)}).predict(X).mean.shape == y.shape
    gp.save(path, data=True)
    return gp, [*out, rfgp.load(path).predict(X).mean]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_surroundings_change_nothing(tmp_path, model):
    _, expected = said(MODELS[model], tmp_path / "m")
    for name, surrounding in SURROUNDINGS.items():
        with ExitStack() as stack:
            for one in surrounding():
                stack.enter_context(one)
            gp, found = said(MODELS[model], tmp_path / "m")
        for a, b in zip(found, expected, strict=True):
            same = a == pytest.approx(b, rel=1e-10) if isinstance(a, float) else np.array_equal(a, b)
            assert same, name  # a likelihood without its gradient may add up in another order
        gp.log_marginal_likelihood().backward()
        assert all(p.grad is not None for p in gp.hyperparameters.parameters()), name


@pytest.mark.parametrize("kept", ["fit", "predict"])
def test_stored_tensors_are_not_from_inference_mode(kept):
    """Tensors of a user who is in it himself, and a posterior that was first asked for in it."""
    gp = features()
    with torch.inference_mode() if kept == "fit" else nullcontext():
        x, y = torch.as_tensor(X), torch.as_tensor(Y)
        gp.condition(x, y).update(x[:2], y[:2])
    with torch.inference_mode():
        mean, variance = gp.predict(x).mean, gp.predict(x).variance
    points = x.clone().requires_grad_()
    p = gp.predict(points)
    assert torch.equal(p.mean, mean)
    assert torch.equal(p.variance, variance)
    assert torch.autograd.grad(p.mean.sum() + p.variance.sum(), points)[0].isfinite().all()
    gp.log_marginal_likelihood().backward()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_after_a_fit_computes():
    """Torch's pool of threads is not there in a child, which would wait for it forever."""
    x, y, threads = np.tile(X, (20, 1)), np.tile(Y, 20), torch.get_num_threads()

    def variance(gp):
        return gp.condition(x, y).predict(x).variance

    torch.set_num_threads(2)
    try:
        gp = features(num_frequencies=128)
        expected = variance(gp)
        torch.ones(500, 500) @ torch.ones(500, 500)  # the pool is there
        context = multiprocessing.get_context("fork")
        queue = context.Queue()

        def child():
            queue.put((torch.get_num_threads(), gp.predict(x).variance, variance(features(num_frequencies=128))))

        process = context.Process(target=child)
        process.start()
        try:
            alone, *found = queue.get(timeout=60)
        finally:
            process.kill()
            process.join()
    finally:
        torch.set_num_threads(threads)
    assert alone == 1
    for one in found:
        np.testing.assert_allclose(one, expected, rtol=1e-9, atol=1e-12)
