"""
8. Classes and counts
=====================

A likelihood is the distribution of an observation given the function. With other likelihoods than the Gaussian one, a
process models classes and counts. This tutorial classifies tumors as benign or malignant with calibrated probabilities,
and models the number of bicycles that are rented in an hour. It shows how to see that a likelihood is wrong.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
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
# The data set of scikit-learn has 569 tumors (UCI, W. H. Wolberg and others 1995, CC BY 4.0). We take five of its
# columns. The target is 1 for a malignant tumor. The function f is the logit of the probability, and has no bounds.

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
# Bicycles rented in Washington in each hour of four weeks (UCI, H. Fanaee-T and J. Gama 2013, CC BY 4.0). The function
# is the logarithm of the mean count in one hour. Effects are factors: a term of 0.1 is about 10 %. A product of a group
# and a period gives workdays and other days a course of their own.

hours = rfgp.datasets.load("bikes-hourly")
hours = hours[(hours["time"] >= "2012-09-03") & (hours["time"] < "2012-10-01")].reset_index(drop=True)
table = pd.DataFrame(
    {
        "hour": hours["time"].dt.hour.astype(float),
        "day": np.where(hours["workingday"] == 1, "workday", "free day"),
        "weather": hours["weather"],
        "temperature": hours["temperature"],
    }
)
rentals = hours["rentals"].to_numpy()
known = np.random.default_rng(1).random(len(rentals)) < 0.6
print(f"{known.sum()} of {len(rentals)} hours for the fit, counts from {rentals.min()} to {rentals.max()}")

# %%
# Real counts often vary more than Poisson counts of the same mean. The negative binomial likelihood has a dispersion:
# its variance is m + dispersion m². Fit both, and compare their scores on new rows and the coverage of their intervals.

kernel = (k.Group("day") * k.Periodic("hour", period=24)).named("course") + k.Group("weather") + k.Linear("temperature")
models = {
    name: rfgp.GP(kernel, name, seed=0).fit(table[known], rentals[known]) for name in ("poisson", "negative-binomial")
}
for name, model in models.items():
    counts = model.predict(table[~known]).observed()
    low, high = counts.interval(0.95)
    inside = np.mean((low <= rentals[~known]) & (rentals[~known] <= high))
    score = counts.log_prob(rentals[~known]).mean()
    print(f"{name:18s} log density {score:.3f} nats a count, in the interval {inside:.1%}")
print(f"fitted dispersion: {models['negative-binomial'].hyperparameters.dispersion.item():.3f}")

# %%
# The Poisson likelihood is overconfident: far fewer than 95 % of the new counts are in its intervals. The score shows
# it too. If units are observed for different times, pass them as ``exposure=``: the count of a unit is then the rate
# times its exposure.
#
# Terms of a logarithm are factors. ``exp()`` of a term has a log-normal distribution, with quantiles and intervals.

best = models["negative-binomial"]
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
for i, day in enumerate(("workday", "free day")):
    line = pd.DataFrame({"hour": np.linspace(0, 23, 93), "day": day, "weather": "clear", "temperature": 22.0})
    course = best.predict(line).terms["course"].centered().exp()
    axes.fill_between(line["hour"], *course.interval(0.95), color=COLORS[i], alpha=0.3, lw=0)
    axes.plot(line["hour"], course.median, color=COLORS[i], label=day)
axes.set(xlabel="hour of the day", ylabel="factor of the rentals", yscale="log")
axes.legend(loc="lower right")

# %%
# A question about a sum of counts uses samples. ``sample`` of the function draws all rows together. Here: how many
# bicycles will be rented from 16:00 to 19:00 on a clear workday of 25 °C?

evening = pd.DataFrame({"hour": [16.0, 17.0, 18.0], "day": "workday", "weather": "clear", "temperature": 25.0})
draws = np.exp(np.asarray(best.predict(evening).sample(2000, seed=0)))
shape = 1 / best.hyperparameters.dispersion.item()
rng = np.random.default_rng(0)
totals = rng.poisson(draws * rng.gamma(shape, 1 / shape, draws.shape)).sum(axis=1)
low, high = np.quantile(totals, [0.025, 0.975])
print(f"three hours: {totals.mean():.0f} bicycles, 95 % interval {low:.0f} to {high:.0f}")

# %%
# :doc:`/howto/likelihoods` has outliers ("student-t"), positive values ("gamma"), noise that varies
# ("heteroscedastic"), and the accuracy of the inference.
