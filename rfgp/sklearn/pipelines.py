"""Kernel methods of scikit-learn through random features: linear models behind a transformer."""

from typing import Any

from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from rfgp.couplings import Coupling
from rfgp.sklearn.transform import RandomFeatures
from rfgp.spectra import Spectrum

INTERCEPT_SCALING = 10.0
"""`LinearSVC` penalises its intercept, `SVC` does not; this divides the penalty by its square."""
MOST_ITERATIONS = 20_000


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
    gamma=1 / (2 * lengthscale**2)))`, and is that of the estimated kernel exactly: neither has an intercept. With
    lengthscale="scale", gamma is 1 / d, the default of `KernelRidge`.

    Args:
        alpha: The penalty.
        n_frequencies: m; there are 2m features.
        coupling: As for `RandomFeatures`.
        lengthscale: In standard deviations of the columns; as for `RandomFeatures`.
        spectrum: As for `RandomFeatures`.
        random_state: As for `RandomFeatures`.

    Returns:
        An unfitted `sklearn.pipeline.Pipeline`, with steps "standardscaler", "randomfeatures", "ridge".

    Source: Rahimi and Recht (2007).
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
    gamma=1 / (2 * lengthscale**2)))`: the hinge loss is the same, and the intercept is penalised a hundred times
    less than `LinearSVC` does. Of more classes each is told from all others, where `SVC` tells every two apart. With
    lengthscale="scale", gamma is 1 / d, the default of `SVC`.

    Args:
        C: The inverse of the penalty.
        n_frequencies: m; there are 2m features.
        coupling: As for `RandomFeatures`.
        lengthscale: In standard deviations of the columns; as for `RandomFeatures`.
        spectrum: As for `RandomFeatures`.
        random_state: As for `RandomFeatures`.

    Returns:
        An unfitted `sklearn.pipeline.Pipeline`, with steps "standardscaler", "randomfeatures", "linearsvc".

    Source: Rahimi and Recht (2007).
    """
    features = RandomFeatures(n_frequencies, coupling, lengthscale, random_state, spectrum=spectrum)
    machine = LinearSVC(
        C=C,
        loss="hinge",
        dual=True,
        intercept_scaling=INTERCEPT_SCALING,
        max_iter=MOST_ITERATIONS,
        random_state=0,  # of the order of its steps alone; None would be numpy's global state
    )
    return make_pipeline(StandardScaler(), features, machine)
