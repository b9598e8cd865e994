"""The Gaussian process that suits a table, chosen by measurement, as a scikit-learn regressor."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from rfgp.counts import check_count
from rfgp.models import TableGP
from rfgp.parameters import Hyperprior
from rfgp.regression import SelectionReport
from rfgp.rows.arrays import warn_of_truth
from rfgp.sklearn.checks import read_new, read_rows, resolve_seed
from rfgp.sklearn.regressor import ProcessRegressor
from rfgp.spectra import Spectrum


class TableGPRegressor(ProcessRegressor):
    """Gaussian process regression by whatever suits the table: exact kernels, features, neighbours, or both.

    An adapter of `rfgp.TableGP`: with the same seed and data both give the same numbers. What is "auto" is chosen by
    `fit`, by the density of rows that are left out or kept out, at predicted costs; what is named is kept. `selection_`
    says what was tried and why one was taken. `RandomFeatureGPRegressor` measures nothing and costs what its number of
    frequencies says.

    The standard deviations of `predict` are those of the latent function, as there; so are constant outputs. A weight
    of a row is a number of repetitions: rows with weights and the same rows written out give the same numbers. A row is
    left out, or kept out, with all its repetitions.

    Args:
        features: "auto", "fourier", "laplace", "nystrom", "exact", or None, a local process alone.
        random_state: An integer, which is the seed of the process; a `numpy.random.RandomState`, of which each fit
            draws one; or None for one from the system. numpy's global state is never used.
        spectrum: "auto"; or the kernel's spectrum, by name or as a `rfgp.spectra.Spectrum`.
        n_frequencies: m, or "auto".
        frequencies: "auto", "fixed", or "learned".
        n_inducing: Of "nystrom", or "auto".
        local: The kernel of a local process, None for none, or "auto".
        n_neighbors: Of a row, in the local process, or "auto".
        ard: One lengthscale per column, or one for all.
        standardize: Whether inputs and targets are standardised inside.
        priors: Log densities (objects with `log_prob`) of named hyperparameters.
        fixed: Names of hyperparameters that keep their starting values, such as ("noise",).
        max_iter: Of the optimiser; None: 500, or 300 steps of learning frequencies.
        time_limit: The most that selection and fit may take: "30s", "5min". If None, as suits the rows.
        memory: What the fit may take, as predicted: "500MB", "4GB"; None: 8 GB.

    Attributes:
        gp_: The fitted `rfgp.TableGP`. With several outputs, of those that are not constant; None where all are.
        selection_: What was chosen, and why; None where nothing was open.
        log_marginal_likelihood_value_: The log density of y, total nats, in its units; nan where `gp_` is None.
        n_iter_: Iterations of the optimiser.
        n_features_in_: d.
        feature_names_in_: The columns' names, where X had some.
        used_columns_: Positions of the columns that are used if an index of pandas is left out, else None.
    """

    gp_: TableGP | None

    def __init__(
        self,
        features: str | None = "auto",
        random_state: Any = None,
        *,
        spectrum: str | Spectrum = "auto",
        n_frequencies: int | str = "auto",
        frequencies: str = "auto",
        n_inducing: int | str = "auto",
        local: str | None = "auto",
        n_neighbors: int | str = "auto",
        ard: bool = True,
        standardize: bool = True,
        priors: Mapping[str, Hyperprior] | None = None,
        fixed: Iterable[str] = (),
        max_iter: int | None = None,
        time_limit: str | float | None = None,
        memory: str | float | None = None,
    ) -> None:
        self.features = features
        self.random_state = random_state
        self.spectrum = spectrum
        self.n_frequencies = n_frequencies
        self.frequencies = frequencies
        self.n_inducing = n_inducing
        self.local = local
        self.n_neighbors = n_neighbors
        self.ard = ard
        self.standardize = standardize
        self.priors = priors
        self.fixed = fixed
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory = memory

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose, learn the hyperparameters, and condition on the data.

        Args:
            X: Rows (n, d), n at least 2.
            y: Targets (n,), or (n, k) for k outputs that share one kernel; (n, 1) is taken as (n,).
            sample_weight: How often each row counts (n,), not negative; None: once.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: an option that there is not.
            ValueError: the data cannot be used.

        Warns:
            BaselineNotBeatenWarning: a constant or a straight line is as good as all that was tried.
            RfgpWarning: as `rfgp.TableGP.fit`.
        """
        gp = self._process()
        warn_of_truth(y, stacklevel=3)
        return self._learn(gp, *read_rows(self, X, y, sample_weight)[:3])

    @property
    def selection_(self) -> SelectionReport | None:
        """What was chosen, and why."""
        return None if self.gp_ is None else self.gp_.selection

    def _process(self) -> TableGP:
        sizes = {"n_frequencies": self.n_frequencies, "n_inducing": self.n_inducing, "n_neighbors": self.n_neighbors}
        counts: dict[str, Any] = {
            f"num_{name[2:]}": value if isinstance(value, str) and value == "auto" else check_count(name, value)
            for name, value in sizes.items()
        }
        return TableGP(
            self.features,
            self.spectrum,
            frequencies=self.frequencies,
            local=self.local,
            ard=self.ard,
            standardize=self.standardize,
            priors=self.priors,
            seed=resolve_seed(self.random_state),
            time_limit=self.time_limit,
            memory=self.memory,
            **counts,
        )

    def _read_new(self, X: Any) -> Any:
        return read_new(self, X)

    def _sample(self, inputs: Any, count: int, seed: int) -> Any:
        assert self.gp_ is not None
        return self.gp_.predict(inputs).sample(count, seed=seed)
