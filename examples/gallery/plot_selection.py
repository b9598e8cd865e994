"""
How the default chooses: the scores of its candidates
=====================================================

`rfgp.GP()` has no kernel. The fit tries candidates and scores each by the log density of left-out rows. The table has
209 computers of 1987 with their relative performance (UCI, P. Ein-Dor and J. Feldmesser, CC BY 4.0). Bars are one
standard error of the difference from the best, on the same rows. Filled points are members of the final average.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp.palette import COLORS

table = rfgp.datasets.load("machine")
gp = rfgp.GP(seed=0).fit(table.X, np.log(table.y))
report = gp.selection
print(report.reason)

rows = [
    (trial.name, trial.last, report.weight(i) > 0) for i, trial in enumerate(report.trials) if trial.last is not None
]
rows += [(name, score, False) for name, score in report.baselines.items()]
rows.sort(key=lambda row: -row[1].difference)
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for height, (name, score, is_member) in enumerate(rows):
    is_baseline = name in report.baselines
    color = COLORS[7] if is_baseline else COLORS[0]
    face = color if is_member else "white"
    axes.errorbar(-score.difference, height, xerr=score.difference_error, fmt="o", color=color, mfc=face, capsize=3)
axes.axvline(0, color="0.7", lw=0.8, zorder=0)
axes.set(yticks=range(len(rows)), yticklabels=[row[0] for row in rows])
axes.set(xlabel="log density of left-out rows minus that of the best, nats a row", title="candidates of rfgp.GP()")
