"""Families of fields on meshes and on roads, by their sparse precisions."""

from rfgp.regression.fields.domain import Domain as Domain
from rfgp.regression.fields.domain import MeshDomain as MeshDomain
from rfgp.regression.fields.domain import RoadDomain as RoadDomain
from rfgp.regression.fields.family import FieldFamily as FieldFamily
from rfgp.regression.fields.family import FieldOptions as FieldOptions
