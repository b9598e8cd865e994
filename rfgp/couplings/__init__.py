"""Couplings: joint distributions of m frequencies, each with the spectral measure as its marginal."""

from typing import Any

from graphs.checks import Registry
from rfgp.couplings.adapted import DataAdapted as DataAdapted
from rfgp.couplings.coupling import IID as IID
from rfgp.couplings.coupling import Antithetic as Antithetic
from rfgp.couplings.coupling import Coupling as Coupling
from rfgp.couplings.coupling import DigitalNet as DigitalNet
from rfgp.couplings.coupling import Frequencies as Frequencies
from rfgp.couplings.coupling import Halton as Halton
from rfgp.couplings.coupling import Sobol as Sobol
from rfgp.couplings.coupling import as_frequencies as as_frequencies
from rfgp.couplings.energy import Energy as Energy
from rfgp.couplings.energy import distances_between as distances_between
from rfgp.couplings.orthogonal import ConstantNorm as ConstantNorm
from rfgp.couplings.orthogonal import Copula as Copula
from rfgp.couplings.orthogonal import Monotone as Monotone
from rfgp.couplings.orthogonal import Orthogonal as Orthogonal
from rfgp.couplings.orthogonal import Pairwise as Pairwise
from rfgp.couplings.orthogonal import Simplex as Simplex
from rfgp.couplings.orthogonal import SimplexPlus as SimplexPlus
from rfgp.couplings.orthogonal import Stratified as Stratified
from rfgp.couplings.radial import RadialDistribution as RadialDistribution
from rfgp.couplings.radial import SharedNorms as SharedNorms
from rfgp.couplings.radial import leverage_histogram as leverage_histogram
from rfgp.couplings.structured import Fastfood as Fastfood
from rfgp.couplings.structured import FastOrthogonal as FastOrthogonal
from rfgp.couplings.structured import FastSimplex as FastSimplex
from rfgp.couplings.structured import Structured as Structured
from rfgp.couplings.structured import StructuredFrequencies as StructuredFrequencies
from rfgp.errors import InvalidArgumentError
from rfgp.torch_context import own_names

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
        "constant-norm": ConstantNorm,
        "structured": Structured,
        "fast-orthogonal": FastOrthogonal,
        "fast-simplex": FastSimplex,
        "fastfood": Fastfood,
        "adapted": DataAdapted,
    },
)


def register(name: str, coupling: type[Coupling]) -> None:
    """Give a coupling of your own a name, so that models with it can be saved and loaded.

    Files have the name and the options, and no code. `rfgp.load` needs the same registration.

    Args:
        name: The name.
        coupling: The class. Its instances must have their options as attributes.

    Raises:
        InvalidArgumentError: If the name is no text or belongs to another class, or the class is no coupling.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.register("pairwise", couplings.Pairwise)  # a name keeps its class
    """
    if not isinstance(name, str) or not (isinstance(coupling, type) and issubclass(coupling, Coupling)):
        raise InvalidArgumentError(f"register requires a name and a class of couplings, got {name!r} and {coupling!r}.")
    _REGISTRY.add(name, coupling)


def by_name(name: str | Coupling, **options: Any) -> Coupling:
    """Return a coupling by its name, such as "pairwise" or "iid-antithetic".

    The suffix "-antithetic" adds the negative of every frequency, for positive (Laplace) features.

    Args:
        name: A name, or a coupling, which is returned unchanged.
        options: Arguments of the class of the coupling, by name. A coupling takes none.

    Raises:
        InvalidArgumentError: If the name or an option is unknown, or a coupling is given with options.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.by_name("pairwise"), couplings.by_name("iid-antithetic")
        (Pairwise(), Antithetic(IID()))
        >>> couplings.by_name("energy", weighted=True)
        Energy(weighted=True)
    """
    if isinstance(name, Coupling):
        if options:
            raise InvalidArgumentError(
                f"Options require the name of a coupling, got {', '.join(options)} with {name!r}."
            )
        return name
    if name == "energy" + SUFFIX:
        if options.get("features", "laplace") != "laplace":
            raise InvalidArgumentError(
                f'features must be "laplace" for "energy-antithetic", got {options["features"]!r}. Use "energy".'
            )
        return Energy(**{**options, "features": "laplace"})
    if isinstance(name, str) and name.endswith(SUFFIX):
        return Antithetic(_REGISTRY.make(name.removesuffix(SUFFIX), **options))
    return _REGISTRY.make(name, **options)


def for_features(name: str | Coupling, features: str) -> Coupling:
    """Return a coupling by its name, adapted to a kind of features.

    The kind is an option of the coupling "energy".

    Args:
        name: A name, or a coupling, which is returned unchanged.
        features: "fourier" or "laplace".

    Raises:
        InvalidArgumentError: If the coupling is optimized for rows and the features are not Fourier features, or for
            the reasons of `by_name`.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.for_features("energy", "laplace")
        Energy(features='laplace')
    """
    coupling = by_name(name, features=features) if name == "energy" else by_name(name)
    if isinstance(coupling, DataAdapted) and features != "fourier":
        raise InvalidArgumentError(f'features must be "fourier" for DataAdapted, got {features!r}.')
    return coupling


def name_of(coupling: Coupling) -> str:
    """Return the name by which `by_name` finds the class of a coupling.

    Args:
        coupling: The coupling.

    Raises:
        InvalidArgumentError: If the class is not registered.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.name_of(couplings.Pairwise()), couplings.name_of(couplings.DataAdapted())
        ('pairwise', 'adapted')
    """
    if isinstance(coupling, Antithetic):
        return _REGISTRY.name_of(coupling.base) + SUFFIX
    return _REGISTRY.name_of(coupling)


def options_of(coupling: Coupling) -> dict[str, Any]:
    """Return the options with which `by_name` makes an equal coupling.

    Args:
        coupling: The coupling. Options of an `Antithetic` coupling are those of its base.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.options_of(couplings.SimplexPlus(5))
        {'num_sweeps': 5}
    """
    return dict(vars(coupling.base if isinstance(coupling, Antithetic) else coupling))


def names() -> tuple[str, ...]:
    """Return the names that `by_name` accepts, without the suffix "-antithetic".

    Examples:
        >>> from rfgp import couplings
        >>> "orthogonal" in couplings.names()
        True
    """
    return _REGISTRY.names


def __dir__() -> list[str]:
    return own_names(globals())
