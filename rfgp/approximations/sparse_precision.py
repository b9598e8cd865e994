"""Exact terms by the sparse precision of a field."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphs.checks import machine_memory
from graphs.precisions import ChainField
from rfgp.approximations.fields import BYTES_PER_VALUE, FieldReader, condition_of
from rfgp.approximations.parts import FinitePart, NewLevels, TermFeatures
from rfgp.approximations.role import Approximation, TermCost, TermData, TermPrior, scale_name
from rfgp.autograd import Array, as_array
from rfgp.blocks import MaternColumn, PrecisionBlock, Prior
from rfgp.columns import ColumnKind
from rfgp.kernels.role import Factor, LatentField, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, constants_of, label_of, of_prefix

BoundFactor = tuple[Factor, list[int], str]
"""A factor, the indices of its columns, and the prefix of its hyperparameters."""

EPS = torch.finfo(torch.float64).eps
"""Machine epsilon."""
MAX_ROUNDING_ERROR = 1e-3
"""The maximum relative rounding error of the covariance of a product of fields at the starting values."""


@dataclass(frozen=True, repr=False)
class SparsePrecision(Approximation):
    """The exact field with a sparse precision matrix, by sparse Cholesky factors.

    It supports groups, and fields on roads, surfaces and graphs (kernels of an integer order). It also supports Matern
    kernels of one column with nu = 1/2, 3/2 or 5/2. The precision of a product of these is a Kronecker product, with
    latent values at each pair of distinct positions. Other factors must be functions without hyperparameters: groups
    replicate the field, and one column of a linear kernel multiplies it.

    If the only term of a model is a Matern kernel of one column, it is computed by Kalman filtering. Time and memory
    are then linear in the number of rows.

    Source: Rue and Held (2005), Gaussian Markov random fields, Section 2.4.

    Attributes:
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.SparsePrecision()
        SparsePrecision()
    """

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why a term has no sparse precision that fits in memory, or None."""
        chosen = fields_of(data.term, data.columns)
        if not chosen:
            return "no factor has a sparse precision. Use InducingPoints() or Exact()."
        scale = scale_name(data.term, data.values)
        for factor, indices, prefix in _others(data.term, chosen):
            if factor.functions(data.columns.select(indices)) is None:
                return f"{label_of(factor)}, which multiplies the field, has infinitely many functions. Use Exact()."
            paths = [f"{prefix}{name}" for name in factor.hyperparameters(data.columns.select(indices))]
            free = [path for path in paths if path not in (scale, data.term.outputscale)]
            if free:
                return (
                    f"{label_of(factor)}, which multiplies the field, has the hyperparameter {free[0]}. Use one term "
                    "for each of its columns, or Exact()."
                )
        return self._unsupported_product_reason(data, chosen) if len(chosen) > 1 else None

    def _unsupported_product_reason(self, data: TermData, chosen: tuple[BoundFactor, ...]) -> str | None:
        """Return why a product of fields exceeds the memory, or has large rounding errors."""
        if self.cost(data).num_features * BYTES_PER_VALUE > machine_memory():
            return (
                f"it would have {self.cost(data).note}, which exceed the memory. Round the columns to fewer distinct "
                "values, or use InducingPoints()."
            )
        error = EPS * math.prod(condition_of(*_field_at(part, data)) for part in chosen)
        if not error <= MAX_ROUNDING_ERROR:
            return (
                "positions or values are so close, in lengthscales, that the relative rounding error of its covariance "
                f"would be {error:.0e}. Round the columns, use a shorter lengthscale=, InducingPoints() or Exact()."
            )
        return None

    def cost(self, data: TermData) -> TermCost:
        """Return the cost of the latent values, from a sample of the rows."""
        chosen = fields_of(data.term, data.columns)
        if not len(data.columns.sample) and any(factor.kind is ColumnKind.NUMBER for factor, _, _ in chosen):
            return TermCost(0, 0.0, "latent values with a sparse precision, whose number is unknown without rows")
        sizes = [len(_field_at(part, data)[0].pattern.indptr) - 1 for part in chosen]
        copies = TermFeatures(_functions(data.term, chosen, data.columns), (), {}).size
        size = math.prod(sizes) * copies
        is_refined = any(_latent(part, data.columns, {**data.constants, **data.values}).is_refined for part in chosen)
        at_least = "at least " if is_refined and len(data.columns.sample) < data.num_rows else ""
        product = f" ({' x '.join(f'{one:,}' for one in (*sizes, *[copies] * (copies > 1)))})" if len(sizes) > 1 else ""
        bytes_of_value = BYTES_PER_VALUE if len(sizes) > 1 else 8.0 * 20
        return TermCost(
            size, bytes_of_value * size, f"{at_least}{size:,} latent values{product} with a sparse precision"
        )

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term. The seed is not used."""
        return PrecisionTermPrior(data.term, scale_name(data.term, data.values))


def fields_of(term: BoundTerm, columns: ColumnSummary) -> tuple[BoundFactor, ...]:
    """Return the factors of a term that have latent fields.

    Args:
        term: The term.
        columns: The summary of all columns.

    Returns:
        The factors, with the indices of their columns and their prefixes.
    """
    parts = [part for part in term.parts() if part[0].latent_field(columns.select(part[1])) is not None]
    fields = [part for part in parts if part[0].kind is not ColumnKind.LEVEL]
    fields.sort(key=lambda part: part[0].kind is ColumnKind.NUMBER)
    return tuple(fields or parts[:1])


def _others(term: BoundTerm, chosen: tuple[BoundFactor, ...]) -> list[BoundFactor]:
    """Return the factors that multiply the fields."""
    with_fields = {(id(factor), prefix) for factor, _, prefix in chosen}
    return [part for part in term.parts() if (id(part[0]), part[2]) not in with_fields]


def _latent(part: BoundFactor, columns: ColumnSummary, values: Values) -> LatentField:
    """Return the field of a factor, given hyperparameters and constants by path."""
    factor, indices, prefix = part
    latent = factor.latent_field(columns.select(indices))
    assert latent is not None
    return latent.at(of_prefix(values, prefix))


def _field_at(part: BoundFactor, data: TermData) -> tuple[Any, Array]:
    """Return the field of a factor on the sample of rows, and its parameters (p,)."""
    values, (_, indices, prefix) = {**data.constants, **data.values}, part
    latent = _latent(part, data.columns, values)
    field = latent.refine(data.columns.sample[:, indices])[0] if latent.is_refined else latent.field
    return field, as_array(latent.parameters(of_prefix(values, prefix))[0])


def _functions(term: BoundTerm, chosen: tuple[BoundFactor, ...], columns: ColumnSummary) -> tuple[Any, ...]:
    """Return the functions of the factors that multiply the fields."""
    return tuple(FinitePart(*part).functions(columns) for part in _others(term, chosen))


@dataclass(frozen=True, eq=False)
class PrecisionTermPrior(TermPrior):
    """A term with the latent values of a field, or of a product of fields.

    Attributes:
        term: The term.
        scale: The path of the variance. If None, it is 1.
    """

    term: BoundTerm
    scale: str | None

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        chosen = fields_of(self.term, columns)
        constants = constants_of([self.term], columns)
        all_values = {**constants, **values}
        latents = [_latent(part, columns, all_values) for part in chosen]
        pairs = zip(latents, chosen, strict=True)
        parameters_of = [latent.parameters(of_prefix(all_values, prefix)) for latent, (_, _, prefix) in pairs]
        unit_variance = {} if self.scale is None else {self.scale: torch.ones(1, dtype=torch.float64)}
        functions = _functions(self.term, chosen, columns)
        features = TermFeatures(functions, (), {**constants, **unit_variance}) if functions else None
        projectors = tuple(latent.projector for latent in latents)
        reader = FieldReader(tuple(latents), tuple(part[1] for part in chosen), features, projectors)
        is_smooth = any(latent.slopes is not None for latent in latents) or _combines_copies(self.term, chosen)
        variance = torch.stack([amplitude for _, amplitude in parameters_of]).prod()
        block = PrecisionBlock(
            reader.field,
            torch.cat([parameters for parameters, _ in parameters_of]),
            variance if self.scale is None else variance * values[self.scale].double().reshape(()),
            reader,
            reader.refine if reader.is_refined else None,
            self.term.name,
            residual=_zero_residual if reader.copies > 1 and _combines_copies(self.term, chosen) else None,
            new_levels=self._new_levels(all_values, columns),
            between=reader.between if reader.is_refined else None,
            slopes=reader.slopes if is_smooth else None,
            column=_column_of(self.term, columns),
        )
        return Prior(precisions=(block,))

    def _new_levels(self, values: Values, columns: ColumnSummary) -> NewLevels | None:
        constants = {path: value.detach() for path, value in values.items()}
        return NewLevels.for_term(self.term, (), constants, columns)


def _column_of(term: BoundTerm, columns: ColumnSummary) -> MaternColumn | None:
    """Return the column of a Matern process of one column, or None."""
    (factor, indices, _), *others = term.parts()
    latent = factor.latent_field(columns.select(indices))
    if others or factor.measure is None or latent is None or not isinstance(latent.field, ChainField):
        return None
    return MaternColumn(indices[0], latent.field.alpha)


def _combines_copies(term: BoundTerm, chosen: tuple[BoundFactor, ...]) -> bool:
    """Return whether a row combines several copies of the field."""
    return any(factor.kind is not ColumnKind.LEVEL for factor, _, _ in _others(term, chosen))


def _zero_residual(inputs: Tensor) -> Tensor:
    """Return zero residual variances (n,)."""
    return torch.zeros(len(inputs), dtype=torch.float64)
