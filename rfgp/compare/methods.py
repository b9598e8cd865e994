"""What is compared beside the couplings of frequencies, which have names of their own."""

from typing import Any

# "stratified" has systematic lengths as well, the others have independent directions.
WALKS: dict[str, dict[str, Any]] = {
    name: {"lengths": lengths, "directions": directions, "exact_hops": hops}
    for name, lengths, directions, hops in (
        ("iid", "iid", "independent", 0),
        ("antithetic", "antithetic", "independent", 0),
        ("sigma", "sigma", "independent", 0),
        ("systematic", "systematic", "independent", 0),
        ("stratified", "systematic", "stratified", 0),
        ("exact-hops", "systematic", "stratified", "auto"),
    )
}


POINTS = {"nystrom": "sor", "fitc": "fitc", "vfe": "vfe"}
"""What `compare_table` knows beside couplings, with the method of `rfgp.InducingPoints`: 2 m points by k-means, as many
as Fourier features."""
NODE_METHODS = (*WALKS, "chebyshev")
"""What `compare_nodes` knows; "chebyshev" has the degree that the non-zeros of "exact-hops" leave room for."""
