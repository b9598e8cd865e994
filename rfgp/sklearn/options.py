"""The options that all estimators of tables share: those of `rfgp.GP`."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

from rfgp.gp import GP
from rfgp.kernels import Kernel
from rfgp.likelihoods import Likelihood, by_name
from rfgp.models import SelectionReport
from rfgp.parameters import Hyperprior
from rfgp.sklearn.checks import read_new, resolve_seed, set_whole


@dataclass(eq=False, repr=False)
class GPOptions:
    """The options of `rfgp.GP` as stored by scikit-learn, documented in `GPRegressor`.

    Examples:
        >>> from rfgp.sklearn import GPRegressor
        >>> GPRegressor("auto", max_iter=20).get_params()["max_iter"]
        20
    """

    kernel: str | Kernel = "auto"
    approximation: Any = "auto"
    _: KW_ONLY
    likelihood: str | Likelihood | None = None
    inference: str | None = None
    mean: str = "constant"
    standardize: bool = True
    start: Mapping[str, Any] | None = None
    priors: Mapping[str, Hyperprior | None] | None = None
    fixed: Iterable[str] = ()
    max_iter: int | None = None
    time_limit: str | float | None = None
    validate: str | int | None = None
    memory: str | float | None = None
    hyperparameter_posterior: str = "point"
    random_state: Any = None

    gp_: Any = field(init=False)
    usual_likelihood: ClassVar[str] = "gaussian"
    """The likelihood if that is None or "auto"."""

    def set_params(self, **params: Any) -> Self:
        """Set options by name.

        Args:
            params: The options. A part of one, such as kernel__lengthscale, is an error.
        """
        set_whole(super(), params)
        return self

    @property
    def selection_(self) -> SelectionReport | None:
        """The candidates that the fit compared, with their scores. None if the kernel is given."""
        return None if self.gp_ is None else self.gp_.selection

    @property
    def _likelihood(self) -> Likelihood:
        """The likelihood of an observation."""
        return by_name(self.usual_likelihood if self.likelihood in (None, "auto") else self.likelihood)

    def _process(self, likelihood: str | Likelihood | None) -> GP:
        """Return the model, before a fit."""
        return GP(
            self.kernel,
            likelihood,
            self.approximation,
            inference=self.inference,
            mean=self.mean,
            standardize=self.standardize,
            start=self.start,
            priors=self.priors,
            seed=resolve_seed(self.random_state),
            memory=self.memory,
            time_limit=self.time_limit,
            validate=self.validate,
            hyperparameter_posterior=self.hyperparameter_posterior,
        )

    def _read_new(self, X: Any) -> Any:
        return read_new(self, X)
