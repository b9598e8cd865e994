"""What is around a call: torch's inference mode and default device, numpy's errors, forks; and what users see of us."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")

_LARGE = 2**25 - 2**16
"""The bytes of a block that is freed once: a little less than the largest to which glibc adapts, 32 MiB."""


class Cached(cached_property[T]):
    """A property that is computed once, without the lock that Python 3.11 holds meanwhile for all objects of the class.

    Under it threads that predict wait for each other, and a child that is forked meanwhile waits forever.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()


@contextmanager
def plain() -> Iterator[None]:
    """Compute as where nothing is set: a decorator of what a user calls.

    A tensor that is made in `torch.inference_mode` can never have a part in a gradient, so what a model keeps is made
    outside of it; `torch.no_grad` stands in its place. What has no device is made on the CPU, whatever
    `torch.set_default_device` says: arrays stay there, and tensors on the device that they are on. A number that is too
    small is 0, and no error of `numpy.errstate`.
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
    """Let glibc keep the memory of matrices that are freed, up to 64 MiB, for those that are made next.

    It returns freed blocks to the system until one larger than any before was freed, and the next matrix of that size
    then costs a page fault for each 4 KiB: a third of the time of a search on 600 rows. Elsewhere it has no effect.
    """
    torch.empty(_LARGE, dtype=torch.uint8)


def hides(*names: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of classes whose objects do not list these names: they are there for the rest of the house."""

    def listed(self: object) -> list[str]:
        return sorted({*object.__dir__(self)} - {*names})

    def decorate(cls: type[T]) -> type[T]:
        type.__setattr__(cls, "__dir__", listed)
        return cls

    return decorate


def lasting(value: Any) -> Any:
    """Return a value (of any shape); of a tensor that was made in inference mode a copy that was not."""
    with torch.inference_mode(False):
        return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


def _alone_in_child() -> None:
    """Let torch compute in one thread: a forked child has no others, and the pool of its parent would wait for them."""
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone_in_child)
