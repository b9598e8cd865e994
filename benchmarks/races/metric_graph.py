"""Fields on pems compared with MetricGraph's own figures, which its vignette "Comparison of different models" prints.

First, the log likelihood at the hyperparameters that the vignette prints, and our log likelihood there. These are kappa
in 1 / km, the standard deviations of the field on a long road and of the noise, and the mean. Then our own fit and its
leave-one-out scores. As in the vignette, the hyperparameters are fitted to all observations. Our lengthscale is 1 /
kappa for alpha = 1, and sqrt(3) / kappa for alpha = 2; without its correction of the boundary MetricGraph has what is
"open" here.

    python -m benchmarks.races.metric_graph [--out FILE]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
import rfgp
from benchmarks.races.road_fields import data, scores
from benchmarks.scores import Normal

PRINTED = (  # alpha, boundary, kappa, sd of the field, of the noise, mean, log likelihood; log score, CRPS, MAE, RMSE
    (1, "neumann", 0.108220, 20.582, 6.8654, 51.187, -1221.225, "3.605 4.738 6.178 8.614"),
    (1, "stationary", 0.095113, 21.921, 6.8634, 51.111, -1221.377, "3.604 4.736 6.168 8.612"),
    (2, "open", 0.43173, 19.147, 7.1763, 51.219, -1208.087, "3.548 4.519 5.851 8.255"),
    (2, "stationary", 0.42028, 19.762, 7.1759, 51.149, -1208.280, "3.548 4.518 5.853 8.255"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    roads, positions = data("pems")
    network = graphs.RoadNetwork.from_roads(roads)
    table = Table(title=f"{len(positions)} observations; MetricGraph's figures, and ours")
    lines = []
    for column in ("alpha", "boundary", "printed", "ours there", "ours, fitted", "printed scores", "ours"):
        table.add_column(column)
    for alpha, boundary, kappa, field, noise, mean, printed, printed_scores in PRINTED:
        gp = rfgp.RoadGP(network, alpha, boundary=boundary, seed=0).condition(positions, roads.values)
        scale = 1000 * (1.0 if alpha == 1 else np.sqrt(3)) / kappa
        gp.hyperparameters.set(lengthscale=scale, outputscale=field**2, noise=noise**2, mean=mean)
        there = float(gp.log_marginal_likelihood().detach())
        begin = time.process_time()
        fitted = rfgp.RoadGP(network, alpha, boundary=boundary, seed=0).fit(positions, roads.values)
        seconds = time.process_time() - begin
        left = fitted.leave_one_out()
        squares, absolute, ranked, losses = scores(roads.values, left.mean, left.variance)
        own = (losses.mean(), ranked.mean(), absolute.mean(), np.sqrt(squares.mean()))
        value = float(fitted.log_marginal_likelihood().detach())
        shown = (f"{printed:.3f}", f"{there:.4f}", f"{value:.3f}", printed_scores, " ".join(f"{s:.3f}" for s in own))
        table.add_row(str(alpha), boundary, *shown)
        about = {"table": f"alpha {alpha}, {boundary}", "rows": len(positions)}
        theirs = list(map(float, printed_scores.split()))
        covered = Normal(left.mean, left.variance).covers(roads.values).mean()
        ours = {"racer": "rfgp", "nlpd": own[0], "rmse": own[-1], "processor": seconds, "coverage": covered}
        lines.append(about | ours)
        lines.append({**about, "racer": "metric-graph", "nlpd": theirs[0], "rmse": theirs[-1]})
    Console(width=130).print(table)
    if options.out:
        options.out.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


if __name__ == "__main__":
    main()
