"""Paths of hyperparameters, by name or by a unique suffix."""

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from rfgp.errors import InvalidArgumentError


def find_path(name: str, paths: Sequence[str], argument: str = "") -> str:
    """Return the path with a name: the path itself, or the only one that ends with it.

    Args:
        name: A path such as "trend.lengthscale", or its end, such as "lengthscale".
        paths: All paths.
        argument: The argument that has the name, for the message.

    Raises:
        InvalidArgumentError: If no path ends with the name, or several do.

    Examples:
        >>> from rfgp.paths import find_path
        >>> find_path("lengthscale", ["trend.lengthscale", "trend.outputscale", "noise"])
        'trend.lengthscale'
    """
    if name in paths:
        return name
    found = [path for path in paths if path.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidArgumentError(f"{name!r} must name one hyperparameter, got {', '.join(found)}. Give its path.")
    close = difflib.get_close_matches(name, paths, n=3)
    hint = f" Did you mean {', '.join(close)}?" if close else ""
    where, known = f" in {argument}" if argument else "", ", ".join(dict.fromkeys(paths))
    raise InvalidArgumentError(f"A hyperparameter{where} must be one of {known}, got {name!r}.{hint}")


def find_paths(patterns: Iterable[str], paths: Sequence[str]) -> list[str]:
    """Return the paths that match names or patterns with *, in the order of the paths.

    Args:
        patterns: Paths, unique ends of paths, or patterns of paths such as "trend.*" and "*.lengthscale".
        paths: All paths.

    Raises:
        InvalidArgumentError: If a name has no path or several, or a pattern matches none.

    Examples:
        >>> from rfgp.paths import find_paths
        >>> find_paths(["*.lengthscale"], ["a.lengthscale", "b.lengthscale", "noise"])
        ['a.lengthscale', 'b.lengthscale']
    """
    found: set[str] = set()
    for pattern in patterns:
        if any(mark in pattern for mark in "*?"):
            matched = [path for path in paths if fnmatchcase(path, pattern.replace("[", "[[]"))]
            if not matched:
                raise InvalidArgumentError(
                    f"A pattern must match a hyperparameter of {', '.join(paths)}, got {pattern!r}."
                )
            found.update(matched)
        else:
            found.add(find_path(pattern, paths))
    return [path for path in paths if path in found]
