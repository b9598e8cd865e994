"""Road networks as metric graphs: roads with lengths that meet at crossings, and positions along them."""

from graphs.roads.network import RoadNetwork as RoadNetwork
