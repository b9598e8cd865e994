"""Whittle-Matern fields on road networks."""

from graphs.precisions.roads.field import RoadField as RoadField
