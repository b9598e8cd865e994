"""The races of docs/rivals.md, and the names of their models."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Race:
    """A comparison on several data sets.

    Attributes:
        title: The heading.
        ours: The model of this package that is compared with the others.
        budgets: Models of this package that form its curve over budgets.
        error: The name of the second figure: "RMSE" or "error rate".
        clock: The clock of the seconds.
        seconds: The names of the seconds in lines of results, which are added.
        has_picture: Whether the seconds of all models are known, so that scores are drawn against them.
    """

    title: str
    ours: str = "rfgp"
    budgets: tuple[str, ...] = ()
    error: str = "RMSE"
    clock: str = "processor seconds of the fit"
    seconds: tuple[str, ...] = ("processor",)
    has_picture: bool = True


_WALL = "seconds of the fit"
_BOTH = "processor seconds of the fit and predictions"
_BUDGETS = ("features-64", "features-256", "features-1024", "neighbors-10", "neighbors-40")

RACES = {
    "tables": Race("Twenty tables", "default", _BUDGETS),
    "maps": Race("Series, maps and cubes", "equispaced"),
    "counts": Race("Counts", "rfgp-negative", clock=_WALL, seconds=("seconds",)),
    "classes": Race("Classes", error="error rate", clock=_WALL, seconds=("seconds",)),
    "roads": Race("Speeds on San Jose's highways", has_picture=False),
    "surfaces": Race("Meshes and a road graph", "rfgp-auto", clock=_BOTH, seconds=("processor", "predict_processor")),
    "flights": Race("Delays of 327,346 flights", "terms"),
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
