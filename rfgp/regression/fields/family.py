"""The family of fields on meshes and roads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.precisions import MarkovField
from rfgp.blocks import PrecisionBlock, Prior
from rfgp.errors import DataError
from rfgp.kernels.domains import Array, Domain, Projector, as_points
from rfgp.likelihoods import Normal
from rfgp.parameters import BoundaryAvoiding, Hyperprior, Quantity, Values
from rfgp.regression.family import Family, check_approximation, read_likelihood
from rfgp.regression.parts import pattern_links, warnings_of_parts
from rfgp.regression.report import FitReport
from rfgp.rows import Block, Chunk, Rows, gathered
from rfgp.rows.arrays import Origin, read_matrix
from rfgp.scaling import Affine, Scaling, moments

SHARE = 0.05
"""The starting lengthscale of a fit, as a share of the extent."""
BOUNDS = 1e-4, 1e2
"""The bounds of the lengthscale, in extents."""


@dataclass(frozen=True)
class FieldOptions:
    """The options of a field; see `rfgp.RoadGP` and `rfgp.MeshGP`."""

    seed: int
    lengthscale: float | None = None
    outputscale: float | None = None
    noise: float | None = None
    priors: Mapping[str, Hyperprior | None] | None = None
    likelihood: Any = "normal"
    approximation: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", read_likelihood(self.likelihood, self.noise))
        check_approximation(self.approximation, self.likelihood)

    @property
    def starts(self) -> Mapping[str, Any]:
        """The user's starting values."""
        names = ("lengthscale", "outputscale", *(("noise",) if isinstance(self.likelihood, Normal) else ()))
        return {name: getattr(self, name) for name in names}

    @property
    def hyperpriors(self) -> Mapping[str, Hyperprior | None]:
        """The user's log densities, and a default one that keeps the noise from 0."""
        own = {"noise": BoundaryAvoiding()} if isinstance(self.likelihood, Normal) else {}
        return {**own, **(self.priors or {})}


@dataclass(frozen=True, eq=False)
class FieldInputs:
    """Points or positions, (n, d), of a field with a lengthscale.

    Attributes:
        domain: The domain of the field.
        dtype: Always float64.
    """

    domain: Domain
    dtype: torch.dtype = torch.float64
    standardize = True
    reads_blocks = False

    def read(self, inputs: Any) -> tuple[Tensor, Origin]:
        """Return inputs (n, d), checked."""
        read, origin = read_matrix(inputs, self.dtype)
        if read.shape[1] != self.domain.num_columns:
            what = self.domain.what
            raise DataError(f"The {what} must be (n, {self.domain.num_columns}), got {tuple(read.shape)}.")
        self.domain.check(as_points(read))
        return read, origin

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the lengthscale at its start, whatever the spread (d,) of the inputs."""
        one, extent = torch.ones((), dtype=self.dtype), self.domain.extent
        bounds = (BOUNDS[0] * extent * one, BOUNDS[1] * extent * one)
        return {"lengthscale": Quantity(SHARE * extent * one, one, bounds)}

    def complete(self, given: Chunk) -> Chunk:
        """Return the rows as they are: fields have no missing values."""
        return given

    def check(self, inputs: Tensor) -> None:
        """Refuse inputs that are not (n, d).

        Raises:
            DataError: they have another shape.
        """
        if inputs.ndim != 2 or inputs.shape[1] != self.domain.num_columns:
            raise DataError(f"The {self.domain.what} are of shape {tuple(inputs.shape)}.")


@dataclass(frozen=True, eq=False)
class FieldFamily(Family):
    """A Whittle-Matern field, exactly.

    Attributes:
        domain: The field and its domain.
        options: The user's choices.
        scale: The map that standardised the inputs. If None, there are no data yet.
        candidates: Domains by name, of which a fit selects the best.
    """

    domain: Domain
    options: FieldOptions
    scale: Affine | None = None
    candidates: Mapping[str, Domain] = field(default_factory=dict)

    @property
    def inputs(self) -> FieldInputs:
        """Points or positions."""
        return FieldInputs(self.domain)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The lengthscale."""
        return ("lengthscale",)

    @property
    def open_starts(self) -> frozenset[str]:
        """The starts that the user left open; the name of the lengthscale is "kernel"."""
        names = {"lengthscale": "kernel", "outputscale": "outputscale", "noise": "noise"}
        return frozenset(names[name] for name, value in self.options.starts.items() if value is None)

    def with_sample(self, scaling: Scaling, rows: Rows | None = None) -> Self:
        """Return the family with the map of its inputs."""
        return replace(self, scale=scaling.inputs)

    def initialized(self, values: Values, rows: Rows) -> tuple[Self, Values]:
        """Return the family, and values with a starting output scale unless the user gave it."""
        return self, values if self.options.outputscale is not None else self.normalized(values, gathered(rows))

    def normalized(self, values: Values, rows: Block) -> Values:
        """Return values whose prior variance is, on average over rows, the output scale."""
        with torch.no_grad():
            size = float(moments(self.prior(values).diagonal(rows.inputs), rows.weight)[0])
            scale = 2 * values.raw["outputscale"] - float(np.log(size))
            low, high = (float(bound.log()) for bound in values.space.quantities["outputscale"].bounds)
            return values.replaced({"outputscale": scale.clamp(low, high)})

    def prior(self, values: Values) -> Prior:
        """Return the prior of the field."""
        lengthscale, variance = values.value("lengthscale").double(), values.standardized("outputscale").double()
        reader = self._reader
        block = PrecisionBlock(self.domain.field, lengthscale.reshape(1), variance, reader)
        if self.domain.is_refined:
            block = replace(block, refine=reader.refine, between=reader.between)
        return Prior(precisions=(block,))

    def diagnosed(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield a warning if a part of the surface or of the roads has no observation."""
        if rows is None:
            return
        inputs = gathered(rows).inputs
        field, projector = self._reader.refine(inputs)
        links, seen = pattern_links(field.pattern), projector(inputs)
        yield from warnings_of_parts(links, seen.indices, self.domain.falls, self.domain.joining)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options and the domain: texts, and tensors (...)."""
        yield from (f"{name}={value!r}" for name, value in sorted(vars(self.options).items()) if name != "priors")
        yield from self.domain.identity()

    @property
    def _reader(self) -> "_FieldReader":
        return _FieldReader(self.domain, self.scale, self.domain.projector)


@dataclass(frozen=True, eq=False)
class _FieldReader:
    """The projector of a field at standardised inputs.

    Attributes:
        domain: The field and its domain.
        scale: The map that standardised the inputs, or None.
        read: The projector at the user's inputs.
    """

    domain: Domain
    scale: Affine | None
    read: Projector

    def __call__(self, inputs: Tensor) -> sp.csr_array:
        """Return A (n, N) of inputs (n, d)."""
        return self.read(self._points(inputs))

    def refine(self, inputs: Tensor) -> "tuple[MarkovField, _FieldReader]":
        """Return the field with inputs (n, d) among its values, and its projector."""
        field, read = self.domain.refine(self._points(inputs))
        return field, replace(self, read=read)

    def between(self, field: MarkovField, values: Array, inputs: Tensor) -> tuple[sp.csr_array, Array]:
        """Return how inputs (n, d) read a refined field, each by itself: A (n, N) and variances (n,)."""
        return self.domain.between(field, values, self._points(inputs))

    def _points(self, inputs: Tensor) -> Array:
        return as_points(inputs if self.scale is None else self.scale.inverse(inputs))
