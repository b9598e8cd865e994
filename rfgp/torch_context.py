"""Torch's inference mode and default device, numpy's errors and forks; caches, and the members that users see."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")

_LARGE = 2**25 - 2**16
"""The bytes of the block whose release raises glibc's threshold: just below its largest, 32 MiB."""


class CachedWithoutLock(cached_property[T]):
    """A property that is computed once, without a lock.

    Python 3.11 locks a `cached_property` for all objects of the class. Threads that predict would wait for each other,
    and a child forked meanwhile would wait forever.

    Examples:
        >>> class Square:
        ...     def __init__(self, side):
        ...         self.side = side
        ...
        ...     @CachedWithoutLock
        ...     def area(self):
        ...         return self.side**2
        >>> Square(3).area
        9
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()


class Recent(Generic[T]):
    """A cache of the results for the last few keys. Threads may share it, and a copy in a file is empty.

    Args:
        size: The largest number of results.

    Examples:
        >>> recent = Recent(1)
        >>> [recent.find(key, lambda key=key: print("computed") or key) for key in (2, 2)]
        computed
        [2, 2]
    """

    def __init__(self, size: int = 2) -> None:
        self._size = size
        self._kept: tuple[tuple[Any, T], ...] = ()  # replaced, never changed

    def find(self, key: Any, compute: Callable[[], T], *, keep: bool = True) -> T:
        """Return the result of a key.

        Args:
            key: The key. It is compared by equality.
            compute: Computes the result if it is not in the cache.
            keep: Whether a new result is put into the cache.
        """
        for known, result in self._kept:
            if known == key:
                return result
        result = compute()
        if keep:
            self._kept = (*self._kept[len(self._kept) + 1 - self._size :], (key, result))
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self._size,)


@contextmanager
def with_torch_defaults() -> Iterator[None]:
    """Compute under the default settings of torch and numpy.

    It decorates public methods. Tensors made in `torch.inference_mode` can never take part in a gradient. A model
    therefore computes outside of it, under `torch.no_grad`. New tensors are on the CPU, whatever
    `torch.set_default_device` is. Existing tensors keep their device. Underflow gives 0 without an error, whatever
    `numpy.errstate` is.

    Examples:
        >>> with torch.inference_mode(), with_torch_defaults():
        ...     x = torch.ones(2)
        >>> x.is_inference()
        False
    """
    with ExitStack() as stack:
        stack.enter_context(np.errstate(under="ignore"))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        if torch.empty(0).device.type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def keep_freed_memory() -> None:
    """Let glibc keep freed matrices of up to 64 MiB for later ones.

    glibc returns freed blocks to the system until a larger one was freed. The next matrix of that size then costs a
    page fault for each 4 KiB, a third of the time of a fit to 600 rows. Other C libraries are not affected.
    """
    torch.empty(_LARGE, dtype=torch.uint8)


def unlisted(*names: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that removes names from `dir()` of its objects.

    Args:
        names: The names.

    Examples:
        >>> @unlisted("internal")
        ... class Model:
        ...     internal = 1
        >>> "internal" in dir(Model()), Model().internal
        (False, 1)
    """

    def listed(self: object) -> list[str]:
        return sorted({*object.__dir__(self)} - {*names})

    def decorate(cls: type[T]) -> type[T]:
        type.__setattr__(cls, "__dir__", listed)
        return cls

    return decorate


def own_names(module: Mapping[str, Any], *others: str) -> list[str]:
    """Return the names that a module or a package defines, for its `dir()`.

    Args:
        module: The `globals()` of the module.
        others: Further names, of constants.

    Examples:
        >>> from rfgp import spectra
        >>> "Matern" in own_names(vars(spectra)), "Any" in own_names(vars(spectra))
        (True, False)
    """
    home = module["__name__"]
    own = (name for name, value in module.items() if str(getattr(value, "__module__", "")).startswith(home))
    return sorted([*own, *others])


def outside_inference_mode(value: Any) -> Any:
    """Return a value, or a copy of a tensor (...) that was made in inference mode."""
    with torch.inference_mode(False):
        return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


def _alone_in_child() -> None:
    """Let torch use one thread, because the thread pool of the parent does not exist in a forked child."""
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone_in_child)
