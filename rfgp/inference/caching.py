"""A cache of results that is safe with gradients."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class ResultCache:
    """A cache of results by name that is safe with gradients.

    - A result that requires a gradient is not kept, because a backward pass may free its graph.
    - A result computed with gradients disabled is returned only while they are disabled.
    - A tensor made in inference mode is not kept.

    No lock is held during a computation. Threads may compute the same result twice, but all get the same one. A copy or
    a pickle of a cache is empty.

    Examples:
        >>> import torch
        >>> from rfgp.inference.caching import ResultCache
        >>> cache = ResultCache()
        >>> cache.get("sum", lambda: torch.ones(3).sum())
        tensor(3.)
        >>> cache.get("sum", lambda: torch.zeros(3).sum())
        tensor(3.)
    """

    def __init__(self) -> None:
        self._results: dict[tuple[str, bool], Any] = {}

    def get(self, name: str, compute: Callable[[], T], *, keep: bool = True) -> T:
        """Return the result of a name, and compute it if necessary.

        Args:
            name: The name of the result.
            compute: A function that returns the result.
            keep: Whether to keep the result. If False, it is computed at every call. The default is True.
        """
        if not keep:
            return compute()
        modes = (True,) if torch.is_grad_enabled() else (False, True)
        for mode in modes:
            if (name, mode) in self._results:
                result: T = self._results[name, mode]
                return result
        return self.put(name, compute())

    def put(self, name: str, result: T) -> T:
        """Keep a result if that is safe, and return the kept result or else the given one.

        Args:
            name: The name of the result.
            result: The result, a tensor or a nested tuple or list of tensors.
        """
        if any(tensor.requires_grad or tensor.is_inference() for tensor in _tensors_in(result)):
            return result
        cached: T = self._results.setdefault((name, torch.is_grad_enabled()), result)
        return cached

    def __reduce__(self) -> tuple[type["ResultCache"], tuple[()]]:
        return ResultCache, ()


def _tensors_in(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _tensors_in(part)
