"""Random features as a scikit-learn transformer, and pipelines that approximate kernel methods by linear models."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.errors import InvalidArgumentError
from rfgp.messages import check_count
from rfgp.sklearn.base import FLOATS, resolve_seed, validate_data

# --- Random features as a scikit-learn transformer --------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer to coupled random features; their inner products estimate a kernel.

    For the Gaussian spectrum the kernel is exp(-|x - z|^2 / (2 lengthscale^2)), the "rbf" kernel of scikit-learn with
    gamma = 1 / (2 lengthscale^2). `sklearn.kernel_approximation.RBFSampler` is the uncoupled estimate with random
    phases. Standardize the columns first, or give each column its own lengthscale.

    Args:
        n_frequencies: The number m of frequencies. There are 2m Fourier features (m cosines, then m sines), or m
            Laplace features.
        coupling: The coupling of the frequencies, one of `rfgp.couplings.names()` or a `rfgp.couplings.Coupling`.
        lengthscale: A positive number, or one for each column (d,). "scale" is sqrt(d Var(X) / 2), as gamma="scale" of
            `sklearn.svm.SVC`.
        random_state: The seed, or a `numpy.random.RandomState` from which each fit draws one. If None, the seed is from
            the system. The global state of numpy is never used.
        spectrum: The kernel's spectrum, by name or as a `rfgp.spectra.Spectrum`.
        features: "fourier", or "laplace" for positive features of the Gaussian spectrum.

    Attributes:
        feature_map_: The drawn `rfgp.features.Fourier` or `Laplace`. `transform` depends only on this map and
            `lengthscale_`.
        lengthscale_: The lengthscale, () or (d,).
        n_features_in_: The number d of columns.
        feature_names_in_: The names of the columns, if X had some.

    Source: Rahimi and Recht (2007); couplings as named in `rfgp.couplings`.

    Examples:
        >>> import numpy as np
        >>> from rfgp.sklearn import RandomFeatures
        >>> X = np.linspace(0, 1, 10)[:, None]
        >>> RandomFeatures(n_frequencies=8, random_state=0).fit_transform(X).shape
        (10, 16)
        >>> RandomFeatures(n_frequencies=8, random_state=0).fit(X).transform(X[:2]).shape
        (2, 16)
    """

    n_frequencies: int = 512
    coupling: str | couplings.Coupling = "energy"
    lengthscale: Any = 1.0
    random_state: Any = None
    _: KW_ONLY
    spectrum: str | spectra.Spectrum = "gaussian"
    features: str = "fourier"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the frequencies for the columns of X.

        Args:
            X: Rows (n, d). The fit depends only on d, and for lengthscale="scale" on the variance.
            y: Not used.

        Returns:
            The transformer.

        Raises:
            InvalidArgumentError: If an option is unknown, or has a wrong value.
            ValueError: If X cannot be used.
        """
        m, seed = check_count("n_frequencies", self.n_frequencies), resolve_seed(self.random_state)
        spectrum, kind = spectra.by_name(self.spectrum), feature_maps.by_name(self.features)
        coupling = couplings.for_features(self.coupling, self.features)
        if self.features == "laplace" and not isinstance(spectrum, spectra.Gaussian):
            raise InvalidArgumentError("Laplace features exist for the Gaussian spectrum only.")
        X = validate_data(self, X, dtype=FLOATS)
        lengthscale = _lengthscale(self.lengthscale, X)
        generator = random.generator(seed, random.Role.FREQUENCIES)
        self.feature_map_ = kind(coupling.sample(m, X.shape[1], spectrum=spectrum, generator=generator))
        self.lengthscale_ = lengthscale
        self._n_features_out = self.feature_map_.num_features
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of rows.

        They are float32 if X is, otherwise float64.

        Args:
            X: Rows (n, d).

        Returns:
            Features (n, 2m) for "fourier", or (n, m) for "laplace".

        Raises:
            NotFittedError: If the estimator is not fitted (raised by scikit-learn).
            ValueError: If X cannot be used.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        scaled = X / np.asarray(self.lengthscale_, dtype=X.dtype)
        with torch.no_grad():
            return self.feature_map_(torch.from_numpy(scaled)).numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """Return the same to scikit-learn before 1.6."""
        return {"preserves_dtype": list(FLOATS)}


def _lengthscale(value: Any, X: Any) -> Any:
    """Return the lengthscale for rows (n, d), a float or (d,)."""
    d = X.shape[1]
    if isinstance(value, str) and value == "scale":
        variance = float(X.var(dtype=np.float64))
        return math.sqrt(d * variance / 2) if variance > 0 else 1.0
    try:
        number = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        number = np.array(np.nan)
    if number.shape not in ((), (d,)) or not bool((np.isfinite(number) & (number > 0)).all()):
        raise InvalidArgumentError(
            f'lengthscale must be a positive number, one for each of the {d} columns, or "scale", got {value!r}.'
        )
    return number if number.ndim else float(number)


# --- Pipelines that approximate kernel methods of scikit-learn by linear models of random features --------------------

INTERCEPT_SCALING = 3.0
"""`LinearSVC` penalises its intercept, divided by this; larger values are closer to `SVC`, and converge more slowly."""
MAX_ITERATIONS = 50_000
"""The maximum number of iterations of `LinearSVC`, whose default of 1,000 is too small for the hinge loss."""


def make_kernel_ridge(
    alpha: float = 1.0,
    *,
    lengthscale: Any = "scale",
    **options: Any,
) -> Pipeline:
    """Return a pipeline that approximates kernel ridge regression: StandardScaler, RandomFeatures, Ridge.

    With the Gaussian spectrum it approximates `make_pipeline(StandardScaler(), KernelRidge(alpha=alpha, kernel="rbf",
    gamma=1 / (2 * lengthscale**2)))`. It equals kernel ridge regression with the estimated kernel, since neither has an
    intercept. With lengthscale="scale", gamma is 1 / d, the default of `KernelRidge`, if no column is constant.

    Args:
        alpha: The penalty.
        lengthscale: The lengthscale in standard deviations of the columns, as for `RandomFeatures`.
        options: Other options of `RandomFeatures`, such as n_frequencies, coupling, spectrum and random_state.

    Returns:
        An unfitted `sklearn.pipeline.Pipeline`, with steps "standardscaler", "randomfeatures", "ridge".

    Source: Rahimi and Recht (2007).

    Examples:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = make_kernel_ridge(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> bool(model.score(X, np.sin(X[:, 0])) > 0.9)
        True
    """
    features = RandomFeatures(lengthscale=lengthscale, **options)
    return make_pipeline(StandardScaler(), features, Ridge(alpha, fit_intercept=False))


def make_kernel_svc(
    C: float = 1.0,
    *,
    lengthscale: Any = "scale",
    **options: Any,
) -> Pipeline:
    """Return a pipeline that approximates a support vector classifier: StandardScaler, RandomFeatures, LinearSVC.

    With the Gaussian spectrum and two classes it approximates `make_pipeline(StandardScaler(), SVC(C=C, kernel="rbf",
    gamma=1 / (2 * lengthscale**2)))`, with the same hinge loss. The intercept b of `SVC` is free. Here b^2 / 9 is added
    to the squared norm of the weights, as if 9 were added to the kernel. More than two classes are fitted one against
    the rest, while `SVC` fits them one against one. lengthscale="scale" is gamma="scale", the default of `SVC`.

    Args:
        C: The inverse of the penalty.
        lengthscale: The lengthscale in standard deviations of the columns, as for `RandomFeatures`.
        options: Other options of `RandomFeatures`, such as n_frequencies, coupling, spectrum and random_state.

    Returns:
        An unfitted `sklearn.pipeline.Pipeline`, with steps "standardscaler", "randomfeatures", "linearsvc".

    Source: Rahimi and Recht (2007).

    Examples:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = make_kernel_svc(random_state=0).fit(X, np.sin(X[:, 0]) > 0)
        >>> bool(model.score(X, np.sin(X[:, 0]) > 0) > 0.9)
        True
    """
    machine = LinearSVC(
        C=C,
        loss="hinge",
        dual=True,
        intercept_scaling=INTERCEPT_SCALING,
        max_iter=MAX_ITERATIONS,
        random_state=0,  # of the order of its steps alone; None would be numpy's global state
    )
    return make_pipeline(StandardScaler(), RandomFeatures(lengthscale=lengthscale, **options), machine)
