"""Errors and warnings of `graphs`. Each message says what is wrong, where, and what to do."""

import inspect
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numpy.linalg import LinAlgError

_OURS = tuple(str(Path(__file__).parents[1] / name) + os.sep for name in ("graphs", "rfgp"))


class GraphError(Exception):
    """Base class of all errors of `graphs`.

    Examples:
        >>> import graphs
        >>> try:
        ...     graphs.Graph.from_edges([(0, 0)])
        ... except graphs.GraphError as error:
        ...     print(type(error).__name__)
        InvalidGraphError
    """


class InvalidGraphError(GraphError, ValueError):
    """Nodes, edges or weights do not describe an undirected weighted graph."""


class InvalidArgumentError(GraphError, ValueError):
    """An argument has an invalid value."""


class MemoryBudgetError(GraphError, MemoryError):
    """A result would exceed the available or allowed memory. Nothing was computed."""


class NotPositiveDefiniteError(GraphError, LinAlgError):
    """A matrix is not positive definite in double precision.

    Attributes:
        node: The row whose pivot is not positive.
    """

    def __init__(self, node: int) -> None:
        super().__init__(
            f"The matrix must be positive definite in double precision, got a non-positive pivot at node {node}."
        )
        self.node = node


class UnknownNodeError(GraphError, KeyError):
    """A label is not a node of the graph."""

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0]) if self.args else ""


class FileFormatError(GraphError, ValueError):
    """A file is missing, empty or not in the expected format."""


class MissingDependencyError(GraphError, ImportError):
    """An optional package is not installed."""


@contextmanager
def requires_extra(extra: str) -> Iterator[None]:
    """Raise an error that names an extra if an import in the body finds no package.

    Args:
        extra: The extra of `rfgp` that installs the packages imported in the body.

    Raises:
        MissingDependencyError: If a package is not installed.

    Examples:
        >>> from graphs.errors import MissingDependencyError, requires_extra
        >>> try:
        ...     with requires_extra("plot"):
        ...         import a_package_that_is_not_installed
        ... except MissingDependencyError as error:
        ...     print(error)
        a_package_that_is_not_installed must be installed. Try: pip install 'rfgp[plot]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("graphs", "rfgp"):
            raise
        raise MissingDependencyError(
            f"{package} must be installed. Try: pip install 'rfgp[{extra}]'", name=package
        ) from error


class GraphWarning(UserWarning):
    """Base class of all warnings of `graphs`.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", graphs.GraphWarning)
        ...     graphs.MeshField(([(0, 0), (1, 0), (0, 1), (5, 5)], [(0, 1, 2)]))
        MeshField(4 vertices, 1 face, alpha=2)
    """


class SelfLoopsDroppedWarning(GraphWarning):
    """A loader dropped the self-loops of its file. The message says how many."""


class DegenerateFacesWarning(GraphWarning):
    """A mesh has faces without area. The message says how many."""


class DuplicateFacesWarning(GraphWarning):
    """A mesh has faces with the same corners. The message says how many."""


class UnreferencedVerticesWarning(GraphWarning):
    """A mesh has vertices on no face with an area. The message says how many."""


class SkippedFeaturesWarning(GraphWarning):
    """Features of a file were skipped or not observed. The message says how many."""


class DuplicateRoadsWarning(GraphWarning):
    """A road network has parallel copies of the same line. The message says how many."""


class DisconnectedWarning(GraphWarning):
    """The domain of a field is not connected. The message says how many parts it has."""


class NegativeCotangentsWarning(GraphWarning):
    """Negative cotangent weights are dropped. The message says how many."""


class LargeVarianceWarning(GraphWarning):
    """Random walks estimate this kernel with a large, though finite, variance."""


class InfiniteVarianceWarning(GraphWarning):
    """Random walks have no finite second moment for this kernel and p_halt."""


def warn(warning: Warning) -> None:
    """Issue a warning at the first line of the stack outside `graphs` and `rfgp`."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
