"""Approximations from text, such as "RandomFeatures(256)", without running code."""

from collections.abc import Mapping
from typing import Any

from rfgp.approximations.equispaced_fourier import EquispacedFourier
from rfgp.approximations.exact import Exact
from rfgp.approximations.inducing_points import InducingPoints
from rfgp.approximations.measured import MeasuredFeatures
from rfgp.approximations.neighbors import Vecchia
from rfgp.approximations.nodes import Chebyshev, RandomWalks, RationalPrecision, Taylor, TruncatedSpectrum
from rfgp.approximations.planning import AUTO
from rfgp.approximations.random_features import RandomFeatures
from rfgp.approximations.role import Approximation
from rfgp.approximations.sparse_precision import SparsePrecision
from rfgp.errors import InvalidArgumentError
from rfgp.expressions import Call, Entries, Name, Reader, bound, check_known, constant, made
from rfgp.messages import quoted, short_repr

APPROXIMATIONS: dict[str, type[Approximation]] = {
    kind.__name__: kind
    for kind in (
        Exact,
        RandomFeatures,
        EquispacedFourier,
        InducingPoints,
        Vecchia,
        SparsePrecision,
        RandomWalks,
        MeasuredFeatures,
        Chebyshev,
        Taylor,
        TruncatedSpectrum,
        RationalPrecision,
    )
}
"""The approximations by name."""
_EXAMPLE = '"RandomFeatures(256)" or "trend=Vecchia(30), local=RandomFeatures(128)"'


def parse(text: str) -> Any:
    """Return the approximation of a text, or approximations by names. No code is run.

    Args:
        text: "auto", a class with or without arguments, or approximations by the names of terms, such as
            `trend=Vecchia(30)`. Use a dict if a name is not a word: `{"group(store)": Exact()}`.

    Returns:
        "auto", an approximation, or a dict of approximations by the names of terms, as `rfgp.GP` takes them.

    Raises:
        InvalidArgumentError: If an approximation or argument is unknown, or the text has another form.

    Examples:
        >>> from rfgp import approximations
        >>> approximations.parse("RandomFeatures(256, learn_frequencies=True)")
        RandomFeatures(num_frequencies=256, learn_frequencies=True)
        >>> approximations.parse("trend=Vecchia, local=InducingPoints(64, residual=Vecchia(20))")["trend"]
        Vecchia()
    """
    call = Reader("approximation", _EXAMPLE).read_arguments(text)
    if call.options and not call.arguments:
        return _by_name(call.options)
    if call.options or len(call.arguments) != 1:
        raise InvalidArgumentError(
            f"The approximation must be one value, or values by the names of terms, got {quoted(text)}. Use "
            '"trend=Vecchia(30), local=RandomFeatures(128)".'
        )
    (value,) = call.arguments
    if isinstance(value, Entries):
        return _by_name(value.values)
    return AUTO if value in (Name(AUTO), AUTO) else _value(value)


def _by_name(values: Mapping[str, Any]) -> dict[str, Approximation]:
    if not values:
        raise InvalidArgumentError('The approximations of terms must be at least one, got none. Use "auto".')
    return {name: _value(value) for name, value in values.items()}


def _value(node: Any) -> Approximation:
    """Return the approximation of a node."""
    call = Call(node.text, (), {}) if isinstance(node, Name) else node
    if not isinstance(call, Call):
        word = short_repr(node) if node is None or isinstance(node, bool | int | float | str) else "another expression"
        raise InvalidArgumentError(f"An approximation must be such as RandomFeatures(256) or Exact, got {word}.")
    check_known("approximation", call.function, APPROXIMATIONS)
    kind = APPROXIMATIONS[call.function]
    arguments = {name: _argument(name, value) for name, value in bound("approximation", call, kind).items()}
    approximation: Approximation = made("approximation", kind, arguments)
    return approximation


def _argument(name: str, value: Any) -> Any:
    """Return an argument, which is an approximation, a number or a text."""
    is_value = isinstance(value, Call) or (isinstance(value, Name) and value.text in APPROXIMATIONS)
    return _value(value) if is_value else constant(name, value)
