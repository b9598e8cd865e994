"""What a process on a field goes through, in words and in bytes."""

from typing import Any

from rfgp.counts import counted
from rfgp.inference import FeaturePrior, MarkovPrior, SparsePrior
from rfgp.models import Process
from rfgp.models.graph import GraphGP
from rfgp.regression.fields import FieldFamily, MeshPlaces, RoadPlaces
from rfgp.regression.graph import chosen_size
from rfgp.rows import gathered

_BYTES = 12.0
"""Of a non-zero of a sparse matrix, its column with it."""


def describe_process(model: Process[Any]) -> str:
    """Return what a process on a field is, or goes through, in words."""
    if not isinstance(model, GraphGP):
        return _describe_field(model.family)
    sizes = chosen_size(model.family.features)
    words = {
        "exact": "the exact kernel",
        "precision": "the exact kernel by its sparse precision",
        "rational": f"a sum of {sizes.get('degree')} fields with sparse precisions in place of the kernel",
        "walks": f"{counted(model.options.num_walkers, 'walker')} per node",
        "chebyshev": f"a Chebyshev polynomial of degree {sizes.get('degree')}",
        "taylor": f"the power series cut at degree {sizes.get('degree')}",
        "spectrum": f"the {sizes.get('rank')} smallest eigenvalues of the Laplacian",
    }
    return words.get(model.features, "features that are yet to be chosen")


def _describe_field(family: FieldFamily) -> str:
    places = family.places
    if isinstance(places, RoadPlaces):
        ends = {"neumann": "no derivative", "stationary": "stationary", "open": "any derivative"}[places.roads.boundary]
        return f"the Whittle-Matern field of alpha {places.roads.alpha} along the roads, {ends} at free ends, exactly"
    assert isinstance(places, MeshPlaces)
    return (
        f"the Whittle-Matern field of alpha {places.mesh.alpha} on the surface, by linear finite elements, no "
        "derivative at the rim, exactly"
    )


def num_nonzeros(model: Process[Any]) -> int:
    """Return the number of non-zero features of a model's training rows; of a sparse precision, those of its factor.

    Raises:
        NotFittedError: there are no data yet.
    """
    prior, rows = model.regression.prior(), gathered(model.regression.needed_rows("features"))
    if isinstance(prior, MarkovPrior):
        return int(prior.seeing(rows.inputs).field.analysis.num_nonzeros)
    if isinstance(prior, SparsePrior):
        return len(prior.at(rows.inputs, True).values)
    return len(rows) * (prior.num_features if isinstance(prior, FeaturePrior) else model.family.graph.num_nodes)


def memory_of(model: Process[Any]) -> float:
    """Return the bytes of what a process on a field goes through: features, a kernel's matrix, or a factor."""
    if isinstance(model, GraphGP) and model.features == "exact":
        return 8.0 * model.graph.num_nodes**2
    return _BYTES * num_nonzeros(model)
