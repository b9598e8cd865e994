"""Errors planted in the source of each solver, such as a sign or a scale. The checks must find each.

`planted.txt` has the solver, a sum of terms, a kind of rows, the check and the module with the error,
followed by the right and the wrong text.
"""

import importlib
from functools import partial
from pathlib import Path

import pytest
import torch
from checks import fails
from planting import planted
from solver_cases import PRIORS, solved
from solver_checks import (
    check_derivatives,
    check_draws,
    check_leave_one_out,
    check_likelihood,
    check_operator,
    check_other_targets,
    check_predictions,
    check_rows,
    check_terms,
    check_value,
)
from terms import table

NEW = table(7, seed=9)


def of_posterior(check, new=NEW):
    return lambda found, problem: check(found.posterior(), problem, new)


CHECKS = {
    "value": check_value,
    "likelihood": check_likelihood,
    "rows": check_rows,
    "left out": check_leave_one_out,
    "targets": check_other_targets,
    "predictions": partial(check_predictions, new=NEW),
    "one point": partial(check_predictions, new=NEW[:1]),
    "terms": partial(check_terms, new=NEW),
    "draws": torch.no_grad()(of_posterior(check_draws, NEW[:4])),
    "operator": of_posterior(check_operator),
    "derivatives": lambda found, problem: check_derivatives(found.posterior(), problem, NEW, problem.theta),
}


def errors():
    """Yield the errors: solver, terms, kind of rows, check, module, right and wrong text."""
    for entry in Path(__file__).with_name("planted.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        head, right, wrong = entry.split("\n")
        name, terms, *rest = head.split(" | ")
        yield name, tuple(terms.split(" + ")), *rest, right.removeprefix("- "), wrong.removeprefix("+").strip()


def is_found(name, terms, kind, check):
    return fails(CHECKS[check], *solved(name, terms, kind))


@pytest.mark.parametrize("solver", PRIORS)
def test_planted_errors_are_found(solver):
    count, survivors = 0, []
    for name, terms, kind, check, module, right, wrong in errors():
        if name == solver:
            case, count = (name, terms, kind, check), count + 1
            assert not is_found(*case), case
            with planted(importlib.import_module(module), right, wrong):
                survivors += [] if is_found(*case) else [f"{module}: {right} -> {wrong}"]
    assert survivors == []
    assert count >= 4
