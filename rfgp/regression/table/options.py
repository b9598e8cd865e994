"""What a user chooses of a process on a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods import Normal
from rfgp.local import KINDS
from rfgp.local.kinds import kind_of, read_spectrum, spectrum_of
from rfgp.parameters import Hyperprior
from rfgp.regression.family import check_approximation, read_likelihood

CONDITIONINGS = ("auto", "responses", "latent")
"""What the neighbours of a row are."""
CHOICES = ("k-means", "pivots")
"""Of inducing points."""
DIAGONALS = (None, "fitc", "vfe")
"""What becomes of the variance that features of inducing points miss."""
RESIDUAL = "residual"
"""The local process that is what features of inducing points leave of their own kernel."""
LOCAL_STARTS = ("local_lengthscale", "local_outputscale")
"""Of a local process beside another."""


@dataclass(frozen=True)
class KernelOptions:
    """What a user chooses of a process on a table; see `rfgp.TableGP`.

    Raises:
        InvalidArgumentError: an unknown spectrum, local kernel or condition_on, a number of neighbours that is not
            positive, or starting values of a local process that is not there.
    """

    spectrum: Any = "gaussian"
    ard: bool = True
    standardize: bool = True
    lengthscale: Any = None
    outputscale: float | None = None
    noise: float | None = None
    priors: Mapping[str, Hyperprior | None] | None = None
    dtype: torch.dtype | None = None
    local: str | None = None
    num_neighbors: int = 30
    condition_on: str = "auto"
    local_lengthscale: Any = None
    local_outputscale: float | None = None
    likelihood: Any = "normal"
    inference: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spectrum", read_spectrum(self.spectrum))
        object.__setattr__(self, "likelihood", read_likelihood(self.likelihood, self.noise))
        check_approximation(self.inference, self.likelihood)
        self._check_local()
        self._check_local_likelihood()
        object.__setattr__(self, "num_neighbors", check_count("num_neighbors", self.num_neighbors))
        if self.condition_on not in CONDITIONINGS:
            raise InvalidArgumentError(
                f"condition_on must be one of {', '.join(CONDITIONINGS)}, got {self.condition_on!r}."
            )
        given = [name for name in LOCAL_STARTS if getattr(self, name) is not None]
        if given and not self.has_both:
            raise InvalidArgumentError(
                f"{given[0]} is of a local process beside another: there is none here"
                + ("." if self.local is None else f", so give {given[0].removeprefix('local_')}.")
            )

    def _check_local_likelihood(self) -> None:
        if self.local is not None and not isinstance(self.likelihood, Normal):
            raise InvalidArgumentError(
                f"A local process is for a normal likelihood, got {self.likelihood!r}: its neighbours see observations."
            )

    def _check_local(self) -> None:
        if self.local == RESIDUAL:
            raise InvalidArgumentError(f'local="{RESIDUAL}" is for features="nystrom": others leave no covariance.')
        if self.local is not None and self.local not in KINDS:
            raise InvalidArgumentError(f"local must be None or one of {', '.join(KINDS)}, got {self.local!r}.")

    @property
    def features(self) -> str | None:
        """Of the exact kernel."""
        return "exact"

    @property
    def has_both(self) -> bool:
        """Whether there is a local process of another kernel beside one."""
        return self.local is not None and self.features is not None and not self.has_residual

    @property
    def has_residual(self) -> bool:
        """Whether what features leave of the kernel is taken up by neighbours."""
        return self.local == RESIDUAL

    @property
    def seed(self) -> int:
        """Nothing is drawn here but a sample of rows that are read in blocks."""
        return 0


@dataclass(frozen=True)
class LocalOptions(KernelOptions):
    """What he chooses of a local process alone, whose spectrum is that of `local`.

    Raises:
        InvalidArgumentError: as above, or no local process.
    """

    seed: Any = None
    features: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local is None:
            raise InvalidArgumentError(f"Without features there must be a local process: one of {', '.join(KINDS)}.")
        object.__setattr__(self, "spectrum", spectrum_of(self.local))
        object.__setattr__(self, "seed", random.resolve_seed(self.seed))


@dataclass(frozen=True)
class InducingOptions(KernelOptions):
    """What he chooses of features of inducing points; see `rfgp.TableGP`.

    Raises:
        InvalidArgumentError: an unknown choice of points, M not a positive integer, a local process with a kernel of
            its own, or a residual that is taken up twice, or of a kernel that is none of a local process.
    """

    num_inducing: int = 512
    inducing: str = "k-means"
    learn_inducing: bool = False
    diagonal: str | None = None
    seed: Any = None
    features: str = field(default="nystrom", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_inducing", check_count("num_inducing", self.num_inducing))
        if not isinstance(self.inducing, str) or self.inducing not in CHOICES:
            raise InvalidArgumentError(f"inducing must be one of {', '.join(CHOICES)}, got {self.inducing!r}.")
        if not isinstance(self.learn_inducing, bool):
            raise InvalidArgumentError(f"learn_inducing must be True or False, got {self.learn_inducing!r}.")
        if not isinstance(self.diagonal, str | None) or self.diagonal not in DIAGONALS:
            raise InvalidArgumentError(f"diagonal must be None, 'fitc' or 'vfe', got {self.diagonal!r}.")
        if self.has_residual and self.diagonal is not None:
            raise InvalidArgumentError(f"diagonal={self.diagonal!r} is for local=None: the residual has a diagonal.")
        object.__setattr__(self, "seed", random.resolve_seed(self.seed))

    def _check_local(self) -> None:
        if self.diagonal is not None and not isinstance(self.likelihood, Normal):
            raise InvalidArgumentError(f"diagonal is for a normal likelihood, got {self.likelihood!r}.")
        if self.local not in (None, RESIDUAL):
            raise InvalidArgumentError(
                f'Beside inducing points local must be None or "{RESIDUAL}", got {self.local!r}.'
            )
        if self.has_residual and kind_of(self.spectrum) is None:
            raise InvalidArgumentError(
                f'local="{RESIDUAL}" is for the kernels {", ".join(KINDS)}, got the spectrum {self.spectrum!r}.'
            )


@dataclass(frozen=True)
class FeatureOptions(KernelOptions):
    """What he chooses beside that of one through features; see `rfgp.SparseSpectrumGP`.

    Raises:
        InvalidArgumentError: an unknown name, or m not a positive integer.
    """

    features: str = "fourier"
    num_frequencies: int = 512
    coupling: Any = "energy"
    frequencies: str = "fixed"
    seed: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frequencies not in ("fixed", "learned"):
            raise InvalidArgumentError(f'frequencies must be "fixed" or "learned", got {self.frequencies!r}.')
        if self.frequencies == "learned" and self.features != "fourier":
            raise InvalidArgumentError("Frequencies of Fourier features can be learned, of others not.")
        if self.frequencies == "learned" and not isinstance(self.likelihood, Normal):
            raise InvalidArgumentError(f"Frequencies are learned under a normal likelihood, got {self.likelihood!r}.")
        feature_maps.by_name(self.features)
        if self.features == "laplace" and not isinstance(self.spectrum, spectra.Gaussian):
            raise InvalidArgumentError("Laplace features exist for the Gaussian spectrum only.")
        object.__setattr__(self, "num_frequencies", check_count("num_frequencies", self.num_frequencies))
        couplings.for_features(self.coupling, self.features)
        object.__setattr__(self, "seed", random.resolve_seed(self.seed))
