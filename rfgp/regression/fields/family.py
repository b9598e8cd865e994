"""The family of fields on meshes and roads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import DataError
from rfgp.inference import MarkovPrior
from rfgp.likelihoods import Normal
from rfgp.parameters import BoundaryAvoiding, Hyperprior, Quantity, Values
from rfgp.regression.family import Family, check_approximation, read_likelihood
from rfgp.regression.fields.places import Places, as_points
from rfgp.regression.parts import pattern_links, warnings_of_parts
from rfgp.regression.report import FitReport
from rfgp.rows import Block, Chunk, Rows, gathered
from rfgp.rows.arrays import Origin, read_matrix
from rfgp.scaling import Affine, Scaling, moments

SHARE = 0.05
"""The lengthscale that a fit starts from, of the extent."""
BOUNDS = 1e-4, 1e2
"""Of the lengthscale, in extents."""


@dataclass(frozen=True)
class FieldOptions:
    """What a user chooses of a field; see `rfgp.RoadGP` and `rfgp.MeshGP`."""

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
        """The user's log densities, and that which keeps the noise from 0."""
        own = {"noise": BoundaryAvoiding()} if isinstance(self.likelihood, Normal) else {}
        return {**own, **(self.priors or {})}


@dataclass(frozen=True, eq=False)
class FieldInputs:
    """Points or positions, (n, d), of a field with a lengthscale.

    Attributes:
        places: What they mean.
        dtype: float64, always.
    """

    places: Places
    dtype: torch.dtype = torch.float64
    standardize = True
    reads_blocks = False

    def read(self, inputs: Any) -> tuple[Tensor, Origin]:
        """Return inputs (n, d), checked."""
        read, origin = read_matrix(inputs, self.dtype)
        if read.shape[1] != self.places.num_columns:
            what = self.places.what
            raise DataError(f"The {what} must be (n, {self.places.num_columns}), got {tuple(read.shape)}.")
        self.places.check(as_points(read))
        return read, origin

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the lengthscale at its start, whatever the spread (d,) of the inputs."""
        one, extent = torch.ones((), dtype=self.dtype), self.places.extent
        bounds = (BOUNDS[0] * extent * one, BOUNDS[1] * extent * one)
        return {"lengthscale": Quantity(SHARE * extent * one, one, bounds)}

    def complete(self, given: Chunk) -> Chunk:
        """Return the rows as they are: none is missing."""
        return given

    def check(self, inputs: Tensor) -> None:
        """Refuse what are no inputs (n, d).

        Raises:
            DataError: likewise.
        """
        if inputs.ndim != 2 or inputs.shape[1] != self.places.num_columns:
            raise DataError(f"The {self.places.what} are of shape {tuple(inputs.shape)}.")


@dataclass(frozen=True, eq=False)
class FieldFamily(Family):
    """A Whittle-Matern field, exactly.

    Attributes:
        places: Where it lives.
        options: The user's choices.
        scale: How inputs were standardised; None before there are any.
        candidates: Where it may live instead, by name: a fit takes the best of these.
    """

    places: Places
    options: FieldOptions
    scale: Affine | None = None
    candidates: Mapping[str, Places] = field(default_factory=dict)

    @property
    def inputs(self) -> FieldInputs:
        """Points or positions."""
        return FieldInputs(self.places)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The lengthscale."""
        return ("lengthscale",)

    @property
    def open_starts(self) -> frozenset[str]:
        """What the user left open, the lengthscale as "kernel"."""
        names = {"lengthscale": "kernel", "outputscale": "outputscale", "noise": "noise"}
        return frozenset(names[name] for name, value in self.options.starts.items() if value is None)

    def drawn(self, scaling: Scaling) -> Self:
        """Return the family with the map of its inputs."""
        return replace(self, scale=scaling.inputs)

    def begun(self, values: Values, rows: Rows) -> tuple[Self, Values]:
        """Return the family, and an output scale for the field where the user left it open."""
        return self, values if self.options.outputscale is not None else self.normalized(values, gathered(rows))

    def normalized(self, values: Values, rows: Block) -> Values:
        """Return values whose prior variance is, on average over rows, what the output scale was."""
        with torch.no_grad():
            size = float(moments(self.prior(values).diagonal(rows.inputs), rows.weight)[0])
            scale = 2 * values.raw["outputscale"] - float(np.log(size))
            low, high = (float(bound.log()) for bound in values.space.quantities["outputscale"].bounds)
            return values.replaced({"outputscale": scale.clamp(low, high)})

    def prior(self, values: Values) -> MarkovPrior:
        """Return the prior of the field."""
        lengthscale, places = values.value("lengthscale").double(), self.places

        def points(inputs: Tensor) -> Any:
            return as_points(inputs if self.scale is None else self.scale.inverse(inputs))

        def finer(inputs: Tensor) -> Any:
            found = places.finer(points(inputs))
            assert found is not None
            field, observe = found
            return field, lambda some: observe(points(some))

        refines = places.finer(np.zeros((0, places.num_columns))) is not None
        return MarkovPrior(
            places.field,
            lengthscale.reshape(1),
            values.standardized("outputscale").double(),
            lambda inputs: places.observe(points(inputs)),
            finer if refines else None,
        )

    def checked(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield a warning if a part of the surface or of the roads has no observation."""
        if rows is None:
            return
        inputs = gathered(rows).inputs
        points = as_points(inputs if self.scale is None else self.scale.inverse(inputs))
        field, observe = self.places.finer(points) or (self.places.field, self.places.observe)
        links, seen = pattern_links(field.pattern), observe(points)
        yield from warnings_of_parts(links, seen.indices, self.places.falls, self.places.joining)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, and what the places are: texts, and tensors (...)."""
        yield from (f"{name}={value!r}" for name, value in sorted(vars(self.options).items()) if name != "priors")
        yield from self.places.identity()
