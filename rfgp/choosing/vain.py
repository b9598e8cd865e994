"""What cannot win, as others like it say: it is not measured on rows that are kept out."""

from collections.abc import Sequence

from torch import Tensor

from rfgp.choosing.averages import mean_and_error
from rfgp.choosing.entries import Entry
from rfgp.choosing.grounds import is_near
from rfgp.regression import KernelOptions

BEHIND, NOISE = 2.0, 0.01
"""Standard errors from which on a candidate is clearly behind; and nats a row by which it may be behind at most, within
one, where it is cheaper."""
ANOTHER_KIND = 0.05
"""Nats a row by which neighbours may be clearly behind, and others of their kind are measured all the same. (On three
of seven large tables Matern 5/2 was ahead of 3/2, by .006, .03 and .11 nats; by .11 where all were far behind.)"""
BESIDE = 0.3
"""Nats a row by which neighbours alone may be behind, and are measured with features beside them all the same: on nine
tables, both fitted in full, 128 frequencies gained .21 nats of rows held out at most (kin40k)."""


def why_vain(
    entry: Entry,
    head: Entry | None,
    entries: Sequence[Entry],
    weight: Tensor,  # (b,)
) -> str:
    """Return why a candidate need not be measured, or nothing.

    Args:
        entry: The candidate.
        head: That of which it is a variant.
        entries: All of them.
        weight: How often each row that judges counts.
    """
    options = entry.offer.options
    if head is not None and _features(head.offer.options) == _features(options):
        if is_near(options) and _is_behind(head, entries, weight, ANOTHER_KIND):
            return "a variant of what is clearly behind"
        if has_fewer(entry, head) and _is_behind(head, entries, weight, NOISE):
            return "more frequencies are clearly better"
    elif head is None and is_near(options) and options.features is not None:
        alone = [e for e in entries if (None, options.local) == (e.offer.options.features, e.offer.options.local)]
        if any(_is_behind(other, entries, weight, BESIDE) for other in alone):
            return "neighbours alone are far behind"
    return ""


def has_fewer(entry: Entry, head: Entry | None) -> bool:
    """Return whether a candidate has fewer frequencies than what it is a variant of."""
    return head is not None and _number(entry.offer.options) < _number(head.offer.options)


def _is_behind(entry: Entry, entries: Sequence[Entry], weight: Tensor, least: float) -> bool:
    """Return whether a candidate is clearly behind another by so much, of those that are still in the rounds."""
    own = entry.densities
    if own is None or entry.remark:
        return False
    others = [other.densities for other in entries if not other.remark]
    ahead = [mean_and_error(density - own, weight) for density in others if density is not None]
    return any(mean > max(BEHIND * error, least) for mean, error in ahead)


def _features(options: KernelOptions) -> tuple[str | None, str | None]:
    return options.features, getattr(options, "frequencies", None)


def _number(options: KernelOptions) -> int:
    return getattr(options, "num_frequencies", 0)
