"""Tools for tests of code that uses the package."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rfgp.limits import CURRENT
from rfgp.limits import Limits as Limits


@contextmanager
def limits(**changes: Any) -> Iterator[Limits]:
    """Change limits within a `with` statement, in this thread, so that small tables take the paths of large ones.

    Args:
        **changes: The new values, by the names of the attributes of `Limits`.

    Raises:
        TypeError: If a name is unknown.

    Examples:
        >>> with limits(max_dense=10) as changed:
        ...     print(changed.max_dense)
        10
    """
    token = CURRENT.set(replace(CURRENT.get(), **changes))
    try:
        yield CURRENT.get()
    finally:
        CURRENT.reset(token)


def __dir__() -> list[str]:
    return ["Limits", "limits"]
