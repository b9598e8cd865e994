"""The model: a kernel, approximations of its terms and a likelihood."""

from collections.abc import Mapping
from typing import Any, Self

import torch

from rfgp.ambient import plain
from rfgp.approximations import Exact
from rfgp.approximations.planning import assign, read_approximation
from rfgp.fitting.terms import fit_terms
from rfgp.kernels import Kernel
from rfgp.likelihoods import Likelihood
from rfgp.models.process import Fitted, Process
from rfgp.models.terms import TermReport, term_reports
from rfgp.parameters import Hyperprior
from rfgp.regression.spec import ModelOptions, ModelSpec


class GP(Process[ModelSpec]):
    """A Gaussian process whose kernel is a sum of terms, each computed by an approximation of its own.

    Args:
        kernel: The kernel, of `rfgp.kernels`.
        likelihood: The distribution of an observation given the latent function, a name or an object of
            `rfgp.likelihoods`.
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
            the number of its approximation.

    Raises:
        InvalidArgumentError: an option has a wrong type or value.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> X = {"t": np.linspace(0, 10, 50), "store": ["a", "b"] * 25}
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Group("store"), seed=0).fit(X, np.sin(X["t"]))
        >>> list(gp.predict(X).terms)
        ['trend', 'group(store)']
    """

    strategy = staticmethod(fit_terms)

    @plain()
    def __init__(
        self,
        kernel: Kernel,
        likelihood: str | Likelihood = "normal",
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
    ) -> None:
        starts, priors = start or {}, priors or {}
        options = ModelOptions(
            kernel, likelihood, approximation, inference, mean, standardize, starts, priors, seed, dtype, budget
        )
        super().__init__(ModelSpec(options))

    @property
    def kernel(self) -> Kernel:
        """The kernel. Once there are data, it is resolved on them, and the hyperparameters are its starting values.

        Columns, origins, levels and distributions of columns are those of the data.
        """
        spec = self.family
        return spec.options.kernel if self._fitted is None else spec.fitted_kernel(self.regression.hyperparameters)

    @property
    def terms(self) -> dict[str, TermReport]:
        """The terms by name, with what is known of each.

        Raises:
            NotFittedError: there are no data.
        """
        return term_reports(self.regression)

    @plain()
    def with_approximation(self, approximation: Any) -> Self:
        """Return the model with other approximations, with the same data and hyperparameters.

        Args:
            approximation: One approximation for every term that it can serve, or a dict of approximations by the names
                of terms. Other terms keep theirs.

        Raises:
            NotFittedError: there are no data, or the model was loaded without them.
            InvalidArgumentError: there is no term of a name, or an approximation cannot serve a term.
        """
        regression = self.regression
        rows = regression.needed_rows("with_approximation")
        spec, values = self.family, regression.hyperparameters
        data = spec.term_data(values, len(rows))
        chosen = assign(read_approximation(approximation), data, spec.approximations)
        spec = spec.drawn(chosen, values, len(rows))
        return type(self).of(spec, Fitted.of(regression.replace(family=spec)))

    @plain()
    def exact(self) -> Self:
        """Return the model without approximations, with the same data and hyperparameters.

        Raises:
            NotFittedError: there are no data, or the model was loaded without them.
        """
        return self.with_approximation(Exact())
