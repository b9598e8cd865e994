"""Small selections: tables, search spaces of given candidates, and successive halving with planted scores."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch

import rfgp
from rfgp.fitting import Deadline, Plan
from rfgp.regression import Budget, begin
from rfgp.regression.spec import ModelOptions, ModelSpec
from rfgp.rows import Chunk
from rfgp.selection.candidates import Candidate
from rfgp.selection.select import halving_for
from rfgp.selection.validation import Validation


def table(n=80, seed=0, outputs=1):
    """Return inputs (n, 2) on different scales and targets (n,) or (n, outputs) with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.stack([np.sin(3 * X[:, 0] + j) * X[:, 1] for j in range(outputs)], axis=1)
    y = y + 0.1 * rng.standard_normal((n, outputs))
    return X * [1.0, 30.0], 5 + 2 * (y if outputs > 1 else y[:, 0])


def counts(n=80, seed=0):
    """Return inputs (n, 2) and counts (n,)."""
    X, y = table(n, seed)
    return X, np.round(np.exp(y / 5))


@dataclass
class Space:
    """A search space of given candidates, whatever the rows."""

    given: tuple[Candidate, ...]
    limits: Budget
    validate: object = None

    def candidates(self, num_rows, num_columns, periods=(), groups=None, *, in_blocks=False):
        return self.given


def candidate(kernel, *approximations, followups=()):
    """Return the candidate of a kernel with an approximation of each term."""
    names = [str(term.name) for term in kernel.terms()]
    chosen = dict(zip(names, approximations, strict=True))
    return Candidate(ModelOptions(kernel, approximations=chosen), tuple(followups))


def among(*candidates, seed=0, validate=None):
    """Return a model that selects among candidates."""
    chosen = rfgp.GP(seed=seed).spec.options
    return rfgp.GP.of(ModelSpec(chosen.changed(search_space=Space(candidates, Budget(), validate))))


def spread(validation, mean, deviation=0.0):
    """Return densities of validation rows of a mean, the same for all rows unless there is a deviation."""
    noise = torch.randn(len(validation.validation_rows), generator=rfgp.random.generator(0), dtype=torch.float64)
    return mean + deviation * (noise - noise.mean())


def halving(gp, X, y, **plan):
    """Return the successive halving of a selection before anything is scored."""
    return halving_for(begin(gp.spec, Chunk(X, y)), Plan(deadline=Deadline(gp.spec.options.time_limit), **plan))


def validation_of(gp, X, y, exposure=None, groups=None, *, holds_out=True, **plan):
    """Return the validation of a model's selection, which holds rows out however few they are if it is asked to."""
    with rfgp.testing.limits(**({"few_rows": 0} if holds_out else {})):
        return Validation.of(begin(gp.spec, Chunk(X, y, exposure)), Plan(**plan), (), groups)


def planted(monkeypatch, mean_of, fell_back=()):
    """Plant the mean densities of candidates by their names; return what is fitted, as (name, rows, plan).

    Args:
        monkeypatch: Of pytest.
        mean_of: The mean density, or a function of the validation to all densities, by the name of a candidate; -9 for
            others.
        fell_back: The names of candidates whose learned frequencies were no better than fixed ones.
    """
    asked = []

    def fitted(validation, one, size, start, plan):
        asked.append((one.name, size, plan))
        values = mean_of.get(one.name, -9.0)
        return SimpleNamespace(
            candidate=one,
            log_prob=values(validation) if callable(values) else spread(validation, values),
            num_search_rows=size,
            used_all_rows=False,
            report=SimpleNamespace(
                learned_frequencies_rejected=one.name in fell_back,
                leave_one_out=0.0 if callable(values) else values + 0.3,
            ),
        )

    monkeypatch.setattr(Validation, "fitted", fitted)
    return asked


def favored(monkeypatch, is_favored, by=9.0):
    """Add nats to the densities of candidates."""
    original = Validation.fitted

    def fitted(validation, one, *arguments):
        found = original(validation, one, *arguments)
        return replace(found, log_prob=found.log_prob + by) if is_favored(one) else found

    def refitted(validation, found):
        other = scored_in_folds(validation, found)
        return replace(other, log_prob=other.log_prob + by) if is_favored(found.candidate) else other

    scored_in_folds = Validation.scored_in_folds
    monkeypatch.setattr(Validation, "scored_in_folds", refitted)
    monkeypatch.setattr(Validation, "fitted", fitted)
