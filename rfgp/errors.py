"""Errors and warnings of `rfgp`. Messages state the problem, its place and a remedy."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, MappingProxyType

from graphs.errors import InvalidArgumentError as InvalidArgumentError
from graphs.errors import MissingDependencyError as MissingDependencyError
from graphs.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from graphs.errors import RfgpError as RfgpError
from graphs.errors import RfgpWarning as RfgpWarning
from graphs.errors import requires_extra as requires_extra
from rfgp.clash import PackageClashError as PackageClashError

_NAMES: ContextVar[Mapping[str, str | None]] = ContextVar("names", default=MappingProxyType({}))


@contextmanager
def called(**names: str | None) -> Iterator[None]:
    """Rename arguments in messages. None means that an adapter lacks the argument."""
    token = _NAMES.set({**_NAMES.get(), **names})
    try:
        yield
    finally:
        _NAMES.reset(token)


def arguments(*names: str) -> str:
    """Return the names of arguments in messages, separated by commas."""
    known = (_NAMES.get().get(name, name) for name in names)
    return ", ".join(name for name in known if name is not None)


def warn(warning: RfgpWarning) -> None:
    """Warn at the line of the user that entered the package.

    Args:
        warning: The warning.
    """
    frame: FrameType | None = inspect.currentframe()
    depth = level = 1
    while frame is not None:
        depth, module = depth + 1, str(frame.f_globals.get("__name__"))
        is_decorator = module == "contextlib" and level == depth - 1  # of a method of the package
        if module.partition(".")[0] == "rfgp" or is_decorator:
            level = depth
        frame = frame.f_back
    warnings.warn(warning, stacklevel=level)


class DataError(RfgpError, ValueError):
    """The data cannot be used in this form: correct the cells that the message names.

    Examples:
        >>> import rfgp
        >>> rfgp.ExactGP().fit({"a": [1.0, float("nan"), 3.0]}, [1.0, 2.0, 3.0])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rfgp.errors.DataError: Column 'a' has 1 missing value, the first in row 1; rbf reads it. Leave such rows...
    """


class NotFittedError(RfgpError, RuntimeError):
    """The model has no data or hyperparameters yet. Call `fit` or `condition` first.

    Examples:
        >>> import rfgp
        >>> rfgp.GP().predict([[0.0]])
        Traceback (most recent call last):
        rfgp.errors.NotFittedError: The model has no data yet. Call fit(X, y), or condition(X, y), first.
    """


class ModelFileError(RfgpError, ValueError):
    """A file is not a saved model, damaged, or of a newer version: save it again.

    Examples:
        >>> import rfgp
        >>> rfgp.load("no-such-file")
        Traceback (most recent call last):
        rfgp.errors.ModelFileError: There is no file no-such-file.
    """


class CheckpointError(RfgpError, ValueError):
    """A file is not a checkpoint of this fit. Name another file.

    Examples:
        >>> import rfgp
        >>> rfgp.SparseSpectrumGP(seed=0).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0], checkpoint=".")
        Traceback (most recent call last):
        rfgp.errors.CheckpointError: The checkpoint must be a file, got the folder .. Name a file in it.
    """


class SolverError(RfgpError, ArithmeticError):
    """An iterative solver stopped at the stated residual: raise the noise.

    Examples:
        >>> import rfgp
        >>> issubclass(rfgp.SolverError, ArithmeticError)  # `except ArithmeticError` catches it too
        True
    """


class FileWriteError(RfgpError, OSError):
    """A failed write, with `filename`, `errno` and `strerror` of the system's error.

    Examples:
        >>> import rfgp
        >>> rfgp.ExactGP().condition([[0.0], [1.0]], [0.0, 1.0]).save(".", data=True)
        Traceback (most recent call last):
        rfgp.errors.FileWriteError: . cannot be written: Is a directory. Name a file in it.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingFolderError(FileWriteError, FileNotFoundError):
    """A file cannot be written because its folder does not exist. Create it.

    Examples:
        >>> import rfgp
        >>> rfgp.ExactGP().condition([[0.0], [1.0]], [0.0, 1.0]).save("no/such/folder", data=True)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rfgp.errors.MissingFolderError: no/such/folder cannot be written: No such file or directory. Make its...
    """


class NotDifferentiableError(RfgpError, NotImplementedError):
    """The requested derivative is not available. Use `Exact()`, or no gradient.

    Examples:
        >>> import rfgp, torch
        >>> gp = rfgp.GP(rfgp.kernels.Matern(), approximation=rfgp.SparsePrecision()).condition([[0], [1]], [0, 1])
        >>> gp.predict(torch.tensor([[0.5]], dtype=torch.float64, requires_grad=True)).covariance  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rfgp.errors.NotDifferentiableError: X must not require gradients for covariances and samples of a ...
    """


class JitterWarning(RfgpWarning):
    """A Cholesky factorization needed the stated diagonal jitter: raise the noise.

    Examples:
        >>> import rfgp, torch, warnings
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     factor = rfgp.linalg.cholesky(torch.ones(2, 2, dtype=torch.float64), "K")
        >>> print(caught[0].message)
        K is numerically singular: 1e-10 of its mean diagonal entry was added. Raise the noise.
    """


class CouplingWarning(RfgpWarning):
    """Frequencies were coupled in batches, since solving for all at once takes long.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.CouplingWarning):  # or effort="full"
        ...     draw = rfgp.couplings.by_name("energy").sample(8, 3)
    """


class ConvergenceWarning(RfgpWarning):
    """An optimizer stopped before it converged. Raise `max_iterations`.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.ConvergenceWarning):
        ...     gp = rfgp.ExactGP().fit([[x] for x in range(20)], [x % 7 for x in range(20)], max_iterations=1)
    """


class CheckpointWarning(RfgpWarning):
    """A checkpoint could not be written. The fit continued without it.

    Examples:
        >>> import rfgp, tempfile, unittest.mock, warnings
        >>> full = unittest.mock.patch("rfgp.files._replace", side_effect=OSError(28, "The disk is full"))
        >>> with full, warnings.catch_warnings(action="ignore", category=rfgp.CheckpointWarning):
        ...     gp = rfgp.ExactGP().fit([[x] for x in range(9)], range(9), checkpoint=f"{tempfile.mkdtemp()}/fit")
    """


class VarianceStarvationWarning(RfgpWarning):
    """Too few features for the data make the variance between data points too small.

    Examples:
        >>> import numpy as np, rfgp, warnings
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.VarianceStarvationWarning):
        ...     gp = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(X, np.sin(40 * X[:, 0]))
    """


class LatentVarianceWarning(RfgpWarning):
    """Latent variance dominates predicted means far from the data: they may be huge.

    Examples:
        >>> import rfgp, warnings
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), "poisson", rfgp.Exact(), priors={"outputscale": None}, seed=0)
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.LatentVarianceWarning):  # or keep the prior
        ...     gp = gp.fit([[x] for x in range(20)], [10_000 if x == 7 else 0 for x in range(20)])
    """


class PoorFeaturesWarning(RfgpWarning):
    """The features approximate the kernel poorly at the fitted hyperparameters.

    Examples:
        >>> import numpy as np, rfgp, warnings
        >>> X = np.linspace(0, 10, 60)[:, None]
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.PoorFeaturesWarning):  # or more frequencies
        ...     gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, np.sin(X[:, 0]))
    """


class UnderfittingWarning(RfgpWarning):
    """Residuals of a fit are autocorrelated: a poor optimum, or too few features.

    Examples:
        >>> import numpy as np, rfgp, warnings
        >>> X = np.random.default_rng(0).uniform(size=(300, 1))
        >>> gp = rfgp.GP(rfgp.kernels.RBF(lengthscale=0.3), approximation=rfgp.Exact(), seed=0)
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.UnderfittingWarning):  # or do not fix it
        ...     gp = gp.fit(X, np.sin(5 * X[:, 0]) + 0.006 * np.sin(80 * X[:, 0]), fixed="lengthscale")
    """


class TermWarning(RfgpWarning):
    """The data do not determine a term of a kernel. Leave it out.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.TermWarning):
        ...     gp = rfgp.GP(rfgp.kernels.Periodic("t", 12.0)).condition({"t": [0.0, 1.0, 2.0]}, [1.0, 0.0, 2.0])
    """


class OverfittingWarning(RfgpWarning):
    """Worse held-out predictions than expected, or no gain from learned frequencies.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.OverfittingWarning):
        ...     gp = rfgp.ExactGP().fit([[0.0, 1.0], [1.0, 3.0], [2.0, 0.0]], [0.0, 1.0, 4.0])
    """


class BaselineNotBeatenWarning(RfgpWarning):
    """No candidate clearly beats a constant or a linear model on held-out rows.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.BaselineNotBeatenWarning):  # or more columns
        ...     gp = rfgp.GP(seed=0).fit([[x] for x in range(20)], [x * x % 7 for x in range(20)])
    """


class BooleanTargetWarning(RfgpWarning):
    """A target is boolean and was fitted as the numbers 0 and 1. Pass numbers.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.BooleanTargetWarning):
        ...     gp = rfgp.ExactGP().condition([[0.0], [1.0]], [True, False])
    """


class OutlierWarning(RfgpWarning):
    """A few rows dominate a standard deviation: correct them, or model them.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.OutlierWarning):  # or drop row 9
        ...     gp = rfgp.ExactGP().condition([[0.1 * i] for i in range(9)] + [[9999.0]], range(10))
    """


class OverdispersionWarning(RfgpWarning):
    """Counts vary more than Poisson counts do: use likelihood="negative-binomial".

    Examples:
        >>> import numpy as np, rfgp, warnings
        >>> X, counts = np.linspace(0, 1, 60)[:, None], np.tile([0, 0, 2, 0, 9, 31], 10)
        >>> gp = rfgp.GP(rfgp.kernels.RBF(lengthscale=1.0), "poisson", seed=0)
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.OverdispersionWarning):
        ...     gp = gp.fit(X, counts, fixed="lengthscale")
    """


class IndexColumnWarning(RfgpWarning):
    """A column without a name may be a saved dataframe's index: name it to use it.

    Examples:
        >>> import pandas, rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.IndexColumnWarning):
        ...     gp = rfgp.GP().condition(pandas.DataFrame({"Unnamed: 0": [0, 1], "a": [1.0, 5.0]}), [2.0, 4.0])
    """


class NewLevelWarning(RfgpWarning):
    """Rows to predict have a level that training data lack: check its spelling.

    Examples:
        >>> import rfgp, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.NewLevelWarning):
        ...     p = rfgp.ExactGP().condition({"store": ["a", "b", "a"]}, [1.0, 2.0, 1.5]).predict({"store": ["z"]})
    """


class ForecastWarning(RfgpWarning):
    """Rows to predict are a forecast, but a model was selected by interpolation.

    Examples:
        >>> import numpy as np, rfgp, warnings
        >>> days = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
        >>> gp = rfgp.GP(seed=0).fit({"day": days[:40]}, np.sin(np.arange(40)))  # or validate="forward"
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.ForecastWarning):
        ...     p = gp.predict({"day": days[40:]})
    """


class IdentifierWarning(RfgpWarning):
    """A text column has a different text in each row and was left out.

    Examples:
        >>> import pandas, rfgp, warnings
        >>> frame = pandas.DataFrame({"id": ["u", "v", "w"], "a": [1, 3, 5], "y": [2, 4, 9]})
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.IdentifierWarning):  # or drop="id"
        ...     table = rfgp.tables.read_table(frame, "y", categories="levels")
    """


class DataSavedWarning(RfgpWarning):
    """A saved model contains its training rows, because predictions need them.

    Examples:
        >>> import rfgp, tempfile, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.DataSavedWarning):
        ...     rfgp.ExactGP().condition([[0.0], [1.0]], [0.0, 1.0]).save(f"{tempfile.mkdtemp()}/model")
    """


class ConstantTargetWarning(RfgpWarning):
    """A target is constant, so that its prediction error is unknown. Check it.

    Examples:
        >>> import rfgp.sklearn, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.ConstantTargetWarning):
        ...     model = rfgp.sklearn.GPRegressor().fit([[0.0], [1.0]], [5.0, 5.0])
    """


__all__ = [name for name, value in globals().items() if isinstance(value, type) and name.endswith(("Error", "Warning"))]


def __dir__() -> list[str]:
    return sorted([*__all__, "arguments", "called", "requires_extra"])
