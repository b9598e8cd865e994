"""The model: a kernel, approximations of its terms and a likelihood."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch

from rfgp.approximations import Approximation, Exact
from rfgp.approximations.planning import AUTO, read_approximation
from rfgp.counts import counted, read_bytes, read_seconds
from rfgp.errors import DataSavedWarning, InvalidArgumentError
from rfgp.fitting import Deadline, Plan, Progress, Reporter
from rfgp.kernels import RBF, Kernel
from rfgp.likelihoods import Likelihood
from rfgp.limits import limits
from rfgp.models.fitted import Fitted
from rfgp.models.process import Process
from rfgp.models.terms import TermReport, term_reports
from rfgp.models.validation import validate_inputs
from rfgp.parameters import Hyperprior
from rfgp.regression import Budget, FitReport, GPState, SelectionReport, begin, solved_if_read
from rfgp.regression.spec import (
    ModelOptions,
    ModelSpec,
    approximated,
    each_changed,
    exact_evidence_bounds,
    largest,
    parts_of_average,
    starvation_warnings,
)
from rfgp.saving import row_terms
from rfgp.selection import AutoSpace, run_selection
from rfgp.solvers.lowrank import EvidenceBounds
from rfgp.threads import computed, in_one_thread
from rfgp.torch_context import with_torch_defaults


class GP(Process[ModelSpec]):
    """A Gaussian process with a sum of terms, each with its own approximation.

    Args:
        kernel: A kernel of `rfgp.kernels`, or "auto". With "auto" a fit selects a kernel over all columns and the
            approximations of its terms. Candidates are compared by their scores on left-out or held-out rows (see
            `selection`). Up to 2,000 rows they are exact GPs, and those with close scores are averaged (see `members`).
        likelihood: The distribution of an observation given the latent function: a name or an object of
            `rfgp.likelihoods`. `Heteroscedastic(kernel=...)` adds terms "noise.<term>" for the log noise variance.
            With "auto" a fit chooses the noise by left-out rows: Gaussian of one variance, or normal or Student-t
            residuals whose scale depends on the columns and the mean (see `selection`). If None, "auto" if the kernel
            is, else "gaussian".
        approximation: One approximation for every term that supports it, a dict of approximations by term name, or
            "auto". Other terms get a default that suits the kernel and the number of rows.
        inference: "laplace" or "variational", for likelihoods that are not Gaussian. If None, the default of the
            likelihood.
        mean: "constant" for a learned constant mean, or "zero".
        standardize: Whether columns of numbers and targets are scaled to mean 0 and standard deviation 1.
        start: Starting values of hyperparameters by path or unique suffix, in the user's units, such as
            {"trend.lengthscale": 2.0}. If None, they depend on the data.
        priors: Priors of hyperparameters by path or unique suffix: objects with `log_prob`, such as those of
            `rfgp.priors`, or None to remove a default prior.
        seed: The seed of all random numbers. If None, one from the system.
        dtype: The dtype of the rows. If None, that of the data.
        budget: The total number of features of all terms with random features. A fit divides it in proportion to the
            effective degrees of freedom of the terms. Terms that a dict of approximations names are excluded. Terms of
            the noise have a budget of the same size. If None, each approximation sets its own number.
        memory: The memory limit of the largest arrays: bytes, "500MB" or "4GB". A model that needs more raises an error
            before it allocates. If None, most of the machine's memory, and 8 GB for each candidate of a selection.
        time_limit: The time limit of a fit, with the selection of its kernel: seconds, "30s", "5min" or "2h". When it
            has passed, a search ends after the evaluation of the likelihood that is under way. The model is conditioned
            on all rows at the best hyperparameters so far. A selection skips candidates whose predicted time exceeds
            the limit. If None, there is no limit for a given kernel, and a selection limits the predicted time to 60 s
            plus 8 ms a row, at most 30 min. The result is then reproducible.
        validate: The validation rows of a selection. "forward" holds out the last rows by the column of dates, or by
            the only column. The key of a column keeps rows with equal values together. If None, rows are chosen at
            random, and rows with equal inputs stay together, except for replicates of categories and of few inputs.

    Raises:
        InvalidArgumentError: If an option has a wrong type or value, or does not match the kernel.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> X = {"t": np.linspace(0, 10, 50), "store": ["a", "b"] * 25}
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Group("store"), seed=0).fit(X, np.sin(X["t"]))
        >>> list(gp.predict(X).terms)
        ['trend', 'group(store)']

        Select the kernel:

        >>> gp = rfgp.GP(seed=0).fit(X, np.sin(X["t"]))
        >>> len(gp.selection.trials), gp.selection.noise.num_validation
        (10, 50)
        >>> t = {"t": np.linspace(0, 10, 30)}
        >>> gp = rfgp.GP(k.RBF("t"), approximation=rfgp.EquispacedFourier(), seed=0).condition(t, np.sin(t["t"]))
        >>> type(gp.kernel).__name__, list(gp.terms), gp.members, gp.selection
        ('Sum', ['rbf(t)'], (), None)
        >>> gp.log_marginal_likelihood().shape, gp.leave_one_out().mean.shape
        (torch.Size([]), (30,))
        >>> gp.update({"t": [11.0]}, [0.5]).num_observations, gp.forget({"t": [11.0]}, [0.5]).num_observations
        (31, 30)
        >>> gp.prior_covariance({"t": [1.0, 2.0]}).shape, gp.sample_functions(3, seed=0)({"t": [1.0, 2.0]}).shape
        (torch.Size([2, 2]), (3, 2))
    """

    leaf: ClassVar[Any] = Kernel
    """The class of the kernel. Presets fix it."""
    approximation_class: ClassVar[type] = Approximation
    """The class of the approximation of the first term. Presets fix it."""

    @with_torch_defaults()
    def __init__(
        self,
        kernel: Kernel | str = "auto",
        likelihood: str | Likelihood | None = None,
        approximation: Any = "auto",
        *,
        inference: str | None = None,
        mean: str = "constant",
        standardize: bool = True,
        start: Mapping[str, Any] | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        budget: int | None = None,
        memory: str | float | None = None,
        time_limit: str | float | None = None,
        validate: str | int | None = None,
    ) -> None:
        is_auto = isinstance(kernel, str) and kernel == AUTO
        selects_noise = is_auto if likelihood is None else isinstance(likelihood, str) and likelihood == AUTO
        options = ModelOptions(
            cast(Kernel, RBF(name="rbf") if is_auto else kernel),
            "gaussian" if likelihood is None or selects_noise else likelihood,
            approximation,
            inference,
            mean,
            standardize,
            start or {},
            priors or {},
            seed,
            dtype,
            budget,
            None if memory is None else read_bytes("memory", memory),
            selects_noise=selects_noise,
        )
        if is_auto:
            options = options.changed(search_space=auto_space(options, time_limit, validate))
        elif validate is not None:
            raise InvalidArgumentError('validate requires kernel="auto", whose candidates it scores.')
        seconds = None if time_limit is None else read_seconds("time_limit", time_limit)
        super().__init__(ModelSpec(options.changed(time_limit=seconds)))

    @property
    def kernel(self) -> Kernel:
        """The kernel, with the current hyperparameters as starting values.

        Options that depend on the data, such as columns, origins and levels, are then resolved.
        """
        spec = self.spec
        return spec.options.kernel if self._fitted is None else spec.fitted_kernel(self.state.hyperparameters)

    @property
    def selection(self) -> SelectionReport | None:
        """The candidates of the last fit with scores and costs, or None."""
        return None if self.fit_report is None else self.fit_report.selection

    @property
    def terms(self) -> dict[str, TermReport]:
        """Reports of the terms by name, those of the noise last.

        For an average of models they are the terms of the model with the largest weight. Reports are computed at each
        access. Shares and degrees of freedom use at most 500 random training rows. They are None if the model was saved
        without its data. Terms of a heteroscedastic noise are named "noise.<term>".

        Raises:
            NotFittedError: If the model has not been fitted or conditioned.
        """
        return term_reports(largest(self.state))

    @property
    def members(self) -> tuple[tuple[float, Self], ...]:
        """The averaged models with weights, the largest first, or () for a single model."""
        if not self.spec.other_members:
            return ()
        parts = sorted(parts_of_average(self.state), key=lambda part: -part[0])
        return tuple((share, self._with(member)) for share, member in parts)

    @with_torch_defaults()
    def select(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,  # (n,)
        sample_weight: Any = None,  # (n,)
        exposure: Any = None,  # (n,)
        progress: bool | Callable[[Progress], None] = False,
    ) -> SelectionReport:
        """Select a kernel and approximations as `fit` does, without changing the model.

        Args:
            X: As for `fit`.
            y: Targets, (n,) or (n, k), or the name of their column.
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).
            exposure: As for `fit`, (n,).
            progress: As for `fit`.

        Returns:
            The report of all candidates, with scores and predicted costs.

        Raises:
            InvalidArgumentError: If the kernel is not "auto".
            DataError: If the data cannot be used. The message names the place.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 60)[:, None]
            >>> report = rfgp.GP(seed=0).select(X, np.sin(X[:, 0]))
            >>> report.num_validation
            60
        """
        if self._spec.options.search_space is None:
            raise InvalidArgumentError('There is nothing to select, since the kernel is given. Use kernel="auto".')
        deadline = Deadline(self._spec.options.time_limit)
        begun = begin(self._spec, validate_inputs(self._spec, X, y, noise, sample_weight, exposure), is_fit=True)
        with in_one_thread(begun.num_observations <= limits().small_rows), Reporter(progress=progress) as reporter:
            return run_selection(begun, Plan(reporter=reporter, deadline=deadline))

    @computed
    def with_approximation(self, approximation: Any) -> Self:
        """Return a copy of the model with other approximations.

        It has the same data and hyperparameters. For an average of models it is a copy of the model with the largest
        share.

        Args:
            approximation: One approximation for every term that supports it, or a dict of approximations by term name.
                Other terms keep theirs.

        Raises:
            NotFittedError: If there are no data, or the model was loaded without them.
            InvalidArgumentError: If a name is unknown, or a term does not support its approximation.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(X, np.sin(X[:, 0]))
            >>> gp.with_approximation(rfgp.RandomFeatures(16)).terms["rbf"].approximation.num_frequencies
            16
        """
        return self._with(approximated(self.state, read_approximation(approximation)))

    @computed
    def exact(self) -> Self:
        """Return a copy of the model without approximations.

        It has the same data and hyperparameters.

        Raises:
            NotFittedError: If there are no data, or the model was loaded without them.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), approximation=rfgp.RandomFeatures(16), seed=0)
            >>> gp.condition(X, np.sin(X[:, 0])).exact().terms["rbf"].approximation
            Exact()
        """
        return self._with(each_changed(self.state, lambda member: approximated(member, Exact())))

    @computed
    def evidence_bounds(self) -> EvidenceBounds:
        """Return bounds of the exact log marginal likelihood at current hyperparameters.

        Every term must have inducing points, or be an exact sum of finitely many functions, such as a linear term or a
        group. The cost is O(n F^2) for F weights.

        Sources: Titsias (2009), Equation 9, and Titsias (2014), Section 2. See `rfgp.solvers.lowrank.bounds`.

        Raises:
            InvalidArgumentError: If the likelihood is not Gaussian, or a term has another approximation. Random
                features give no bounds, because their kernel may exceed the exact one.
            NotFittedError: If there are no data, or the model was loaded without them.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> from rfgp import kernels as k
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(20), seed=0).condition(X, np.sin(X[:, 0]))
            >>> bounds, exact = gp.evidence_bounds(), gp.exact().log_marginal_likelihood().item()
            >>> bounds.lower <= exact <= bounds.upper
            True
        """
        return exact_evidence_bounds(self.state)

    def save(self, path: str | Path, data: bool | None = None) -> None:
        """Write the model to a file that `rfgp.load` reads.

        Args:
            path: The file. By convention its name ends in .safetensors. It is written atomically.
            data: Whether the training rows are written. Without them a loaded model predicts, but `update`, `exact` and
                `with_approximation` need `condition` first. The posterior still reveals information about the rows, and
                with fewer rows than features it determines them. If None, rows are written if predictions need them, as
                those of covariance matrices and nearest neighbors do.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If a part cannot be written as numbers and JSON, such as a kernel of a class of your
                own. The message names it.

        Warns:
            DataSavedWarning: If data is None, and the rows are written.

        Examples:
            >>> import os, tempfile
            >>> import numpy as np
            >>> import rfgp
            >>> from rfgp import kernels as k
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(16), seed=0).condition(X, np.sin(X[:, 0]))
            >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
            >>> gp.save(file)
            >>> np.array_equal(rfgp.load(file).predict(X).mean, gp.predict(X).mean)
            True
        """
        from_rows = row_terms(self.spec) if data is None and self._fitted is not None else []
        super().save(path, bool(from_rows) if data is None else data)
        if from_rows:
            names = ", ".join(map(repr, from_rows))
            message = (
                f"The file holds the training rows, from which the terms {names} predict. Use data=True to save them "
                "without this warning, or RandomFeatures() or InducingPoints() to predict without rows."
            )
            warnings.warn(DataSavedWarning(message), stacklevel=2)

    def diagnosed(self, report: FitReport | None = None) -> Iterator[Warning]:
        """Yield warnings about the model, its rows and too few random features.

        Args:
            report: The report of a fit. If None, there was none.
        """
        yield from super().diagnosed(report)
        if report is not None:
            yield from starvation_warnings(self.state, report)

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument of the constructor, or the default if it is not known.

        Args:
            name: The name of the argument.
            default: The default.
        """
        options = self._spec.options
        if name == "approximation":
            return options.approximations
        space = options.search_space
        if name == "likelihood" and options.selects_noise:
            return AUTO if space is None else None
        if name == "likelihood" and self.spec.is_gaussian and space is None:
            return default
        if space is not None and name in ("kernel", "validate"):
            return {"kernel": AUTO, "validate": space.validate}[name]
        return super().argument(name, default)

    def __repr__(self) -> str:
        text, others = super().__repr__(), len(self.spec.other_members)
        return f"{text[:-1]}, averaged with {counted(others, 'other')})" if others else text

    def _with(self, state: GPState) -> Self:
        """Return a model that holds another state of the same rows."""
        state = state if state.given is not None else solved_if_read(state)
        kind: Any = type(self) if self.approximation_class is Approximation else GP
        model: Self = kind.of(state.spec, Fitted.of(state))
        return model


def auto_space(options: ModelOptions, time_limit: Any, validate: Any = None) -> AutoSpace:
    """Return the search space of a model whose kernel is selected.

    Args:
        options: The options of the model.
        time_limit: The time limit of the selection and the final fit, as for `GP`.
        validate: The validation rows, as for `GP`. The default is None.

    Raises:
        InvalidArgumentError: If approximations are given by term name, but the terms are not known yet.
    """
    if isinstance(options.approximations, Mapping):
        raise InvalidArgumentError(
            'approximation must be one value or "auto" if the kernel is selected, got a dict by the names of terms. '
            "Give the kernel too."
        )
    return AutoSpace(options, Budget.of(time_limit, options.memory), validate)
