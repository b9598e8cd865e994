"""Reports of fits and records of choices in a file."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rfgp.regression import Choice, FitReport
from rfgp.regression.record import DENSITY, ERROR

_ROUNDING = 1e-6


def encode_report(report: FitReport | None) -> dict[str, Any] | None:
    """Return a report as JSON, without the choice, which stands beside it: older versions read the rest."""
    if report is None:
        return None
    return {name: value for name, value in asdict(report).items() if name != "choice"}


def decode_report(content: Mapping[str, Any] | None) -> FitReport | None:
    """Return the report that `encode_report` wrote.

    Raises:
        ValueError: it holds values that no report has.
    """
    report: FitReport | None = _decode(FitReport | None, content)
    if report is not None and report.frequencies not in ("fixed", "learned", "fell back"):
        raise ValueError("the fit's report holds a value that no fit gives")
    return report


def encode_choice(report: FitReport | None) -> dict[str, Any] | None:
    """Return the choice of a report as JSON, where there is one."""
    return None if report is None or report.choice is None else asdict(report.choice)


def decode_choice(content: Mapping[str, Any] | None) -> Choice | None:
    """Return the choice that `encode_choice` wrote.

    Raises:
        ValueError: it holds what no choice has.
    """
    choice: Choice | None = _decode(Choice | None, content)
    if choice is None:
        return None
    known = choice.measure in (DENSITY, ERROR) and 0 <= choice.best < len(choice.trials)
    if not known or (choice.shares and not _are_shares(choice)):
        raise ValueError("the record of the choice holds values that no choice has")
    return choice


def _are_shares(choice: Choice) -> bool:
    shares = choice.shares
    known = len(shares) == len(choice.trials) and all(0 <= share <= 1 for share in shares)
    return known and abs(sum(shares) - 1) < _ROUNDING and 0 < shares[choice.best] == max(shares)


def _decode(kind: Any, content: Any) -> Any:
    """Return a JSON value as a type hint says: a plain value, None, a tuple, a mapping, or a dataclass.

    Raises:
        ValueError: the value is of another kind.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return content
    if origin is UnionType:
        return None if content is None else _decode(parts[0], content)
    if origin is tuple:
        return tuple(_decode(parts[0], each) for each in content)
    if origin is Mapping:
        return {name: _decode(parts[1], value) for name, value in content.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _decode(hints[name], value) for name, value in content.items()})
    if type(content) is not kind:
        raise ValueError(f"a record has {content!r} in the place of a value of type {kind.__name__}")
    return content
