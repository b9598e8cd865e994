"""
1. A first table and its report
===============================

You fit a model to a table in one call, and read its report: the selection, the scores, the warnings, the terms and the
standard deviations. The table has 333 penguins near Palmer Station, Antarctica, and the target is their body mass
(K. B. Gorman, T. D. Williams, W. R. Fraser 2014, CC0).
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

penguins = rfgp.datasets.load("penguins").dropna()  # eleven have empty cells, which tutorial 3 keeps
penguins = penguins.sample(frac=1, random_state=0, ignore_index=True)
columns = ["species", "sex", "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
train, test = penguins.loc[:249, columns], penguins.loc[250:, columns]
print(train.describe().loc[["mean", "std", "min", "max"]].round(1))

# %%
# Fit
# ---
# ``rfgp.GP()`` has no kernel, so the fit selects one. You pass a dataframe and the name of the target. Columns keep
# their units: the model standardizes them inside. Text becomes one indicator column for each species and sex.
#
# The command line does the same, and also writes a report as one HTML file:
#
# .. code-block:: console
#
#    rfgp fit penguins --target body_mass_g --missing drop --out results
#    rfgp predict results/model.safetensors new.csv --out predictions.csv

gp = rfgp.GP(seed=0).fit(train, "body_mass_g")
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
# The linear model is worse by four standard errors, so the difference is real. It is also small: 0.06 nats are error
# bars that are 6 % wider. Most of the mass of a penguin follows from straight lines.
#
# Two standard deviations
# -----------------------
# ``predict`` returns the distribution of the function: its value without the noise of one observation. Here it is the
# mean mass of all penguins with these measurements. More rows make its standard deviation smaller. ``observed()`` adds
# the noise, and returns the distribution of a new observation: the mass of one penguin. No number of rows makes its
# standard deviation smaller than the noise.

function = gp.predict(test)
observation = function.observed()
print(f"standard deviation of the function:       {function.std.mean():.0f} g")
print(f"standard deviation of an observation:     {observation.std.mean():.0f} g")
print(f"standard deviation of the noise, fitted:  {gp.hyperparameters.noise.sqrt().item():.0f} g")

# %%
# Use the function for questions about averages, such as "which sex is heavier?". Use the observation for questions
# about single outcomes, such as "will this penguin exceed 5 kg?". Most intervals of the observation contain the mass
# of the test row. Intervals of the function do not, because the noise is not part of them.

low, high = observation.interval(0.95)
y = test["body_mass_g"].to_numpy()
print(f"test rows in the 95 % interval of the observation: {np.mean((low <= y) & (y <= high)):.1%}")
low, high = function.interval(0.95)
print(f"test rows in the 95 % interval of the function:    {np.mean((low <= y) & (y <= high)):.1%}")
print(f"root mean square error on the test rows:           {rfgp.metrics.rmse(y, observation):.0f} g")
print(f"probability that a mass exceeds 5 kg, first rows:  {1 - observation.cdf(5000.0)[:3].round(3)}")

# %%
# The picture shows one column with the others fixed: female penguins of one species, with its mean bill. The dark band
# is for the function, the light band for an observation.

flipper = np.linspace(160, 245, 200)
gentoo = train[(train["species"] == "Gentoo") & (train["sex"] == "female")]
bill = gentoo[["bill_length_mm", "bill_depth_mm"]].mean()
line = pd.DataFrame({"species": "Gentoo", "sex": "female", "flipper_length_mm": flipper, **bill})
along = gp.predict(line)
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.fill_between(
    flipper, *along.observed().interval(0.95), color=COLORS[0], alpha=0.15, lw=0, label="one penguin, 95 %"
)
axes.fill_between(flipper, *along.interval(0.95), color=COLORS[0], alpha=0.45, lw=0, label="function, 95 %")
axes.plot(flipper, along.mean, color=COLORS[0], label="mean")
axes.plot(gentoo["flipper_length_mm"], gentoo["body_mass_g"], ".", color="black", label="training rows")
axes.set(xlabel="length of the flipper, mm", ylabel="body mass, g", title="female gentoo penguins")
axes.legend(loc="lower right")

# %%
# Beyond the rows the bands grow, because the model has no information there. The points do not all have the mean bill,
# so the picture is a cut through the model and not a fit to these points alone.
#
# Which columns matter?
# ---------------------
# A lengthscale is the distance over which the function changes, in the units of its column. Divide it by the range of
# the column. A ratio far above 1 means that the function is nearly a straight line in the column, or does not depend on
# it. A term of its own tells which one:

kernel = (
    k.Group("species")
    + k.Group("sex")
    + k.Linear("flipper_length_mm")
    + k.Linear("bill_depth_mm")
    + k.RBF("bill_length_mm", name="bill")
)
sum_of_terms = rfgp.GP(kernel, seed=0).fit(train, "body_mass_g")
for name, term in sum_of_terms.terms.items():
    print(f"{name:26s} share {term.share:6.1%}   degrees of freedom {term.degrees_of_freedom:5.2f}")

# %%
# The selected kernels are functions of all columns at once. If you know the structure, write a sum of terms instead.
# The **share** is the part of the variance of the function that the term has over the training rows. The **degrees of
# freedom** are the number of parameters that the data determine: near 1 for a line, more for a curve. The length of the
# bill has the freedom to curve, and does not use it.
#
# The fit report describes the search for the hyperparameters: whether it converged, its iterations, and the log
# marginal likelihood. "at bounds" names hyperparameters that would go further if they could.

print(sum_of_terms.fit_report)

# %%
# Which model is better, the average or your sum? Compare both by the same score: the log density of each row given all
# others, and of the test rows.

for name, model in (("selected average", gp), ("sum of terms", sum_of_terms)):
    print(
        f"{name:17s} left-out rows {model.leave_one_out().log_prob.mean():.3f}, "
        f"test rows {model.predict(test).observed().log_prob(y).mean():.3f} nats a row"
    )

# %%
# Warnings
# --------
# A fit warns if its result needs your attention, and names the remedy. Here the masses are shuffled, so the columns
# contain no information about them. No candidate beats the baseline of a constant, and the fit warns.

shuffled = train.assign(body_mass_g=np.random.default_rng(0).permutation(train["body_mass_g"]))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    rfgp.GP(seed=0).fit(shuffled, "body_mass_g")
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")

# %%
# Without ``catch_warnings`` Python prints the warning. All classes of warnings are in ``rfgp.errors``.
#
# The next tutorial reads the terms of a model in detail. :doc:`Tables </howto/tables>` describes the selection, and
# :doc:`the command line </howto/command-line>` lists all options of ``rfgp fit``.
