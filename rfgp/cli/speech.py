"""Messages of the library in the words of the command line: options for Python's arguments.

A message may name an argument (`num_train`), a choice of it (`missing="drop"`), or a remedy that Python alone has. The
first two become options where the command has them; the others have words of their own below.
"""

import re
import shlex
from typing import Any

_known: dict[str, str] = {}
_OTHER_NAMES = {"ard=False": "shared", "data=True": "with_data"}
_PLURALS = {"missing_marks": "missing_mark", "as_categories": "as_category", "targets": "target"}
_CHOICE = re.compile(r"\b([a-z]+(?:_[a-z]+)*)=(?:([\"'])(.*?)\2|(-?\d[\w.]*)|(True|False)\b|(?=[\s,.)]|$))")
_NAME = re.compile(r"(?<![\w'\"/.-])[a-z]+(?:_[a-z]+)+(?![\w'\"/=(-]|\.\w)")  # not within quotes or paths
_SUBJECT = re.compile(r"^([a-z]+)(?= (?:must|is|has|lies)\b)")

PHRASES = (  # patterns of what the library says, and what the command line says instead
    (r"Call condition\(X, y\) first, or save it with data=True\.", "Fit it again with --with-data."),
    (r"Raise max_iterations if they ran out; otherwise fix a hyperparameter or give it a prior\.", "{steps}"),
    (r"add a term such as k\.Matern\(\) with Vecchia\(\)", "add a term such as Matern() to --kernel"),
    (r"try another seed or a shorter starting lengthscale", "try another --seed"),
    (r"\(try ard=False, or priors\)", "(try --shared)"),
    (r"\(num_walkers, degree, rank\)", "(--num-walkers)"),
    (
        r"the exact process \((?:gp\.exact\(\)|features='exact'), up to ([\d,]+) nodes\)",
        r"the exact process (--features exact, up to \1 nodes)",
    ),
    (
        r"by_name\(\"energy\", effort=\"full\"\) solves them once\.",
        "Another coupling, such as orthogonal, takes no time.",
    ),
    (r"Give the noise a prior or a larger start, fit fewer observations, or use", "Use"),
    (r"Merge coincident vertices \(mesh\.merge_vertices\(\)\), or pass", "Pass"),
    (r"Use a smaller rank or chebyshev_features", "Use --features chebyshev"),
    (r"Use walks or a series instead\.", "Use --features walks instead."),
    (r"\bp_halt\b", "--halt"),
    (r"more than max_memory allows", "more than is allowed"),
    (r"give names for the columns", "add a line of names above it"),
    (r"`?rfgp\.datasets\.names\(\)`? lists", "`rfgp datasets` lists"),
    (r"add them to missing_marks", "name them in --missing-mark"),
    (r"name the column in as_categories", "name the column in --as-category"),
    (r'Give categories="one-hot" or leave the column out \((.*?) or categories="drop"\)', r"Leave it out (\1)"),
    (r'Give dates="days" or leave them out with dates="drop"', "Leave the column out with --drop"),
    (r'It is the target; give dates="days"\.', "It is the target; choose another."),
    (r"Give a kernel with k\.Group\((.*?)\), or drop the column", r"Give a --kernel with Group(\1), or --drop \1"),
)
_STEPS = {
    True: "Another --kernel, or fewer --fit-rows, may help.",
    False: "Another --kernel, or other --features, may help.",
}
_UNKNOWN = (  # where a command has no option for it
    ("approximation", r" add a term such as k\.Matern\(\) with Vecchia\(\),", ""),
    ("num_frequencies", r"Raise num_frequencies", "Use more random features"),
    ("shared", r"\(try ard=False, or priors\)", "(try ard=False in --kernel)"),
    ("as_category", r", name the column in as_categories", ""),
)


def learn_options(command: Any) -> None:
    """Take over the options of the command that runs."""
    named = (flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts))
    flags = [flag for flag in named if flag.startswith("--")]
    _known.clear()
    _known.update({flag[2:].replace("-", "_"): flag for flag in flags})


def printable(text: str) -> str:
    r"""Return text without characters that steer the terminal, wherever they come from.

    Example:
        >>> printable("a\x1bb")
        'a?b'
    """
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def as_options(message: str) -> str:
    """Return a message of the library with its Python arguments as options of the command that runs."""
    for option, pattern, words in _UNKNOWN:
        if option not in _known:
            message = re.sub(pattern, words, message)
    for pattern, words in PHRASES:
        message = re.sub(pattern, words, message)
    message = message.replace("{steps}", _STEPS["fit_rows" in _known])
    message = _CHOICE.sub(_choice, message)
    message = _NAME.sub(lambda found: _flag(found[0]) or found[0], message)
    return _SUBJECT.sub(lambda found: _flag(found[1]) or found[1], message)


def _flag(name: str) -> str | None:
    return _known.get(_PLURALS.get(name, name))


def _choice(found: re.Match[str]) -> str:
    """Return `missing="drop"` as `--missing drop`, and what the command has no option for as it is."""
    name, _, text, number, truth = found.groups()
    if found[0] in _OTHER_NAMES:
        return _flag(_OTHER_NAMES[found[0]]) or found[0]
    flag = _flag(name)
    if flag is None or truth == "False":
        return found[0]
    if text is None:
        return flag if number is None else f"{flag} {number}"
    return f"{flag} '{text}'" if name == "drop" and shlex.quote(text) == text else f"{flag} {shlex.quote(text)}"
