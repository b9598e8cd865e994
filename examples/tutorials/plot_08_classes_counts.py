"""
8. Classes and counts
=====================

A likelihood is the distribution of an observation given the function. With other likelihoods than the Gaussian one, a
process models classes and counts. This tutorial classifies tumors as benign or malignant with calibrated probabilities,
and models counts with an exposure. It shows how to see that a likelihood is wrong.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binomtest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

# %%
# Two classes
# -----------
# The data set of scikit-learn has 569 tumors. We take five of its columns. The target is 1 for a malignant tumor. The
# function f is the logit of the probability, and has no bounds.

cancer = load_breast_cancer(as_frame=True)
columns = ["mean radius", "mean texture", "mean smoothness", "mean concavity", "mean symmetry"]
X, y = cancer.data[columns], 1 - cancer.target.to_numpy()
order = np.random.default_rng(0).permutation(len(y))
train, test = order[:350], order[350:]
gp = rfgp.GP(k.RBF(), "bernoulli", seed=0).fit(X.iloc[train], y[train])
print(gp.fit_report)
for name, lengthscale in zip(columns, gp.hyperparameters["rbf.lengthscale"].tolist(), strict=True):
    print(f"{name:16s} lengthscale {lengthscale:9.3g}, standard deviation of the column {X[name].std():.3g}")

# %%
# A lengthscale far above the standard deviation of its column means that the column is not used. "at bounds" names
# such hyperparameters.
#
# ``predict`` is the distribution of the logit f. ``observed()`` is that of the class: its mean is the probability of
# class 1. It is an average over the uncertainty of f. A tumor unlike all others therefore has a probability closer to
# one half.

f = gp.predict(X.iloc[test])
p = f.observed()
probability = np.asarray(p.mean)
at_mean = 1 / (1 + np.exp(-f.mean))  # the probability, if the logit were known
for row in np.argsort(-np.abs(probability - at_mean))[:3]:
    print(
        f"logit {f.mean[row]:6.2f} +- {f.std[row]:.2f}: probability {probability[row]:.3f}, "
        f"at the mean logit {at_mean[row]:.3f}; class {y[test][row]}"
    )

# %%
# Compare the scores on the test rows with logistic regression on the same columns. The log loss is the negative log
# density of a class. It is small if probabilities are right, not only their order.

line = make_pipeline(StandardScaler(), LogisticRegression()).fit(X.iloc[train], y[train])
linear = line.predict_proba(X.iloc[test])[:, 1]
for title, found in (("Gaussian process", probability), ("logistic regression", linear)):
    print(
        f"{title:20s} errors {np.sum((found > 0.5) != y[test]):2d} of {len(test)}   "
        f"log loss {log_loss(y[test], found):.4f} nats   area under the ROC curve {roc_auc_score(y[test], found):.4f}"
    )

# %%
# A reliability diagram compares predicted probabilities with frequencies. Points near the diagonal mean that the
# probabilities are calibrated. Bars are 95 % intervals of the frequency (Wilson). A bar that misses the diagonal is
# evidence against calibration.

edges = np.array([0, 0.05, 0.2, 0.5, 0.8, 0.95, 1])
figure, axes = plt.subplots(figsize=(4.4, 4.2), layout="constrained")
axes.plot([0, 1], [0, 1], color="gray", lw=0.8)
for i, (title, found) in enumerate((("Gaussian process", probability), ("logistic regression", linear))):
    group = np.digitize(found, edges[1:-1])
    present = [b for b in range(6) if np.any(group == b)]
    mean = np.array([found[group == b].mean() for b in present])
    share = np.array([y[test][group == b].mean() for b in present])
    tests = [binomtest(int(y[test][group == b].sum()), int((group == b).sum())) for b in present]
    low, high = np.array([each.proportion_ci(0.95, "wilson") for each in tests]).T
    axes.errorbar(
        mean + 0.012 * i, share, [share - low, high - share], fmt="o", ms=4, color=COLORS[i], lw=1, label=title
    )
axes.set(xlabel="predicted probability", ylabel="frequency of malignant tumors")
axes.legend(loc="upper left")

# %%
# Several classes work in the same way with ``"categorical"`` and labels 0, 1, 2, ...
# ``rfgp.sklearn.GPClassifier`` takes labels of any type.
#
# Counts
# ------
# Counts of calls at 30 stations over 20 weeks. Stations were open for different hours, so the count has an exposure.
# The function is the logarithm of the mean count in one hour. Effects are factors: a term of 0.1 is about 10 %.

rng = np.random.default_rng(1)
station, week = (axis.ravel() for axis in np.meshgrid(np.arange(30), np.arange(20.0)))
hours = rng.integers(5, 40, len(week)).astype(float)
effect = 0.5 * rng.normal(size=30)
log_rate = -0.5 + 0.6 * np.sin(week / 3) + effect[station]
dispersion = 0.3
mean = hours * np.exp(log_rate)
calls = rng.poisson(mean * rng.gamma(1 / dispersion, dispersion, len(mean)))
table = {"station": station.astype(str), "week": week}
known = rng.random(len(week)) < 0.7
rows = {name: column[known] for name, column in table.items()}
new = {name: column[~known] for name, column in table.items()}
print(f"{known.sum()} counts from {calls.min()} to {calls.max()}")

# %%
# Real counts often vary more than Poisson counts of the same mean. The negative binomial likelihood has a dispersion:
# its variance is m + dispersion m². Fit both, and compare their scores on new rows and the coverage of their intervals.

kernel = k.RBF("week", name="course") + k.Group("station")
models = {
    name: rfgp.GP(kernel, name, seed=0).fit(rows, calls[known], exposure=hours[known])
    for name in ("poisson", "negative-binomial")
}
for name, model in models.items():
    counts = model.predict(new).observed(exposure=hours[~known])
    low, high = counts.interval(0.95)
    inside = np.mean((low <= calls[~known]) & (calls[~known] <= high))
    print(
        f"{name:18s} log density {counts.log_prob(calls[~known]).mean():.3f} nats a count, in the interval {inside:.1%}"
    )
print(f"fitted dispersion: {models['negative-binomial'].hyperparameters.dispersion.item():.3f}; true: {dispersion}")

# %%
# The Poisson likelihood is overconfident: far fewer than 95 % of the new counts are in its intervals. The score shows
# it too. The negative binomial likelihood finds the dispersion of the data.
#
# Terms of a logarithm are factors. ``exp()`` of a term has a log-normal distribution, with quantiles and intervals.

best = models["negative-binomial"]
weeks = np.linspace(0, 24, 120)
course = best.predict({"station": ["0"] * 120, "week": weeks}).terms["course"].centered().exp()
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.fill_between(weeks, *course.interval(0.95), color=COLORS[0], alpha=0.3, lw=0, label="95 % band")
axes.plot(weeks, course.median, color=COLORS[0], label="median")
axes.axvline(19, color="gray", lw=0.8, ls=":")
axes.set(xlabel="week (dotted: the last one)", ylabel="factor of the calls in an hour")
axes.legend(loc="upper center")

# %%
# A question about a sum of counts uses samples. ``sample`` of the function draws all rows together.

ahead = best.predict({"station": [str(i) for i in range(30)], "week": np.full(30, 20.0)})
draws = np.exp(np.asarray(ahead.sample(2000, seed=0))) * 20
shape = 1 / best.hyperparameters.dispersion.item()
totals = rng.poisson(draws * rng.gamma(shape, 1 / shape, draws.shape)).sum(axis=1)
low, high = np.quantile(totals, [0.025, 0.975])
print(f"calls of all stations in week 20, at 20 hours each: {totals.mean():.0f}, 95 % interval {low:.0f} to {high:.0f}")

# %%
# :doc:`/howto/likelihoods` has outliers ("student-t"), positive values ("gamma"), noise that varies
# ("heteroscedastic"), and the accuracy of the inference.
