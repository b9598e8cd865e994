"""Likelihoods that are not normal, in a regression: starts, parameters among the hyperparameters, what is left out."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from rfgp.errors import DataError
from rfgp.inference import (
    MOST_DENSE,
    AveragePrior,
    Evidence,
    IndependentPosterior,
    LeaveOneOut,
    MarginalDistribution,
    NoisyPosterior,
    Posterior,
    Prediction,
    Prior,
    laplace_evidence,
    observations,
    restore,
    variational_evidence,
)
from rfgp.inference.evidence import Guess
from rfgp.inference.independent import by_function
from rfgp.inference.noisy import OF_NOISE
from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.role import learned as learned_of
from rfgp.likelihoods.role import refuse, standardized
from rfgp.parameters import Quantity, Values
from rfgp.regression.family import Family
from rfgp.rows import ArrayRows, Block, DataSummary, GivenArrays, GivenSource, Rows, came_as_numpy, parts_of
from rfgp.scaling import Affine, Scaling

F = TypeVar("F", bound=Family)

MOST_OF_CLASSES = 500
"""Rows up to which several classes without features are inferred variationally: a step takes n^3 for each."""
NOISE = "noise_"
"""Before the names of the hyperparameters of the noise's logarithm."""
NOISE_START, NOISE_BOUNDS = 0.5, (1e-4, 1e2)
"""Of its output scale."""


class Regressed(Protocol):
    """The role: a regression, as far as its observations are concerned."""

    @property
    def family(self) -> Family:
        """Which prior the inputs have, and the likelihood."""

    @property
    def scaling(self) -> Scaling:
        """Between the user's units and standardised ones."""

    @property
    def hyperparameters(self) -> Values:
        """The numbers."""

    def evidence(self, rows: Rows) -> Evidence:
        """Return what standardised rows say."""


def summary_of(family: F, given: GivenArrays | GivenSource) -> tuple[F, DataSummary]:
    """Return what data decide before anything is learned, of the latent function where observations are others.

    And the family, whose likelihood may take something from the data.

    Raises:
        DataError: several targets, or one that is no observation of the likelihood.
    """
    summary, law = given.summary(family.inputs.standardize), family.options.likelihood
    if family.is_normal:
        return family, summary
    targets = summary.targets
    if targets.ndim > 1 and targets.shape[1] > 1:
        raise DataError(f"{law!r} is of one target a row, got {targets.shape[1]}: fit a model for each.")
    if not law.is_standardized:
        like = summary.center.reshape(-1)[:1]
        maps = Affine.identity(like if summary.center.ndim == 0 else like[None])
        summary = dataclasses.replace(summary, scaling=dataclasses.replace(summary.scaling, targets=maps))
    units = summary.scaling.targets
    y = units.forward(targets).reshape(-1).double()
    seeing = law.seeing(y)
    if seeing is not law:
        options = dataclasses.replace(cast(Any, family.options), likelihood=seeing)
        family, law = dataclasses.replace(cast(Any, family), options=options), seeing
    refuse(law, y)
    weight = torch.ones_like(y) if summary.weight is None else summary.weight.double()
    exposure = given.chunk.noise if isinstance(given, GivenArrays) and law.takes_exposure else None
    begin = law.begin(y, weight) if exposure is None else law.begin(y / exposure, weight * exposure)
    center = (units.location + units.scale * begin.center).to(summary.center)
    deviation = (begin.variance.sqrt() * units.scale).to(center).expand(center.shape).clone()
    return family, dataclasses.replace(summary, center=center, deviation=deviation)


def check_rows(family: Family, rows: Rows) -> None:
    """Refuse rows with a noise of their own, or in memory with a target that is no observation of the likelihood.

    Raises:
        DataError: with the first of them.
    """
    if family.is_normal:
        return
    law = family.options.likelihood
    if rows.has_fixed_noise and not (law.takes_exposure and isinstance(rows, ArrayRows)):  # where exposures stand
        raise DataError(f"noise= is of a normal likelihood, got {law!r}; a row that counts often has a sample_weight.")
    if isinstance(rows, ArrayRows):
        refuse(law, rows.targets[:, 0])


def law_quantities(family: Family, summary: DataSummary) -> dict[str, Quantity]:
    """Return the parameters of the likelihood that are learned, at their starts."""
    if family.is_normal:
        return {}
    one = torch.ones_like(summary.center).reshape(-1)[0]
    unit = summary.scaling.targets.scale.reshape(-1)[0]
    of_noise = {}
    if family.options.likelihood.has_noise_process:
        of_noise = dict(family.inputs.quantities(summary.spread, summary.scaling))
        of_noise["outputscale"] = Quantity(NOISE_START * one, one, (NOISE_BOUNDS[0] * one, NOISE_BOUNDS[1] * one))
    return {f"{NOISE}{name}": quantity for name, quantity in of_noise.items()} | {
        p.name: Quantity(p.start * one, unit**p.power, (p.bounds[0] * one, p.bounds[1] * one))
        for p in learned_of(family.options.likelihood)
    }


def latent_mean_and_law(regression: Regressed) -> tuple[Tensor, Likelihood, dict[str, Tensor]]:
    """Return the mean of the latent function (1,), the likelihood, and its learned parameters, 0-d each; standardised.

    With gradients where the hyperparameters have some.
    """
    values, law = regression.hyperparameters, regression.family.options.likelihood
    learned = {p.name: values.standardized(p.name).double() for p in learned_of(law)}
    unit = float(regression.scaling.targets.scale.reshape(-1)[0])
    return values.standardized("mean").reshape(-1).double(), standardized(law, unit), learned


def priors_of(family: Family, values: Values) -> list[Prior]:
    """Return the prior of the latent function, and that of the noise's logarithm where the likelihood has one."""
    if not family.options.likelihood.has_noise_process:
        return [family.prior(values)]
    of_noise = {name: values.raw.get(f"{NOISE}{name}", raw) for name, raw in values.raw.items()}
    return [family.prior(values), family.prior(Values(values.space, of_noise))]


def approximation_of(family: Family, rows: Rows) -> str | None:
    """Return how the posterior given rows is approximated, None: not at all.

    As the user chose, else as usual for the likelihood; of classes variationally, up to 4,000 rows in memory, or 500 of
    several classes without features.
    """
    law, chosen = family.options.likelihood, family.options.approximation
    most = MOST_DENSE if law.num_latents == 1 or family.has_few_features else MOST_OF_CLASSES
    if chosen is not None or not law.approximations:
        return chosen
    is_kept = all(isinstance(part, Block) for part in parts_of(rows))
    return "variational" if law.is_far_from_normal and is_kept and len(rows) <= most else law.approximations[0]


def observed_evidence(regression: Regressed, rows: Rows, near: Guess = ()) -> Evidence:
    """Return what standardised rows say, by the approximation that the options name; with gradients where wanted."""
    family = regression.family
    priors, told = priors_of(family, regression.hyperparameters), latent_mean_and_law(regression)
    if approximation_of(family, rows) == "variational":
        return variational_evidence(priors, rows, *told, near)
    return laplace_evidence(priors[0], rows, *told, near)


def restored(family: Family, values: Values, tensors: Mapping[str, Tensor]) -> Posterior:
    """Return the posterior whose `tensors` (...) these are, by name."""
    parts = by_function(tensors)
    with torch.no_grad():
        prior, *of_noise = priors_of(family, values)
        if of_noise:
            return NoisyPosterior(restore(prior, parts[""]), restore(of_noise[0], parts[OF_NOISE]))
        if isinstance(prior, AveragePrior):
            return restore(prior, tensors)
        if "" in parts:
            return restore(prior, parts[""])
        return IndependentPosterior([restore(prior, parts[str(i)]) for i in range(len(parts))])


def bound_likelihood(regression: Regressed) -> Likelihood:
    """Return the likelihood of standardised observations, with all its parameters."""
    with torch.no_grad():
        _, law, learned = latent_mean_and_law(regression)
        return law.at(learned)


def left_out_observations(regression: Regressed, rows: Rows, evidence: Evidence | None = None) -> LeaveOneOut:
    """Return the law of each row's observation given all the others, approximately, in the user's units.

    Args:
        regression: With its hyperparameters.
        rows: The data.
        evidence: What they say, where it is known.
    """
    units = regression.scaling.targets
    with torch.no_grad():
        mean, variance = (evidence or regression.evidence(rows)).leave_one_out()
        location, scale = units.location.double().reshape(-1)[0], units.scale.double().reshape(-1)[0]
        template, as_numpy = units.scale.new_empty(0), came_as_numpy(rows)
        zero = torch.zeros_like(scale)
        latent = Prediction(_marginal(mean, variance), location, scale, zero, template, as_numpy)
        offset = torch.cat([block.offset() for block in rows.blocks(2**16)]) if rows.has_fixed_noise else None
        observed = observations(latent, bound_likelihood(regression), offset)
        y = torch.cat([block.targets[:, 0] for block in rows.blocks(2**16)])
        return LeaveOneOut(observed.mean, observed.variance, observed.log_density(location + scale * y))


def _marginal(mean: Tensor, variance: Tensor) -> MarginalDistribution:
    """Return distributions with means (n, 1) and variances (n,). The second of two columns is a noise process."""
    if variance.ndim != 2:
        return MarginalDistribution(mean, variance)
    return MarginalDistribution(mean[:, :1], variance[:, 0], MarginalDistribution(mean[:, 1:], variance[:, 1]))
