"""
1. A first table and its report
===============================

You fit a model to a table in one call, and read its report: the selection, the scores, the warnings, the terms and the
standard deviations. The table is ``data/table.csv`` of the repository. Its columns are the settings of a machine, and
the target is a yield. The table is generated, so you can compare each answer with the truth.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rfgp
from rfgp import datasets
from rfgp import kernels as k
from rfgp.palette import COLORS

made = datasets.make_table(seed=0)
table = pd.DataFrame(made.X, columns=made.columns).assign(**{"yield": made.y})
train, test = table[:450], table[450:]
print(train.describe().loc[["mean", "std", "min", "max"]].round(3))

# %%
# Fit
# ---
# ``rfgp.GP()`` has no kernel, so the fit selects one. You pass a dataframe and the name of the target. Columns keep
# their units: the model standardizes them inside.
#
# The command line does the same, and also writes a report as one HTML file:
#
# .. code-block:: console
#
#    rfgp fit data/table.csv --target yield --out results
#    rfgp predict results/model.safetensors new.csv --out predictions.csv

gp = rfgp.GP(seed=0).fit(train, "yield")
print(gp.selection)

# %%
# Read the selection
# ------------------
# Each line of the report is a candidate: a kernel over all columns with an approximation. "exact" means that the
# candidate has no approximation, which is usual up to 2,000 rows.
#
# - **density** is the score: the mean log density of a row that the model has not seen, in nats. Larger is better.
#   Here each row is predicted from all others.
# - **s.e.** is the standard error of the score. Candidates of one round are scored on the same rows. Their difference
#   therefore has a smaller standard error, which is the attribute ``difference_error``.
# - **rows** is the number of training rows of the last round. Weak candidates are dropped after the first round.
# - **seconds** is the predicted time of a fit on one core, and not a measured time.
# - The last two lines are baselines: a constant and a linear model.
#
# On a few hundred rows the scores rarely determine one kernel. The fit then averages the best ones. A star marks each
# member of the average, with its weight. You can read the same facts from attributes:

report = gp.selection
best = report.chosen.last
linear = report.baselines["a linear model"]
print(f"candidate with the largest weight: {report.chosen.name}")
print(f"log density: {best.value:.3f} nats a row, standard error {best.error:.3f}, from {report.num_validation} rows")
print(f"a linear model is worse by {linear.difference:.3f} nats a row, standard error {linear.difference_error:.3f}")
print(f"rows of the score: {report.validation}")

# %%
# Which columns matter?
# ---------------------
# A lengthscale is the distance over which the function changes, in the units of its column. Divide it by the range of
# the column. A ratio far above 1 means that the function hardly depends on the column. The column "idle" has no effect
# in this table, and the model finds that out.

lengthscale = gp.hyperparameters["rbf.lengthscale"].tolist()
width = (train.max() - train.min())[list(made.columns)]
print(pd.Series(lengthscale / width, name="lengthscale / range").round(2))

# %%
# Two standard deviations
# -----------------------
# ``predict`` returns the distribution of the function: its value without the noise of one observation. More rows make
# its standard deviation smaller. ``observed()`` adds the noise, and returns the distribution of a new observation. No
# number of rows makes its standard deviation smaller than the noise.

function = gp.predict(test)
observation = function.observed()
print(f"standard deviation of the function:       {function.std.mean():.2f}")
print(f"standard deviation of an observation:     {observation.std.mean():.2f}")
print(f"standard deviation of the noise, fitted:  {gp.hyperparameters.noise.sqrt().item():.2f}; true: {5 * 0.25:.2f}")

# %%
# Use the function for questions about averages, such as "which setting is better?". Use the observation for questions
# about single outcomes, such as "will the next yield exceed 25?". Most intervals of the observation contain the yield
# of the test row. Intervals of the function do not, because the noise is not part of them.

low, high = observation.interval(0.95)
y = test["yield"].to_numpy()
print(f"test rows in the 95 % interval of the observation: {np.mean((low <= y) & (y <= high)):.1%}")
low, high = function.interval(0.95)
print(f"test rows in the 95 % interval of the function:    {np.mean((low <= y) & (y <= high)):.1%}")
print(f"root mean square error on the test rows:           {rfgp.metrics.rmse(y, observation):.2f}")
print(f"probability that a yield exceeds 25, first rows:   {1 - observation.cdf(25.0)[:3].round(3)}")

# %%
# The picture shows one column with the others at their means. The dark band is for the function, the light band for
# an observation.

angle = np.linspace(-1.5, 1.5, 200)
line = pd.DataFrame({name: np.full(200, train[name].mean()) for name in made.columns}).assign(angle=angle)
along = gp.predict(line)
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.fill_between(angle, *along.observed().interval(0.95), color=COLORS[0], alpha=0.15, lw=0, label="observation, 95 %")
axes.fill_between(angle, *along.interval(0.95), color=COLORS[0], alpha=0.45, lw=0, label="function, 95 %")
axes.plot(angle, along.mean, color=COLORS[0], label="mean")
axes.axvline(train["angle"].min(), color="gray", lw=0.8, ls=":")
axes.axvline(train["angle"].max(), color="gray", lw=0.8, ls=":")
axes.set(xlabel="angle (dotted: range of the training rows)", ylabel="yield")
axes.legend(loc="upper left")

# %%
# Beyond the rows both bands grow, because the model has no information there.
#
# Warnings
# --------
# A fit warns if its result needs your attention, and names the remedy. Here the yields are shuffled, so the columns
# contain no information about them. No candidate beats the baseline of a constant, and the fit warns.

shuffled = train.assign(**{"yield": np.random.default_rng(0).permutation(train["yield"])})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    rfgp.GP(seed=0).fit(shuffled, "yield")
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")

# %%
# Without ``catch_warnings`` Python prints the warning. All classes of warnings are in ``rfgp.errors``.
#
# Terms of your own
# -----------------
# The selected kernels are functions of all columns at once. If you know the structure, write a sum of terms instead.
# The report then has a line for each term. The **share** is the part of the variance of the function that the term has
# over the training rows. The **degrees of freedom** are the number of parameters that the data determine: near 1 for a
# line, more for a curve.

kernel = (
    k.RBF("angle") + k.Linear("temperature") + k.RBF(("temperature", "thickness"), name="interaction") + k.RBF("idle")
)
sum_of_terms = rfgp.GP(kernel, seed=0).fit(train, "yield")
for name, term in sum_of_terms.terms.items():
    print(f"{name:22s} share {term.share:6.1%}   degrees of freedom {term.degrees_of_freedom:5.2f}")

# %%
# The fit report describes the search for the hyperparameters: whether it converged, its iterations, and the log
# marginal likelihood. "at bounds" names hyperparameters that would go further if they could. Here it is the lengthscale
# of "idle": the longest one removes the column from the model.

print(sum_of_terms.fit_report)

# %%
# Which model is better, the average or your sum? Compare both by the same score: the log density of each row given all
# others.

for name, model in (("selected average", gp), ("sum of terms", sum_of_terms)):
    print(f"{name:17s} {model.leave_one_out().log_prob.mean():.4f} nats a row")

# %%
# The next tutorial reads the terms of a model in detail. :doc:`Tables </howto/tables>` describes the selection, and
# :doc:`the command line </howto/command-line>` lists all options of ``rfgp fit``.
