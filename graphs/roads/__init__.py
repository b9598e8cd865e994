"""Road networks as metric graphs, and positions along roads."""

from graphs.builders.junctions import RoadEdges as RoadEdges
from graphs.roads.network import NearestPositions as NearestPositions
from graphs.roads.network import RoadNetwork as RoadNetwork
