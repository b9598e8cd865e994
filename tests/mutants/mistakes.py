"""Mistakes: what a piece of code might be by an oversight of who wrote it."""

import ast
import copy

_OPERATORS = [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)]
_OPERATORS += [(ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
SWAPS = {a: b for pair in _OPERATORS for a, b in (pair, pair[::-1])}
SWAPS |= {ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.Mult}
REVERSED = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
_PAIRS = [("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("clamp_min", "clamp_max"), ("minimum", "maximum")]
_PAIRS += [("triu", "tril"), ("sin", "cos"), ("zeros", "ones"), ("any", "all"), ("sum", "mean")]
NAMES = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
DROPPED = {"sqrt", "square", "log", "exp", "abs", "log1p", "expm1", "detach", "double", "clone", "cumsum", "reciprocal"}


def changed(node, **fields):
    """A copy of a node with other fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def variants(node):
    """Yield what a node might be by mistake."""
    match node:
        case ast.BinOp(left, op, right):
            if isinstance(op, ast.MatMult | ast.Sub | ast.Div):
                yield changed(node, left=right, right=left)
        case ast.Compare(ops=[op, *others]) if type(op) in REVERSED:
            yield changed(node, ops=[REVERSED[type(op)](), *others])
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield changed(node, value=not value)
        case ast.Constant(value=int(value)):
            yield from (changed(node, value=other) for other in (value + 1, value - 1))
        case ast.Constant(value=float(value)):
            yield from (changed(node, value=other) for other in (2 * value, value / 2) if other != value)
        case ast.Attribute(value, "mT" | "T"):
            yield value
        case ast.Attribute(attr=name) if name in NAMES:
            yield changed(node, attr=NAMES[name])
        case ast.Name("min" | "max" | "any" | "all" as name):
            yield changed(node, id=NAMES[name])
        case ast.Call(ast.Attribute(value, name), []) if name in DROPPED:
            yield value
        case ast.Call(args=[first, second, *others]) if not isinstance(first, ast.Starred):
            yield changed(node, args=[second, first, *others])
        case ast.Expr(ast.Call()) | ast.AugAssign():
            yield ast.copy_location(ast.Pass(), node)
        case ast.IfExp(body=body, orelse=orelse):
            yield changed(node, body=orelse, orelse=body)
        case ast.If(test):
            yield changed(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Return(ast.Tuple([first, second, *others]) as value):
            yield changed(node, value=changed(value, elts=[second, first, *others]))
    yield from _other_operators(node)


def _other_operators(node):
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        yield changed(node, op=SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield changed(node, ops=[SWAPS[type(node.ops[0])](), *node.ops[1:]])


def places(node, statement=None):
    """Yield (statement, node) within a tree, without what only a reader or the type checker sees."""
    statement = node if isinstance(node, ast.stmt) else statement
    yield statement, node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "exc"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _for_types(child):
                    yield from places(child, statement)


def _for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def lines_of(statement):
    """Those of a statement without the statements in it."""
    inside = getattr(statement, "body", None)
    last = max(inside[0].lineno - 1, statement.lineno) if isinstance(inside, list) else statement.end_lineno
    return range(statement.lineno, last + 1)
