"""The family of the nodes of a graph."""

import copy
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from rfgp import random
from rfgp.approximations.node_features import (
    NONZEROS_PER_WALKER,
    NodeFeatures,
    drawn_with,
    make_features,
    same_hops,
)
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError, PoorFeaturesWarning, arguments
from rfgp.likelihoods import Normal
from rfgp.parameters import Hyperprior, Values
from rfgp.regression.family import Family, check_approximation, read_likelihood
from rfgp.regression.graph.checks import FeatureCheck, check_features
from rfgp.regression.graph.choosing import EXACT_LIMIT, choice_of, choose, exact_choice, is_worth_it, sample_of
from rfgp.regression.graph.inputs import NodeInputs, with_default_priors
from rfgp.regression.parts import warnings_of_parts
from rfgp.regression.record import Choice
from rfgp.regression.report import FitReport
from rfgp.rows import Block, Rows, gathered
from rfgp.scaling import Scaling, moments

FEATURES = ("auto", "walks", "chebyshev", "taylor", "spectrum", "rational", "precision", "exact")
WALK_OPTIONS = ("num_walkers", "halt", "lengths", "directions", "exact_hops")
"""Options of `graphs.sample_walks` that are options of `rfgp.GraphGP`."""
NORMALIZED_ROWS = 2000
"""The number of rows over which the prior variance is averaged for the starting output scale."""


@dataclass(frozen=True)
class GraphOptions:
    """The options of a process on nodes; see `rfgp.GraphGP`.

    Attributes:
        compares_starts: Whether the kernel was given by name, so that a fit compares several starts of it.
    """

    kernel: GraphKernel
    compares_starts: bool
    features: str
    seed: int
    num_walkers: int
    halt: Any
    lengths: str
    directions: str
    exact_hops: int | str | graphs.HopRule
    outputscale: float | None
    noise: float | None
    priors: Mapping[str, Hyperprior | None] | None
    degree: int | None
    rank: int | None
    walk_options: Mapping[str, Any] = field(default_factory=dict)
    likelihood: Any = "normal"
    approximation: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", read_likelihood(self.likelihood, self.noise))
        check_approximation(self.approximation, self.likelihood)
        if not isinstance(self.features, str) or self.features not in FEATURES:
            names = ", ".join(map(repr, FEATURES))
            raise InvalidArgumentError(f"features must be one of {names}, got {self.features!r}.")

    @property
    def starts(self) -> Mapping[str, Any]:
        """The user's starting values without those of the kernel, which the kernel itself holds."""
        is_normal = isinstance(self.likelihood, Normal)
        return {"outputscale": self.outputscale, **({"noise": self.noise} if is_normal else {})}

    @property
    def hyperpriors(self) -> Mapping[str, Hyperprior | None]:
        """The user's log densities, and default ones for the other names."""
        return with_default_priors(self.kernel, self.priors, isinstance(self.likelihood, Normal))

    @property
    def walks(self) -> dict[str, Any]:
        """All options of `graphs.sample_walks`."""
        return {**{name: getattr(self, name) for name in WALK_OPTIONS}, **self.walk_options}

    @property
    def series(self) -> dict[str, int | None]:
        """All options of features without randomness."""
        return {"degree": self.degree, "rank": self.rank}


@dataclass(frozen=True, eq=False)
class NodeFamily(Family):
    """A graph kernel, exact or through features of nodes.

    Attributes:
        graph: The graph.
        options: The user's choices.
        features: The features in use. If None, "auto" has not selected them yet.
        advice: The measurements of "auto", or None.
        is_tuned: Whether a fit tuned the features, so that another fit starts with new ones.
    """

    graph: graphs.Graph
    options: GraphOptions
    features: NodeFeatures | None = None
    advice: graphs.Advice | None = None
    is_tuned: bool = False

    @classmethod
    def of(cls, graph: graphs.Graph, options: GraphOptions, **changes: Any) -> Self:
        """Return the family with features, unless they are yet to be chosen.

        Args:
            graph: The graph.
            options: The user's choices.
            changes: Options of the walks that replace the user's, such as tuned hops.
        """
        family = cls(graph, options)
        if family.is_auto:
            return family
        name = "exact" if options.features == "auto" else options.features
        return replace(family, features=family.make(name, options.seed, **changes))

    @property
    def is_auto(self) -> bool:
        """Whether features are selected by measurements."""
        return self.options.features == "auto" and self.graph.num_nodes > EXACT_LIMIT

    @property
    def inputs(self) -> NodeInputs:
        """Labels of nodes."""
        return NodeInputs(self.graph, self.options.kernel)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The names of the kernel's parameters."""
        return tuple(self.options.kernel.parameters)

    @property
    def open_starts(self) -> frozenset[str]:
        """Hyperparameters whose starts a fit may choose: "outputscale", "noise", and "kernel" for its parameters."""
        left = {name for name, value in self.options.starts.items() if value is None}
        return frozenset(left | ({"kernel"} if self.options.compares_starts else set()))

    @property
    def walks(self) -> graphs.Walks | None:
        """The walks that the features come from, of no nodes, or None."""
        return None if self.features is None else self.features.walks

    @property
    def feature_size(self) -> dict[str, int]:
        """The degree of a series, the number of fields or the rank of a spectrum, by its name."""
        return {} if self.features is None else self.features.size

    # --- prior -----------------------------------------------------------------------------------

    def prior(self, values: Values) -> Prior:
        """Return the prior of the kernel or of the features."""
        assert self.features is not None
        return self.features.prior(_theta(self.kernel_names, values), values.standardized("outputscale"))

    def fitted_kernel(self, values: Values) -> GraphKernel:
        """Return the graph kernel at these hyperparameters, without the output scale."""
        return self.options.kernel.with_values(_theta(self.kernel_names, values).detach().numpy())

    # --- starts ----------------------------------------------------------------------------------

    def initialized(self, values: Values, rows: Rows) -> tuple[Self, Values]:
        """Return the family with selected features, and values with a starting output scale unless the user gave it."""
        if self.is_auto:
            family = self.chosen(self.options.kernel)
        elif self.is_tuned:
            family = type(self).of(self.graph, self.options)
        else:
            family = replace(self, features=copy.copy(self.features))  # without cached draws
        if self.options.outputscale is None:
            values = family.normalized(values, gathered(rows))
        return family, values

    def normalized(self, values: Values, rows: Block) -> Values:
        """Return values whose prior variance is, on average over some rows, the output scale.

        Graph kernels are not 1 on the diagonal: exp(-t L) is small there for long lengthscales.
        """
        with torch.no_grad():
            some = rows.take(slice(NORMALIZED_ROWS))
            size = float(moments(self.prior(values).diagonal(some.inputs), some.weight)[0])
            if not (size > 0 and math.isfinite(size)):
                return values
            low, high = (float(b.log()) for b in values.space.quantities["outputscale"].bounds)
            start = float(values.standardized("outputscale"))
            scale = torch.tensor(min(max(math.log(start * start / size), low), high), dtype=torch.float64)
            return values.replaced({"outputscale": scale})

    # --- features --------------------------------------------------------------------------------

    def make(self, name: str, seed: int, tuned_to: GraphKernel | None = None, **changes: Any) -> NodeFeatures:
        """Return features of a kind, tuned to a kernel or the starting one, with some options changed."""
        options = {**self.options.walks, **self.options.series, **changes}
        return make_features(name, self.graph, self.options.kernel if tuned_to is None else tuned_to, seed, options)

    def measured(self, kernel: GraphKernel) -> graphs.Advice:
        """Return the measured errors of all kinds of features for a kernel."""
        rank = self.options.rank or NONZEROS_PER_WALKER * int(self.options.num_walkers)
        return choose(self.graph, kernel, partial(self.make, tuned_to=kernel), min(rank, self.graph.num_nodes))

    def chosen(self, kernel: GraphKernel, advice: graphs.Advice | None = None) -> Self:
        """Return the family with the features that are best for a kernel, by measurements that may be given."""
        advice = advice or self.measured(kernel)
        if self.features is not None:
            self.features.forget()
        return replace(self, advice=advice, features=self.make(advice.best.features, self.options.seed, kernel))

    def retuned(self, values: Values) -> tuple[Self, bool]:
        """Return the family with better features for the fitted kernel, and whether there are any."""
        kernel, family = self.fitted_kernel(values), self
        if not self.kernel_names:
            return self, False  # they are tuned to this kernel
        if self.is_auto:
            try:
                advice = self.measured(kernel)
            except graphs.InvalidArgumentError:  # no series converges to this kernel
                return self, False
            if self.features is None or is_worth_it(advice, self.features.name):
                return self.chosen(kernel, advice), True
            family = replace(self, advice=advice)
        if self.features is not None and self.features.name == "rational" and self.options.degree is None:
            more = self.make("rational", self.options.seed, kernel)
            is_enough = more.size["degree"] <= self.features.size["degree"]
            return (family, False) if is_enough else (replace(family, features=more), True)
        walks = self.walks
        if walks is None or self.options.exact_hops != "auto":
            return family, False
        tuned = self.make("walks", self.options.seed, kernel)
        if same_hops(tuned, walks):
            return family, False
        assert self.features is not None
        self.features.forget()
        return replace(family, features=tuned), True

    @property
    def choice(self) -> Choice | None:
        """The report of what "auto" selected, or None."""
        if self.options.features != "auto" or self.features is None:
            return None
        if self.advice is None:
            return exact_choice(self.graph)
        return choice_of(self.advice, self.graph, len(sample_of(self.graph)), self.features.name)

    # --- diagnostics -----------------------------------------------------------------------------

    def check(self, values: Values, rows: Block, scaling: Scaling, seed: int) -> FeatureCheck:
        """Return a diagnosis of the features; see `rfgp.GraphGP.check`."""
        own, other = self.features, None
        assert own is not None
        if self.walks is not None:
            child = random.child_seed(self.options.seed, random.Role.CHECK)
            other = self.make("walks", child, **drawn_with(self.walks))
        values = values.detached()
        outputscale, mean = (values.standardized(name).double() for name in ("outputscale", "mean"))
        noise = values.standardized("noise").double() if self.is_normal else torch.zeros_like(outputscale)
        numbers = (_theta(self.kernel_names, values), outputscale, mean.reshape(-1), noise)
        if not self.is_normal:  # nothing is held out: only Gaussian observations are compared
            rows = rows.take(slice(0))
        scale = -scaling.targets.log_jacobian(1) / rows.num_outputs
        return check_features(self.graph, self.fitted_kernel(values), rows, (own, other), numbers, scale, seed)

    def diagnosed(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield warnings of poor features and of parts of the graph without an observation.

        Walks warn of a large or infinite variance by themselves.
        """
        assert self.features is not None
        self.features.check(self.fitted_kernel(values))
        if rows is not None:
            seen = gathered(rows).inputs.numpy().astype(int)
            yield from warnings_of_parts(self.graph.adjacency, seen, "The graph falls")
        if report is None or self.features.is_exact or rows is None:
            return
        check = self.check(values, gathered(rows), scaling, 0)
        if check.is_poor:
            yield PoorFeaturesWarning(
                f"These features are poor for {self.fitted_kernel(values)} and this noise. {check}. More of them "
                f"({arguments('num_walkers', 'degree', 'rank')}), other ones (features='auto' measures which), or the "
                "exact process (features='exact', up to 20,000 nodes) are the remedy; long lengthscales with little "
                "noise need a truncated spectrum."
            )

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, and the graph: its CSR arrays (N + 1,), (nnz,) and (nnz,)."""
        yield "GraphGP"
        texts = (f"{name}={value!r}" for name, value in sorted(vars(self.options).items()) if name != "priors")
        yield from (re.sub(" at 0x[0-9a-f]+", "", text) for text in texts)  # addresses of functions differ
        matrix = self.graph.adjacency
        yield self.graph.laplacian
        yield from (torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data))


def _theta(names: tuple[str, ...], values: Values) -> Tensor:
    """Return the kernel's parameters of these names, (p,)."""
    theta = [values.standardized(name) for name in names]
    return torch.stack(theta) if theta else torch.zeros(0, dtype=torch.float64)
