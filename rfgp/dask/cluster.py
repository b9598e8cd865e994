"""Helpers for computations on a Dask cluster."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import dask
from distributed import Client, get_client

from rfgp.errors import InvalidArgumentError

T = TypeVar("T")


def client_of(client: Client | None) -> Client:
    """Return the given client, or the current one.

    Args:
        client: The client of a cluster, or None.

    Raises:
        InvalidArgumentError: If there is no client.
    """
    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        raise InvalidArgumentError(
            "There is no Dask client. Make one first, such as distributed.Client(n_workers=4, threads_per_worker=1), "
            "or pass client=."
        ) from None


def shipped(value: Any) -> Any:
    """Return a delayed value that is sent to each worker once.

    If a worker dies, the value is sent again.

    Args:
        value: The value, which must be picklable.

    Examples:
        >>> shipped([1, 2]).compute()
        [1, 2]
    """
    return dask.delayed(value, name=f"rfgp-{uuid.uuid4().hex}", pure=False, traverse=False)


def combined(leaves: Sequence[Any], combine: Callable[[T, T], T]) -> Any:
    """Return the delayed combination of delayed values, as a balanced tree.

    The order of the values is kept.

    Args:
        leaves: The delayed values, at least one.
        combine: A function of two neighboring values.

    Examples:
        >>> from operator import add
        >>> combined([1, 2, 3], add).compute(scheduler="synchronous")
        6
    """
    level, step = list(leaves), dask.delayed(combine, pure=False)
    while len(level) > 1:
        pairs = [step(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = [*pairs, *level[2 * len(pairs) :]]
    return level[0]


def computed(client: Client, value: Any) -> Any:
    """Return the results of delayed values, computed on the workers.

    Errors of the computation are raised on the client.

    Args:
        client: The client of the cluster.
        value: A delayed value, or a list of them.
    """
    return client.gather(client.compute(value))
