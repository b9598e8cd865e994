"""The model of a table, as options of the command line give it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfgp.cli import checks, choices
from rfgp.errors import InvalidArgumentError
from rfgp.expressions import ARGUMENTS, Call, Name, Reader, check_known, nodes_of

AUTO = "auto"
_KERNEL = Reader("--kernel", '"RBF(t) + Group(store)"')
_APPROXIMATION = Reader("--approximation", '"RandomFeatures(256)" or "trend=Vecchia(30)"')


@dataclass(frozen=True)
class ModelRequest:
    """The options of `rfgp fit` and `rfgp advise` about the model.

    Attributes:
        kernel: The kernel as text, or "auto".
        approximation: The approximations as text, or "auto".
        likelihood: The name of the likelihood, or "auto". If None, "auto" if the kernel is, else "gaussian".
        inference: "laplace" or "variational". If None, the default of the likelihood.
        time_limit: The time limit of a fit, such as "5min". If None, that of `rfgp.GP`.
        validate: "forward", or the column of groups, for the rows that a selection predicts. If None, random rows.
        memory: The memory limit, such as "4GB". If None, the default of `rfgp.GP`.
        seed: The seed of all draws.

    Examples:
        >>> ModelRequest().is_auto, ModelRequest(kernel="RBF()").is_auto
        (True, False)
    """

    kernel: str = AUTO
    approximation: str = AUTO
    likelihood: str | None = None
    inference: str | None = None
    time_limit: str | None = None
    validate: str | None = None
    memory: str | None = None
    seed: int = 0

    @property
    def is_auto(self) -> bool:
        """Whether a fit selects the kernel."""
        return self.kernel == AUTO

    @property
    def is_normal(self) -> bool:
        """Whether the process has a Gaussian likelihood."""
        return self.likelihood in (None, AUTO, "gaussian")

    def check(self) -> None:
        """Check the options, before torch is loaded.

        Raises:
            InvalidArgumentError: If an option is invalid. The message has the option and its value.
        """
        checks.check_choice("--likelihood", self.likelihood, (AUTO, *choices.LIKELIHOODS))
        checks.check_choice("--inference", self.inference, choices.INFERENCES)
        checks.check_limits(self.time_limit, self.memory)
        checks.check_least(0, seed=self.seed)
        if self.validate is not None and not self.is_auto:
            raise InvalidArgumentError("--validate scores the candidates of a selection, and --kernel names one.")
        if not self.is_auto:
            _check_functions("kernel", _KERNEL.read(self.kernel), (*choices.KERNELS, *choices.OBJECT_KERNELS))
        _check_functions("approximation", _APPROXIMATION.read_arguments(self.approximation), choices.APPROXIMATIONS)

    def check_columns(self, names: Sequence[str] | None, held_out: str | None) -> None:
        """Check that a table has the columns of the kernel, before torch is loaded.

        Args:
            names: The names of all columns. If None, they are unknown.
            held_out: The column of groups that are held out together. If None, there is none.

        Raises:
            InvalidArgumentError: If a column is missing, or is that of the groups.
        """
        from rfgp.tables.columns import find_column

        for wanted in () if self.is_auto else _columns(_KERNEL.read(self.kernel)):
            if names is not None:
                find_column(names, wanted)
            if wanted == held_out:
                raise InvalidArgumentError(
                    f"--holdout-by must be a column that --kernel does not read, got {wanted!r}. Its held-out values "
                    "are new to the model, so leave it out of the kernel."
                )

    def build(self, names: Sequence[str] | None = None) -> "TableModel":
        """Return the kernel and the approximations.

        Args:
            names: The names of the columns of the table. If None, the kernel may name any.

        Raises:
            InvalidArgumentError: If the kernel or an approximation is invalid, or approximations are for terms that the
                kernel does not have.
        """
        from rfgp import approximations, kernels

        approximation = approximations.parse(self.approximation)
        if self.is_auto:
            return TableModel(self, None, approximation)
        kernel = kernels.parse(self.kernel, names)
        known = [str(term.name) for term in kernel.terms()]
        if all(factor.columns == () for term in kernel.terms() for factor in term.factors):
            raise InvalidArgumentError(f"--kernel must read at least one column, got {self.kernel!r}. Add a term.")
        is_open = any(type(factor) is kernels.Additive for term in kernel.terms() for factor in term.factors)
        for name in approximation if isinstance(approximation, Mapping) and not is_open else ():
            if not name.startswith("noise."):
                check_known("term", name, known)
        return TableModel(self, kernel, approximation)


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
            seed=request.seed,
            memory=request.memory,
            time_limit=request.time_limit,
            validate=request.validate,
        )

    @property
    def _columns(self) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The columns of the kernel, None if a factor reads all, and those that are levels."""
        from rfgp.columns import ColumnKind
        from rfgp.kernels.role import requests_of

        terms = self.kernel.terms()
        requests = requests_of(terms)
        keys = tuple(dict.fromkeys(str(request.key) for request in requests))
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
    _check_functions("kernel", tree, (*choices.KERNELS, domain))
    if not any(isinstance(node, Call) and node.function == domain for node in nodes_of(tree)):
        raise InvalidArgumentError(f"--kernel must have the term {domain}(), got {kernel!r}. Add it.")
    names = tuple(dict.fromkeys(_columns(tree)))
    if numbers := [name for name in names if not isinstance(name, str)]:
        raise InvalidArgumentError(f"--kernel must give columns by their names, got {numbers[0]}.")
    return tuple(str(name) for name in names)


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
        if isinstance(node, Call) and node.function.isidentifier() and node.function not in choices.OBJECT_KERNELS:
            i = 1 if node.function == "Additive" else 0
            given = node.options.get("columns", (node.arguments[i : i + 1] or (None,))[0])
            for entry in given if isinstance(given, tuple) else (given,):
                key = entry.text if isinstance(entry, Name) else entry
                if isinstance(key, str | int) and not isinstance(key, bool):
                    yield key
