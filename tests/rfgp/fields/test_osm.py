"""Roads as OpenStreetMap exports them, from the file to predictions."""

import numpy as np
import osm
import pytest

import graphs
import rfgp
from rfgp import fields

pytestmark = pytest.mark.filterwarnings("ignore::graphs.SkippedFeaturesWarning")


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    paths = [osm.export(folder / f"{name}.geojson", projected=name == "plane") for name in ("globe", "plane")]
    with pytest.warns(graphs.SkippedFeaturesWarning, match="1 feature without geometry"):
        return [fields.read_road_field(path, "speed", duplicates="merge") for path in paths]


def process(field):
    """Return the process on a field at given hyperparameters, in units of its roads' mean length."""
    network = graphs.RoadNetwork.from_roads(field.roads)
    scale = network.total_length / 20
    return network, rfgp.RoadGP(network, lengthscale=scale, outputscale=130.0, noise=0.25, seed=0)


def test_all_ways_meet_and_the_bridge_does_not(town):
    for field in town:
        network, _ = process(field)
        assert network.components.max() == 0
        assert len(np.unique(field.component)) == 1
        bridge, track = 17, 19
        over, under = [(bridge, (60 + 240) / 760)], [(track, 0.4)]
        np.testing.assert_allclose(network.point(over), network.point(under), rtol=1e-7)
        way = (
            60 + 240 + 60 * np.sqrt(2) + 300
        )  # metres along the track, down a street, up the ramp, and along the bridge
        assert network.distance(over, under)[0, 0] / network.lengths.sum() == pytest.approx(way / 11_902.4, rel=1e-3)


def test_predictions_follow_the_truth_between_sensors(town):
    network, gp = process(town[0])
    field = town[0]
    gp.condition(field.observed_positions, field.values)
    places = np.array([(road, f) for road in range(network.num_roads) for f in np.linspace(0.05, 0.95, 7)])
    x, y = (network.point(places) - [osm.LONGITUDE, osm.LATITUDE]).T
    meters = 6_371_008.8 * np.radians(np.stack([x * np.cos(np.radians(osm.LATITUDE)), y], axis=1))
    truth, law = osm.speed(meters), gp.predict(places)
    assert np.sqrt(np.mean((law.mean - truth) ** 2)) < 0.35 * truth.std()
    assert np.mean(np.abs(law.mean - truth) < 1.96 * np.sqrt(law.variance)) > 0.9


def test_both_coordinate_systems_predict_the_same(town):
    """The plane of EPSG:3857 stretches all lengths alike, which the lengthscale takes up."""
    means = []
    for field in town:
        network, gp = process(field)
        gp.condition(field.observed_positions, field.values)
        means.append(gp.predict([(road, 0.3) for road in range(network.num_roads)]).mean)
    np.testing.assert_allclose(*means, rtol=1e-3)
