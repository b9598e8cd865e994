"""The sparse-spectrum Gaussian process as a scikit-learn regressor and classifier."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from rfgp.counts import check_count
from rfgp.couplings import Coupling
from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods import Likelihood
from rfgp.models import SparseSpectrumGP
from rfgp.parameters import Hyperprior
from rfgp.rows.arrays import warn_of_truth
from rfgp.sklearn.checks import (
    FLOATS,
    merged,
    read_new,
    read_rows,
    resolve_seed,
    validate_data,
)
from rfgp.sklearn.classifier import ProcessClassifier, read_classes
from rfgp.sklearn.regressor import ProcessRegressor
from rfgp.spectra import Spectrum


class RandomFeatureGPRegressor(ProcessRegressor):
    """Gaussian process regression whose kernel is estimated by coupled random features.

    An adapter of `rfgp.SparseSpectrumGP`: with the same seed and data both give the same numbers. Time is linear in the
    number of rows. Hyperparameters are learned by their marginal likelihood. Rows that repeat each other are merged
    into one with a weight, so that rows with weights and the same rows written out give the same numbers.

    The standard deviations of `predict` are those of the latent function. scikit-learn's `GaussianProcessRegressor`
    with a `WhiteKernel` reports those of an observation: here `gp_.predict(X).observed()` does.

    An output that is constant has no scale to learn. It is predicted as it is, with standard deviation 0, and
    a `rfgp.ConstantTargetWarning` says so; that is the limit of the likelihood, and what
    `GaussianProcessRegressor` comes close to.

    A weight of a row is a number of repetitions, as everywhere in scikit-learn: the result is that of as many rows.
    `rfgp.SparseSpectrumGP().fit` knows variances of rows, and tables larger than memory, as well.

    Args:
        n_frequencies: m; Fourier features number 2m.
        coupling: The frequencies' coupling, one of `rfgp.couplings.names()` or a `rfgp.couplings.Coupling`.
        random_state: An integer, which is the seed of the process; a `numpy.random.RandomState`, of which each fit
            draws one; or None for one from the system. numpy's global state is never used.
        spectrum: The kernel's spectrum, by name or as a `rfgp.spectra.Spectrum`.
        features: "fourier", or "laplace" (positive; Gaussian spectrum only).
        frequencies: "fixed", or "learned" with the other hyperparameters.
        ard: One lengthscale per column, or one for all.
        standardize: Whether inputs and targets are standardised inside.
        lengthscale: Starting value in the units of X, () or (d,); None: from the data.
        outputscale: Starting value of the latent variance; None: the targets' variance.
        noise: Starting value of the noise variance; None: a tenth of the targets' variance.
        priors: Log densities (objects with `log_prob`) of named hyperparameters.
        fixed: Names of hyperparameters that keep their starting values, such as ("noise",).
        max_iter: Of the optimiser; None: 500, or 300 steps of learning frequencies.
        local: The kernel of a local process beside the features, such as "matern32"; None: there is none
            (`rfgp.TableGP`).
        n_neighbors: Of a row, in the local process.

    Attributes:
        gp_: The fitted `rfgp.SparseSpectrumGP`, with `hyperparameters`, `fit_report`, `exact()`, `save(path)`. With
            several outputs, of those that are not constant; None where all are.
        log_marginal_likelihood_value_: The log density of y, total nats, in its units; nan where `gp_` is None.
        n_iter_: Iterations of the optimiser.
        n_features_in_: d.
        feature_names_in_: The columns' names, where X had some.
        used_columns_: Positions of the columns that are used if an index of pandas is left out, else None.
    """

    gp_: SparseSpectrumGP | None

    def __init__(
        self,
        n_frequencies: int = 512,
        coupling: str | Coupling = "energy",
        random_state: Any = None,
        *,
        spectrum: str | Spectrum = "gaussian",
        features: str = "fourier",
        frequencies: str = "fixed",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior] | None = None,
        fixed: Iterable[str] = (),
        max_iter: int | None = None,
        local: str | None = None,
        n_neighbors: int = 30,
    ) -> None:
        self.n_frequencies = n_frequencies
        self.coupling = coupling
        self.random_state = random_state
        self.spectrum = spectrum
        self.features = features
        self.frequencies = frequencies
        self.ard = ard
        self.standardize = standardize
        self.lengthscale = lengthscale
        self.outputscale = outputscale
        self.noise = noise
        self.priors = priors
        self.fixed = fixed
        self.max_iter = max_iter
        self.local = local
        self.n_neighbors = n_neighbors

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the hyperparameters and condition on the data.

        float32 is kept where X and y have it; everything else is computed in float64.

        Args:
            X: Rows (n, d), n at least 2.
            y: Targets (n,), or (n, k) for k outputs that share one kernel; (n, 1) is taken as (n,).
            sample_weight: How often each row counts (n,), not negative; None: once. Weights that only compare rows are
                best divided by their mean: a target that is repeated without change speaks for little noise.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: an option that there is not.
            ValueError: the data cannot be used.

        Warns:
            ConstantTargetWarning: an output is constant.
            RfgpWarning: as `rfgp.SparseSpectrumGP.fit`.
        """
        gp = self._process()
        warn_of_truth(y, stacklevel=3)
        return self._learn(gp, *read_rows(self, X, y, sample_weight)[:3])

    def _process(self) -> SparseSpectrumGP:
        return SparseSpectrumGP(
            num_frequencies=check_count("n_frequencies", self.n_frequencies),
            coupling=self.coupling,
            seed=resolve_seed(self.random_state),
            spectrum=self.spectrum,
            kind=self.features,
            learn_frequencies=is_learned(self.frequencies),
            ard=self.ard,
            standardize=self.standardize,
            lengthscale=self.lengthscale,
            outputscale=self.outputscale,
            noise=self.noise,
            priors=self.priors,
            local=self.local,
            num_neighbors=check_count("n_neighbors", self.n_neighbors),
        )

    def _read_new(self, X: Any) -> Any:
        return read_new(self, X)

    def _sample(self, inputs: Any, count: int, seed: int) -> Any:
        assert self.gp_ is not None
        if self.local is not None:
            return self.gp_.predict(inputs).sample(count, seed=seed)
        return self.gp_.sample_functions(count, seed=seed)(inputs)


class RandomFeatureGPClassifier(ProcessClassifier):
    """Gaussian process classification whose kernel is estimated by coupled random features.

    An adapter of `rfgp.SparseSpectrumGP`: two classes by a logit or a probit, more by one softmax of as many processes
    with one kernel. scikit-learn's `GaussianProcessClassifier` takes one class against the others, and time n^3; here
    it is linear in the rows. Hyperparameters are learned by the approximate marginal likelihood, up to 10,000 rows with
    128 frequencies at most (several classes: 64, by Laplace on a random 800 of the rows). A weight is a number of
    repetitions: rows with weights and the same rows written out give the same numbers.

    Args:
        n_frequencies: m; Fourier features number 2m. Of C classes 2 m C weights are solved for, by Laplace jointly and
            at most 24,000.
        coupling: The frequencies' coupling, one of `rfgp.couplings.names()` or a `rfgp.couplings.Coupling`.
        random_state: An integer, which is the seed of the process; a `numpy.random.RandomState`, of which each fit
            draws one; or None for one from the system. numpy's global state is never used.
        link: Of two classes, "logit" or "probit".
        approximation: "laplace" or "variational", as for `rfgp.TableGP`; None: the latter up to 4,000 rows.
        spectrum: The kernel's spectrum, by name or as a `rfgp.spectra.Spectrum`.
        features: "fourier", or "laplace" (positive; Gaussian spectrum only).
        ard: One lengthscale per column, or one for all.
        standardize: Whether inputs are standardised inside.
        lengthscale: Starting value in the units of X, () or (d,); None: from the data.
        outputscale: Starting value of the latent variance; None: 2.
        priors: Log densities (objects with `log_prob`) of named hyperparameters.
        fixed: Names of hyperparameters that keep their starting values.
        max_iter: Of the optimiser; None: 500.

    Attributes:
        gp_: The fitted `rfgp.SparseSpectrumGP`, of labels 0 to C - 1.
        classes_: The labels, (C,).
        log_marginal_likelihood_value_: The approximate log probability of the labels, total nats.
        n_iter_: Iterations of the optimiser.
        n_features_in_: d.
        feature_names_in_: The columns' names, where X had some.
        used_columns_: Positions of the columns that are used if an index of pandas is left out, else None.
    """

    gp_: SparseSpectrumGP

    def __init__(
        self,
        n_frequencies: int = 512,
        coupling: str | Coupling = "energy",
        random_state: Any = None,
        *,
        link: str = "logit",
        spectrum: str | Spectrum = "gaussian",
        features: str = "fourier",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        priors: Mapping[str, Hyperprior] | None = None,
        fixed: Iterable[str] = (),
        max_iter: int | None = None,
        approximation: str | None = None,
    ) -> None:
        self.n_frequencies = n_frequencies
        self.coupling = coupling
        self.random_state = random_state
        self.link = link
        self.approximation = approximation
        self.spectrum = spectrum
        self.features = features
        self.ard = ard
        self.standardize = standardize
        self.lengthscale = lengthscale
        self.outputscale = outputscale
        self.priors = priors
        self.fixed = fixed
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the hyperparameters and condition on the data.

        Args:
            X: Rows (n, d), n at least 2.
            y: Labels (n,), numbers or texts, of two classes at least.
            sample_weight: How often each row counts (n,), not negative; None: once.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: an option that there is not.
            ValueError: the data cannot be used, or are of one class.

        Warns:
            RfgpWarning: as `rfgp.SparseSpectrumGP.fit`.
        """
        X, y = validate_data(self, X, y, dtype=FLOATS, ensure_min_samples=2)
        y = read_classes(y)
        X, rows, weight = merged(self, sample_weight, X, y)
        return self._learn(X, y[rows], weight)

    def _process(self, likelihood: Likelihood) -> SparseSpectrumGP:
        return of_likelihood(self, likelihood)

    def _read_new(self, X: Any) -> Any:
        return read_new(self, X)


def is_learned(frequencies: str) -> bool:
    """Return whether frequencies are "learned".

    Raises:
        InvalidArgumentError: they are neither that nor "fixed".
    """
    if frequencies not in ("fixed", "learned"):
        raise InvalidArgumentError(f'frequencies must be "fixed" or "learned", got {frequencies!r}.')
    return frequencies == "learned"


def of_likelihood(estimator: Any, likelihood: Likelihood) -> SparseSpectrumGP:
    """Return the process of an estimator under a likelihood that is not normal, before a fit."""
    return SparseSpectrumGP(
        num_frequencies=check_count("n_frequencies", estimator.n_frequencies),
        coupling=estimator.coupling,
        seed=resolve_seed(estimator.random_state),
        spectrum=estimator.spectrum,
        kind=estimator.features,
        ard=estimator.ard,
        standardize=estimator.standardize,
        lengthscale=estimator.lengthscale,
        outputscale=estimator.outputscale,
        priors=estimator.priors,
        likelihood=likelihood,
        inference=estimator.approximation,
    )
