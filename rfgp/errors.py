"""Errors and warnings of `rfgp`. Messages state the problem, its place and a remedy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_NAMES: ContextVar[Mapping[str, str | None]] = ContextVar("names", default=MappingProxyType({}))


@contextmanager
def called(**names: str | None) -> Iterator[None]:
    """Rename arguments in messages, for an adapter. If a name is None, the adapter lacks the argument."""
    token = _NAMES.set({**_NAMES.get(), **names})
    try:
        yield
    finally:
        _NAMES.reset(token)


def arguments(*names: str) -> str:
    """Return the names of arguments in messages, separated by commas."""
    known = (_NAMES.get().get(name, name) for name in names)
    return ", ".join(name for name in known if name is not None)


class RfgpError(Exception):
    """The base class of all errors of `rfgp`."""


class InvalidArgumentError(RfgpError, ValueError):
    """An argument has a value that the function cannot use."""


class DataError(RfgpError, ValueError):
    """The data cannot be used in this form. The message names the place."""


class NotFittedError(RfgpError, RuntimeError):
    """The model has no data or hyperparameters yet."""


class NotPositiveDefiniteError(RfgpError, ArithmeticError):
    """A covariance matrix stayed singular after the largest allowed jitter."""


class ModelFileError(RfgpError, ValueError):
    """A file is not a saved model, is damaged, or was written by a newer version."""


class CheckpointError(RfgpError, ValueError):
    """A file is not a checkpoint of this fit."""


class SolverError(RfgpError, ArithmeticError):
    """An iterative solver did not reach its tolerance. The message states the residual."""


class FileWriteError(RfgpError, OSError):
    """A file cannot be written. `filename`, `errno` and `strerror` are those of the system's error."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingFolderError(FileWriteError, FileNotFoundError):
    """A file cannot be written because its folder does not exist."""


class PackageClashError(RfgpError, ImportError):
    """Another package named `graphs` hides the one of this distribution."""


class MissingDependencyError(RfgpError, ImportError):
    """An optional package is not installed. The message names the extra that installs it."""


@contextmanager
def requires_extra(extra: str) -> Iterator[None]:
    """Raise an error that names an extra if an import in the body finds no package.

    Args:
        extra: The extra of `rfgp` that installs the packages imported in the body.

    Raises:
        MissingDependencyError: If a package is not installed.

    Examples:
        >>> from rfgp.errors import MissingDependencyError, requires_extra
        >>> try:
        ...     with requires_extra("plot"):
        ...         import a_package_that_is_not_installed
        ... except MissingDependencyError as error:
        ...     print(error)
        a_package_that_is_not_installed must be installed. Try: pip install 'rfgp[plot]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("graphs", "rfgp"):
            raise
        raise MissingDependencyError(
            f"{package} must be installed. Try: pip install 'rfgp[{extra}]'", name=package
        ) from error


class NotDifferentiableError(RfgpError, NotImplementedError):
    """The requested derivative is not available."""


class RfgpWarning(UserWarning):
    """The base class of all warnings of `rfgp`."""


class JitterWarning(RfgpWarning):
    """A Cholesky factorization succeeded only with the stated jitter on the diagonal."""


class CouplingWarning(RfgpWarning):
    """Frequencies were coupled in batches, because solving for all of them at once takes long."""


class CacheWarning(RfgpWarning):
    """A result could not be cached on disk."""


class ConvergenceWarning(RfgpWarning):
    """An optimizer stopped before it converged."""


class CheckpointWarning(RfgpWarning):
    """A checkpoint could not be written. The fit continued without it."""


class VarianceStarvationWarning(RfgpWarning):
    """There are too few features for the data, so that the variance between data points is too small."""


class LatentVarianceWarning(RfgpWarning):
    """Predicted means far from the data are dominated by the variance of the latent function, and may be huge."""


class PoorFeaturesWarning(RfgpWarning):
    """The features approximate the kernel poorly at the fitted hyperparameters."""


class UnderfittingWarning(RfgpWarning):
    """The residuals of a fit are autocorrelated: the optimum is poor, or there are too few features."""


class TermWarning(RfgpWarning):
    """The data do not determine a term of a kernel."""


class OverfittingWarning(RfgpWarning):
    """A fit predicts held-out rows worse than it expects, or learned frequencies did not improve them."""


class BaselineNotBeatenWarning(RfgpWarning):
    """No candidate predicts held-out rows clearly better than a constant or a linear model."""


class BooleanTargetWarning(RfgpWarning):
    """A target is boolean and was fitted as the numbers 0 and 1."""


class IndexColumnWarning(RfgpWarning):
    """A column without a name may be the index of a dataframe that was written to a file."""


class NewLevelWarning(RfgpWarning):
    """Rows to predict have a level that is not in the training data."""


class IdentifierWarning(RfgpWarning):
    """A text column has a different text in each row and was left out."""


class DataSavedWarning(RfgpWarning):
    """A saved model contains its training rows, because predictions need them."""


class ConstantTargetWarning(RfgpWarning):
    """A target is constant, so that its prediction error is unknown."""


def __dir__() -> list[str]:
    return sorted(name for name, value in globals().items() if getattr(value, "__module__", None) == __name__)
