"""Kernels from texts such as "RBF(t) + Group(store)", without running code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rfgp import names
from rfgp.columns.rules import Key
from rfgp.errors import InvalidArgumentError
from rfgp.expressions import NAMED, Call, Name, Reader, bound, check_known, constant, made
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.levels import Categorical, Constant, Coregionalization, Group, Linear, Polynomial
from rfgp.kernels.stationary import RBF, Additive, Harmonics, Matern, Periodic, RationalQuadratic, Sphere, Stationary
from rfgp.kernels.wandering import IntegratedWiener, Wiener
from rfgp.messages import did_you_mean, listed, quoted, short_repr

KERNELS: dict[str, type[Kernel]] = dict(
    zip(
        names.KERNELS,
        (
            RBF,
            Matern,
            RationalQuadratic,
            Stationary,
            Sphere,
            Periodic,
            Harmonics,
            Linear,
            Polynomial,
            Constant,
            Group,
            Categorical,
            Coregionalization,
            Additive,
            Wiener,
            IntegratedWiener,
        ),
        strict=True,
    )
)
"""The kernels that a text may name. Kernels on graphs, roads and meshes need Python objects."""
MAX_TERMS = 256
"""The largest number of terms of a kernel from a text, after products are expanded."""
MAX_COUNT = 1000
"""The largest degree, rank or number of harmonics of a kernel from a text."""
_EXAMPLE = '"RBF(t) + Group(store)"'
_TEXTS = ("name", "spectrum", "boundary", "distance", "rotation")
"""The arguments, other than columns, that may be texts."""
_BASES = ("RBF", "Matern", "RationalQuadratic", "Stationary")
"""The kernels that `Additive` may repeat."""


class _Known(NamedTuple):
    """The columns that a text may name, or None for any, and the kernels."""

    columns: tuple[str, ...] | None
    kernels: Mapping[str, Callable[..., Kernel]]


def parse(
    text: str, columns: Sequence[str] | None = None, objects: Mapping[str, Callable[..., Kernel]] | None = None
) -> Kernel:
    """Return the kernel of a Python-like text. No code is run.

    Kernels are called by their names, and `+`, `*` and `.named("...")` compose them. Quotes are optional for names of
    columns and required for other texts. Kernels on graphs, roads and meshes are built in Python.

    Args:
        text: The kernel, of at most 10,000 characters and 256 terms.
        columns: The names of the columns of the table. If given, a number is the index of a column, and other names
            are errors. If None, any column is allowed.
        objects: Functions that make further kernels by their names, such as {"Roads": partial(Roads, network)}. If
            None, there are none.

    Returns:
        The kernel.

    Raises:
        InvalidArgumentError: If a kernel, argument or column is unknown, or the text contains other syntax.

    Examples:
        >>> from rfgp import kernels as k
        >>> kernel = k.parse("2.0 * RBF(t, lengthscale=3) + Periodic(t, period=7, name='week') + Group('store no')")
        >>> [term.name for term in kernel.terms()]
        ['rbf(t)', 'week', 'group(store no)']
        >>> k.parse("RBF(t)", columns=("time", "store"))
        Traceback (most recent call last):
        graphs.errors.InvalidArgumentError: A column must be one of time, store, got 't'.
    """
    tree = Reader("kernel", _EXAMPLE).read(text)
    return _kernel(tree, _Known(None if columns is None else tuple(columns), {**KERNELS, **(objects or {})}))


def _kernel(node: Any, known: _Known) -> Kernel:
    """Return the kernel of a node."""
    if isinstance(node, Call):
        if node.function == NAMED:
            kernel, name = node.arguments
            return _kernel(kernel, known).named(constant("The name of a term", name))
        return {"+": _sum, "*": _product}.get(node.function, _leaf)(node, known)
    if isinstance(node, Name):
        bare = f"{node.text}()" if node.text in known.kernels else f"RBF({node.text})"
        raise InvalidArgumentError(f"A kernel must be a call, got the name {quoted(node.text)}. Use {bare}.")
    word = "a dict" if isinstance(node, dict) else short_repr(node)
    raise InvalidArgumentError(f"A kernel must be a call such as RBF(t), got {word}.")


def _sum(call: Call, known: _Known) -> Kernel:
    total, *others = (_kernel(part, known) for part in call.arguments)
    for other in others:
        _check_terms(len(total.summands) + len(other.summands))
        total = total + other
    return total


def _product(call: Call, known: _Known) -> Kernel:
    """Return a product of kernels and of numbers, which are starting variances."""
    numbers = [part for part in call.arguments if isinstance(part, int | float)]
    factors = [_kernel(part, known) for part in call.arguments if not isinstance(part, int | float)]
    if not factors:
        raise InvalidArgumentError("A product must have a kernel among its factors, got numbers alone.")
    product, *others = factors
    for other in others:
        _check_terms(len(product.summands) * len(other.summands))
        product = product * other
    for number in numbers:
        if isinstance(number, bool):
            raise InvalidArgumentError(f"The starting variance of a term must be a number, got {number}.")
        product = made("product", product.__mul__, {"other": number})
    return product


def _leaf(call: Call, known: _Known) -> Kernel:
    """Return the kernel of a call."""
    if call.function in names.OBJECT_KERNELS and call.function not in known.kernels:
        raise InvalidArgumentError(
            f"The kernel {call.function} needs a graph, a road network or a mesh, which a text cannot hold. Build it "
            "in Python."
        )
    check_known("kernel", call.function, known.kernels)
    kind, arguments = known.kernels[call.function], dict[str, Any]()
    for name, value in bound("kernel", call, kind, MAX_COUNT).items():
        if name == "columns":
            arguments[name] = _columns(call, value, known.columns)
        elif name == "kernel":
            arguments[name] = _kernel(value, known)
        else:
            arguments[name] = _base(value) if name == "base" else _argument(name, value)
    if kind is Additive:
        _check_terms(len(arguments.get("columns") or ()) ** (2 if arguments.get("order") == 2 else 1))
    kernel: Kernel = made("kernel", kind, arguments)
    return kernel


def _columns(call: Call, value: Any, known: tuple[str, ...] | None) -> tuple[Key, ...] | None:
    """Return the keys of columns that an argument names."""
    if value is None:
        return None
    return tuple(_column(call, column, known) for column in (value if isinstance(value, tuple) else (value,)))


def _column(call: Call, value: Any, known: tuple[str, ...] | None) -> Key:
    key = value.text if isinstance(value, Name) else value
    if isinstance(key, bool) or not isinstance(key, str | int):
        word = short_repr(key) if isinstance(key, float | bool) or key is None else "an expression"
        raise InvalidArgumentError(f"A column of {call.function} must be a name or a number, got {word}.")
    if known is None or key in known:
        return key
    if isinstance(key, int) and 0 <= key < len(known):
        return known[key]
    raise InvalidArgumentError(
        f"A column must be one of {listed(known, 20)}, got {short_repr(key)}.{did_you_mean(str(key), known)}"
    )


def _argument(name: str, value: Any) -> Any:
    """Return an argument that is no column."""
    argument = value.text if name == "rotation" and isinstance(value, Name) else constant(name, value)
    if isinstance(argument, str) and name not in _TEXTS:
        raise InvalidArgumentError(f"{name} must be a number, got the text {quoted(argument)}.")
    return argument


def _base(value: Any) -> type[Kernel]:
    """Return the kernel of one column that `Additive` repeats."""
    if not isinstance(value, Name) or value.text not in _BASES:
        word = quoted(value.text) if isinstance(value, Name) else "an expression"
        raise InvalidArgumentError(
            f"base must be one of {', '.join(_BASES)}, got {word}. Columns have a name: Additive(columns=(a, b))."
        )
    return KERNELS[value.text]


def _check_terms(count: int) -> None:
    """Refuse a kernel with too many terms, before they are built."""
    if count > MAX_TERMS:
        raise InvalidArgumentError(
            f"A kernel from a text must have at most {MAX_TERMS} terms, got {count:,}. Products of sums are expanded."
        )
