"""Results of every model at given hyperparameters and draws, to compare two versions of the package by."""

from functools import partial


def cases(function, table):
    """Return a case for each line of a table: the function with the arguments of the line, or with its only one."""
    lines = {name: line if isinstance(line, tuple) else (line,) for name, line in table.items()}
    return {name: partial(function, *line) for name, line in lines.items()}
