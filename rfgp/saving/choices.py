"""The record of a choice in a file."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from rfgp.regression import Choice, FitReport, Measurement, Trial
from rfgp.regression.record import DENSITY, ERROR

_SCALARS = {"best": int, "reason": str, "judged": int, "way": str}
_ROUNDING = 1e-6
_NUMBERS = ("budget", "memory", "rate", "predicted", "seconds", "fit_seconds")


def encode_report(report: FitReport | None) -> dict[str, Any] | None:
    """Return a report as JSON, without the choice, which stands beside it: older versions read the rest."""
    if report is None:
        return None
    return {name: value for name, value in asdict(report).items() if name != "choice"}


def encode_choice(report: FitReport | None) -> dict[str, Any] | None:
    """Return the choice of a report as JSON, where there is one."""
    return None if report is None or report.choice is None else asdict(report.choice)


def decode_choice(content: Mapping[str, Any] | None) -> Choice | None:
    """Return the choice that `encode_choice` wrote.

    Raises:
        ValueError: it holds what no choice has.
    """
    if content is None:
        return None
    rules = {name: _measurement(entry) for name, entry in content["rules"].items()}
    parts = {"trials": tuple(_trial(entry) for entry in content["trials"]), "shares": tuple(content.get("shares", ()))}
    choice = Choice(**{**content, "rules": rules, **parts})
    wrong = [name for name, kind in _SCALARS.items() if type(getattr(choice, name)) is not kind]
    wrong += [name for name in _NUMBERS if not isinstance(getattr(choice, name), float)]
    wrong += [] if choice.measure in (DENSITY, ERROR) else ["measure"]
    if choice.shares and not _are_shares(choice):
        wrong.append("shares")
    if wrong or not 0 <= choice.best < len(choice.trials):
        raise ValueError("the record of the choice holds values that no choice has")
    return choice


def _are_shares(choice: Choice) -> bool:
    shares = choice.shares
    known = len(shares) == len(choice.trials) and 0 <= choice.best < len(shares)
    known = known and all(isinstance(share, float) and 0 <= share <= 1 for share in shares)
    return known and abs(sum(shares) - 1) < _ROUNDING and 0 < shares[choice.best] == max(shares)


def _trial(content: Mapping[str, Any]) -> Trial:
    trial = Trial(**{**content, "measured": tuple(_measurement(entry) for entry in content["measured"])})
    is_right = isinstance(trial.name, str) and isinstance(trial.remark, str) and isinstance(trial.options, dict)
    if not is_right or not isinstance(trial.seconds, float) or not isinstance(trial.memory, float):
        raise ValueError("the record of the choice holds a candidate that is none")
    return trial


def _measurement(content: Mapping[str, Any]) -> Measurement:
    found = Measurement(**content)
    numbers = [getattr(found, each.name) for each in fields(found) if each.name != "rows"]
    if type(found.rows) is not int or not all(isinstance(number, float) for number in numbers):
        raise ValueError("the record of the choice holds a measurement that is none")
    return found
