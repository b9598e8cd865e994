"""Couplings by name."""

from typing import Any

from rfgp.couplings.coupling import Coupling
from rfgp.couplings.independent import IID
from rfgp.couplings.orthogonal import Orthogonal, Pairwise
from rfgp.registry import Registry

_REGISTRY: Registry[Coupling] = Registry("coupling", {"iid": IID, "orthogonal": Orthogonal, "pairwise": Pairwise})


def by_name(name: str | Coupling, **options: Any) -> Coupling:
    """Return a coupling by its name ("iid", "orthogonal", "pairwise"); a coupling passes through.

    Raises:
        InvalidArgumentError: there is no coupling of that name, or it lacks an option.
    """
    return name if isinstance(name, Coupling) else _REGISTRY.make(name, **options)


def name_of(coupling: Coupling) -> str:
    """Return the name under which `by_name` knows a coupling's class.

    Raises:
        InvalidArgumentError: it is not one of this package.
    """
    return _REGISTRY.name_of(coupling)


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows."""
    return _REGISTRY.names
