"""The watched ratios: both sides of a case agree, and a case fails only if it is slower in all attempts."""

import json
import time

import pytest

from benchmarks.races import watched

TOLERANCE = {"likelihood": 1e-9, "walks": 2e-3, "cholesky": 1e-9, "lattice": 3e-4, "attention": 1e-5}
"""Relative. Walks are independent draws; the lattices differ in their spacing; attention is in float32."""


@pytest.mark.slow
@pytest.mark.parametrize("name", watched.CASES)
def test_both_sides_compute_the_same(name):
    fast, slow = (side() for side in watched.CASES[name]())
    assert fast == pytest.approx(slow, rel=TOLERANCE[name])


def test_every_case_has_a_recorded_ratio():
    recorded = json.loads(watched.RESULTS.read_text())
    assert recorded.keys() == watched.CASES.keys()
    assert min(recorded.values()) > 1


def busy(milliseconds):
    """Return a call that takes processor time."""

    def call():
        end = time.process_time() + milliseconds / 1000
        while time.process_time() < end:
            pass

    return call


@pytest.mark.parametrize(("recorded", "attempts", "is_kept"), [(2.0, 1, True), (1e3, 3, False)])
def test_slower_cases_fail_after_all_attempts(recorded, attempts, is_kept):
    pair = busy(2), busy(8)
    assert watched.ratio(pair) == pytest.approx(4, rel=0.5)
    found = watched.keeps(pair, recorded)
    assert (found[0], len(found[1])) == (is_kept, attempts)
