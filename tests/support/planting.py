"""Errors that are put into the source of functions for as long as a check runs."""

import inspect
import types
from contextlib import contextmanager


@contextmanager
def planted(module, right, wrong):
    """Exchange a text, which a module's source has once, for another in all functions and methods of the module.

    The functions stay the same objects, so that whoever imported them has the error too.
    """
    source = inspect.getsource(module)
    assert source.count(right) == 1, f"{module.__name__} has {right!r} {source.count(right)} times: plant it elsewhere"
    codes = _codes(compile(source.replace(right, wrong), module.__file__, "exec"))
    originals = {function: function.__code__ for function in _functions(module)}
    try:
        for function, code in originals.items():
            function.__code__ = codes[code.co_qualname]
        yield
    finally:
        for function, code in originals.items():
            function.__code__ = code


def _codes(code):
    """Return the code objects in a code object, by their qualified names."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {one.co_qualname: one for one in inner} | {k: v for one in inner for k, v in _codes(one).items()}


def _functions(module):
    """Yield the functions of a module and of its classes, those of properties included."""
    owners = [module, *(value for value in vars(module).values() if inspect.isclass(value))]
    for value in (value for owner in owners for value in vars(owner).values()):
        function = next((f for name in ("fget", "func", "__func__") if (f := getattr(value, name, None))), value)
        if inspect.isfunction(function) and function.__code__.co_filename == module.__file__:
            yield function
