"""Families of fields on meshes and on roads, by their sparse precisions."""

from rfgp.regression.fields.family import FieldFamily as FieldFamily
from rfgp.regression.fields.family import FieldOptions as FieldOptions
from rfgp.regression.fields.places import MeshPlaces as MeshPlaces
from rfgp.regression.fields.places import Places as Places
from rfgp.regression.fields.places import RoadPlaces as RoadPlaces
