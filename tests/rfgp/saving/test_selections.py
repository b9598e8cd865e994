"""Records of selections in files."""

import pytest

from rfgp.regression import FitReport, Score, SelectionReport, Trial
from rfgp.saving.json_values import decode_selection, encode_selection

TRIALS = tuple(Trial(name, {"kernel": name}, 1.0, 2.0, (Score(10, -1.0, 0.1),)) for name in "ab")
BASELINES = {"a constant": Score(10, -2.0, 0.1, 1.0, 0.2)}
SELECTION = SelectionReport(0, TRIALS, "the best", num_validation=10, baselines=BASELINES, weights=(0.6, 0.4))


def record(**changes):
    report = FitReport(True, 1, 1, 0.0, "", selection=SELECTION)
    return {**encode_selection(report), **changes}


def test_records_are_read_as_they_were():
    assert decode_selection(record()) == SELECTION


@pytest.mark.parametrize(
    "changes",
    [
        {"best": 9},
        {"best": "0"},
        {"trials": 3},
        {"baselines": {"a constant": 1.0}},
        {"measure": "luck"},
        {"time_limit": None},
        {"weights": [1.0]},
        {"weights": [0.6, 0.6]},
        {"weights": [0.4, 0.6]},
        {"weights": [1.5, -0.5]},
    ],
)
def test_wrong_records_are_refused(changes):
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        decode_selection(record(**changes))
