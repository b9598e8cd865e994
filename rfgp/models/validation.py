"""Validation of the data that a user passes to a model."""

from typing import Any

import numpy as np

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.inference.observed import check_exposure
from rfgp.likelihoods import Bernoulli
from rfgp.regression import BaseSpec
from rfgp.rows import Chunk
from rfgp.rows.arrays import warn_of_booleans
from rfgp.torch_context import outside_inference_mode


def warn_of_targets(spec: BaseSpec, y: Any) -> None:
    """Warn of boolean targets unless the likelihood is Bernoulli.

    Args:
        spec: The specification of the model.
        y: The targets, (n,), in any supported format.
    """
    if not isinstance(spec.options.likelihood, Bernoulli):
        warn_of_booleans(y, stacklevel=5)


def validate_inputs(
    spec: BaseSpec,
    X: Any,
    y: Any,  # (n,) or (n, k)
    noise: Any,  # (n,)
    sample_weight: Any,  # (n,)
    exposure: Any,  # (n,)
) -> Chunk:
    """Return the data as a chunk, with exposures in the field of the noise.

    Args:
        spec: The specification of the model.
        X: The inputs, in any supported format.
        y: The targets, or the name of their column.
        noise: Known noise variances of the rows. If None, there are none.
        sample_weight: The numbers of repetitions of the rows. If None, ones.
        exposure: The exposures of the rows. If None, there are none.

    Raises:
        DataError: If noise is given with a likelihood that is not Gaussian, or exposures differ from targets in shape.
        InvalidArgumentError: If an exposure is not positive, or the likelihood has no exposures.
    """
    likelihood = spec.options.likelihood
    if noise is not None and not spec.is_gaussian:
        raise DataError(f"noise requires a Gaussian likelihood, got {likelihood!r}. Use sample_weight to repeat rows.")
    if exposure is not None:
        if not likelihood.takes_exposure:
            raise InvalidArgumentError(
                f"exposure requires a likelihood of counts or positive values, got {likelihood!r}. Leave it out."
            )
        shape = np.shape(check_exposure(exposure))
        if y is None or (shape != np.shape(y) and not isinstance(y, str)):
            raise DataError(f"exposure must have one value for each target in memory, got shape {shape}.")
        noise = exposure
    return Chunk(*map(outside_inference_mode, (X, y, noise, sample_weight)))
