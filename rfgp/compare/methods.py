"""Methods of comparisons by name, except the couplings of frequencies."""

from typing import Any

# "stratified" has systematic lengths as well, the others have independent steps.
WALKS: dict[str, dict[str, Any]] = {
    name: {"lengths": lengths, "step_coupling": step_coupling, "exact_hops": hops}
    for name, lengths, step_coupling, hops in (
        ("iid", "iid", "independent", 0),
        ("antithetic", "antithetic", "independent", 0),
        ("sigma", "sigma", "independent", 0),
        ("systematic", "systematic", "independent", 0),
        ("stratified", "systematic", "stratified", 0),
        ("exact-hops", "systematic", "stratified", "auto"),
    )
}


POINTS = {"nystrom": "sor", "fitc": "fitc", "vfe": "vfe"}
"""Further methods of `compare_table`, with the method of `rfgp.InducingPoints`: 2 m points by k-means, as many as there
are Fourier features."""
NODE_METHODS = (*WALKS, "chebyshev")
"""The methods of `compare_nodes`. "chebyshev" has the largest degree with no more non-zeros than "exact-hops"."""
