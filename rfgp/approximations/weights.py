"""Terms by weights: f = s phi(x) w, with products of the features of the factors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.approximations.parts import FactorFeatures, FixedFeatures, NewLevels, TermFeatures
from rfgp.approximations.role import TermData, TermGram, TermPrior, parameter_names, scale_name
from rfgp.blocks import Prior, WeightBlock
from rfgp.grams import Gram
from rfgp.kernels.role import Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, constants_of


@dataclass(frozen=True, eq=False)
class WeightTermPrior(TermPrior):
    """A term with the features of its factors.

    Attributes:
        term: The term.
        parts: The features of its factors, which are multiplied.
        names: The paths of the hyperparameters that the features depend on.
        scale: The path of the variance. If None, it is 1.
    """

    term: BoundTerm
    parts: tuple[FactorFeatures, ...]
    names: tuple[str, ...]
    scale: str | None

    @classmethod
    def of(cls, data: TermData, parts: Sequence[FactorFeatures]) -> "WeightTermPrior":
        """Return a term with some features of its factors.

        Args:
            data: The term.
            parts: The features of its factors, which are multiplied.
        """
        scale = scale_name(data.term, data.values)
        return cls(data.term, tuple(parts), parameter_names(data, with_scale=False), scale)

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior of the weights at hyperparameters by path, given all columns."""
        constants = self._constants(columns)
        names = (*self.names, *(path for path in self.learnable if path in values))
        features = TermFeatures(tuple(part.functions(columns) for part in self.parts), names, constants)
        block = WeightBlock(
            features,
            features.size,
            tuple(values[name] for name in names),
            None if self.scale is None else values[self.scale].reshape(()),
            name=self.term.name,
            new_levels=NewLevels.for_term(self.term, names, constants, columns),
            design=self._design(features, values, columns),
            fourier=features.fourier if features.is_fourier else None,
        )
        return Prior(weights=(block,))

    def gram(self, inputs: Tensor, columns: ColumnSummary) -> TermGram | None:
        """Return the covariance of rows (n, D) if hyperparameters only scale features.

        Otherwise it is None.
        """
        parts = tuple(part.functions(columns) for part in self.parts)
        if self.learnable or any(part.design is None or part.reads for part in parts):
            return None
        features = TermFeatures(parts, self.names, self._constants(columns))
        fixed = FixedFeatures(self, columns, (), features)
        design, names = fixed.fixed_features(inputs), self.names
        one = torch.ones((), dtype=torch.float64)

        def at(values: Values) -> Gram:
            with torch.enable_grad():
                leaves = [values[name].detach().requires_grad_() for name in names]
                scale = fixed.scale(*leaves)
            variance = one if self.scale is None else values[self.scale].reshape(())
            gram = Gram.of_design(design, scale, variance)

            def pull_back(gradient: Tensor) -> list[Tensor | None]:
                grad_scale, grad_variance = gram.pull_back(gradient)
                gradients = list(torch.autograd.grad(scale, leaves, grad_scale)) if scale.requires_grad else []
                return [*gradients, *([] if self.scale is None else [grad_variance])]

            return replace(gram, pull_back=pull_back)

        return TermGram((*names, *([] if self.scale is None else [self.scale])), at)

    def _constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the constants (...) by path, given all columns."""
        constants = constants_of([self.term], columns)
        if self.scale is not None and self.scale != self.term.outputscale:
            constants[self.scale] = torch.ones(1, dtype=torch.float64)  # the variance of a factor scales the term
        return constants

    def _design(self, features: TermFeatures, values: Values, columns: ColumnSummary) -> FixedFeatures | None:
        """Return the features that depend on no hyperparameter, or None."""
        if any(part.design is None for part in features.parts):
            return None
        paths = dict.fromkeys(path for part in features.parts for path in part.reads)
        fixed = tuple((path, float(values[path].detach())) for path in paths)
        return FixedFeatures(self, columns, fixed, features)

    @property
    def learnable(self) -> Values:
        """The learnable frequencies (m, d) of the parts, by path."""
        return {path: value for part in self.parts for path, value in part.learnable.items()}

    def with_learned(self, values: Values) -> "WeightTermPrior":
        """Return the term with other frequencies (m, d) by path."""
        return replace(self, parts=tuple(part.with_learned(values) for part in self.parts))
