"""Messages of the library for the command line, with options instead of arguments of Python.

An argument (`num_train`) or a choice of it (`missing="drop"`) becomes an option if the command has one. A few remedies
have their own texts. Other remedies are not changed.
"""

import re
import shlex
from typing import Any

from rfgp import messages

_known: dict[str, str] = {}
_OTHER_NAMES = {"ard=False": "shared", "data=True": "with_data"}
_RENAMED = {"missing_marks": "missing_mark", "as_categories": "as_category", "targets": "target", "p_halt": "halt"}
_CHOICE = re.compile(r"\b([a-z]+(?:_[a-z]+)*)=(?:([\"'])(.*?)\2|(-?\d[\w.]*)|(True|False)\b|(?=[\s,.)]|$))")
_NAME = re.compile(r"(?<![\w'\"/.-])[a-z]+(?:_[a-z]+)+(?![\w'\"/=(-]|\.\w)")  # not within quotes or paths
_SUBJECT = re.compile(r"^([a-z]+)(?= (?:must|is|has|lies)\b)")

PHRASES = (  # patterns of what the library says, and what the command line says instead
    (r"Call condition\(X, y\) first, or save it with data=True\.", "Fit it again with --with-data."),
    (
        r"Raise max_iterations if they ran out; otherwise fix a hyperparameter or give it a prior\.",
        "Another --kernel may help.",
    ),
    (r"Raise time_limit\.", "Raise --time-limit."),
    (r"add a term such as k\.Matern\(\) with Vecchia\(\)", "add a term such as Matern() to --kernel"),
    (r"`?rfgp\.datasets\.names\(\)`? lists", "`rfgp datasets` lists"),
    (
        r"Read the file with numbers=\{'(.*?)': '(.*?)'\}, or use rfgp\.tables\.read_numbers\(.*?\)\.(?=[\s\"']|$)",
        r"Read it with --numbers '\1=\2'.",
    ),
    (r"Add k\.Group\((.*?)\) to the kernel, or drop the column", r"Add Group(\1) to --kernel, or --drop \1"),
)


def learn_options(command: Any) -> None:
    """Store the options of the current command.

    Args:
        command: The command.

    Examples:
        >>> from types import SimpleNamespace
        >>> seed = SimpleNamespace(opts=["--seed"], secondary_opts=[])
        >>> learn_options(SimpleNamespace(params=[seed]))
    """
    named = (flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts))
    flags = [flag for flag in named if flag.startswith("--")]
    _known.clear()
    _known.update({flag[2:].replace("-", "_"): flag for flag in flags})


def printable(text: str) -> str:
    r"""Return text without control characters of terminals, except for new lines.

    Args:
        text: The text.

    Examples:
        >>> printable("a\x1bb")
        'a?b'
    """
    return "\n".join(map(messages.printable, text.split("\n")))


def as_options(message: str) -> str:
    """Return a message with options of the command line instead of arguments of Python.

    Args:
        message: The message.

    Examples:
        >>> from types import SimpleNamespace
        >>> seed = SimpleNamespace(opts=["--num-walkers"], secondary_opts=[])
        >>> learn_options(SimpleNamespace(params=[seed]))
        >>> as_options("Raise num_walkers.")
        'Raise --num-walkers.'
    """
    for pattern, words in PHRASES:
        message = re.sub(pattern, words, message)
    message = _CHOICE.sub(_choice, message)
    message = _NAME.sub(lambda match: _flag(match[0]) or match[0], message)
    return _SUBJECT.sub(lambda match: _flag(match[1]) or match[1], message)


def _flag(name: str) -> str | None:
    return _known.get(_RENAMED.get(name, name))


def _choice(match: re.Match[str]) -> str:
    """Return `missing="drop"` as `--missing drop`, if the command has the option."""
    name, _, text, number, truth = match.groups()
    if match[0] in _OTHER_NAMES:
        return _flag(_OTHER_NAMES[match[0]]) or match[0]
    flag = _flag(name)
    if flag is None or truth == "False":
        return match[0]
    if text is None:
        return flag if number is None else f"{flag} {number}"
    return f"{flag} '{text}'" if name == "drop" and shlex.quote(text) == text else f"{flag} {shlex.quote(text)}"
