"""Roads as OpenStreetMap exports them, from the file to predictions."""

import numpy as np
import osm
import pytest

import graphs
from rfgp import fields

pytestmark = pytest.mark.filterwarnings("ignore::graphs.SkippedFeaturesWarning")


def test_all_ways_meet_and_the_bridge_does_not(tmp_path):
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 feature without geometry"):
        field = fields.read_road_field(osm.export(tmp_path / "town.geojson"), "speed", duplicates="merge")
    network = graphs.RoadNetwork.from_roads(field.roads)
    assert network.components.max() == 0
    assert len(np.unique(field.component)) == 1
    bridge, track = 17, 19
    over, under = [(bridge, (60 + 240) / 760)], [(track, 0.4)]
    np.testing.assert_allclose(network.point(over), network.point(under), rtol=1e-7)
    way = 300 + 60 * np.sqrt(2) + 300  # metres along the track, down a street, up the ramp, and along the bridge
    assert network.distance(over, under)[0, 0] / network.lengths.sum() == pytest.approx(way / 11_902.4, rel=1e-3)
