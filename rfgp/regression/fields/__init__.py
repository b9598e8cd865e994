"""Families of fields on meshes and on roads, by their sparse precisions."""

from rfgp.kernels.domains import Domain as Domain
from rfgp.kernels.domains import MeshDomain as MeshDomain
from rfgp.kernels.domains import RoadDomain as RoadDomain
from rfgp.regression.fields.family import FieldFamily as FieldFamily
from rfgp.regression.fields.family import FieldOptions as FieldOptions
