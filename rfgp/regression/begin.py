"""How regressions come to be: from data alone, with other data, with further data."""

import torch

from rfgp.inference import FeaturePrior, LinearModel, Posterior, WeightPosterior
from rfgp.inference.posteriors import FactorCovariance
from rfgp.inference.primal import absorb
from rfgp.parameters import Quantity, Space
from rfgp.regression.family import Family
from rfgp.regression.regression import Regression, mean_and_noise
from rfgp.rows import ArrayRows, Chunk, JoinedRows, Rows, SourceRows, read_more, read_training
from rfgp.rows.given import DataSummary
from rfgp.scaling import Affine

NOISE_BOUNDS = (1e-6, 1e2)  # of the variance of the targets
OUTPUTSCALE_BOUNDS = (1e-6, 1e8)


def begin(family: Family, data: Chunk, least: int = 2) -> Regression:
    """Return a regression at its starting values, which the data decide where the user left them open.

    Args:
        family: As the user chose it.
        data: What the user gave.
        least: How many rows it takes.

    Raises:
        DataError: the data cannot be used; the message names the place.
    """
    given = read_training(family.inputs, data, family.options.seed, least)
    summary = given.summary(family.inputs.standardize)
    rows, drawn = given.rows(summary.scaling), family.drawn(summary.scaling)
    values = _space(drawn, summary).start
    values = values.given(**{name: value for name, value in family.options.starts.items() if value is not None})
    drawn, values = drawn.begun(values, rows)
    return Regression(drawn, summary.scaling, values, len(rows), rows)


def conditioned(regression: Regression, data: Chunk) -> Regression:
    """Return the regression with other data, all else as it is; it is solved while a source can be read.

    Raises:
        DataError: the data cannot be used; the message names the place.
    """
    inputs, seed = regression.family.inputs, regression.family.options.seed
    rows = read_training(inputs, data, seed, 1).rows(regression.scaling)
    return solved_if_read(regression.replace(rows=rows, num_observations=len(rows)))


def extended(regression: Regression, data: Chunk) -> Regression:
    """Return the regression with further data, all else as it is.

    Where there are fewer features than data and the posterior is there, only the new rows are read.

    Raises:
        DataError: the data cannot be used; the message names the place.
        NotFittedError: the old rows are needed, and are not there.
    """
    posterior = regression.present_posterior
    if not _absorbs(posterior):
        regression.needed_rows("update")
    inputs, seed = regression.family.inputs, regression.family.options.seed
    more = read_more(inputs, data, seed, regression.scaling)
    grown = None
    if _absorbs(posterior):
        assert isinstance(posterior, WeightPosterior)
        grown, more = _absorbed(regression, posterior, more)
    elif isinstance(more, SourceRows) and more.num_rows is None:
        more = _counted(more)
    rows = None if regression.rows is None else _joined(regression.rows, more)
    new = regression.replace(rows=rows, given=grown, num_observations=regression.num_observations + len(more))
    return new if isinstance(more, ArrayRows) else solved_if_read(new)


def solved_if_read(regression: Regression) -> Regression:
    """Return the regression, with its posterior where rows are read in blocks: now they can be read."""
    parts = regression.rows.parts if isinstance(regression.rows, JoinedRows) else [regression.rows]
    if any(isinstance(part, SourceRows) for part in parts):
        return regression.replace(given=regression.posterior)
    return regression


def _space(family: Family, summary: DataSummary) -> Space:
    """Return the hyperparameters of a family, with starting values and bounds that the data decide."""
    unit = summary.scaling.targets.scale**2
    quantities, variance = (
        family.inputs.quantities(summary.inputs, summary.scaling),
        (summary.deviation**2 / unit).mean(),
    )
    for name, start, bounds in (("outputscale", 1.0, OUTPUTSCALE_BOUNDS), ("noise", 0.1, NOISE_BOUNDS)):
        quantities[name] = Quantity(start * variance, unit, (bounds[0] * variance, bounds[1] * variance))
    mean = Affine(summary.center, summary.deviation)
    return Space.of(quantities, mean, summary.scaling.targets, family.options.hyperpriors)


def _absorbs(posterior: Posterior | None) -> bool:
    """Return whether a posterior takes new rows without the old ones."""
    return isinstance(posterior, WeightPosterior) and isinstance(posterior.uncertainty, FactorCovariance)


def _absorbed(
    regression: Regression, posterior: WeightPosterior, more: ArrayRows | SourceRows
) -> tuple[WeightPosterior, ArrayRows | SourceRows]:
    """Return the posterior with further rows, and these, counted as they were read."""
    with torch.no_grad():
        prior, (mean, noise) = regression.prior(), mean_and_noise(regression.hyperparameters)
        assert isinstance(prior, FeaturePrior)
        grown, statistics = absorb(LinearModel(prior, more, mean.double(), noise.double()), **posterior.tensors())
    if isinstance(more, SourceRows) and more.num_rows is None:
        more = more.counted(int(statistics.rows), float(statistics.observations))
    return grown, more


def _counted(rows: SourceRows) -> SourceRows:
    """Return rows that have been read once, and so are checked and counted."""
    num_rows, count = 0, 0.0
    for block in rows.blocks(2**16):
        num_rows, count = num_rows + len(block), count + block.count
    return rows.counted(num_rows, count)


def _joined(rows: Rows, more: Rows) -> JoinedRows:
    parts = rows.parts if isinstance(rows, JoinedRows) else [rows]
    return JoinedRows([*parts, more])
