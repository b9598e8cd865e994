"""The log marginal likelihood under exact terms, and its gradient in closed form.

On few rows, terms, blocks and autograd's graph cost several times as much as the matrices. A search takes hundreds of
evaluations, so everything that does not depend on the hyperparameters is prepared once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.approximations.role import TermGram
from rfgp.blocks import Prior
from rfgp.grams import Gram
from rfgp.parameters import ParameterValues
from rfgp.regression import GPState, mean_and_noise
from rfgp.rows import Block, Rows, gathered
from rfgp.solvers import onepass
from rfgp.solvers.choice import is_low_rank
from rfgp.solvers.dense import DenseSolver

NO_PRIOR = Prior()
"""The prior of a solver whose covariance is given."""


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """The log marginal likelihood of rows under exact terms, and its gradient.

    Attributes:
        rows: The rows.
        terms: The covariances of the terms as functions of the hyperparameters.
    """

    rows: Block
    terms: tuple[TermGram, ...]

    @classmethod
    def of(cls, state: GPState, rows: Rows) -> "ClosedForm | None":
        """Return the likelihood of rows, or None if it has no closed form.

        Args:
            state: The model state.
            rows: The rows.
        """
        spec, space = state.spec, state.hyperparameters.space
        if not spec.is_gaussian or space.extra_tensors or not rows.is_homoscedastic:
            return None
        prior = state.prior()
        is_exact = (
            not (prior.graph_features or prior.precisions or prior.neighbors or prior.has_grids)
            and not spec.other_members
        )
        if not is_exact or is_low_rank(prior, rows) or onepass.supports(prior, rows):
            return None
        block, columns = gathered(rows), spec.columns
        assert columns is not None
        if block.inputs.requires_grad or block.inputs.dtype != torch.float64:
            return None
        grams = [term.gram(block.inputs, columns) for term in spec.term_priors]
        terms = tuple(gram for gram in grams if gram is not None)
        return cls(block, terms) if len(terms) == len(grams) else None

    def __call__(self, values: ParameterValues, free: Sequence[str]) -> tuple[Tensor, Tensor] | None:
        """Return the log likelihood with hyperpriors and its gradient.

        Args:
            values: The hyperparameters.
            free: Names of hyperparameters, in the order of the gradient.

        Returns:
            The value, 0-d, and its gradient in free raw values, (p,), float64. None if a row is too far out for a
            closed form.
        """
        with torch.no_grad():
            known = {name: values.standardized(name).double() for name in values.space.quantities}
            solver = self._solver(values, known)
            if solver is None:
                return None
            value, gradients = solver.likelihood_and_gradients()
            names = [name for term in self.terms for name in term.names]
            total = self._in_raw(values, known, zip(names, gradients[:-2], strict=True), gradients[-2:])
        if values.space.hyperpriors:
            value = value + _add_hyperprior(total, values, free)
        parts = [total[name] if name in total else torch.zeros_like(known[name]) for name in free]
        return value, torch.cat([part.reshape(-1) for part in parts])

    def _solver(self, values: ParameterValues, known: Mapping[str, Tensor]) -> DenseSolver | None:
        """Return the solver at standardized values, or None without a closed form."""
        grams = [term.at(known) for term in self.terms]
        known_grams = [gram for gram in grams if gram is not None]
        if len(known_grams) < len(grams):
            return None
        return DenseSolver(NO_PRIOR, self.rows, *mean_and_noise(values), Gram.total(known_grams))

    def _in_raw(
        self,
        values: ParameterValues,
        known: Mapping[str, Tensor],
        of_terms: "zip[tuple[str, Tensor | None]]",
        of_noise_and_residual: Sequence[Tensor | None],
    ) -> dict[str, Tensor]:
        """Return the gradients in raw values by name, from those in standardized values."""
        in_noise, in_residual = of_noise_and_residual
        assert in_noise is not None
        assert in_residual is not None
        total = {"noise": in_noise.sum()}
        for name, gradient in of_terms:
            if gradient is not None:
                total[name] = gradient if name not in total else total[name] + gradient
        for name, gradient in total.items():
            if values.space.quantities[name].is_positive:
                total[name] = gradient * known[name]
        unit = values.space.mean.scale / values.space.targets.scale
        total["mean"] = (-in_residual.sum(0) * unit).sum_to_size(values.raw["mean"].shape or (1,))
        return total


def _add_hyperprior(total: dict[str, Tensor], values: ParameterValues, free: Sequence[str]) -> Tensor:
    """Return the log density of the hyperpriors, 0-d, and add its gradient to totals."""
    with torch.enable_grad():
        leaves = values.leaves(free)
        log_hyperprior = leaves.log_hyperprior()
        if not log_hyperprior.requires_grad:
            return log_hyperprior.double()
        tensors = [leaves.raw[name] for name in free]
        gradients = torch.autograd.grad(log_hyperprior, tensors, allow_unused=True)
    for name, gradient in zip(free, gradients, strict=True):
        if gradient is not None:
            total[name] = gradient.double() + total.get(name, 0.0)
    return log_hyperprior.detach().double()
