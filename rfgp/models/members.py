"""Processes on a table with names of their own, through random features and exact; and how one becomes another."""

from collections.abc import Mapping
from typing import Any, cast

import torch

from rfgp import couplings, spectra
from rfgp.ambient import plain
from rfgp.counts import counted
from rfgp.errors import InvalidArgumentError
from rfgp.fitting import fit_terms as fit_table
from rfgp.likelihoods import Likelihood
from rfgp.models.given import options_from
from rfgp.models.process import Fitted, Process, with_rows
from rfgp.parameters import Hyperprior
from rfgp.regression import (
    Family,
    FeatureFamily,
    FeatureMap,
    FeatureOptions,
    InducingFamily,
    KernelFamily,
    KernelOptions,
    LocalFamily,
    Member,
    Regression,
    TableFamily,
    family_of,
)
from rfgp.saving import FEATURES, KERNELS


class SparseSpectrumGP(Process[TableFamily]):
    """A Gaussian process whose kernel is estimated by coupled random features: `TableGP` with features.

    Args are those of `TableGP`, in another order; `features` is "fourier" or "laplace".

    Sources: sparse spectrum processes, Lazaro-Gredilla et al. (2010); couplings as named there.

    Raises:
        InvalidArgumentError: an unknown name, or m not a positive integer.
    """

    codec = FEATURES
    strategy = staticmethod(fit_table)

    def __init__(
        self,
        spectrum: str | spectra.Spectrum = "gaussian",
        features: str = "fourier",
        num_frequencies: int = 512,
        coupling: str | couplings.Coupling = "energy",
        frequencies: str = "fixed",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        *,
        local: str | None = None,
        num_neighbors: int = 30,
        conditioning: str = "auto",
        local_lengthscale: Any = None,
        local_outputscale: float | None = None,
        likelihood: str | Likelihood = "normal",
        approximation: str | None = None,
    ) -> None:
        super().__init__(family_of(options_from(FeatureOptions, locals())))

    @property
    def options(self) -> FeatureOptions:
        """What the constructor was given."""
        options = self.family.options
        assert isinstance(options, FeatureOptions)
        return options

    @property
    def spectrum(self) -> spectra.Spectrum:
        """The kernel's spectrum."""
        return cast(spectra.Spectrum, self.options.spectrum)

    @property
    def features(self) -> str:
        """The kind of features."""
        return self.options.features

    @property
    def coupling(self) -> couplings.Coupling:
        """The frequencies' coupling."""
        return cast(couplings.Coupling, self.options.coupling)

    @property
    def feature_map(self) -> FeatureMap:
        """The feature map with its draw, for standardised inputs divided by the lengthscale.

        Raises:
            NotFittedError: nothing is drawn before the first data.
        """
        self._needed()
        assert isinstance(self.family, FeatureFamily | LocalFamily)
        return self.family.drawn_map

    @plain()
    def redraw(self, **changes: Any) -> "SparseSpectrumGP":
        """Return a new model with a new draw; what is not named stays, data and hyperparameters too.

        Args:
            changes: Any of `coupling`, `num_frequencies`, `features`, `seed`, and beside a local process
                `num_neighbors` and `conditioning`. Where only the features change, an energy coupling is tuned to
                them. Learned frequencies are not kept: `fit` learns from the new draw.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        regression = with_rows(self)
        return SparseSpectrumGP.of(*under(redrawn(self.options, changes), regression))

    @plain()
    def exact(self) -> "ExactGP":
        """Return the exact process with a copy of the hyperparameters and the same data."""
        return ExactGP.of(*under(self.options.without_features(), with_rows(self)))


class ExactGP(Process[KernelFamily]):
    """A Gaussian process with the exact stationary kernel; O(n^3) time, O(n^2) memory.

    Args are those of `TableGP` without the features. With `local` its kernel is the sum of that of the spectrum and of
    that of the local process, exactly.
    """

    codec = KERNELS
    strategy = staticmethod(fit_table)

    def __init__(
        self,
        spectrum: str | spectra.Spectrum = "gaussian",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        dtype: torch.dtype | None = None,
        *,
        local: str | None = None,
        local_lengthscale: Any = None,
        local_outputscale: float | None = None,
        likelihood: str | Likelihood = "normal",
        approximation: str | None = None,
    ) -> None:
        super().__init__(KernelFamily(options_from(KernelOptions, locals())))

    @property
    def options(self) -> KernelOptions:
        """What the constructor was given."""
        return self.family.options

    @property
    def spectrum(self) -> spectra.Spectrum:
        """The kernel's spectrum."""
        return cast(spectra.Spectrum, self.options.spectrum)

    @property
    def members(self) -> "tuple[tuple[float, ExactGP], ...]":
        """The processes that it averages, where it is the `exact()` of an average; a fit is of one process again."""
        return members_of(self)

    def __repr__(self) -> str:
        return with_others(super().__repr__(), self.family)

    @plain()
    def approximate(self, **options: Any) -> SparseSpectrumGP:
        """Return a `SparseSpectrumGP` with a copy of these hyperparameters and the same data.

        Of an average it is of the process with the largest share alone.

        Args:
            options: Any of `coupling`, `num_frequencies`, `features`, `seed`, and beside a local process
                `num_neighbors` and `conditioning`.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        regression = with_rows(self)
        return SparseSpectrumGP.of(*under(redrawn(FeatureOptions(**vars(self.options)), options), regression))


def redrawn(options: KernelOptions, changes: Mapping[str, Any]) -> KernelOptions:
    """Return options with some changed.

    Raises:
        InvalidArgumentError: another name than those of a redraw, or an option that cannot be.
    """
    known = options.redrawn
    if set(changes) - known:
        unknown = ", ".join(sorted(set(changes) - known))
        raise InvalidArgumentError(f"redraw does not know {unknown}; it takes {', '.join(sorted(known)) or 'nothing'}.")
    return options.changed(**changes)


def under(options: KernelOptions, regression: Regression) -> tuple[Any, Fitted]:
    """Return the family of options with a draw of its own, and a regression's rows and numbers under it."""
    family = family_of(options).with_sample(regression.scaling)
    if isinstance(family, InducingFamily):
        family = family.beside(regression.family)
    family, values = family.initialized(regression.hyperparameters, regression.needed_rows("another draw"))
    return family, Fitted.of(regression.replace(family=family, hyperparameters=values))


def members_of(model: Process[Any]) -> tuple[tuple[float, ExactGP], ...]:
    """Return the exact processes that a model averages, each with its share, the largest first; of one none."""
    if not isinstance(model.family, KernelFamily) or not model.family.others:
        return ()
    now = model.regression
    return tuple((m.weight, _alone(m, now)) for m in model.family.members(now.hyperparameters))


def with_others(text: str, family: Family) -> str:
    """Return what is said of a model, with how many others it is averaged with."""
    others = len(family.others) if isinstance(family, KernelFamily) else 0
    return f"{text[:-1]}, averaged with {counted(others, 'other')})" if others else text


def _alone(member: Member, regression: Regression) -> ExactGP:
    changed = regression.replace(family=member.family, hyperparameters=member.values)
    return ExactGP.of(cast(KernelFamily, member.family), Fitted.of(changed))
