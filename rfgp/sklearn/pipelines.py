"""Pipelines that approximate kernel methods of scikit-learn by linear models of random features."""

from typing import Any

from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from rfgp.couplings import Coupling
from rfgp.sklearn.transform import RandomFeatures
from rfgp.spectra import Spectrum

INTERCEPT_SCALING = 3.0
"""`LinearSVC` penalises its intercept, divided by this; larger values are closer to `SVC`, and converge more slowly."""
MAX_ITERATIONS = 50_000
"""The maximum number of iterations of `LinearSVC`, whose default of 1,000 is too small for the hinge loss."""


def make_kernel_ridge(
    alpha: float = 1.0,
    *,
    n_frequencies: int = 512,
    coupling: str | Coupling = "energy",
    lengthscale: Any = "scale",
    spectrum: str | Spectrum = "gaussian",
    random_state: Any = None,
) -> Pipeline:
    """Return a pipeline that approximates kernel ridge regression: StandardScaler, RandomFeatures, Ridge.

    With the Gaussian spectrum it approximates `make_pipeline(StandardScaler(), KernelRidge(alpha=alpha, kernel="rbf",
    gamma=1 / (2 * lengthscale**2)))`. It equals kernel ridge regression with the estimated kernel, since neither has an
    intercept. With lengthscale="scale", gamma is 1 / d, the default of `KernelRidge`, if no column is constant.

    Args:
        alpha: The penalty.
        n_frequencies: The number m of frequencies. There are 2m features.
        coupling: As for `RandomFeatures`.
        lengthscale: The lengthscale in standard deviations of the columns, as for `RandomFeatures`.
        spectrum: As for `RandomFeatures`.
        random_state: As for `RandomFeatures`.

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
    features = RandomFeatures(n_frequencies, coupling, lengthscale, random_state, spectrum=spectrum)
    return make_pipeline(StandardScaler(), features, Ridge(alpha, fit_intercept=False))


def make_kernel_svc(
    C: float = 1.0,
    *,
    n_frequencies: int = 512,
    coupling: str | Coupling = "energy",
    lengthscale: Any = "scale",
    spectrum: str | Spectrum = "gaussian",
    random_state: Any = None,
) -> Pipeline:
    """Return a pipeline that approximates a support vector classifier: StandardScaler, RandomFeatures, LinearSVC.

    With the Gaussian spectrum and two classes it approximates `make_pipeline(StandardScaler(), SVC(C=C, kernel="rbf",
    gamma=1 / (2 * lengthscale**2)))`, with the same hinge loss. The intercept b of `SVC` is free. Here b^2 / 9 is added
    to the squared norm of the weights, as if 9 were added to the kernel. More than two classes are fitted one against
    the rest, while `SVC` fits them one against one. lengthscale="scale" is gamma="scale", the default of `SVC`.

    Args:
        C: The inverse of the penalty.
        n_frequencies: The number m of frequencies. There are 2m features.
        coupling: As for `RandomFeatures`.
        lengthscale: The lengthscale in standard deviations of the columns, as for `RandomFeatures`.
        spectrum: As for `RandomFeatures`.
        random_state: As for `RandomFeatures`.

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
    features = RandomFeatures(n_frequencies, coupling, lengthscale, random_state, spectrum=spectrum)
    machine = LinearSVC(
        C=C,
        loss="hinge",
        dual=True,
        intercept_scaling=INTERCEPT_SCALING,
        max_iter=MAX_ITERATIONS,
        random_state=0,  # of the order of its steps alone; None would be numpy's global state
    )
    return make_pipeline(StandardScaler(), features, machine)
