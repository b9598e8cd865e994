"""The model: a kernel, approximations of its terms and a likelihood."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch

from rfgp.ambient import plain
from rfgp.approximations import Approximation, Exact
from rfgp.approximations.planning import AUTO, read_approximation
from rfgp.counts import counted, read_bytes
from rfgp.errors import DataSavedWarning, InvalidArgumentError
from rfgp.fitting import Plan, Progress, Reporter
from rfgp.kernels import RBF, Kernel
from rfgp.likelihoods import Likelihood
from rfgp.models.fitted import Fitted
from rfgp.models.given import given
from rfgp.models.process import Process
from rfgp.models.terms import TermReport, term_reports
from rfgp.parameters import Hyperprior
from rfgp.regression import FitReport, Limits, Regression, SelectionReport, begin, solved_if_read
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
from rfgp.saving.gp import MODELS, row_terms
from rfgp.selection import AutoSpace, fit_model, run_selection
from rfgp.solvers.lowrank import EvidenceBounds


class GP(Process[ModelSpec]):
    """A Gaussian process whose kernel is a sum of terms, each computed by an approximation of its own.

    Args:
        kernel: The kernel, of `rfgp.kernels`. If "auto", a fit selects one over all columns, with approximations of
            its terms, by the log densities of left-out or held-out rows. Up to 2,000 rows the candidates are exact, and
            those with close scores are averaged (`members`). See `selection`.
        likelihood: The distribution of an observation given the latent function, a name or an object of
            `rfgp.likelihoods`. `Heteroscedastic(kernel=...)` adds terms of the logarithm of the noise, "noise.<term>".
        approximation: One approximation, which applies to every term that it can serve; a dict of approximations by the
            names of terms; or "auto". Terms without one are planned.
        inference: "laplace" or "variational", for likelihoods that are not Gaussian. If None, as usual for the
            likelihood.
        mean: "constant", or "zero".
        standardize: Whether numbers and targets are mapped to mean 0 and standard deviation 1.
        start: Starting values by path or unique suffix, in the user's units, such as {"trend.lengthscale": 2.0}.
        priors: Log densities (objects with `log_prob`) by path or unique suffix.
        seed: The seed of everything random. If None, one from the system.
        dtype: The type of the rows. If None, that of the data.
        budget: The number of features that the terms with random features share. A fit divides it by the effective
            degrees of freedom of the terms, but for terms that a dict of approximations names. If None, each term has
            the number of its approximation. Terms of the noise share another such number.
        memory: The most memory of the largest arrays: bytes, "500MB" or "4GB". If None, most of the machine's, and
            8 GB for each candidate of a selection. A model that would take more is refused before anything is
            allocated.
        time_limit: The most seconds of a selection and the fit after it: a number, "30s", "5min" or "2h". The costs of
            candidates are predicted for one core, and candidates over the limit are left out; by the clock no candidate
            is scored after it. If None, 60 s and 8 ms for each row, half an hour at most, as predicted; then the same
            data, options and seed always select the same.
        validate: The rows that a selection predicts from others, to score candidates: "forward" for the last ones by
            the column of dates, or the only column; or the key of a column, whose values stay together. If None,
            random ones; rows with equal inputs stay together.

    Raises:
        InvalidArgumentError: an option has a wrong type or value; there is a time limit, a validation, or a dict of
            approximations, that does not go with the kernel.

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
        >>> len(gp.selection.trials)
        10
    """

    codec = MODELS
    leaf: ClassVar[Any] = Kernel
    """The class of the kernel, which is fixed for the presets."""
    approximation_class: ClassVar[type] = Approximation
    """The class of the approximation of the first term, which is fixed for the presets."""
    strategy = staticmethod(fit_model)

    @plain()
    def __init__(
        self,
        kernel: Kernel | str = "auto",
        likelihood: str | Likelihood = "gaussian",
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
        options = ModelOptions(
            cast(Kernel, RBF(name="rbf") if is_auto else kernel),
            likelihood,
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
        )
        if is_auto:
            options = options.changed(search_space=auto_space(options, time_limit, validate))
        elif time_limit is not None:
            raise InvalidArgumentError(
                'time_limit requires kernel="auto", whose selection it limits. Use fit(max_iterations=...) for a given '
                "kernel."
            )
        elif validate is not None:
            raise InvalidArgumentError('validate requires kernel="auto", whose candidates it scores.')
        super().__init__(ModelSpec(options))

    @property
    def kernel(self) -> Kernel:
        """The kernel. Once there are data, it is resolved on them, and the hyperparameters are its starting values.

        Columns, origins, levels and distributions of columns are those of the data.
        """
        spec = self.family
        return spec.options.kernel if self._fitted is None else spec.fitted_kernel(self.regression.hyperparameters)

    @property
    def selection(self) -> SelectionReport | None:
        """The candidates that a fit compared, their scores and costs, and why the best was taken. None without any."""
        return None if self.fit_report is None else self.fit_report.selection

    @property
    def terms(self) -> dict[str, TermReport]:
        """The terms by name with what is known of each, those of the noise after those of the function.

        Of an average they are those of the model with the largest share.

        Raises:
            NotFittedError: there are no data.
        """
        return term_reports(largest(self.regression))

    @property
    def members(self) -> tuple[tuple[float, Self], ...]:
        """The models that are averaged, each with its share, the largest first. Empty if there is no average."""
        if not self.family.others:
            return ()
        parts = sorted(parts_of_average(self.regression), key=lambda part: -part[0])
        return tuple((share, self._with(one)) for share, one in parts)

    @plain()
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
        """Return the selection that `fit` would make, with the predicted costs of all candidates. The model stays.

        Args:
            X: As for `fit`.
            y: Targets, (n,) or (n, k), or the name of their column.
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).
            exposure: As for `fit`, (n,).
            progress: As for `fit`.

        Raises:
            InvalidArgumentError: the kernel is given, so that there is nothing to select.
            DataError: the data cannot be used; the message names the place.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 60)[:, None]
            >>> report = rfgp.GP(seed=0).select(X, np.sin(X[:, 0]))
            >>> report.num_validation
            60
        """
        if self._family.options.search_space is None:
            raise InvalidArgumentError('There is nothing to select, since the kernel is given. Use kernel="auto".')
        begun = begin(self._family, given(self._family, X, y, noise, sample_weight, exposure))
        with Reporter(progress=progress) as reporter:
            return run_selection(begun, Plan(reporter=reporter))

    @plain()
    def with_approximation(self, approximation: Any) -> Self:
        """Return the model with other approximations, with the same data and hyperparameters.

        Of an average it is the model with the largest share alone.

        Args:
            approximation: One approximation for every term that it can serve, or a dict of approximations by the names
                of terms. Other terms keep theirs.

        Raises:
            NotFittedError: there are no data, or the model was loaded without them.
            InvalidArgumentError: there is no term of a name, or an approximation cannot serve a term.
        """
        return self._with(approximated(self.regression, read_approximation(approximation)))

    @plain()
    def exact(self) -> Self:
        """Return the model without approximations, with the same data and hyperparameters; of an average an average.

        Raises:
            NotFittedError: there are no data, or the model was loaded without them.
        """
        return self._with(each_changed(self.regression, lambda one: approximated(one, Exact())))

    @plain()
    def evidence_bounds(self) -> EvidenceBounds:
        """Return bounds of the exact log marginal likelihood at these hyperparameters.

        Every term must have inducing points, or be exact and of finitely many functions, such as a linear term or a
        group. The cost is O(n F^2) with F weights, so that exact() is not needed.

        Sources: Titsias (2009), Equation 9; Titsias (2014), Section 2; see `rfgp.solvers.lowrank.bounds`.

        Raises:
            InvalidArgumentError: the likelihood is not Gaussian, or a term has another approximation. Random features
                have no bounds, since their kernel may exceed the exact one.
            NotFittedError: there are no data, or the model was loaded without them.

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
        return exact_evidence_bounds(self.regression)

    def save(self, path: str | Path, data: bool | None = None) -> None:
        """Write the model to a file that `rfgp.load` reads.

        Args:
            path: The file. By custom its name ends in .safetensors. It is written whole or not at all.
            data: Whether the training rows are written. If None, they are if predictions need them: of terms that are
                covariance matrices of rows, or have nearest neighbours. Without rows a loaded model predicts, but
                `update`, `exact` and `with_approximation` ask to `condition` first. The posterior still tells about
                the rows, and with fewer rows than features it determines them.

        Raises:
            NotFittedError: there is nothing to save yet.
            InvalidArgumentError: a part cannot be written as numbers and JSON, such as a kernel of a class of your own;
                the message names it.

        Warns:
            DataSavedWarning: data is None, and the file holds the rows.

        Examples:
            >>> import os, tempfile
            >>> import numpy as np
            >>> import rfgp
            >>> from rfgp import kernels as k
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(16), seed=0).fit(X, np.sin(X[:, 0]))
            >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
            >>> gp.save(file)
            >>> np.array_equal(rfgp.load(file).predict(X).mean, gp.predict(X).mean)
            True
        """
        needed = data is None and self._fitted is not None and self.codec.needs_data(self.family)
        super().save(path, needed if data is None else data)
        if needed:
            names = ", ".join(repr(name) for name in row_terms(self.family))
            message = (
                f"The file holds the training rows, from which the terms {names} predict. Use data=True to save them "
                "without this warning, or RandomFeatures() or InducingPoints() to predict without rows."
            )
            warnings.warn(DataSavedWarning(message), stacklevel=2)

    def diagnosed(self, report: FitReport | None = None) -> Iterator[Warning]:
        """Yield warnings about the model and its rows, after a fit also about random features that are too few."""
        yield from super().diagnosed(report)
        if report is not None:
            yield from starvation_warnings(self.regression, report)

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument with which the model was made, or the default if it is not known."""
        options = self._family.options
        if name == "approximation":
            return options.approximations
        space = options.search_space
        if space is not None and name in ("kernel", "time_limit", "validate"):
            return {"kernel": AUTO, "time_limit": space.limits.time_limit, "validate": space.validate}[name]
        return super().argument(name, default)

    def __repr__(self) -> str:
        text, others = super().__repr__(), len(self.family.others)
        return f"{text[:-1]}, averaged with {counted(others, 'other')})" if others else text

    def _with(self, regression: Regression) -> Self:
        """Return a model of another regression of the same rows."""
        regression = regression if regression.given is not None else solved_if_read(regression)
        kind: Any = type(self) if self.approximation_class is Approximation else GP
        found: Self = kind.of(regression.family, Fitted.of(regression))
        return found


def auto_space(options: ModelOptions, time_limit: Any, validate: Any = None) -> AutoSpace:
    """Return the candidates of a model whose kernel is selected.

    Raises:
        InvalidArgumentError: approximations are given by the names of terms, which a selection does not know yet.
    """
    if isinstance(options.approximations, Mapping):
        raise InvalidArgumentError(
            'approximation must be one value or "auto" if the kernel is selected, got a dict by the names of terms. '
            "Give the kernel too."
        )
    return AutoSpace(options, Limits.of(time_limit, options.memory), validate)
