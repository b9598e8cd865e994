"""The model of a table, as options of the command line give it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfgp import names
from rfgp.cli.options import ModelRequest
from rfgp.errors import InvalidArgumentError
from rfgp.expressions import ARGUMENTS, Call, Name, Reader, check_known, nodes_of

AUTO = "auto"
_KERNEL = Reader("--kernel", '"RBF(t) + Group(store)"')
_APPROXIMATION = Reader("--approximation", '"RandomFeatures(256)" or "trend=Vecchia(30)"')


def is_expression(kernel: str) -> bool:
    """Return whether a kernel is a sum or product of terms, and no name.

    Args:
        kernel: The kernel as text.

    Examples:
        >>> is_expression("Roads() + Linear(maxspeed)"), is_expression("diffusion")
        (True, False)
    """
    return "(" in kernel


def check_model(request: ModelRequest, columns: Sequence[str] | None = None, held_out: str | None = None) -> None:
    """Check the options of a model, before torch is loaded.

    Args:
        request: The options.
        columns: The names of all columns of the table. If None, they are unknown.
        held_out: The column of groups that are held out together. If None, there is none.

    Raises:
        InvalidArgumentError: If an option is invalid, or a column is missing or is that of the groups. The message has
            the option and its value.
    """
    from rfgp.tables.text import find_column

    _check_functions("approximation", _APPROXIMATION.read_arguments(request.approximation), names.APPROXIMATIONS)
    if request.kernel == AUTO:
        return
    if request.validate is not None:
        raise InvalidArgumentError("--validate scores the candidates of a selection, and --kernel names one.")
    tree = _KERNEL.read(request.kernel)
    _check_functions("kernel", tree, (*names.KERNELS, *names.OBJECT_KERNELS))
    for wanted in _columns(tree):
        if columns is not None:
            find_column(columns, wanted)
        if wanted == held_out:
            raise InvalidArgumentError(
                f"--holdout-by must be a column that --kernel does not read, got {wanted!r}. Its held-out values are "
                "new to the model, so leave it out of the kernel."
            )


def built(request: ModelRequest, columns: Sequence[str] | None = None) -> "TableModel":
    """Return the kernel and the approximations.

    Args:
        request: The options.
        columns: The names of the columns of the table. If None, the kernel may name any.

    Raises:
        InvalidArgumentError: If the kernel or an approximation is invalid, or approximations are for terms that the
            kernel does not have.
    """
    from rfgp import approximations, kernels

    approximation = approximations.parse(request.approximation)
    if request.kernel == AUTO:
        return TableModel(request, None, approximation)
    kernel = kernels.parse(request.kernel, columns)
    known = [str(term.name) for term in kernel.terms()]
    if all(factor.columns == () for term in kernel.terms() for factor in term.factors):
        raise InvalidArgumentError(f"--kernel must read at least one column, got {request.kernel!r}. Add a term.")
    is_open = any(type(factor) is kernels.Additive for term in kernel.terms() for factor in term.factors)
    for name in approximation if isinstance(approximation, Mapping) and not is_open else ():
        if not name.startswith("noise."):
            check_known("term", name, known)
    return TableModel(request, kernel, approximation)


@dataclass(frozen=True)
class TableModel:
    """A model of a table: a kernel and approximations with the other options.

    Attributes:
        request: The options.
        kernel: The kernel. If None, a fit selects it.
        approximation: The approximations, as for `rfgp.GP`.

    Examples:
        >>> TableModel(ModelRequest(), None, AUTO).reading({"missing": "drop"})["dates"]
        'days'
    """

    request: ModelRequest
    kernel: Any
    approximation: Any

    def reading(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `read_table` for the kernel.

        They select its columns, and read texts as levels and dates as days.

        Args:
            given: The user's options of `read_table`.
        """
        columns, levels = (None, ()) if self.kernel is None else self._columns
        options = {**given, "levels": levels, "dates": "days", "categories": "levels"}
        return options if columns is None else options | {"columns": columns, "categories": "error"}

    def gp(self) -> Any:
        """Return the model, before a fit.

        Raises:
            InvalidArgumentError: If the options contradict each other.
        """
        import rfgp

        request = self.request
        return rfgp.GP(
            AUTO if self.kernel is None else self.kernel,
            request.likelihood,
            self.approximation,
            inference=request.inference,
            hyperparameter_posterior=request.hyperparameter_posterior,
            seed=request.seed,
            memory=request.memory,
            time_limit=request.time_limit,
            validate=request.validate,
        )

    @property
    def _columns(self) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The columns of the kernel, None if a factor reads all, and those that are levels."""
        from rfgp.columns import ColumnKind
        from rfgp.columns.rules import sources_of
        from rfgp.kernels.role import requests_of

        terms = self.kernel.terms()
        requests = requests_of(terms)
        keys = tuple(map(str, sources_of(request.key for request in requests)))
        is_open = any(factor.columns is None for term in terms for factor in term.factors)
        levels = tuple(dict.fromkeys(str(request.key) for request in requests if request.kind is ColumnKind.LEVEL))
        return None if is_open else keys, levels


def as_text(approximation: Mapping[str, Any]) -> str:
    """Return approximations as text for a command line.

    Args:
        approximation: The approximations by the names of terms.

    Examples:
        >>> import rfgp
        >>> from rfgp.cli.models import as_text
        >>> as_text({"rbf": rfgp.RandomFeatures(128), "local": rfgp.Vecchia(20)})
        'rbf=RandomFeatures(num_frequencies=128), local=Vecchia(num_neighbors=20)'
    """
    if len(approximation) == 1:
        return repr(*approximation.values())
    if all(name.isidentifier() for name in approximation):
        return ", ".join(f"{name}={value!r}" for name, value in approximation.items())
    return repr(dict(approximation))


def advised(graph: Any, kernel: str, num_walkers: int, seed: int) -> Any:
    """Return the features of the nodes of a graph that `graphs.advise` proposes, as a selection.

    Args:
        graph: The graph.
        kernel: The name of a kernel of the graph.
        num_walkers: The number of walkers whose features are as many as those of others may be.
        seed: The seed of the sample of nodes.
    """
    from graphs.kernels import by_name
    from rfgp.approximations.nodes import NONZEROS_PER_WALKER
    from rfgp.models.graphs import advised_selection

    return advised_selection(graph, by_name(kernel), NONZEROS_PER_WALKER * num_walkers, seed)


def field_columns(kernel: str, domain: str) -> tuple[str, ...]:
    """Return the columns that a kernel on roads or a mesh reads, after checks before torch is loaded.

    Args:
        kernel: The kernel as text.
        domain: "Roads" or "Mesh", of which the kernel must have a term.

    Raises:
        InvalidArgumentError: If the kernel is invalid, or has no such term.

    Examples:
        >>> field_columns("Roads() + Linear(maxspeed)", "Roads")
        ('maxspeed',)
    """
    tree = _KERNEL.read(kernel)
    _check_functions("kernel", tree, (*names.KERNELS, domain))
    if not any(isinstance(node, Call) and node.function == domain for node in nodes_of(tree)):
        raise InvalidArgumentError(f"--kernel must have the term {domain}(), got {kernel!r}. Add it.")
    columns = tuple(dict.fromkeys(_columns(tree)))
    if numbers := [name for name in columns if not isinstance(name, str)]:
        raise InvalidArgumentError(f"--kernel must give columns by their names, got {numbers[0]}.")
    return tuple(str(name) for name in columns)


def _check_functions(role: str, tree: Any, known: Sequence[str]) -> None:
    """Check that the names of kernels or approximations exist."""
    for node in nodes_of(tree):
        if isinstance(node, Call) and node.function.isidentifier() and node.function != ARGUMENTS:
            check_known(role, node.function, known)
    values = (*tree.arguments, *tree.options.values()) if getattr(tree, "function", "") == ARGUMENTS else ()
    for node in values:  # classes without brackets
        if isinstance(node, Name) and node.text != AUTO:
            check_known(role, node.text, known)


def _columns(tree: Any) -> Iterator[str | int]:
    """Yield the columns that a kernel names, by name or position."""
    for node in nodes_of(tree):
        if isinstance(node, Call) and node.function.isidentifier() and node.function not in names.OBJECT_KERNELS:
            i = 1 if node.function == "Additive" else 0
            given = node.options.get("columns", (node.arguments[i : i + 1] or (None,))[0])
            for entry in given if isinstance(given, tuple) else (given,):
                key = entry.text if isinstance(entry, Name) else entry
                if isinstance(key, str | int) and not isinstance(key, bool):
                    yield key
