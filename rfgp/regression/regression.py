"""A regression as a value: rows under a prior at given hyperparameters, and its construction from data."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.blocks import Prior
from rfgp.counts import check_count, counted
from rfgp.errors import NotFittedError
from rfgp.inference.conditioned import ConditionedGP
from rfgp.inference.mixture import MixtureDistribution, MixtureInference, MixturePrediction
from rfgp.inference.observed import LeaveOneOut, observations
from rfgp.inference.prediction import Prediction
from rfgp.inference.term_prediction import TermPrediction
from rfgp.parameters import Values
from rfgp.regression.family import Family, mean_and_noise
from rfgp.regression.observing import (
    approximation_of,
    bound_likelihood,
    check_blocks,
    check_rows,
    left_out_observations,
    mixture_members,
    observed_inference,
    restored,
    summary_of,
)
from rfgp.regression.space import space_of
from rfgp.rows import (
    ArrayRows,
    Chunk,
    DataSummary,
    GivenArrays,
    JoinedRows,
    Rows,
    SourceInputs,
    SourceRows,
    came_as_numpy,
    in_memory,
    inputs_source,
    is_read_in_blocks,
    parts_of,
    read_more,
    read_training,
)
from rfgp.rows.arrays import Origin
from rfgp.rows.names import arranged
from rfgp.scaling import Scaling
from rfgp.solvers import Inference, Posterior, WarmStart, solver_for
from rfgp.solvers.lowrank import LinearModel, LowRankPosterior, update_gram


@dataclass(frozen=True, eq=False, repr=False)
class Regression:
    """Rows under a prior at given hyperparameters, a posterior, or both.

    Nothing that carries a gradient is kept. Likelihoods are computed at each call, and the posterior once, at detached
    hyperparameters.

    Attributes:
        family: The prior and the likelihood, with random draws for the columns of the inputs.
        scaling: The maps between the user's units and standardised ones.
        hyperparameters: The hyperparameters.
        num_observations: The number of rows of the posterior.
        rows: The standardised rows, in blocks. If None, only a posterior is known.
        given: A posterior at these hyperparameters that was loaded, updated or found by a fit. If None, it is computed
            when it is needed.
    """

    family: Family
    scaling: Scaling
    hyperparameters: Values
    num_observations: int
    rows: Rows | None = None
    given: Posterior | None = None

    # --- other regressions -----------------------------------------------------------------------

    def replace(self, **changes: Any) -> "Regression":
        """Return the regression with other attributes, without a given posterior unless it is one of them."""
        return dataclasses.replace(self, **{"given": None, **changes})

    def at(self, values: Values) -> "Regression":
        """Return the regression at other hyperparameters, or itself if they are the same."""
        return self if self.hyperparameters.equals(values) else self.replace(hyperparameters=values.detached())

    # --- inference -------------------------------------------------------------------------------

    def needed_rows(self, purpose: str) -> Rows:
        """Return the rows.

        Args:
            purpose: A noun for the error message: the computation that needs the rows.

        Raises:
            NotFittedError: only a posterior is known.
        """
        if self.rows is None:
            raise NotFittedError(
                f"This model was loaded without its data, needed for {purpose}. Call condition(X, y) first, or save it "
                "with data=True."
            )
        return self.rows

    @property
    def approximation(self) -> str | None:
        """How the posterior of the rows is approximated, "laplace" or "variational". None if it is exact."""
        return None if self.rows is None else approximation_of(self.family, self.rows)

    def prior(self) -> Prior:
        """Return the prior at these hyperparameters, with gradients if they have some."""
        return self.family.prior(self.hyperparameters)

    def infer(self, rows: Rows, warm_start: WarmStart = ()) -> Inference:
        """Return the inference from standardised rows at these hyperparameters, with gradients if they have some.

        Args:
            rows: The data.
            warm_start: The warm start of the same rows at hyperparameters close by. The default is none.
        """
        if not self.family.is_normal:
            return observed_inference(self, rows, warm_start)
        members = mixture_members(self.family, self.hyperparameters)
        if len(members) > 1:
            return MixtureInference(members, lambda one: solver_for(one.prior, rows, one.mean, one.noise))
        return solver_for(members[0].prior, rows, members[0].mean, members[0].noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of the targets in their own units, 0-d, constants included.

        Raises:
            NotFittedError: there are no rows.
        """
        rows = self.needed_rows("the marginal likelihood")
        return self.infer(rows).log_marginal_likelihood() + self.scaling.targets.log_jacobian(rows.count)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior that predictions need: the given one, or one that is computed once.

        Raises:
            NotFittedError: there are neither rows nor a given posterior.
        """
        if self.given is not None:
            return self.given
        rows = self.needed_rows("predictions with other hyperparameters")
        with torch.no_grad():
            return self.replace(hyperparameters=self.hyperparameters.detached()).infer(rows).posterior()

    @property
    def present_posterior(self) -> Posterior | None:
        """The posterior, if it was given or has been computed."""
        return vars(self).get("posterior", self.given)

    @property
    def process(self) -> ConditionedGP:
        """The standardised latent function given the rows.

        Raises:
            NotFittedError: there are neither rows nor a given posterior.
        """
        return ConditionedGP(self.posterior)

    def leave_one_out(self) -> LeaveOneOut:
        """Return the predictive distribution of each row's observation given all others, in the user's units.

        Raises:
            NotFittedError: there are no rows.
        """
        rows = self.needed_rows("leave_one_out")
        if not self.family.is_normal:
            return left_out_observations(self, rows)
        with torch.no_grad():
            mean, variance = self.infer(rows).leave_one_out()
            noise = self.family.observation_noise(self.hyperparameters).double()
            repeated = [  # a row is the mean of its repetitions
                (b.targets, (b.observation_noise(noise) - b.noise_diag(noise)).expand(len(b)))
                for b in rows.blocks(2**16)
            ]
        targets, more = (torch.cat(column) for column in zip(*repeated, strict=True))
        return LeaveOneOut.of(mean, variance + more, targets, self.scaling.targets, came_as_numpy(rows))

    # --- predictions -----------------------------------------------------------------------------

    def points(self, X: Any) -> tuple[Tensor, Origin]:
        """Check new inputs and return them standardised, tables (n, d) or positions (n,).

        Raises:
            DataError: they do not fit the data.
        """
        inputs, origin = self.family.inputs.read(arranged(X, self.scaling.columns))
        self.scaling.check_columns(inputs)
        return self.scaling.standardize(inputs), origin

    def predict(self, X: Any) -> Prediction:
        """Return the posterior of the latent function at inputs (n, d), n labels, or a source of blocks of rows."""
        return predicted(self, *_points_or_blocks(self, X))

    def sample_functions(self, num_samples: int, seed: int | None) -> Callable[[Any], Any]:
        """Draw functions from the posterior: maps of inputs, (n, d) or n labels, to values (s, n) or (s, n, k).

        Raises:
            InvalidArgumentError: s is not a positive integer, or the prior has no functions to draw.
        """
        num_samples = check_count("num_samples", num_samples)
        generator = random.generator(random.resolve_seed(seed), random.Role.FUNCTIONS)
        mean, scale, _ = _units(self)
        with torch.no_grad():
            drawn = self.posterior.sample_functions(num_samples, generator)

        @plain()
        def functions(X: Any) -> Any:
            inputs, origin = self.points(X)
            with torch.set_grad_enabled(torch.is_grad_enabled() and inputs.requires_grad):
                values = mean + scale * drawn(inputs)
            values = (values if mean.ndim else values[..., 0]).to(origin.template)
            return values.cpu().numpy() if origin.is_numpy else values

        return functions

    def prior_covariance(self, X: Any) -> Tensor:
        """Return the prior covariance of the latent function in the user's units, float64, (n, n) or (n, n, k)."""
        inputs, _ = self.points(X)
        members, scale = self.family.members(self.hyperparameters), self.scaling.targets.scale.double()
        first, *others = (member.weight * member.prior.kernel(inputs, inputs) for member in members)
        kernel: Tensor = sum(others, start=first)
        return scale**2 * (kernel[..., None] if scale.ndim else kernel)

    def __repr__(self) -> str:
        return f"Regression({counted(self.num_observations, 'observation')}, {self.hyperparameters})"

    def __deepcopy__(self, memo: Any) -> "Regression":
        return self  # it never changes

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**state, "given": None if self.given is None else self.given.tensors()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        if self.given is not None:
            object.__setattr__(self, "given", restored(self.family, self.hyperparameters, state["given"]))


def _points_or_blocks(regression: Regression, X: Any) -> tuple[Tensor | SourceInputs, Origin]:
    family, scaling = regression.family, regression.scaling
    source = inputs_source(family.inputs, X)
    if source is None:
        return regression.points(X)
    like = scaling.targets.scale.new_empty(0)
    return SourceInputs(source, scaling, family.inputs.dtype), Origin(not isinstance(X, Tensor), like)


def begin(family: Family, data: Chunk) -> Regression:
    """Return a regression at its starting values. The data decide those that the user left open.

    Args:
        family: The family of the user's options.
        data: The user's data, at least two rows.

    Raises:
        DataError: the data cannot be used; the message names the place.
    """
    family, data = family.with_data(data)
    given = read_training(family.inputs, data, family.options.seed)
    family, summary = summary_of(family, given)
    family, summary = family.with_data_summary(summary)
    rows = given.rows(summary.scaling)
    check_rows(family, rows)
    return started(family, summary, rows)


def started(family: Family, summary: DataSummary, rows: Rows) -> Regression:
    """Return the regression of standardised rows at the starting values of a family, given a summary of the data.

    Raises:
        DataError: the scale of the data is out of range.
        InvalidArgumentError: a starting value or a hyperprior has the name of no hyperparameter.
    """
    drawn = family.with_sample(summary.scaling, rows)
    values = space_of(drawn, summary, approximation_of(drawn, rows)).start
    values = values.given(**{name: value for name, value in drawn.options.starts.items() if value is not None})
    drawn, values = drawn.initialized(values, rows)
    return Regression(drawn, summary.scaling, values, len(rows), rows)


def restarted(regression: Regression, family: Family) -> Regression:
    """Return the regression of another family at its starting values, for the same rows.

    Raises:
        DataError: some of the rows are read in blocks.
    """
    given = GivenArrays(*in_memory(regression.needed_rows("a fit"), "another kernel or likelihood"))
    family, summary = summary_of(family, given)
    family, summary = family.with_data_summary(summary)
    return started(family, summary, given.rows(summary.scaling))


def conditioned(regression: Regression, data: Chunk) -> Regression:
    """Return a regression with other data. Its posterior is computed now if a source may be read only now.

    Raises:
        DataError: the data cannot be used; the message names the place.
    """
    (family, data), scaling = regression.family.with_data(data), regression.scaling
    given = read_training(family.inputs, data, family.options.seed, 1, scaling.columns)
    scaling = scaling if scaling.columns is not None else dataclasses.replace(scaling, columns=given.names)
    rows = given.rows(scaling)
    check_rows(family, rows)
    return solved_if_read(regression.replace(family=family, rows=rows, scaling=scaling, num_observations=len(rows)))


def extended(regression: Regression, data: Chunk) -> Regression:
    """Return a regression with further data.

    If its posterior is known and takes new rows without the old ones, only the new rows are read.

    Raises:
        DataError: the data cannot be used; the message names the place.
        NotFittedError: the old rows are needed but not known.
    """
    posterior = regression.present_posterior if regression.family.is_normal else None
    posterior = posterior if posterior is not None and posterior.takes_rows else None
    family, data = regression.family.with_data(data)
    posterior = posterior if family is regression.family else None  # new levels are further weights
    if posterior is None:
        regression.needed_rows("update")
    more = read_more(family.inputs, data, family.options.seed, regression.scaling)
    check_rows(family, more)
    grown = None
    if posterior is not None:
        grown, more = _updated(regression, posterior, more)
    elif isinstance(more, SourceRows) and more.num_rows is None:
        more = more.read_once()
    rows = None if regression.rows is None else JoinedRows([*parts_of(regression.rows), more])
    count = regression.num_observations + len(more)
    new = regression.replace(family=family, rows=rows, given=grown, num_observations=count)
    return new if isinstance(more, ArrayRows) else solved_if_read(new)


def solved_if_read(regression: Regression) -> Regression:
    """Return a regression, with its posterior if rows are read in blocks: later their source may be gone.

    Raises:
        InvalidArgumentError: rows are read in blocks, and a term needs them in memory.
    """
    if regression.rows is None or not is_read_in_blocks(regression.rows):
        return regression
    check_blocks(regression.family, regression.hyperparameters, regression.rows)
    return regression.replace(given=regression.posterior)


def predicted(regression: Regression, inputs: Any, origin: Origin) -> Prediction:
    """Return the posterior of the latent function at standardised inputs, (n, d) or blocks of them.

    Args:
        regression: The regression.
        inputs: The standardised inputs.
        origin: The type of the results.
    """
    mean, scale, noise = _units(regression)
    process = regression.process
    latent = process.at(inputs)
    likelihood = None if regression.family.is_normal else bound_likelihood(regression)
    of_observations = None if likelihood is None else partial(observations, likelihood=likelihood)
    parts = latent, mean, scale, noise, origin.template, origin.is_numpy
    if isinstance(latent, MixtureDistribution):
        return MixturePrediction(*parts, of_observations=of_observations)
    return TermPrediction(*parts, of_observations=of_observations, process=process, inputs=inputs)


def _updated(
    regression: Regression, posterior: Posterior, more: ArrayRows | SourceRows
) -> tuple[Posterior, ArrayRows | SourceRows]:
    """Return the posterior with further rows, and these rows, counted as they were read."""
    assert isinstance(posterior, LowRankPosterior)
    with torch.no_grad():
        model = LinearModel(regression.prior().dense, more, *mean_and_noise(regression.hyperparameters))
        grown, statistics = update_gram(model, posterior)
    if isinstance(more, SourceRows) and more.num_rows is None:
        more = more.counted(int(statistics.rows), float(statistics.observations))
    return grown, more


def _units(regression: Regression) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean and the scale of the targets in the user's units, and the standardised noise."""
    with torch.no_grad():
        mean = regression.hyperparameters.value("mean").double()
        normal = regression.family.is_normal
        noise = regression.family.observation_noise(regression.hyperparameters) if normal else mean.new_zeros(())
    return mean, regression.scaling.targets.scale.double(), noise
