"""The Gaussian process on the nodes of a graph: `GP` of one kernel on nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

import graphs
from graphs.graph import not_a_graph_message
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import precision_order
from rfgp import random
from rfgp.ambient import plain
from rfgp.approximations import (
    Approximation,
    Chebyshev,
    Exact,
    MeasuredFeatures,
    RandomWalks,
    RationalPrecision,
    SparsePrecision,
    Taylor,
    TruncatedSpectrum,
)
from rfgp.approximations.measured import MOST_EXACT_NODES, has_small_precision
from rfgp.approximations.node_features import NONZEROS_PER_WALKER, make_features
from rfgp.approximations.nodes import NodeTerm, nodes_of
from rfgp.errors import InvalidArgumentError, PoorFeaturesWarning, arguments
from rfgp.kernels import Nodes
from rfgp.likelihoods import Likelihood
from rfgp.models.fields import starts
from rfgp.models.gp import GP
from rfgp.parameters import Hyperprior
from rfgp.regression import FitReport, SelectionReport
from rfgp.regression.graph import FeatureCheck, check_features, features_of, selection_of_features
from rfgp.rows import gathered


class GraphGP(GP):
    """A Gaussian process on the nodes of a graph: `GP` of one `kernels.Nodes`.

    Inputs are node labels (n,). The same node may be observed more than once, and rows whose value is NaN are left out.
    Up to 4,000 observations matrices are factorised. Beyond that, sparse features are solved by conjugate gradients, to
    a relative residual of 1e-9 for means and 1e-5 for variances and gradients (`rfgp.solvers.iterative`): the log
    marginal likelihood then has a standard error, `fit_report.likelihood_error`.

    Args:
        graph: The graph.
        kernel: The name of a graph kernel, of which a fit compares several starts; or a kernel, whose parameters are
            the start.
        features: "walks"; "chebyshev" or "taylor": polynomials of U; "spectrum": the smallest eigenvalues; "exact": the
            kernel by all eigenvectors; "precision": the kernel by its sparse precision, which it has for an integer
            order (`GraphKernel.precision`), exactly, to 10^6 nodes on meshes, roads and grids; "rational": a kernel of
            fractional order as a sum of such fields, its spectrum to a relative error that `diagnose` states (Bolin,
            Simas and Xiong, 2024); or "auto": exact up to 2,000 nodes, beyond that the
            precision if its factor is small enough, or else the features with the least error on a sample of nodes,
            measured at the starting kernel and again at the fitted one (`rfgp.MeasuredFeatures`). The choice is in
            `.features`, and the measurements are in `.advice`.
        num_walkers: Walkers per node, as the next seven for `graphs.sample_walks`.
        p_halt: The halting probability.
        lengths: The coupling of a node's lengths.
        directions: The coupling of a node's directions.
        exact_hops: An integer, a `graphs.HopRule`, or "auto", with at most four non-zeros a row for each walker; tuned
            to the starting kernel, and in a fit again to the fitted one.
        outputscale: Starting value. If None, the prior variance of the observed nodes is on average that of the
            targets.
        noise: Starting value of the noise variance. If None, several are compared.
        priors: Log densities (objects with `log_prob`) of named hyperparameters, in the user's units; None for a name
            that is to have none. Unless given, the noise has one that keeps it from 0
            (`rfgp.parameters.BoundaryAvoiding`), and the factors of `graphs.kernels.FreeModulation` have log-normal
            ones of mode 1.
        seed: The seed of everything random. If None, one from the system.
        degree: Of "chebyshev" and "taylor"; None: as high as four non-zeros a row for each walker allow. Of "rational"
            the number of fields, at most 8; None: the fewest within a relative error of 1e-3 at the starting kernel.
        rank: Of "spectrum"; None: four for each walker.
        walk_options: Further options of `graphs.sample_walks`, such as `permutation` or `max_nonzeros`.
        likelihood: As for `rfgp.GP`.
        inference: As for `rfgp.GP`.

    The hyperparameters are those of the kernel by their names, outputscale, noise and mean.

    Raises:
        InvalidArgumentError: an unknown name; `graphs` raises its own for the features.
    """

    leaf = Nodes

    @plain()
    def __init__(
        self,
        graph: graphs.Graph,
        kernel: str | GraphKernel = "diffusion",
        features: str = "auto",
        num_walkers: int = 64,
        p_halt: Any = 0.1,
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
        likelihood: str | Likelihood = "gaussian",
        inference: str | None = None,
    ) -> None:
        if (wrong := not_a_graph_message(graph)) is not None:
            raise InvalidArgumentError(wrong)
        if not isinstance(features, str) or features not in _KINDS:
            raise InvalidArgumentError(f"features must be one of {', '.join(map(repr, _KINDS))}, got {features!r}.")
        seed = random.resolve_seed(seed)
        options = {"p_halt": p_halt, "lengths": lengths, "directions": directions, "exact_hops": exact_hops}
        walks = RandomWalks(num_walkers, **options, **dict(walk_options or {}), seed=seed)
        nodes = Nodes(graph, kernel)
        approximation = _approximation(features, nodes, walks, degree, rank)
        start = starts(outputscale=outputscale, noise=noise)
        super().__init__(nodes, likelihood, approximation, inference=inference, start=start, priors=priors, seed=seed)

    @property
    def graph(self) -> graphs.Graph:
        """The graph."""
        graph: graphs.Graph = nodes_kernel(self).graph
        return graph

    @property
    def features(self) -> str:
        """The features in use. They are "auto" until `fit` or `condition` has chosen them."""
        if not self.family.priors:
            given = self._used
            if isinstance(given, MeasuredFeatures) and self.graph.num_nodes <= MOST_EXACT_NODES:
                return "exact"
            return next(name for name, kind in _KINDS.items() if type(given) is kind)
        found = features_of(self.family.priors[0])
        return "precision" if found is None else found.name

    @property
    def is_exact(self) -> bool:
        """Whether the kernel itself is in use, by eigenvectors or by its sparse precision."""
        return self.features in ("exact", "precision")

    @property
    def approximation(self) -> Approximation:
        """The approximation in use: the one that "auto" chose, once there are data."""
        given = self._used
        if not isinstance(given, MeasuredFeatures) or not self.family.priors:
            return given
        walks = replace(given.walks, seed=given.seed)
        return walks if self.features == "walks" else _KINDS[self.features](**self.feature_size)

    @property
    def _used(self) -> Approximation:
        """The approximation of the term once there are data, else the given one."""
        spec = self.family
        return next(iter(spec.approximations.values()), spec.options.approximations)

    @property
    def advice(self) -> graphs.Advice | None:
        """The measured errors by which "auto" chose. None if nothing was measured."""
        terms = self.family.priors
        return terms[0].advice if terms and isinstance(terms[0], NodeTerm) else None

    @property
    def selection(self) -> SelectionReport | None:
        """The features that "auto" compared, with their errors. None if they were named."""
        return selection_of_features(self.family) or super().selection

    @property
    def walks(self) -> graphs.Walks | None:
        """The walks that the features come from, of no nodes. None if the features are others."""
        found = features_of(self.family.priors[0]) if self.family.priors else None
        return None if found is None else found.walks

    @property
    def feature_size(self) -> dict[str, int]:
        """The degree of a series, the number of fields or the rank of a spectrum, by its name."""
        found = features_of(self.family.priors[0]) if self.family.priors else None
        return {} if found is None else found.size

    @property
    def walk_options(self) -> RandomWalks:
        """The random walks of the model. If its features are others by name, the usual ones."""
        given = self._used
        given = given.walks if isinstance(given, MeasuredFeatures) else given
        return given if isinstance(given, RandomWalks) else RandomWalks()

    @property
    def fitted_kernel(self) -> GraphKernel:
        """The graph kernel at the present hyperparameters, without the output scale."""
        (data,) = self.family.term_data(self.regression.hyperparameters, self.num_observations)
        kernel: GraphKernel = nodes_of(data)[1]
        return kernel

    @plain()
    def exact(self) -> Self:
        """Return the exact process with the same data and hyperparameters.

        On more than 2,000 nodes it is computed by the kernel's sparse precision, if it has one whose factor is small
        enough; otherwise by the eigenvectors of up to 20,000 nodes.
        """
        is_sparse = has_small_precision(self.graph, self.fitted_kernel)
        return self.with_approximation(SparsePrecision() if is_sparse else Exact())

    @plain()
    def diagnose(self, *, seed: int = 0) -> FeatureCheck:
        """Return the error of the features as far as it is known without the exact process.

        Walks are compared with an independent draw of walks, on held-out observations near each other. Deterministic
        features are compared with the exact kernel on a sample of nodes. `fit` does it, and warns.

        Args:
            seed: The seed of the choice of nodes.

        Raises:
            NotFittedError: there are no data.
        """
        now = self.regression
        rows = gathered(now.needed_rows("a diagnosis"))
        return check_features(self.family, now.hyperparameters, rows, now.scaling, seed)

    def diagnosed(self, report: FitReport | None = None) -> Iterator[Warning]:
        """Yield warnings about the model, its rows, and features that are poor for the fitted kernel."""
        yield from super().diagnosed(report)
        features = features_of(self.family.priors[0])
        if features is None:
            return
        features.check(self.fitted_kernel)
        if report is None or features.is_exact or self.regression.rows is None:
            return
        check = self.diagnose()
        if check.is_poor:
            yield PoorFeaturesWarning(
                f"The features are poor for {self.fitted_kernel} and this noise. {check}. Use more of them "
                f"({arguments('num_walkers', 'degree', 'rank')}), other ones (features='auto' measures them), or the "
                "exact process (features='exact', up to 20,000 nodes). Long lengthscales with little noise need a "
                "truncated spectrum."
            )


def nodes_kernel(model: GP) -> Nodes:
    """Return the kernel on nodes that a model was made with."""
    kernel = model.family.options.kernel
    assert isinstance(kernel, Nodes)
    return kernel


_KINDS = {
    "auto": MeasuredFeatures,
    "walks": RandomWalks,
    "chebyshev": Chebyshev,
    "taylor": Taylor,
    "spectrum": TruncatedSpectrum,
    "exact": Exact,
    "precision": SparsePrecision,
    "rational": RationalPrecision,
}
"""Approximations by the names of features."""


def _approximation(
    features: str, nodes: Nodes, walks: RandomWalks, degree: int | None, rank: int | None
) -> Approximation:
    """Return the approximation of features by name, checked against the graph and its kernel.

    Raises:
        GraphError: an option or the kernel does not suit the features.
    """
    graph, kernel = nodes.graph, nodes.graph_kernel
    budget = walks.max_nonzeros or NONZEROS_PER_WALKER * int(walks.num_walkers)
    if features in ("auto", "walks"):
        graphs.sample_walks(graph, [], seed=0, kernel=kernel, **{**walks.options, "max_nonzeros": budget})
        return walks if features == "walks" else MeasuredFeatures(walks, degree, rank, seed=walks.seed)
    if features in ("chebyshev", "taylor"):
        chosen = graphs.max_series_degree(graph, budget) if degree is None else degree
        return (Chebyshev if features == "chebyshev" else Taylor)(chosen, seed=walks.seed)
    if features == "spectrum":
        return TruncatedSpectrum(min(budget, graph.num_nodes) if rank is None else rank)
    if features == "rational":
        make_features("rational", graph, kernel, 0, {"degree": degree})
        return RationalPrecision(degree, seed=walks.seed)
    if features == "precision":
        precision_order(kernel)
        return SparsePrecision()
    return Exact()
