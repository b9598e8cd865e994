"""Expressions of kernels and approximations as text, read without running code.

An expression holds names, calls, `+`, `*`, numbers, texts in quotes, tuples and `.named("...")`. Python's own parser
reads it, and everything else in it is an error. The size of the text and its depth are limited.
"""

import ast
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from rfgp.errors import InvalidArgumentError, RfgpError
from rfgp.messages import check_choice, did_you_mean, listed, one_line, quoted, short_repr, unquoted

MAX_CHARACTERS = 10_000
"""The largest number of characters of an expression."""
MAX_DEPTH = 32
"""The largest depth of nested brackets, calls and operators."""
MAX_COUNT = 10**6
"""The largest value of an argument whose default is an integer, such as a number of features."""
NAMED, ARGUMENTS = ".named", "_"
"""The functions of an expression under a name, and of a call whose brackets are omitted."""
_LARGEST = 2**63
"""Integers must be smaller, so that each is also a float."""
_OPEN, _CLOSED = "([{", ")]}"
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Mult: "*"}
_PARTS = 'names, calls, +, *, numbers, texts in quotes, tuples and .named("...")'


@dataclass(frozen=True)
class Name:
    """A bare name.

    Attributes:
        text: The name.
    """

    text: str


@dataclass(frozen=True)
class Call:
    """A call of a function or class, a sum, a product, or an expression under a name.

    Attributes:
        function: The name of the function, "+" or "*" with at least two arguments, `NAMED` with the expression and its
            name as arguments, or `ARGUMENTS`.
        arguments: The arguments by position: nodes, numbers, texts, booleans, None, or tuples or dicts of these.
        options: The arguments by name.
    """

    function: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


class Reader:
    """Reads expressions of one role.

    Args:
        role: The word for the expression in messages, such as "kernel".
        example: An expression, for messages.
    """

    def __init__(self, role: str, example: str) -> None:
        self.role, self.example = role, example

    def read(self, text: str) -> Any:
        """Return the node of an expression.

        Raises:
            InvalidArgumentError: If the text is too long or too deep, or contains other syntax.

        Examples:
            >>> from rfgp.expressions import Reader
            >>> Reader("kernel", "RBF(t)").read("2.0 * RBF(t)").arguments[0]
            2.0
        """
        self._check(text)
        return self._node(self._tree(_one_line(text), text).body, 0)

    def read_arguments(self, text: str) -> Call:
        """Return the arguments of a call without brackets, as in "a=Exact(), b=Exact()".

        Raises:
            InvalidArgumentError: If the text is too long or too deep, or contains other syntax.

        Examples:
            >>> from rfgp.expressions import Reader
            >>> list(Reader("approximation", "Exact()").read_arguments("trend=Exact(), local=Vecchia(30)").options)
            ['trend', 'local']
        """
        self._check(text)
        tree = self._tree(f"{ARGUMENTS}({_one_line(text)}\n)", text).body
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == ARGUMENTS):
            raise self._error(text, "The brackets do not match.")
        found = self._node(tree, -1)
        assert isinstance(found, Call)
        return found

    def _check(self, text: str) -> None:
        """Check that an expression is a text, and neither too long nor too deeply nested."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidArgumentError(f"The {self.role} must be text such as {self.example}, got {short_repr(text)}.")
        if len(text) > MAX_CHARACTERS:
            raise InvalidArgumentError(
                f"The {self.role} must have at most {MAX_CHARACTERS:,} characters, got {len(text):,}."
            )
        depth = deepest = 0
        for character in text:
            depth += (character in _OPEN) - (character in _CLOSED)
            deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            raise self._too_deep()

    def _tree(self, source: str, text: str) -> ast.Expression:
        """Return Python's syntax tree of a source, without running it. Messages show the user's text."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in texts
                return ast.parse(source, mode="eval")
        except (RecursionError, MemoryError):
            raise self._too_deep() from None
        except SyntaxError as error:
            reason = f"Python's grammar says: {unquoted(error.msg)}."
            raise self._error(text, f"{reason} Put quotes around odd names.") from None
        except ValueError as error:
            raise self._error(text, f"It cannot be read: {one_line(error)}.") from None

    def _node(self, tree: ast.AST, depth: int) -> Any:
        """Return the node of a syntax tree. Syntax that is not listed here is an error."""
        if depth > MAX_DEPTH:
            raise self._too_deep()
        inner = partial(self._node, depth=depth + 1)
        match tree:
            case ast.Constant(value=int() as value) if value >= _LARGEST:
                raise InvalidArgumentError(f"An integer must be below 2**63, got {short_repr(value)}.")
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=bool())):
                pass
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Name(id=name):
                return Name(name)
            case ast.Tuple(elts=entries) | ast.List(elts=entries):
                return tuple(map(inner, entries))
            case ast.BinOp(op=ast.Add() | ast.Mult()):
                return Call(_OPERATORS[type(tree.op)], tuple(map(inner, _operands(tree))), {})
            case ast.Dict(keys=keys, values=values):
                texts = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
                if len(set(texts)) == len(keys):
                    return dict(zip(texts, map(inner, values), strict=True))
            case ast.Call(func=ast.Name(id=function)):
                return Call(function, *self._arguments(tree, inner))
            case ast.Call(func=ast.Attribute(value=value, attr="named")):
                arguments, options = self._arguments(tree, inner)
                if len(arguments) + len(options) != 1 or not options.keys() <= {"name"}:
                    raise self._error(_source(tree), 'Use .named("season").')
                return Call(NAMED, (inner(value), *arguments, *options.values()), {})
        raise self._refused(tree)

    def _arguments(self, tree: ast.Call, inner: Callable[[ast.AST], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call by position and by name."""
        options = {keyword.arg: keyword.value for keyword in tree.keywords if keyword.arg is not None}
        if len(options) < len(tree.keywords):  # repeated, or of a mapping
            raise self._refused(tree)
        return tuple(map(inner, tree.args)), {name: inner(value) for name, value in options.items()}

    def _refused(self, tree: ast.AST) -> InvalidArgumentError:
        return self._error(_source(tree), f"Use only {_PARTS}.")

    def _too_deep(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"The {self.role} must have at most {MAX_DEPTH} nested brackets and calls, got more. Write it as a sum."
        )

    def _error(self, text: str, remedy: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"The {self.role} must be an expression such as {self.example}, got {quoted(text.strip())}. {remedy}"
        )


def _operands(tree: ast.BinOp) -> Iterator[ast.expr]:
    """Yield the operands of a sum or a product, whose syntax tree is left-leaning."""
    left: ast.expr = tree
    right: list[ast.expr] = []
    while isinstance(left, ast.BinOp) and type(left.op) is type(tree.op):
        right.append(left.right)
        left = left.left
    yield left
    yield from reversed(right)


def _source(tree: ast.AST) -> str:
    """Return the text of a syntax tree, without the brackets that `read_arguments` adds."""
    try:
        text = ast.unparse(tree)
    except RecursionError:
        return f"a deep {type(tree).__name__}"
    return text[2:-1] if text.startswith(f"{ARGUMENTS}(") else text


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ").strip()


def nodes_of(node: Any) -> Iterator[Any]:
    """Yield a node and all nodes and constants within it.

    Examples:
        >>> from rfgp.expressions import Call, Reader, nodes_of
        >>> tree = Reader("kernel", "RBF(t)").read("RBF(t) * Group(store)")
        >>> [each.function for each in nodes_of(tree) if isinstance(each, Call)]
        ['*', 'RBF', 'Group']
    """
    yield node
    if isinstance(node, Call):
        node = (*node.arguments, *node.options.values())
    for one in node.values() if isinstance(node, dict) else node if isinstance(node, tuple) else ():
        yield from nodes_of(one)


def check_known(role: str, name: str, known: Collection[str]) -> None:
    """Check that a name is one of the allowed names.

    Raises:
        InvalidArgumentError: If it is not. The message lists the allowed names and suggests the closest.

    Examples:
        >>> from rfgp.expressions import check_known
        >>> check_known("kernel", "RBF", ("RBF", "Matern"))
    """
    check_choice(f"The {role}", name, known)


def bound(role: str, call: Call, kind: Callable[..., Any], most: int = MAX_COUNT) -> dict[str, Any]:
    """Return the arguments of a call by the parameter names of a class or a function.

    Args:
        role: The word for the class in messages.
        call: The call.
        kind: The class or function.
        most: The largest value of an argument whose default is an integer.

    Raises:
        InvalidArgumentError: If there is no such parameter, or one is missing or repeated.

    Examples:
        >>> from rfgp.expressions import Call, bound
        >>> bound("value", Call("Call", ("f", ()), {"options": {}}), Call)["function"]
        'f'
    """
    parameters = signature(kind).parameters
    for name in call.options:
        if name not in parameters:
            raise InvalidArgumentError(
                f"An argument of {call.function} must be one of {listed([*parameters], 20)}, got {quoted(name)}."
                f"{did_you_mean(name, [*parameters])}"
            )
    try:
        found = dict(signature(kind).bind(*call.arguments, **call.options).arguments)
    except TypeError as error:
        raise InvalidArgumentError(
            f"The arguments of the {role} {call.function} must be {listed([*parameters], 20)}, got others: "
            f"{one_line(error)}."
        ) from None
    for name, value in found.items():
        _check_type(name, value, parameters[name].default, most)
    return found


def _check_type(name: str, value: Any, default: Any, most: int) -> None:
    """Check that a value for a boolean default is a bool, and for an integer default not too large."""
    if isinstance(default, bool) and not isinstance(value, bool):
        word = value.text if isinstance(value, Name) else value
        raise InvalidArgumentError(f"{name} must be True or False, got {short_repr(word)}.")
    if isinstance(default, int) and isinstance(value, int) and value > most:
        raise InvalidArgumentError(f"{name} must be at most {most:,}, got {value:,}.")


def constant(name: str, value: Any) -> Any:
    """Return a value that is a number, a text, a boolean, None, or a tuple of these.

    Raises:
        InvalidArgumentError: If the value contains a name or an expression.

    Examples:
        >>> from rfgp.expressions import constant
        >>> constant("lengthscale", 2.0)
        2.0
    """
    for one in nodes_of(value):
        if isinstance(one, Name):
            raise InvalidArgumentError(
                f"{name} must be a number or a text, got the name {quoted(one.text)}. Put quotes around a text."
            )
        if isinstance(one, Call | dict):
            raise InvalidArgumentError(f"{name} must be a number or a text, got an expression.")
    return value


def made(role: str, kind: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Return an object of a class from arguments that come from a text.

    Raises:
        InvalidArgumentError: If an argument has a wrong type or value.

    Examples:
        >>> from rfgp.expressions import Name, made
        >>> made("name", Name, {"text": "t"})
        Name(text='t')
    """
    try:
        return kind(**arguments)
    except RfgpError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        name = getattr(kind, "__name__", role)
        given = ", ".join(f"{key}={short_repr(value)}" for key, value in arguments.items())
        raise InvalidArgumentError(
            f"The arguments of the {role} {name} must be of the documented types, got {given}: {one_line(error)}."
        ) from error
