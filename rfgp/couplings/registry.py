"""Couplings by name."""

from typing import Any

from rfgp.couplings.adapted import DataAdapted
from rfgp.couplings.antithetic import Antithetic
from rfgp.couplings.conformity import SimplexOptimized
from rfgp.couplings.coupling import Coupling
from rfgp.couplings.energy import Energy
from rfgp.couplings.fast import Circulant, Fastfood
from rfgp.couplings.independent import IID
from rfgp.couplings.leverage import Leverage
from rfgp.couplings.low_discrepancy import DigitalNet, Halton, Sobol
from rfgp.couplings.near_orthogonal import NearOrthogonal
from rfgp.couplings.orthogonal import ConstantNorm, Copula, Monotone, Orthogonal, Pairwise, Stratified
from rfgp.couplings.shared_norms import SharedNorms
from rfgp.couplings.simplex import Simplex, SimplexPlus
from rfgp.couplings.spherical_radial import SphericalRadial
from rfgp.couplings.structured import FastOrthogonal, FastSimplex, Structured
from rfgp.errors import InvalidArgumentError
from rfgp.registry import Registry

SUFFIX = "-antithetic"

_REGISTRY: Registry[Coupling] = Registry(
    "coupling",
    {
        "energy": Energy,
        "iid": IID,
        "halton": Halton,
        "sobol": Sobol,
        "digital-net": DigitalNet,
        "orthogonal": Orthogonal,
        "pairwise": Pairwise,
        "monotone": Monotone,
        "shared-norms": SharedNorms,
        "stratified": Stratified,
        "copula": Copula,
        "simplex": Simplex,
        "simplex-plus": SimplexPlus,
        "simplex-optimized": SimplexOptimized,
        "constant-norm": ConstantNorm,
        "structured": Structured,
        "fast-orthogonal": FastOrthogonal,
        "fast-simplex": FastSimplex,
        "fastfood": Fastfood,
        "circulant": Circulant,
        "near-orthogonal": NearOrthogonal,
        "spherical-radial": SphericalRadial,
        "leverage": Leverage,
        "adapted": DataAdapted,
    },
)


def by_name(name: str | Coupling, **options: Any) -> Coupling:
    """Return a coupling by its name, such as "pairwise" or "iid-antithetic"; a coupling passes through.

    The suffix "-antithetic" pairs every frequency with its negative, for positive features.

    Raises:
        InvalidArgumentError: there is no coupling of that name, or it lacks an option.
    """
    if isinstance(name, Coupling):
        return name
    if name == "energy" + SUFFIX:
        if options.get("features", "laplace") != "laplace":
            raise InvalidArgumentError('"energy-antithetic" is the energy coupling for "laplace" features.')
        return Energy(**{**options, "features": "laplace"})
    if isinstance(name, str) and name.endswith(SUFFIX):
        return Antithetic(_REGISTRY.make(name.removesuffix(SUFFIX), **options))
    return _REGISTRY.make(name, **options)


def for_features(name: str | Coupling, features: str) -> Coupling:
    """Return `by_name(name)`; of the couplings that are tuned to a kind of features, the one for these.

    Args:
        name: A name, or a coupling, which passes through.
        features: "fourier" or "laplace".

    Raises:
        InvalidArgumentError: as `by_name`.
    """
    found = by_name(name, features=features) if name == "energy" else by_name(name)
    if isinstance(found, DataAdapted) and features != "fourier":
        raise InvalidArgumentError("Weights are fitted to rows for Fourier features, not for others.")
    return found


def name_of(coupling: Coupling) -> str:
    """Return the name under which `by_name` knows a coupling's class.

    Raises:
        InvalidArgumentError: it is not one of this package.
    """
    if isinstance(coupling, Antithetic):
        return _REGISTRY.name_of(coupling.base) + SUFFIX
    return _REGISTRY.name_of(coupling)


def options_of(coupling: Coupling) -> dict[str, Any]:
    """Return the options with which `by_name` makes an equal coupling."""
    return dict(vars(coupling.base if isinstance(coupling, Antithetic) else coupling))


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows, without the suffix "-antithetic"."""
    return _REGISTRY.names
