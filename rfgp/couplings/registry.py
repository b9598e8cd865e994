"""Couplings by name."""

from typing import Any

from rfgp.couplings.coupling import Coupling
from rfgp.couplings.independent import IID
from rfgp.couplings.orthogonal import Orthogonal, Pairwise
from rfgp.errors import InvalidArgumentError

_REGISTRY: dict[str, type[Coupling]] = {
    "iid": IID,
    "orthogonal": Orthogonal,
    "pairwise": Pairwise,
}


def by_name(name: str | Coupling, **options: Any) -> Coupling:
    """Return a coupling by its name ("iid", "orthogonal", "pairwise"); a coupling passes through.

    Raises:
        InvalidArgumentError: there is no coupling of that name, or it lacks an option.
    """
    if isinstance(name, Coupling):
        return name
    if name not in _REGISTRY:
        raise InvalidArgumentError(f"There is no coupling {name!r}; known are {', '.join(_REGISTRY)}.")
    try:
        return _REGISTRY[name](**options)
    except TypeError as error:
        raise InvalidArgumentError(f"Coupling {name!r}: {error}.") from error


def name_of(coupling: Coupling) -> str:
    """Return the name under which `by_name` knows a coupling's class.

    Raises:
        InvalidArgumentError: it is not one of this package.
    """
    for name, kind in _REGISTRY.items():
        if type(coupling) is kind:
            return name
    raise InvalidArgumentError(f"{coupling!r} is not a coupling of rfgp; known are {', '.join(_REGISTRY)}.")


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows."""
    return tuple(_REGISTRY)
