"""Classes of table rows: probabilities by Gaussian processes of other packages, boosted trees, logistic regression.

Protocol. Tables of `rfgp.datasets`: abalone-3 (rings up to 8, 9 and 10, more), abalone-28 (all numbers of rings),
banknote, car, chess, cmc, nursery, wifi, yeast. Text columns are one-hot, and the names of yeast are dropped. The first
tenth of numpy's permutation at the seed is the test part, the rest training. Columns are standardized on training rows,
constant ones dropped. Labels are codes of the classes that training rows have. A test row of another class is kept: it
counts as an error, at a probability of 1e-12, for every model. Probabilities are floored there, without being made to
sum to one again. Scores: accuracy; NLPD; expected calibration error (15 bins of equal width of the top probability).

- rfgp: `rfgp.sklearn.GPClassifier` of a Gaussian kernel with 512 random frequencies, at seed 0.
- gpc: scikit-learn's GaussianProcessClassifier (Laplace), RBF with one lengthscale and an amplitude, one-vs-rest, on a
  random subset of 1,000 training rows. Classes that are not in the subset have probability 1e-12.
- svgp: GPyTorch's SVGP, 512 learned inducing points from random rows (256 for ten or more classes). The kernel is
  Matern 5/2 with one lengthscale per column, the same for the latent processes of all classes. The likelihood is
  softmax, or probit for two classes. Adam at 0.03, batches of 256 rows, 1,024 above 10,000 rows, for 100 epochs or
  600 s. It stops earlier if the mean ELBO over ten epochs improves by less than 0.002 nats per row over the ten before.
- gpboost: for two classes, bernoulli_logit with GPBoost's Vecchia approximation, 30 neighbors, Matern 3/2, ARD.
- boosting: HistGradientBoostingClassifier with its defaults, and early stopping on a random tenth of the training rows
  (without rows that are the only ones of their class). The model boosting-slow is the same at a learning rate of 0.03
  and with at most 1,000 rounds. It was added after the first split had shown the results of boosting for rare classes.
- logistic: multinomial logistic regression, scikit-learn's penalty (C = 1).

    python -m benchmarks.races.classification [--tables T,...] [--racers R,...] [--splits N] [--out FILE]
"""

import argparse
from typing import Any

import numpy as np

import rfgp
from benchmarks import models, scores
from benchmarks.race import Model, Race, Split, tenth

TABLES = ("banknote", "cmc", "wifi", "car", "yeast", "abalone-3", "abalone-28", "nursery", "chess")
SLOW = {"nursery": 3, "chess": 3, "abalone-28": 2}


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return standardized rows and codes; a test row of a class that training rows lack has code -1."""
    rows = rfgp.datasets.load(name.partition("-")[0])
    y = np.digitize(rows.y, [8.5, 10.5]) if name == "abalone-3" else np.asarray(rows.y)
    X = np.asarray(rows.X, dtype=np.float64)
    train, test = tenth(len(y), seed)
    X = X[:, X[train].std(0) > 0]
    X = (X - X[train].mean(0)) / X[train].std(0)
    classes, codes = np.unique(y[train], return_inverse=True)
    place = np.minimum(np.searchsorted(classes, y[test]), len(classes) - 1)
    return Split(X[train], codes, X[test], np.where(classes[place] == y[test], place, -1))


def ours() -> Any:
    """Return the classifier of this package."""
    from rfgp.sklearn import GPClassifier

    return GPClassifier(rfgp.kernels.RBF(), rfgp.RandomFeatures(512), random_state=0)


def gpc() -> Any:
    """Return scikit-learn's process."""
    from sklearn.gaussian_process import GaussianProcessClassifier, kernels

    return GaussianProcessClassifier(1.0 * kernels.RBF(1.0), random_state=0)


def logistic() -> Any:
    """Return logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=5000)


RACE = Race(
    "benchmarks.races.classification",
    TABLES,
    split,
    {
        "rfgp": Model("rfgp.sklearn", models.classifier(ours)),
        "logistic": Model("sklearn.linear_model", models.classifier(logistic)),
        "boosting": Model("sklearn.ensemble", models.class_boosting()),
        "boosting-slow": Model("sklearn.ensemble", models.class_boosting(learning_rate=0.03, max_iter=1000)),
        "gpboost": Model("gpboost", models.gpboost("bernoulli_logit", num_neighbors=30), ("banknote",)),
        "gpc": Model("sklearn.gaussian_process", models.classifier(gpc, 1000), splits=SLOW),
        "svgp": Model("gpytorch", models.class_svgp, splits=SLOW | {"nursery": 2, "chess": 1}),
    },
    lambda found, rows: scores.of_classes(found, rows.w),
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
