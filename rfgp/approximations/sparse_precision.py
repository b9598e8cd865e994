"""Terms by the sparse precision of a field, which is exact."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.precisions import ReplicatedField
from rfgp.approximations.parts import FinitePart, NewLevels, TermFeatures
from rfgp.approximations.role import Approximation, Cost, TermData, TermPrior, scale_name
from rfgp.autograd import Array, as_array
from rfgp.blocks import PrecisionBlock, Prior
from rfgp.columns import Kind
from rfgp.kernels.role import Factor, LatentField, Projector, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, constants_of, label_of, of_prefix

Part = tuple[Factor, list[int], str]


@dataclass(frozen=True, repr=False)
class SparsePrecision(Approximation):
    """The latent values of a field with a sparse precision, exactly, by sparse Cholesky factors.

    It serves fields on roads, surfaces and graphs (kernels of an integer order) and groups. Other factors of a product
    must be functions without hyperparameters, such as groups, which replicate the field, or one column of a linear
    kernel, which multiplies it.

    Source: Rue and Held (2005), Gaussian Markov random fields, Section 2.4.

    Attributes:
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.SparsePrecision()
        SparsePrecision()
    """

    def refusal(self, data: TermData) -> str | None:
        """Return why a term has no sparse precision."""
        chosen = _field_of(data.term, data.columns)
        if chosen is None:
            return "no factor has a sparse precision. Use RandomFeatures(), InducingPoints() or Exact()."
        scale = scale_name(data.term, data.values)
        for factor, places, prefix in _others(data.term, chosen):
            if factor.functions(data.columns.select(places)) is None:
                return f"{label_of(factor)}, which multiplies the field, has infinitely many functions. Use Exact()."
            free = [
                path for path in data.values if path.startswith(prefix) and path not in (scale, data.term.outputscale)
            ]
            if free:
                return (
                    f"{label_of(factor)}, which multiplies the field, has the hyperparameter {free[0]}. Use one term "
                    "for each of its columns, or Exact()."
                )
        return None

    def cost(self, data: TermData) -> Cost:
        """Return the cost of the latent values."""
        chosen = _field_of(data.term, data.columns)
        assert chosen is not None
        size = len(_latent(chosen, data.columns).field.pattern.indptr) - 1
        copies = TermFeatures(_functions(data.term, chosen, data.columns), (), {}).size
        return Cost(size * copies, 8.0 * 20 * size * copies, f"{size * copies} latent values with a sparse precision")

    def draw(self, data: TermData, seed: int) -> TermPrior:
        """Return the term. Nothing is random."""
        return PrecisionTerm(data.term, scale_name(data.term, data.values))


def _field_of(term: BoundTerm, columns: ColumnSummary) -> Part | None:
    """Return the factor whose latent field a term has: one of places if there is one, else of levels."""
    found = [part for part in term.parts() if part[0].latent_field(columns.select(part[1])) is not None]
    found.sort(key=lambda part: part[0].kind is Kind.LEVEL)
    return found[0] if found else None


def _others(term: BoundTerm, chosen: Part) -> list[Part]:
    """Return the factors that multiply the field."""
    return [part for part in term.parts() if part[2] != chosen[2] or part[0] is not chosen[0]]


def _latent(chosen: Part, columns: ColumnSummary) -> LatentField:
    factor, places, _ = chosen
    found = factor.latent_field(columns.select(places))
    assert found is not None
    return found


def _functions(term: BoundTerm, chosen: Part, columns: ColumnSummary) -> tuple[Any, ...]:
    """Return the functions of the factors that multiply the field."""
    return tuple(FinitePart(*part).functions(columns) for part in _others(term, chosen))


@dataclass(frozen=True, eq=False)
class PrecisionTerm(TermPrior):
    """A term with the latent values of a field.

    Attributes:
        term: The term.
        scale: The path of the variance. If None, it is 1.
    """

    term: BoundTerm
    scale: str | None

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        chosen = _field_of(self.term, columns)
        assert chosen is not None
        latent, (_, places, prefix) = _latent(chosen, columns), chosen
        constants = constants_of([self.term], columns)
        parameters, amplitude = latent.parameters(of_prefix({**constants, **values}, prefix))
        unit = {**constants, **({} if self.scale is None else {self.scale: torch.ones(1, dtype=torch.float64)})}
        functions = _functions(self.term, chosen, columns)
        features = TermFeatures(functions, (), unit) if functions else None
        reader = FieldReader(latent, places, features, latent.projector)
        variance = amplitude if self.scale is None else amplitude * values[self.scale].double().reshape(())
        block = PrecisionBlock(
            reader.field,
            parameters,
            variance,
            reader,
            reader.refine if latent.is_refined else None,
            self.term.name,
            residual=_nothing if features is not None and _mixes(self.term, chosen) and features.size > 1 else None,
            new_levels=self._new_levels({**constants, **values}, columns),
            between=reader.between if latent.is_refined else None,
        )
        return Prior(precisions=(block,))

    def _new_levels(self, values: Values, columns: ColumnSummary) -> NewLevels | None:
        known = {path: value.detach() for path, value in values.items()}
        return NewLevels.through(self.term, (), known, columns)


def _mixes(term: BoundTerm, chosen: Part) -> bool:
    """Return whether a row reads several copies of the field: their functions are not indicators of levels."""
    return any(factor.kind is not Kind.LEVEL for factor, _, _ in _others(term, chosen))


def _nothing(inputs: Tensor) -> Tensor:
    """Return the variances (n,) that reads leave: zeros."""
    return torch.zeros(len(inputs), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class FieldReader:
    """A field, or copies of it that functions multiply, and how rows (n, D) read it.

    Attributes:
        latent: The field.
        places: The places of its columns.
        features: The functions (n, F) that multiply the field, a copy of it for each. If None, there are none.
        read: Maps the field's columns of rows to A (n, N).
    """

    latent: LatentField
    places: list[int]
    features: TermFeatures | None
    read: Projector

    @property
    def copies(self) -> int:
        """The number F of independent copies of the field."""
        return 1 if self.features is None else self.features.size

    @property
    def field(self) -> Any:
        """The copies, without rows among their values."""
        return self._replicated(self.latent.field)

    def __call__(self, inputs: Tensor) -> sp.csr_array:
        """Return A (n, F N) of rows (n, D)."""
        reads = self.read(inputs[:, self.places])
        return reads if self.features is None else row_products(self._functions(self.features, inputs), reads)

    def refine(self, inputs: Tensor) -> "tuple[Any, FieldReader]":
        """Return the copies with rows (n, D) among their values, and what reads these."""
        field, read = self.latent.refine(inputs[:, self.places])
        return self._replicated(field), replace(self, read=read)

    def between(self, field: Any, values: Array, inputs: Tensor) -> tuple[sp.csr_array, Array]:
        """Return how rows (n, D) read refined copies, each by itself: A (n, F N) and variances (n,)."""
        base = field if self.copies == 1 else field.base
        reads, left = self.latent.between(base, values, inputs[:, self.places])
        if self.features is None:
            return reads, left
        functions = self._functions(self.features, inputs)
        return row_products(functions, reads), np.square(functions).sum(axis=1) * left

    def _functions(self, features: TermFeatures, inputs: Tensor) -> Array:
        """Return the functions (n, F) at rows (n, D)."""
        return as_array(features(inputs.double()))

    def _replicated(self, field: Any) -> Any:
        """Return independent copies of a field, or the field itself if there is one."""
        return field if self.copies == 1 else ReplicatedField(field, self.copies)


def row_products(
    features: Array,  # (n, F)
    reads: sp.csr_array,  # (n, N)
) -> sp.csr_array:  # (n, F N)
    """Return the matrix whose row i is the Kronecker product of those of features and reads."""
    left = sp.csr_array(features)
    left.eliminate_zeros()
    size = reads.shape[1]
    own, other = np.diff(left.indptr), np.diff(reads.indptr)
    counts = own * other
    starts = np.concatenate([[0], np.cumsum(counts)])
    row = np.repeat(np.arange(len(own)), counts)
    place = np.arange(starts[-1]) - starts[row]
    first = left.indptr[row] + place // other[row]
    second = reads.indptr[row] + place % other[row]
    columns = left.indices[first].astype(np.int64) * size + reads.indices[second]
    found = sp.csr_array(
        (left.data[first] * reads.data[second], columns, starts), shape=(len(own), left.shape[1] * size)
    )
    found.sort_indices()
    return found
