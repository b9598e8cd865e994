"""Road networks as metric graphs: roads with lengths that meet at crossings, and positions along them."""

from graphs.builders.junctions import Stretches as Stretches
from graphs.roads.network import NearestPositions as NearestPositions
from graphs.roads.network import RoadNetwork as RoadNetwork
