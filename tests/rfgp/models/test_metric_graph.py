import os
from pathlib import Path

import numpy as np
import pytest

import graphs
import rfgp

DATA = Path(os.environ.get("RFGP_DATA_DIR", Path(__file__).parents[4] / "shared" / "data")) / "traffic" / "pems.rda"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="pems.rda is not there; name its folder in RFGP_DATA_DIR")
@pytest.mark.parametrize(
    ("alpha", "boundary", "kappa", "field", "noise", "mean", "printed"),
    [
        (1, "neumann", 0.108220, 20.582, 6.8654, 51.187, -1221.225),
        (1, "stationary", 0.095113, 21.921, 6.8634, 51.111, -1221.377),
        (2, "open", 0.43173, 19.147, 7.1763, 51.219, -1208.087),
        (2, "stationary", 0.42028, 19.762, 7.1759, 51.149, -1208.280),
    ],
)
def test_likelihoods_are_those_that_metric_graph_prints(alpha, boundary, kappa, field, noise, mean, printed):
    """Its vignette "Comparison of different models": to three decimals, near an optimum of rounded hyperparameters."""
    roads = graphs.read_roads(DATA)
    seen = ~np.isnan(roads.values)
    positions = np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)[seen]
    gp = rfgp.RoadGP(graphs.RoadNetwork.from_roads(roads), alpha, boundary=boundary, seed=0)
    gp.condition(positions, roads.values[seen])
    kilometre = 1000 * (1.0 if alpha == 1 else np.sqrt(3))
    for scale, agrees in ((kilometre, True), (1.1 * kilometre, False)):
        gp.hyperparameters.set(lengthscale=scale / kappa, outputscale=field**2, noise=noise**2, mean=mean)
        assert (abs(gp.log_marginal_likelihood().item() - printed) < 1e-3) == agrees
