"""Terms by weights: f = s phi(x) w with features that are products of those of the factors."""

from dataclasses import dataclass

import torch

from rfgp.approximations.parts import FinitePart, NewLevels, Part, TermFeatures
from rfgp.approximations.role import TermData, parameter_names, scale_name
from rfgp.blocks import Prior, WeightBlock
from rfgp.columns import Kind
from rfgp.kernels.role import Factor, Values


@dataclass(frozen=True, eq=False)
class WeightTerm:
    """A term with the features of its factors.

    Attributes:
        name: The name of the term.
        features: The features for a variance of 1.
        scale: The path of the variance. If None, it is 1.
        new_levels: The covariance of new levels. If None, the term has no levels.
    """

    name: str
    features: TermFeatures
    scale: str | None
    new_levels: NewLevels | None

    @property
    def num_features(self) -> int:
        """The number F of weights."""
        return self.features.size

    def at(self, values: Values) -> Prior:
        """Return the prior of the weights at hyperparameters by path."""
        parameters = tuple(values[name] for name in self.features.names)
        variance = None if self.scale is None else values[self.scale].reshape(())
        block = WeightBlock(
            self.features, self.num_features, parameters, variance, name=self.name, new_levels=self.new_levels
        )
        return Prior(weights=(block,))


def weight_term(data: TermData, parts: list[Part]) -> WeightTerm:
    """Return a term with these features of its factors."""
    term, scale = data.term, scale_name(data.term, data.values)
    names, constants = parameter_names(data, with_scale=False), dict(data.constants)
    if scale is not None and scale != term.outputscale:
        constants[scale] = torch.ones(1, dtype=torch.float64)  # the variance of a factor that scales the whole term
    has_levels = any(factor.kind is Kind.LEVEL for factor in term.term.factors)
    new_levels = NewLevels(term, names, constants) if has_levels else None
    return WeightTerm(term.name, TermFeatures(tuple(parts), names, constants), scale, new_levels)


def finite_part(data: TermData, factor: Factor, places: list[int], prefix: str) -> FinitePart | None:
    """Return the features of a factor of finitely many functions. None if there are infinitely many."""
    size = factor.num_functions(data.columns.select(places))
    return None if size is None else FinitePart(factor, places, prefix, size)
