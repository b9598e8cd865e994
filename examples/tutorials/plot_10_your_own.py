"""
10. A kernel, a coupling and a likelihood of your own
=====================================================

Each part of a model is a small class. You write three: a kernel for cycles that fade, a coupling of random frequencies,
and a likelihood with heavier tails than the Gaussian one. Each works with the parts of the package, and has a check.
"""

import math
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

import rfgp
from rfgp import couplings
from rfgp import kernels as k
from rfgp.likelihoods import Likelihood, Parameter
from rfgp.palette import COLORS
from rfgp.parameters import Hyperparameter

# %%
# A kernel
# --------
# Business cycles and sunspots repeat, but not exactly: the cycle fades after some periods. A covariance with this
# property is exp(-d / decay) cos(2 pi d / period) for rows at the distance d. It is the product of two covariances, so
# it is one too.
#
# A kernel is a frozen dataclass with two methods. ``covariance`` maps rows a (n, c) and b (m, c) to a matrix (n, m).
# ``hyperparameters`` lists the hyperparameters. Each has a start, a unit and bounds. Inside, columns are standardized:
# ``columns.location`` is subtracted, then they are divided by ``columns.scale``. So the unit of a time is the scale of
# its column, and 0 is not your origin. The variance of the term is added for you.


@dataclass(frozen=True, eq=False, repr=False)
class Cycle(k.Kernel):
    """exp(-d / decay) cos(2 pi d / period) of one column."""

    def covariance(self, a, b, values):
        distance = (a - b.mT).abs()
        return (-distance / values["decay"]).exp() * (2 * math.pi * distance / values["period"]).cos()

    def hyperparameters(self, columns):
        spread, unit = columns.spread[0], columns.scale[0]  # the standard deviation of the column, and its unit
        return {
            "decay": Hyperparameter(spread, unit, (0.01 * spread, 100 * spread)),
            "period": Hyperparameter(0.5 * spread, unit, (0.05 * spread, 5 * spread)),
        }


# %%
# Check a new kernel first: compare its matrix with numbers that you know, and look at the smallest eigenvalue. Rounding
# may make it slightly negative.

values = {"decay": 10.0, "period": 11.0}
matrix = Cycle("t").matrix({"t": [0.0, 5.5, 11.0]}, values=values)
print(matrix.detach().numpy().round(4))
print(f"expected at half a period: {-np.exp(-0.55):.4f}, at one period: {np.exp(-1.1):.4f}")
many = Cycle("t").matrix({"t": np.linspace(0, 60, 200)}, values=values)
print(f"smallest eigenvalue of 200 rows: {torch.linalg.eigvalsh(many.detach())[0]:.1e}")

# %%
# Now use it like any other kernel, here in a sum with a trend. The data are a stochastic cycle of 11 years.

rng = np.random.default_rng(0)
t = np.arange(240) / 2.0
angle = 2 * np.pi / 22
turn = 0.97 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
state, shock = np.zeros((2, 240)), 0.25 * rng.normal(size=(2, 240))
for i in range(1, 240):
    state[:, i] = turn @ state[:, i - 1] + shock[:, i]
y = 0.02 * t + state[0] + 0.1 * rng.normal(size=240)

trend = k.Linear("t", name="trend")
models = {"RBF": k.RBF("t") + trend, "Matern 1/2": k.Matern("t", nu=0.5) + trend, "Cycle": Cycle("t") + trend}
fitted = {}
for title, kernel in models.items():
    fitted[title] = gp = rfgp.GP(kernel, seed=0).fit({"t": t[:120]}, y[:120])
    evidence, scores = gp.log_marginal_likelihood().item(), []
    for origin in range(120, 230, 10):  # forecasts of ten rows, or five years, from each origin
        gp.condition({"t": t[:origin]}, y[:origin])
        ahead = slice(origin, origin + 10)
        scores.append(gp.predict({"t": t[ahead]}).observed().log_prob(y[ahead]).mean())
    print(
        f"{title:10s} log marginal likelihood {evidence:7.2f}   "
        f"log density of forecasts {np.mean(scores):.3f} nats a row"
    )
print(fitted["Cycle"].hyperparameters)

figure, panels = plt.subplots(1, 2, figsize=(9.5, 3), sharey=True, layout="constrained")
future = {"t": np.linspace(90, 125, 300)}
for i, (axes, title) in enumerate(zip(panels, ("RBF", "Cycle"), strict=True)):
    p = fitted[title].condition({"t": t[:180]}, y[:180]).predict(future).observed()
    axes.fill_between(future["t"], *p.interval(0.95), color=COLORS[i], alpha=0.3, lw=0)
    axes.plot(future["t"], p.mean, color=COLORS[i])
    axes.plot(t, y, ".", ms=3, color=COLORS[6])
    axes.set(title=f"{title} + trend, forecast from year 90", xlabel="year", xlim=(60, 125))

# %%
# A kernel with a covariance works with ``Exact``, ``InducingPoints`` and ``Vecchia``. For ``RandomFeatures`` it also
# needs a spectral measure, the property ``measure``.

near = fitted["Cycle"].with_approximation({"cycle(t)": rfgp.Vecchia(20)})
exact = fitted["Cycle"].exact().predict({"t": t[180:200]})
print(f"KL of 20 neighbors: {rfgp.metrics.kl_divergence(exact, near.predict({'t': t[180:200]})):.1e} nats")

# %%
# ``save`` refuses a class of your own, because ``rfgp.load`` executes no code. Keep the hyperparameters instead. A
# model with ``gp.kernel`` and these starting values, conditioned on the same rows, is the same model. ``gp.kernel``
# also has the origin of the linear term, which the first fit took from its rows.

gp = fitted["Cycle"]
kept = {name: gp.hyperparameters[name].tolist() for name in gp.hyperparameters.names}
again = rfgp.GP(gp.kernel, start=kept, seed=0).condition({"t": t[:180]}, y[:180])
print(f"largest difference of the means: {np.abs(again.predict(future).mean - gp.predict(future).mean).max():.1e}")

# %%
# A coupling
# ----------
# A coupling is a joint distribution of the frequencies of random features. Each frequency alone must have the spectral
# distribution of the kernel. The joint distribution is yours, and a good one lowers the error.
#
# Here: a Latin hypercube. Each coordinate of the m points has one value in each of m strata, and the strata of
# different coordinates are matched at random. Quantiles of the normal distribution make the points Gaussian. Their
# norms are then replaced by those of the kernel's spectrum, so the coupling serves Matern kernels too. A coupling
# implements ``_frequencies``, which returns the frequencies (m, d) in any order.


class LatinHypercube(couplings.Coupling):
    """Frequencies whose Gaussian coordinates are stratified."""

    def _frequencies(self, m, d, spectrum, generator):
        strata = torch.rand(m, d, generator=generator, dtype=torch.float64).argsort(dim=0)
        cube = (strata + torch.rand(m, d, generator=generator, dtype=torch.float64)) / m
        gaussian = torch.special.ndtri(cube.clamp(1e-12, 1 - 1e-12))
        norm = gaussian.norm(dim=1)
        half = torch.full((m,), d / 2.0, dtype=torch.float64)
        level = torch.special.gammainc(half, norm.square() / 2)  # the distribution function of the norm
        wanted = spectrum.radial_quantile(level.clamp(1e-12, 1 - 1e-12), d)
        return gaussian * (wanted / norm)[:, None]


# %%
# Check that it is unbiased: the average of the estimates of many draws is the kernel. The error of the average falls
# with the square root of the number of draws.

x = torch.tensor([[0.0, 0.0, 0.0], [0.5, 1.0, -0.3], [1.5, -1.0, 0.2]], dtype=torch.float64)
draws = []
for seed in range(400):
    phi = rfgp.features.Fourier(LatinHypercube().sample(16, 3, seed=seed))(x)
    draws.append(phi @ phi.T)
draws = torch.stack(draws)
kernel_matrix = (-0.5 * torch.cdist(x, x).square()).exp()
zscore = (draws.mean(0) - kernel_matrix)[0, 1:] / (draws.std(0)[0, 1:] / 20)
print(f"errors of the averages, in standard errors: {zscore.numpy().round(2)}")

# %%
# Then compare it with others. The measure is the KL from the exact posterior, averaged over ten draws of 32
# frequencies.

table = rfgp.datasets.make_table(seed=0)
gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(table.X[:300], table.y[:300])
exact = gp.predict(table.X[300:400])
for coupling in ("iid", "orthogonal", "sobol", LatinHypercube(), "energy"):
    found = []
    for seed in range(10):
        features = rfgp.RandomFeatures(32, coupling=coupling, seed=seed)
        found.append(rfgp.metrics.kl_divergence(exact, gp.with_approximation(features).predict(table.X[300:400])))
    print(f"{coupling!s:16s} KL {np.mean(found):7.3f} +- {np.std(found, ddof=1) / np.sqrt(10):.3f} nats")

# %%
# Stratified coordinates are better than independent ones. The default "energy" is far better still.
#
# A likelihood
# ------------
# Errors with heavier tails than Gaussian ones follow, for instance, the logistic distribution: y = f + scale e. Its log
# density is concave in f, so the posterior has one mode. A likelihood has parameters, the log density, the variance,
# the distribution function and a sampler. Derivatives in f follow by automatic differentiation, and means over the
# posterior of f by quadrature.


@dataclass(frozen=True, repr=False)
class Logistic(Likelihood):
    """y = f + scale e with e of the standard logistic distribution."""

    scale: Any = None  # learned, unless it is given
    parameters = (Parameter("scale", 0.2, (1e-3, 10.0), power=1),)
    is_standardized = True  # targets are shifted and scaled with f

    def log_prob(self, y, f):
        z = (y - f) / self.scale
        return -z - 2 * torch.nn.functional.softplus(-z) - self.scale.log()

    def variance(self, f):
        return (math.pi**2 / 3 * self.scale**2).expand_as(f)

    def cdf(self, y, f):
        return ((y - f) / self.scale).sigmoid()

    def sample(self, f, generator):
        return f + self.scale * torch.logit(torch.rand(f.shape, generator=generator, dtype=f.dtype).clamp(1e-12))


# %%
# Check that the density is the derivative of the distribution function.

likelihood = Logistic(scale=torch.tensor(0.7, dtype=torch.float64))
y_grid = torch.linspace(-2, 3, 6, dtype=torch.float64, requires_grad=True)
f = torch.full_like(y_grid, 0.4)
(density,) = torch.autograd.grad(likelihood.cdf(y_grid, f).sum(), y_grid)
print(f"largest error of the density: {(density - likelihood.log_prob(y_grid, f).exp()).abs().max().item():.1e}")

# %%
# Now fit data with outliers. The Gaussian likelihood takes them for noise, and its noise is too large for most rows.

x = rng.uniform(0, 10, 300)
target = np.sin(x) + 0.15 * rng.standard_t(2, size=300)
for name, chosen in (("Gaussian", "gaussian"), ("logistic", Logistic()), ("Student's t", "student-t")):
    gp = rfgp.GP(k.RBF("x"), chosen, seed=0).fit({"x": x[:200]}, target[:200])
    p = gp.predict({"x": x[200:]})
    score = p.observed().log_prob(target[200:]).mean()
    print(
        f"{name:12s} log density of new rows {score:.3f} nats, "
        f"RMSE of the function {np.sqrt(np.mean((p.mean - np.sin(x[200:])) ** 2)):.4f}"
    )

# %%
# The data have tails of Student's t distribution, so its likelihood wins. The logistic one is between the other two.
#
# Each class is now an ordinary part of the package: kernels add and multiply, predictions have terms, and models
# compare with their exact process.
#
# Read more: :doc:`kernels </howto/kernels>`, :doc:`couplings </howto/couplings>`, :doc:`likelihoods
# </howto/likelihoods>`. For a solver of your own, see :doc:`contributing </contributing>`.
