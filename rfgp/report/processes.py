"""The description and the memory of processes on graphs, meshes or roads."""

from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.kernels import Term
from rfgp.messages import counted
from rfgp.rows import gathered

_BYTES = 12.0
"""The bytes of a non-zero of a sparse matrix, with its column."""


def describe_process(model: GP) -> str:
    """Return a description of the kernel or the features of a process.

    Args:
        model: The model.
    """
    if not isinstance(model, GraphGP):
        assert isinstance(model, GP)
        return ", and ".join(map(_describe_term, model.kernel.terms()))
    sizes = model.feature_size
    words = {
        "exact": "the exact kernel",
        "precision": "the exact kernel by its sparse precision",
        "rational": f"a sum of {sizes.get('degree')} fields with sparse precisions in place of the kernel",
        "walks": f"{counted(model.walk_options.num_walkers, 'walker')} per node",
        "chebyshev": f"a Chebyshev polynomial of degree {sizes.get('degree')}",
        "taylor": f"the power series cut at degree {sizes.get('degree')}",
        "spectrum": f"the {sizes.get('rank')} smallest eigenvalues of the Laplacian",
    }
    return words.get(model.features, "features that are not selected yet")


def _describe_term(term: Term) -> str:
    """Return a term on roads or a mesh in words, and another by its name."""
    domain = getattr(term.factors[0], "domain", None)
    return f"the term {term.name}" if domain is None or len(term.factors) > 1 else str(domain.description())


def num_nonzeros(model: GP) -> int:
    """Return the number of non-zeros of the features, or of the factor of a precision.

    Args:
        model: The fitted model.

    Raises:
        NotFittedError: If the model has no data.
    """
    prior, rows = model.state.prior(), gathered(model.state.require_rows(purpose="features"))
    if prior.precisions:
        return sum(int(block.refined(rows.inputs).field.analysis.num_nonzeros) for block in prior.precisions)
    if prior.graph_features:
        return sum(len(block.features(rows.inputs, keep=True).values) for block in prior.graph_features)
    if prior.num_features:
        return len(rows) * prior.num_features
    assert isinstance(model, GraphGP)
    return len(rows) * model.graph.num_nodes


def memory_of(model: GP) -> float:
    """Return the memory of the features, the kernel matrix or the factor, in bytes.

    Args:
        model: The fitted model.
    """
    if isinstance(model, GraphGP) and model.features == "exact":
        return 8.0 * model.graph.num_nodes**2
    return _BYTES * num_nonzeros(model)
