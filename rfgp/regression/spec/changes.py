"""Specifications with other approximations or draws."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from rfgp.approximations import Approximation
from rfgp.approximations.planning import assign
from rfgp.parameters import Values
from rfgp.regression.spec.noise import by_process
from rfgp.regression.spec.spec import ModelSpec


def reassigned(spec: ModelSpec, approximation: Any, values: Values, num_rows: int) -> dict[str, Approximation]:
    """Return the approximations of all terms by name, if some change and the others stay.

    Args:
        spec: The specification.
        approximation: An approximation, or a dict by the names of terms.
        values: The hyperparameters.
        num_rows: The number of rows.

    Raises:
        InvalidArgumentError: there is no term of a name, or an approximation cannot serve a term.
    """
    data, noise = spec.term_data(values, num_rows), spec.noise_process
    of_noise = noise.term_data(values, num_rows) if noise else []
    own, other = by_process(approximation, data, of_noise)
    found = assign(own, data, spec.approximations)
    return found if noise is None else found | assign(other, of_noise, noise.approximations)


def learnable_draws(spec: ModelSpec) -> dict[str, Tensor]:
    """Return the draws (...) that a fit may change, by path."""
    found = {path: draw for term in spec.priors for path, draw in term.learnable.items()}
    return found if spec.noise_process is None else found | learnable_draws(spec.noise_process)


def with_learned(spec: ModelSpec, draws: Mapping[str, Tensor]) -> ModelSpec:
    """Return the specification with other draws (...) by path."""
    noise = None if spec.noise_process is None else with_learned(spec.noise_process, draws)
    return replace(spec, priors=tuple(term.with_learned(draws) for term in spec.priors), noise_process=noise)
