"""Connected components of pairs."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components


def connected_parts(
    sources: NDArray[np.int64],  # (E,)
    targets: NDArray[np.int64],  # (E,)
    num_nodes: int,
) -> NDArray[np.int32]:  # (N,)
    """Return the number of the connected component of each node.

    Examples:
        >>> import numpy as np
        >>> from graphs.builders.parts import connected_parts
        >>> connected_parts(np.array([0]), np.array([1]), 3).tolist()
        [0, 0, 1]
    """
    links = sp.coo_array((np.ones(len(sources)), (sources, targets)), shape=(num_nodes, num_nodes))
    return np.asarray(connected_components(links, directed=False)[1])
