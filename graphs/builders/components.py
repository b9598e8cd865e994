"""Connected components of graphs of edges."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components


def component_of_nodes(
    sources: NDArray[np.int64],  # (E,)
    targets: NDArray[np.int64],  # (E,)
    num_nodes: int,
) -> NDArray[np.int32]:  # (N,)
    """Return the connected component (N,) of each node, numbered from 0.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.components import component_of_nodes
        >>> component_of_nodes(np.array([0]), np.array([1]), 3).tolist()
        [0, 0, 1]
    """
    links = sp.coo_array((np.ones(len(sources)), (sources, targets)), shape=(num_nodes, num_nodes))
    return np.asarray(connected_components(links, directed=False)[1])
