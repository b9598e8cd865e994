"""The named failures of `graphs`. Each message says what was wrong, where, and what to do."""

import inspect
import os
import warnings
from pathlib import Path

from numpy.linalg import LinAlgError

_OURS = tuple(str(Path(__file__).parents[1] / name) + os.sep for name in ("graphs", "rfgp"))


class GraphError(Exception):
    """Base of every error that `graphs` raises on purpose."""


class InvalidGraphError(GraphError, ValueError):
    """The nodes, edges or weights do not describe an undirected weighted graph."""


class InvalidArgumentError(GraphError, ValueError):
    """An argument has a value that the function cannot use."""


class MemoryBudgetError(GraphError, MemoryError):
    """A result would take more memory than was allowed; nothing was computed."""


class NotPositiveDefiniteError(GraphError, LinAlgError):
    """A matrix is not positive definite in double precision.

    Attributes:
        node: The row whose pivot is not positive.
    """

    def __init__(self, node: int) -> None:
        super().__init__(f"The matrix is not positive definite in double precision: its pivot at node {node} is not.")
        self.node = node


class UnknownNodeError(GraphError, KeyError):
    """A label names no node of the graph."""

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0]) if self.args else ""


class FileFormatError(GraphError, ValueError):
    """A file is missing, empty, or not of the format that its name promises."""


class MissingDependencyError(GraphError, ImportError):
    """A package is not installed that only an extra of this one brings."""


class GraphWarning(UserWarning):
    """Base of every warning of `graphs`."""


class SelfLoopsDroppedWarning(GraphWarning):
    """A loader left out the self-loops of its file; the message counts them."""


class DegenerateFacesWarning(GraphWarning):
    """A mesh had faces without area; the message counts them."""


class DuplicateFacesWarning(GraphWarning):
    """A mesh has faces with the same corners as another; the message counts them."""


class UnreferencedVerticesWarning(GraphWarning):
    """A mesh has vertices on no face that has an area; the message counts them."""


class SkippedFeaturesWarning(GraphWarning):
    """A file had features that are neither roads nor sensors, or no numbers, as it was said to; the message counts."""


class DuplicateRoadsWarning(GraphWarning):
    """A road network has the same line several times, as parallel roads; the message counts them."""


class DisconnectedWarning(GraphWarning):
    """A graph that a field is on falls into parts that say nothing about each other; the message counts them."""


class NegativeCotangentsWarning(GraphWarning):
    """A mesh has edges with negative cotangent weights, which are left out; the message counts them."""


class LargeVarianceWarning(GraphWarning):
    """Walks that halt this often estimate this kernel badly, though their second moment is finite."""


class InfiniteVarianceWarning(GraphWarning):
    """Walks that halt this often have no finite second moment for this kernel."""


def warn(warning: Warning) -> None:
    """Warn at the line outside of `graphs` and `rfgp` that led here, however deep below it this is."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
