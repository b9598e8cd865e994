"""The names that the command line checks by itself are those that the library takes."""

import pytest

import graphs
import rfgp
from graphs.builders.junctions import DUPLICATES
from graphs.builders.mesh_files import MESH_SUFFIXES
from graphs.precisions.roads.layout import BOUNDARIES
from rfgp import likelihoods
from rfgp.approximations.node_features import FEATURES
from rfgp.approximations.parsing import APPROXIMATIONS
from rfgp.cli import choices
from rfgp.fields import RESULTS, ROAD_SUFFIXES
from rfgp.kernels.parsing import KERNELS
from rfgp.report.holdout import HOLDOUTS


@pytest.mark.parametrize(
    ("ours", "library"),
    [
        (choices.KERNELS, tuple(KERNELS)),
        (choices.APPROXIMATIONS, tuple(APPROXIMATIONS)),
        (choices.LIKELIHOODS, likelihoods.names()),
        (choices.GRAPH_KERNELS, graphs.kernels.names()),
        (choices.GRAPH_FEATURES, FEATURES),
        (choices.BOUNDARIES, BOUNDARIES),
        (choices.MESH_SUFFIXES, MESH_SUFFIXES),
        (choices.ROAD_SUFFIXES, ROAD_SUFFIXES),
        (choices.ROAD_DUPLICATES, DUPLICATES),
        (choices.RESULTS, RESULTS),
        (choices.HOLDOUTS, HOLDOUTS),
    ],
)
def test_choices_are_those_of_the_library(ours, library):
    assert ours == library


def refused(call):
    """Return the message of an error that lists what an argument takes."""
    with pytest.raises(ValueError, match="nothing") as found:
        call()
    return str(found.value)


@pytest.mark.parametrize(
    ("ours", "call"),
    [
        (choices.INFERENCES, lambda: rfgp.GP(likelihood="poisson", inference="nothing")),
        (choices.METRICS, lambda: graphs.RoadNetwork.from_lines([[(0, 0), (1, 1)]], metric="nothing")),
        (choices.WEIGHTS, lambda: graphs.Graph.from_mesh(rfgp.datasets.make_mesh(), weights="nothing")),
        (choices.NODES, lambda: graphs.Graph.from_mesh(rfgp.datasets.make_mesh(), nodes="nothing")),
    ],
)
def test_choices_are_in_the_library_s_messages(ours, call):
    message = refused(call)
    assert [name for name in ours if name not in message] == []
