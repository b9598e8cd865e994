"""The hyperparameters of a specification, with starting values and bounds from the data."""

import math
from dataclasses import replace

from rfgp.errors import DataError
from rfgp.parameters import Hyperparameter, ParameterSpace
from rfgp.regression.base_spec import BaseSpec
from rfgp.regression.observing import likelihood_quantities
from rfgp.rows import DataSummary
from rfgp.scaling import Affine

_LEAST = 1e-290
"""The smallest bound of a hyperparameter, so that products and quotients with observations are finite."""


def space_of(spec: BaseSpec, summary: DataSummary, approximation: str | None) -> ParameterSpace:
    """Return the hyperparameters of a specification, with starts and bounds.

    Args:
        spec: The specification.
        summary: The summary of the data.
        approximation: The approximation of the posterior, for the bounds of the noise.

    Raises:
        DataError: If the scale of the data is out of range.
        InvalidArgumentError: If the name of a hyperprior is unknown.
    """
    widest = spec.options.likelihood.widest_by_laplace if approximation == "laplace" else math.inf
    unit = summary.scaling.targets.scale**2
    quantities = dict(spec.inputs.quantities())
    variance, narrow = ((deviation**2 / unit).mean() for deviation in (summary.deviation, summary.narrow))
    for name, quantity in quantities.items():
        if quantity.is_variance:
            low, high = quantity.bounds[0] * narrow, quantity.bounds[1] * variance
            own_unit = quantity.unit * unit if unit.ndim == 0 else quantity.unit  # each output has its own unit
            quantities[name] = replace(quantity, start=quantity.start * variance, unit=own_unit, bounds=(low, high))
    for name, start, bounds in spec.variances:
        quantities[name] = Hyperparameter(
            start * variance, unit, (bounds[0] * narrow, min(bounds[1], widest) * variance)
        )
    quantities |= likelihood_quantities(spec, summary)
    of_targets = {variance.name for variance in spec.variances}
    for name, quantity in quantities.items():
        low, high = (end.double() for end in quantity.bounds)
        if quantity.is_positive and not bool((low > _LEAST).all() and (high < 1 / _LEAST).all()):
            what = "targets" if name in of_targets else "inputs"
            raise DataError(
                f"The scale of the {what} must be in the range of double precision, got bounds of {name} from "
                f"{float(low.min()):.3g} to {float(high.max()):.3g}. Scale them, or use standardize=True."
            )
    mean = Affine(summary.center, summary.deviation)
    return ParameterSpace.of(quantities, mean, summary.scaling.targets, spec.options.hyperpriors)
