"""The Gaussian process on the nodes of a graph."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import graphs
from graphs.graph import wrong_graph
from graphs.kernels import GraphKernel
from rfgp import random
from rfgp.ambient import plain
from rfgp.errors import InvalidArgumentError
from rfgp.fitting import fit_nodes
from rfgp.likelihoods import Likelihood
from rfgp.models.given import options_from
from rfgp.models.process import Fitted, Process, with_rows
from rfgp.parameters import Hyperprior
from rfgp.regression import Choice
from rfgp.regression.graph import WALK_OPTIONS, FeatureCheck, GraphOptions, NodeFamily, exact_features
from rfgp.rows import gathered
from rfgp.saving.graph import NODES

_MORE_WALK_OPTIONS = ("transitions", "permutation", "num_quantiles", "max_nonzeros", "tuples")
_OTHERS = ("features", "seed", "degree", "rank")


class GraphGP(Process[NodeFamily]):
    """A Gaussian process on graph nodes: through walks, series, a truncated spectrum, or the kernel itself.

    Inputs are node labels; the same node may be observed more than once, and values that are NaN are missing. Up to
    4,000 observations matrices are factorised; beyond that, and with sparse features, everything is solved by
    conjugate gradients, to a relative residual of 1e-9 for means and 1e-5 for variances and gradients
    (`rfgp.solvers.iterative`): the log marginal likelihood has a standard error then, `fit_report.likelihood_error`.

    Args:
        graph: The graph.
        kernel: The name of a graph kernel, of which a fit compares several starts; or a kernel, whose parameters are
            the start.
        features: "walks"; "chebyshev" or "taylor": polynomials of U; "spectrum": the smallest eigenvalues; "exact": the
            kernel by all eigenvectors; "precision": the kernel by its sparse precision, which it has for an integer
            order (`GraphKernel.precision`), exactly, to 10^6 nodes on meshes, roads and grids; "rational": a kernel of
            fractional order as a sum of such fields, its spectrum to a relative error that `check` states (Bolin, Simas
            and Xiong, 2024); or "auto": exact up to 2,000 nodes, beyond the precision where there is one and its factor
            is small enough, or else what is measured to have the least error on a sample of nodes, for the starting
            kernel and again for the fitted one. What it chose is readable in `.features`, and the measurement in
            `.advice`.
        num_walkers: Walkers per node, as the next seven for `graphs.sample_walks`.
        halt: The halting probability.
        lengths: The coupling of a node's lengths.
        directions: The coupling of a node's directions.
        exact_hops: An integer, a `graphs.HopRule`, or "auto", with at most four non-zeros a row for each walker; tuned
            to the starting kernel, and in a fit again to the fitted one.
        outputscale: Starting value; None: such that the prior variance of the observed nodes is on average that of
            the targets.
        noise: Starting value of the noise variance; None: a tenth of the targets' variance.
        likelihood: The law of an observation given the process, as for `rfgp.TableGP`: "normal", "bernoulli",
            "poisson", "negative-binomial", "gamma", "student-t", "heteroscedastic", or one of `rfgp.likelihoods`.
        approximation: "laplace" or "variational", as for `rfgp.TableGP`.
        priors: Log densities (objects with `log_prob`) of named hyperparameters, in the user's units; None for a name
            that is to have none. Unless given, the noise has one that keeps it from 0
            (`rfgp.parameters.BoundaryAvoiding`), and the factors of `graphs.kernels.FreeModulation` have log-normal
            ones of mode 1.
        seed: An integer, or None for one from the system, kept as `.seed`.
        degree: Of "chebyshev" and "taylor"; None: as high as four non-zeros a row for each walker allow. Of "rational"
            the number of fields, at most 8; None: the fewest within a relative error of 1e-3 at the starting kernel.
        rank: Of "spectrum"; None: four for each walker.
        walk_options: Further options of `graphs.sample_walks`, such as `permutation` or `max_nonzeros`.

    Hyperparameters: the kernel's parameters by their names, outputscale, noise, mean.

    Raises:
        InvalidArgumentError: an unknown name; `graphs` raises its own for the features.
    """

    codec = NODES
    strategy = staticmethod(fit_nodes)

    @plain()
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
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        *,
        degree: int | None = None,
        rank: int | None = None,
        walk_options: Mapping[str, Any] | None = None,
        likelihood: str | Likelihood = "normal",
        approximation: str | None = None,
    ) -> None:
        if (wrong := wrong_graph(graph)) is not None:
            raise InvalidArgumentError(wrong)
        arguments = {
            **locals(),
            "kernel": kernel if isinstance(kernel, GraphKernel) else graphs.kernels.by_name(kernel),
            "compares_starts": not isinstance(kernel, GraphKernel),
            "seed": random.resolve_seed(seed),
            "walk_options": dict(walk_options or {}),
        }
        super().__init__(NodeFamily.of(graph, options_from(GraphOptions, arguments)))

    # --- what is known of it ---------------------------------------------------------------------

    @property
    def options(self) -> GraphOptions:
        """What the constructor was given."""
        return self.family.options

    @property
    def graph(self) -> graphs.Graph:
        """The graph."""
        return self.family.graph

    @property
    def kernel(self) -> GraphKernel:
        """The graph kernel at its starting values."""
        return self.options.kernel

    @property
    def features(self) -> str:
        """The features in use; "auto" as long as they have not been chosen, which `fit` and `condition` do."""
        features = self.family.features
        return "auto" if features is None else features.name

    @property
    def is_exact(self) -> bool:
        """Whether there are no features in use but the kernel itself, by eigenvectors or by its sparse precision."""
        features = self.family.features
        return features is not None and features.is_exact

    @property
    def advice(self) -> graphs.Advice | None:
        """What "auto" measured when it chose; None where it did not."""
        return self.family.advice

    @property
    def choice(self) -> Choice | None:
        """What "auto" chose and why, in the same form as on tables; None where the features were named."""
        return self.family.choice or (None if self.fit_report is None else self.fit_report.choice)

    @property
    def walks(self) -> graphs.Walks | None:
        """The walks that the features come from, of no nodes; None where they are others."""
        return self.family.walks

    @property
    def walk_options(self) -> dict[str, Any]:
        """The options of `graphs.sample_walks` that the features are drawn with; a copy."""
        return self.options.walks

    @property
    def fitted_kernel(self) -> GraphKernel:
        """The graph kernel at the present hyperparameters, without the output scale."""
        return self.family.fitted_kernel(self.hyperparameters.values)

    # --- other models ----------------------------------------------------------------------------

    @plain()
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
        walks = {name: value for name, value in changes.items() if name not in _OTHERS}
        unknown = set(walks) - {*_MORE_WALK_OPTIONS, *self.options.walks}
        if unknown:
            raise InvalidArgumentError(f"redraw does not know {', '.join(sorted(unknown))}.")
        rows = with_rows(self)
        family = NodeFamily.of(self.graph, self._changed(changes, walks), **self._present_hops(walks))
        family = family if family.features is not None else family.chosen(family.options.kernel)
        regression = rows.replace(family=family)
        for warning in family.diagnosed(regression.hyperparameters, None, regression.scaling, None):
            warnings.warn(warning, stacklevel=3)
        return GraphGP.of(family, Fitted.of(regression))

    def _changed(self, changes: Mapping[str, Any], walks: Mapping[str, Any]) -> GraphOptions:
        """Return the options of a redraw; `walks` are those of the changes that belong to walks."""
        named: dict[str, Any] = {"features": self.features}
        named |= {name: changes[name] for name in _OTHERS if name in changes}
        if walks:
            named["features"] = "walks"
        if "seed" in named:
            named["seed"] = random.resolve_seed(named["seed"])
        named |= {name: value for name, value in walks.items() if name in WALK_OPTIONS}
        others = {name: value for name, value in walks.items() if name not in WALK_OPTIONS}
        named |= {"walk_options": {**self.options.walk_options, **others}, "compares_starts": False}
        return replace(self.options, kernel=self.fitted_kernel, **named)

    def _present_hops(self, walks: Mapping[str, Any]) -> dict[str, Any]:
        """Return the exact hops in use, which are tuned anew with other walks only."""
        if walks or self.walks is None:
            return {}
        return {"exact_hops": self.walks.settings.exact_hops}

    @plain()
    def exact(self) -> "GraphGP":
        """Return the exact process with a copy of the hyperparameters and the same data.

        Beyond 2,000 nodes through the kernel's sparse precision, where it has one whose factor is small enough
        (`features="precision"`); otherwise through the eigenvectors of up to 20,000 nodes (`features="exact"`).
        """
        return self.redraw(features=exact_features(self.graph, self.kernel))

    # --- what it answers -------------------------------------------------------------------------

    @plain()
    def check(self, *, seed: int = 0) -> FeatureCheck:
        """Return what is known about the error of the features, where the exact process need not be computed.

        Walks are compared with an independent draw of walks on held-out observations near each other; deterministic
        features with the exact kernel on a sample of nodes. `fit` does it, and warns.

        Args:
            seed: Of the choice of nodes.

        Raises:
            NotFittedError: there are no data yet.
        """
        now = self.regression
        rows = gathered(now.needed_rows("a check"))
        return self.family.check(now.hyperparameters, rows, now.scaling, seed)
