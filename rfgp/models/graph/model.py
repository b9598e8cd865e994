"""The Gaussian process on the nodes of a graph."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from rfgp import random
from rfgp.errors import InvalidArgumentError, PoorFeaturesWarning
from rfgp.inference import FeaturePrior, Rows, SparsePrior, gathered
from rfgp.inference import Prior as FunctionPrior
from rfgp.models.fitting import FitReport, Plan
from rfgp.models.functions import draw_functions
from rfgp.models.graph.checks import FeatureCheck, check_features
from rfgp.models.graph.choosing import choose, is_worth_it
from rfgp.models.graph.features import (
    NONZEROS_PER_WALKER,
    DrawnFeatures,
    NodeFeatures,
    chosen_size,
    make_features,
    same_hops,
)
from rfgp.models.graph.inputs import NodeInputs, with_default_priors
from rfgp.models.graph.training import continued, normalize_scale, train
from rfgp.models.process import Process, snapshot
from rfgp.parameters import Hyperparameters, Prior

FEATURES = ("auto", "walks", "chebyshev", "taylor", "spectrum", "exact")
EXACT_LIMIT = 2000
_MOST_CHANGES = 2
_MORE_WALK_OPTIONS = ("transitions", "permutation", "num_quantiles", "max_nonzeros", "tuples")


class GraphGP(Process):
    """A Gaussian process on graph nodes: through walks, series, a truncated spectrum, or the exact kernel.

    Inputs are node labels; the same node may be observed more than once, and values that are NaN are missing. Up to
    4,000 observations matrices are factorised; beyond that, and with sparse features, everything is solved by
    conjugate gradients, to a relative residual of 1e-9 for means and 1e-5 for variances and gradients
    (`rfgp.inference.sparse`): the log marginal likelihood has a standard error then, `fit_report.likelihood_error`.

    Args:
        graph: The graph.
        kernel: The name of a graph kernel, of which a fit compares several starts; or a kernel, whose parameters are
            the start.
        features: "walks"; "chebyshev" or "taylor": polynomials of U; "spectrum": the smallest eigenvalues; "exact"; or
            "auto": exact up to 2,000 nodes, beyond what is measured to have the least error on a sample of nodes, for
            the starting kernel and again for the fitted one. What it chose is readable in `.features`, and the
            measurement in `.advice`.
        num_walkers: Walkers per node, as the next seven for `graphs.sample_walks`.
        halt: The halting probability.
        lengths: The coupling of a node's lengths.
        directions: The coupling of a node's directions.
        exact_hops: An integer, a `graphs.HopRule`, or "auto", with at most four non-zeros a row for each walker; tuned
            to the starting kernel, and in a fit again to the fitted one.
        outputscale: Starting value; None: such that the prior variance of the observed nodes is on average that of
            the targets.
        noise: Starting value of the noise variance; None: a tenth of the targets' variance.
        priors: Log densities (objects with `log_prob`) of named hyperparameters, in the user's units; None for a name
            that is to have none. Unless given, the noise has one that keeps it from 0
            (`rfgp.parameters.BoundaryAvoiding`), and the factors of `graphs.kernels.FreeModulation` have log-normal
            ones of mode 1.
        seed: An integer, or None for one from the system, kept as `.seed`.
        degree: Of "chebyshev" and "taylor"; None: as high as four non-zeros a row for each walker allow.
        rank: Of "spectrum"; None: four for each walker.
        walk_options: Further options of `graphs.sample_walks`, such as `permutation` or `max_nonzeros`.

    Hyperparameters: the kernel's parameters by their names, outputscale, noise, mean.

    Raises:
        InvalidArgumentError: an unknown name; `graphs` raises its own for the features.
    """

    def __init__(
        self,
        graph: graphs.Graph,
        kernel: str | GraphKernel = "diffusion",
        features: str = "auto",
        num_walkers: int = 64,
        halt: Any = 0.1,
        lengths: str = "systematic",
        directions: str = "stratified",
        exact_hops: int | str | graphs.HopRule = "auto",
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Prior | None] | None = None,
        seed: int | None = None,
        *,
        degree: int | None = None,
        rank: int | None = None,
        walk_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(graph, graphs.Graph):
            raise InvalidArgumentError(f"A graphs.Graph is needed, got {type(graph).__name__}; build one first.")
        self._compares_starts = not isinstance(kernel, GraphKernel)
        kernel = kernel if isinstance(kernel, GraphKernel) else graphs.kernels.by_name(kernel)
        super().__init__(NodeInputs(graph, kernel), outputscale, noise, with_default_priors(kernel, priors))
        if not isinstance(features, str) or features not in FEATURES:
            raise InvalidArgumentError(f"features must be one of {', '.join(map(repr, FEATURES))}, got {features!r}.")
        self.graph, self.kernel, self.seed = graph, kernel, random.resolve_seed(seed)
        self.advice: graphs.Advice | None = None
        main = {"num_walkers": num_walkers, "halt": halt, "lengths": lengths, "directions": directions}
        self._walk_options: dict[str, Any] = {**main, "exact_hops": exact_hops, **(walk_options or {})}
        self._series_options = {"degree": degree, "rank": rank}
        self._options: dict[str, Any] = {"outputscale": outputscale, "noise": noise, "priors": priors}
        self._is_auto = features == "auto" and graph.num_nodes > EXACT_LIMIT
        self._node_features: NodeFeatures | None = None
        if not self._is_auto:
            self._node_features = self._make("exact" if features == "auto" else features, self.seed)

    @property
    def features(self) -> str:
        """The features in use; "auto" as long as they have not been chosen, which `fit` and `condition` do."""
        return "auto" if self._node_features is None else self._node_features.name

    def redraw(self, **changes: Any) -> "GraphGP":
        """Return a new model with new features; what is not named stays, data and hyperparameters too.

        Exact hops that were chosen stay as they are unless an option of the walks is named; then they are chosen anew,
        for the fitted kernel.

        Args:
            changes: `features`, `seed`, `degree`, `rank`, or any option of the walks, with which features are walks.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        series = {name: changes.pop(name) for name in tuple(self._series_options) if name in changes}
        named: dict[str, Any] = {"features": self.features, "seed": self.seed}
        named.update({name: changes.pop(name) for name in tuple(named) if name in changes})
        unknown = set(changes) - {*_MORE_WALK_OPTIONS, *self._walk_options}
        if unknown:
            raise InvalidArgumentError(f"redraw does not know {', '.join(sorted(unknown))}.")
        walks = self._walks
        kept = None if changes or walks is None else walks.settings.exact_hops
        if changes:
            named["features"] = "walks"
        options = {**self._walk_options, **changes}
        main = {name: options.pop(name) for name in ("num_walkers", "halt", "lengths", "directions", "exact_hops")}
        hops = main["exact_hops"] if kept is None else kept  # tuned anew with other walks only
        given = {**main, "exact_hops": hops, **self._series_options, **series}
        other = GraphGP(self.graph, self.fitted_kernel, **named, **given, **self._options, walk_options=options)
        other._walk_options = {**main, **options}
        snapshot(self, other)
        if other._node_features is None:
            other._use(other._choose(other.kernel), other.kernel)
        other._check_fit()
        return other

    def exact(self) -> "GraphGP":
        """Return the exact process with a copy of the hyperparameters and the same data."""
        return self.redraw(features="exact")

    def sample_functions(self, num_samples: int, *, seed: int | None = None) -> Callable[[Any], Any]:
        """Draw functions from the posterior, by pathwise conditioning: one draw, evaluated wherever it is asked for.

        The values at any nodes have the joint law of `predict`; memory does not grow with how many are asked for.

        Args:
            num_samples: s.
            seed: An integer, or None for one from the system.

        Returns:
            A function that maps n labels to values (s, n), or (s, n, k) for k outputs: arrays to arrays, tensors to
            tensors.

        Raises:
            NotFittedError: there are no data yet.
            InvalidArgumentError: s is not a positive integer.
        """
        return draw_functions(self, num_samples, seed)

    def check(self, *, seed: int = 0) -> FeatureCheck:
        """Return what is known about the error of the features, where the exact process need not be computed.

        Walks are compared with an independent draw of walks on held-out observations near each other; deterministic
        features with the exact kernel on a sample of nodes. `fit` does it, and warns.

        Args:
            seed: Of the choice of nodes.

        Raises:
            NotFittedError: there are no data yet.
        """
        state = self._known()
        rows, known = gathered(state.known_data("a check").rows), state.hyperparameters
        own, other = self._node_features, None
        assert own is not None
        if isinstance(own, DrawnFeatures) and isinstance(own.draw, graphs.Walks):
            hops = own.draw.settings.exact_hops
            other = self._make("walks", random.child_seed(self.seed, random.Role.CHECK), exact_hops=hops)
        names = ("outputscale", "mean", "noise")
        outputscale, mean, noise = (known.standardized(name).detach().double() for name in names)
        values = (self._theta(known).detach(), outputscale, mean.reshape(-1), noise)
        scale = -state.scaling.targets.log_jacobian(1) / rows.num_outputs
        return check_features(self.graph, self.fitted_kernel, rows, (own, other), values, scale, seed)

    @property
    def walk_options(self) -> dict[str, Any]:
        """The options of `graphs.sample_walks` that the features are drawn with; a copy."""
        return dict(self._walk_options)

    @property
    def fitted_kernel(self) -> GraphKernel:
        """The graph kernel at the present hyperparameters, without the output scale."""
        return self.kernel.with_values(self._theta(self.hyperparameters).detach().numpy())

    # --- what the base class asks for ------------------------------------------------------------

    def _prior(self, hyperparameters: Hyperparameters, draw: Any) -> FunctionPrior:
        assert self._node_features is not None
        return self._node_features.prior(self._theta(hyperparameters), hyperparameters.standardized("outputscale"))

    def _set_starts(self, hyperparameters: Hyperparameters, rows: Rows) -> None:
        if self._is_auto:
            self._use(self._choose(self.kernel), self.kernel)
        if self._options["outputscale"] is None:
            normalize_scale(lambda: self._prior(hyperparameters, None), hyperparameters, gathered(rows))

    def _train(self, plan: Plan) -> FitReport:
        starts = {name for name in ("outputscale", "noise") if self._options[name] is None}
        names = frozenset({*starts, "kernel"} if self._compares_starts else ())
        report = train(self, plan, names, self.kernel.parameters)
        for _ in range(_MOST_CHANGES):
            if not self._improve():
                break
            report = continued(report, train(self, plan, frozenset(), self.kernel.parameters, is_continued=True))
        return report

    def _improve(self) -> bool:
        """Take features that are better for the fitted kernel, and return whether there are some."""
        kernel, walks = self.fitted_kernel, self._walks
        if self._is_auto:
            advice = self._choose(kernel)
            if is_worth_it(advice, self.features):
                self._use(advice, kernel)
                return True
            self.advice = advice
        if walks is None or self._walk_options["exact_hops"] != "auto":
            return False
        tuned = self._make("walks", self.seed, kernel)
        if same_hops(tuned, walks):
            return False
        self._node_features, self._kept = tuned, None
        return True

    def _check_fit(self, report: FitReport | None = None) -> None:
        assert self._node_features is not None
        self._node_features.check(self.fitted_kernel)
        if report is None or self.features == "exact":
            return
        found = self.check()
        if found.is_poor:
            remedy = (
                "More of them (num_walkers, degree, rank), other ones (features='auto' measures which), or the exact "
                "process (gp.exact(), up to 20,000 nodes) are the remedy; long lengthscales with little noise need a "
                "truncated spectrum."
            )
            message = f"These features are poor for {self.fitted_kernel} and this noise. {found}. {remedy}"
            warnings.warn(PoorFeaturesWarning(message), stacklevel=3)

    # --- features --------------------------------------------------------------------------------

    @property
    def _walks(self) -> graphs.Walks | None:
        """The walks that the features come from, of no nodes."""
        draw = getattr(self._node_features, "draw", None)
        return draw if isinstance(draw, graphs.Walks) else None

    def _make(self, name: str, seed: int, tuned_to: GraphKernel | None = None, **changes: Any) -> NodeFeatures:
        options = {**self._walk_options, **self._series_options, **changes}
        return make_features(name, self.graph, self.kernel if tuned_to is None else tuned_to, seed, options)

    def _choose(self, kernel: GraphKernel) -> graphs.Advice:
        rank = self._series_options["rank"] or NONZEROS_PER_WALKER * int(self._walk_options["num_walkers"])
        return choose(self.graph, kernel, partial(self._make, tuned_to=kernel), min(rank, self.graph.num_nodes))

    def _use(self, advice: graphs.Advice, kernel: GraphKernel) -> None:
        self.advice, self._kept = advice, None
        self._node_features = self._make(advice.best.features, self.seed, kernel)

    def _theta(self, hyperparameters: Hyperparameters) -> Tensor:
        values = [hyperparameters.standardized(name) for name in self.kernel.parameters]
        return torch.stack(values) if values else torch.zeros(0, dtype=torch.float64)


def num_nonzeros(model: GraphGP) -> int:
    """Return the number of non-zero features of a model's training rows.

    Raises:
        NotFittedError: there are no data yet.
    """
    rows = gathered(model._known().known_data("features").rows)
    prior = model._prior(model.hyperparameters, None)
    if isinstance(prior, SparsePrior):
        return len(prior.features.at(rows.inputs, True).values)
    return len(rows) * (prior.num_features if isinstance(prior, FeaturePrior) else model.graph.num_nodes)


def describe_features(model: GraphGP) -> str:
    """Return what a model's features are, in words."""
    sizes = chosen_size(model._node_features)
    words = {
        "exact": "the exact kernel",
        "walks": f"{model.walk_options['num_walkers']} walkers per node",
        "chebyshev": f"a Chebyshev polynomial of degree {sizes.get('degree')}",
        "taylor": f"the power series cut at degree {sizes.get('degree')}",
        "spectrum": f"the {sizes.get('rank')} smallest eigenvalues of the Laplacian",
    }
    return words.get(model.features, "features that are yet to be chosen")
