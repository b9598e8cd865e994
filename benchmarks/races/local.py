"""Tables with local structure: features, a local process, both, and the rivals; accuracy, time and memory.

Protocol, fixed before the results were seen. A random tenth of the rows is held out (numpy's generator, the seed of the
run); columns and target are standardized on the others, float64. Errors are of the standardized target: RMSE, NLPD and
CRPS of the distribution of an observation, and how often the interval of 95 % holds it. Each racer runs alone in its
own process, with as many threads as it uses. Wall and processor seconds are of the fit, from arrays in memory. GiB are
the peak memory of the process. Nothing is tuned. The made tables are terrains: heights over a plane, an isotropic field
whose spectrum falls like a power, sampled at random places with noise.

- features, local, both: `rfgp.GP` with 128 learned frequencies; with a Matern 3/2 process of 30 neighbors alone; with
  both. both-fixed: the frequencies as they were drawn.
- nystrom, fitc, vfe, residual: `rfgp.GP` with 512 inducing points by k-means, Matern 3/2; alone, with each diagonal, or
  with 30 neighbors that take up the residual.
- sgpr: GPyTorch's InducingPointKernel with as many points, which it learns, Matern 3/2, 100 steps of Adam at 0.1 on all
  rows, at most `--limit` seconds.
- svgp: GPyTorch's SVGP, 512 inducing points, 60 epochs of batches of 1,024 rows, at most `--limit` seconds.
- vnngp: GPyTorch's nearest-neighbor variational process, all rows inducing, 30 neighbors, as long.
- gpboost, vif: GPBoost's Vecchia approximation of the observations, 30 neighbors, Matern 3/2, ARD; and with 512
  inducing points too (`--gpboost`, the Python of an environment that has it).
- boosting: scikit-learn's HistGradientBoostingRegressor, one for the mean and two for the ends of the interval of 90 %,
  a normal distribution from these.

A fit that takes longer than `--patience` seconds is stopped and said to have failed. Results are lines of JSON that are
added to `--out`; what stands there already is not run again. Tables that `rfgp.datasets` does not have are NAME.csv.gz,
as in github.com/treforevans/uci_datasets, in the folder of `--folder`.

    python -m benchmarks.races.local [--tables T,...] [--racers R,...] [--seeds N] [--gpboost PYTHON] [--folder UCI]
                                     [--out FILE]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from benchmarks import protocol
from benchmarks.races import processes

Array = np.ndarray[Any, np.dtype[np.float64]]
Law = tuple[Array, Array]

TABLES = ("kin40k", "protein", "elevators", "bike", "keggdirected", "tamielectric", "terrain-5", "terrain-6")
SIZES = {"terrain-5": 10**5, "terrain-6": 10**6}
METHODS = {"nystrom": "sor", "fitc": "fitc", "vfe": "vfe", "residual": "sor"}
"""The methods of inducing points by racers."""
NEIGHBORS, FREQUENCIES, POINTS, BATCH, EPOCHS, STEPS = 30, 128, 512, 1024, 60, 100

GPBOOST = """
import resource, sys, time
import gpboost, numpy as np
a, more = np.load(sys.argv[1]), {"vif": {"gp_approx": "full_scale_vecchia", "num_ind_points": 512}}
begin, busy = time.perf_counter(), time.process_time()
options = {"gp_approx": "vecchia", **more.get(sys.argv[3], {})}
model = gpboost.GPModel(gp_coords=a["X"], cov_function="matern_ard", cov_fct_shape=1.5, num_neighbors=30, **options)
model.fit(y=a["y"], X=np.ones((len(a["y"]), 1)))
seconds, busy = time.perf_counter() - begin, time.process_time() - busy
p = model.predict(gp_coords_pred=a["Z"], X_pred=np.ones((len(a["Z"]), 1)), predict_var=True, predict_response=True)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
np.savez(sys.argv[2], mean=p["mu"], variance=p["var"], spent=[seconds, busy, memory])
"""


def terrain(rows: int) -> tuple[Array, Array]:
    """Return heights at random positions of a square, a sum of 2,000 waves.

    The power of the waves falls like the fourth power of their number.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (rows, 2))
    length = 2 * np.pi * np.exp(rng.uniform(0, np.log(300), 2000))
    angle, phase = rng.uniform(0, 2 * np.pi, (2, 2000))
    waves, size = np.stack([length * np.cos(angle), length * np.sin(angle)]), length**-1.0
    y = np.concatenate([np.cos(part @ waves + phase) @ size for part in np.array_split(X, -(-rows // 10_000))])
    return X, y / y.std() + 0.05 * rng.standard_normal(rows)


def split(name: str, seed: int, folder: Path | None) -> tuple[Array, Array, Array, Array]:
    X, y = terrain(SIZES[name]) if name in SIZES else protocol.load(name, folder)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    X = X[:, X[train].std(0) > 0]
    X, y = (X - X[train].mean(0)) / X[train].std(0), (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


# --- racers: each fits, and returns a function of new rows to the means and variances of an observation --------------


def ours(racer: str, X: Array, y: Array, seed: int) -> Callable[[Array], Law]:
    import rfgp

    smooth, rough, near = rfgp.kernels.RBF(name="smooth"), rfgp.kernels.Matern(nu=1.5), rfgp.Vecchia(NEIGHBORS)
    features = rfgp.RandomFeatures(FREQUENCIES, learn_frequencies=racer != "both-fixed")
    if racer in METHODS:
        points = rfgp.InducingPoints(POINTS, method=METHODS[racer], residual=near if racer == "residual" else None)
        kernel, chosen = rough, points
    elif racer in ("local", "features"):
        kernel, chosen = (rough, near) if racer == "local" else (smooth, features)
    else:
        kernel, chosen = smooth + rough.named("local"), {"smooth": features, "local": near}
    gp = rfgp.GP(kernel, approximation=chosen, seed=seed).fit(X, y)
    print(gp.fit_report.message, file=sys.stderr)
    return moments(gp)


def moments(gp: Any) -> Callable[[Any], Law]:
    """Return a function of new rows that returns the means and variances of observations by a model."""

    def predict(Z: Any) -> Law:
        law = gp.predict(Z).observed()
        return law.mean, law.variance

    return predict


def predictor(model: Any, likelihood: Any) -> Callable[[Array], Law]:
    """Return the means and variances of observations by a model of GPyTorch, in batches."""
    import torch

    model.eval(), likelihood.eval()

    def predict(Z: Array) -> Law:
        with torch.no_grad():
            laws = [likelihood(model(part)) for part in torch.as_tensor(Z).float().split(BATCH)]
        mean, variance = (torch.cat([getattr(law, name) for law in laws]) for name in ("mean", "variance"))
        return mean.double().numpy(), variance.double().numpy()

    return predict


def variational(racer: str, X: Array, y: Array, limit: float) -> Callable[[Array], Law]:
    import gpytorch
    import torch

    torch.manual_seed(0)
    x, target = torch.as_tensor(X).float(), torch.as_tensor(y).float()
    points = x.clone() if racer == "vnngp" else x[torch.randperm(len(x))[:POINTS]].clone()

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            if racer == "vnngp":
                law = gpytorch.variational.MeanFieldVariationalDistribution(len(points))
                kind: Any = gpytorch.variational.nearest_neighbor_variational_strategy.NNVariationalStrategy
                super().__init__(kind(self, points, law, k=NEIGHBORS, training_batch_size=BATCH))
            else:
                law = gpytorch.variational.CholeskyVariationalDistribution(len(points))
                super().__init__(gpytorch.variational.VariationalStrategy(self, points, law))
            kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1])
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

        def __call__(self, inputs: Any, prior: bool = False, **more: Any) -> Any:
            return self.variational_strategy(x=inputs, prior=prior, **more)

    model, likelihood, begin = Model(), gpytorch.likelihoods.GaussianLikelihood(), time.perf_counter()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            if racer == "vnngp":
                law = model(None)
                loss = -objective(law, target[model.variational_strategy.current_training_indices])
            else:
                loss = -objective(model(x[batch]), target[batch])
            loss.backward()
            optimizer.step()
            if time.perf_counter() - begin > limit:
                break
        if time.perf_counter() - begin > limit:
            break
    return predictor(model, likelihood)


def regression(X: Array, y: Array, limit: float, is_exact: bool = False) -> Callable[[Array], Law]:
    """Fit GPyTorch's process with inducing points (SGPR), or its exact process."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    x, target = torch.as_tensor(X).float(), torch.as_tensor(y).float()
    points, likelihood = x[torch.randperm(len(x))[:POINTS]].clone(), gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, target, likelihood)
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1]))
            self.mean_module = gpytorch.means.ConstantMean()
            inducing = gpytorch.kernels.InducingPointKernel
            self.covar_module = base if is_exact else inducing(base, points, likelihood)

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model, begin = Model(), time.perf_counter()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (-objective(model(x), target)).backward()
        optimizer.step()
        if time.perf_counter() - begin > limit:
            break
    return predictor(model, likelihood)


def quantile_boosting(X: Array, y: Array) -> Callable[[Array], Law]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    middle = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    ends = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0).fit(X, y) for q in (0.05, 0.95)]

    def predict(Z: Array) -> Law:
        low, high = (end.predict(Z) for end in ends)
        return middle.predict(Z), np.maximum((high - low) / (2 * 1.6448536), 1e-3) ** 2

    return predict


def run(racer: str, file: Path, out: Path, seed: int, limit: float) -> None:
    """Fit and predict in this process, and write means, variances, seconds and memory."""
    warnings.simplefilter("ignore")
    data = np.load(file)
    begin, busy = time.perf_counter(), time.process_time()
    X, y = data["X"], data["y"]
    if racer in ("svgp", "vnngp"):
        predict = variational(racer, X, y, limit)
    elif racer == "sgpr":
        predict = regression(X, y, limit)
    else:
        predict = quantile_boosting(X, y) if racer == "boosting" else ours(racer, X, y, seed)
    spent = [time.perf_counter() - begin, time.process_time() - busy]
    mean, variance = predict(data["Z"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    np.savez(out, mean=mean, variance=variance, spent=[*spent, memory])


def errors(y: Array, law: Law, shares: Sequence[float] = (1.0,)) -> dict[str, float]:
    """Return RMSE, NLPD and CRPS of normal distributions (n,) at targets (n,), and the coverage of 95 % intervals.

    The distributions may also be mixtures with shares (k,) of normal distributions (k, n). CRPS = E|x - y| - E|x - x'|
    / 2, and the mean of |N(m, v)| is in closed form (Grimit et al. 2006, Eq. 5).
    """

    def far(m: Array, v: Array) -> Array:
        z = m / np.sqrt(v)
        return np.asarray(np.sqrt(v) * (2 * norm.pdf(z) + z * (2 * norm.cdf(z) - 1)))

    weight, mean, variance = np.asarray(shares), np.atleast_2d(law[0]), np.atleast_2d(law[1])
    z = (y - mean) / np.sqrt(variance)
    density = logsumexp(norm.logpdf(z) - np.log(variance) / 2 + np.log(weight)[:, None], axis=0)
    between = far(mean[:, None] - mean, variance[:, None] + variance)
    scores = weight @ far(y - mean, variance) - 0.5 * np.einsum("i,j,ijn->n", weight, weight, between)
    below = weight @ norm.cdf(z)
    figures = {"rmse": np.sqrt(np.mean((y - weight @ mean) ** 2)), "nlpd": -density.mean(), "crps": scores.mean()}
    figures["coverage"] = np.mean((below > 0.025) & (below < 0.975))
    return {name: float(value) for name, value in figures.items()}


RACERS = ("features", "local", "both", "both-fixed", *METHODS, "sgpr", "svgp", "vnngp", "gpboost", "vif", "boosting")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--patience", type=float, default=7200.0)
    parser.add_argument("--gpboost", help="the Python of an environment with gpboost")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        racer, file, out, seed = options.run
        run(racer, Path(file), Path(out), int(seed), options.limit)
        return
    out: Path | None = options.out
    done = {(row["table"], row["seed"], row["racer"]) for row in processes.lines(out)}
    for seed in range(options.seeds):
        for name in options.tables.split(","):
            for racer in options.racers.split(","):
                if (racer in ("gpboost", "vif") and not options.gpboost) or (name, seed, racer) in done:
                    continue
                processes.add_line(race(name, seed, racer, options), out)


def race(name: str, seed: int, racer: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one racer on one split in its own process, print the result and return it."""
    X, y, Z, w = split(name, seed, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "rows.npz", Path(folder) / "law.npz"
        np.savez(file, X=X, y=y, Z=Z)
        own = [sys.executable, "-m", "benchmarks.races.local", "--limit", str(options.limit), "--run"]
        command = [*own, racer, str(file), str(out), str(seed)]
        if racer in ("gpboost", "vif"):
            command = [options.gpboost, "-c", GPBOOST, str(file), str(out), racer]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.patience)
            why = done.stderr.strip()
        except subprocess.TimeoutExpired:
            why = f"longer than {options.patience:.0f} s"
        if not out.exists():
            print(f"{name} {seed} {racer}: {why[-300:]}", flush=True)
            return {"table": name, "seed": seed, "racer": racer, "failed": why[-300:]}
        law = np.load(out)
        figures = errors(w, (law["mean"], law["variance"]))
        spent = dict(zip(("seconds", "processor", "GiB"), law["spent"].tolist(), strict=True))
    said = "  ".join(f"{key} {value:.4g}" for key, value in {**figures, **spent}.items())
    print(f"{name} {seed} {racer:10s} {said}  {why[-100:]}", flush=True)
    return {"table": name, "seed": seed, "racer": racer, **figures, **spent}


if __name__ == "__main__":
    main()
