"""Results that are computed once, with a rule for gradients."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class ResultCache:
    """Results by name. A call that wants gradients never gets a result without them.

    - A result that requires a gradient is not kept: its graph may be freed by a backward pass.
    - A result that was computed while gradients were disabled is returned only while they are disabled.
    - A tensor that was made in inference mode is not kept.

    No lock is held while a result is computed. Threads may compute the same result twice; all get the same one. A copy
    or a pickle of a cache is empty.

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
        """Return the result of this name. If there is none that may be returned here, compute it.

        Args:
            name: The name.
            compute: Returns the result.
            keep: Whether to keep it. If not, it is computed at every call.
        """
        if not keep:
            return compute()
        modes = (True,) if torch.is_grad_enabled() else (False, True)
        for mode in modes:
            if (name, mode) in self._results:
                found: T = self._results[name, mode]
                return found
        return self.put(name, compute())

    def put(self, name: str, result: T) -> T:
        """Keep a result that may be kept. Return the one that is kept now, or else the result itself."""
        if any(tensor.requires_grad or tensor.is_inference() for tensor in _tensors_in(result)):
            return result
        kept: T = self._results.setdefault((name, torch.is_grad_enabled()), result)
        return kept

    def __reduce__(self) -> tuple[type["ResultCache"], tuple[()]]:
        return ResultCache, ()


def _tensors_in(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _tensors_in(part)
