"""Classes of table rows: probabilities by Gaussian processes of other packages, boosted trees, logistic regression.

Protocol. Tables of `rfgp.datasets`: abalone-3 (rings up to 8, 9 and 10, more), abalone-28 (all numbers of rings),
banknote, car, chess, cmc, nursery, wifi, yeast. Text columns are one-hot, and the names of yeast are dropped. Ten
random splits: the first tenth of numpy's permutation at seeds 0 to 9 is the test part, the rest training. Columns are
standardized on training rows, constant ones dropped. Labels are codes of the classes that training rows have. A test
row of another class is kept: it counts as an error, at a probability of 1e-12, for every racer. Probabilities are
floored there, without being made to sum to one again.

Figures: accuracy; mean log density of the true class; expected calibration error (15 bins of equal width of the top
probability). Also the seconds of the fit and of all predictions, without imports. Each run is alone, on as many threads
as the environment says, in a process of its own that is ended after `--limit` seconds. Nothing is tuned on test rows.
`FEWER` has the racers that are too slow for ten splits: they get the first ones.

- rfgp: `rfgp.sklearn.GPClassifier` of a Gaussian kernel with 512 random frequencies, at seed 0.
- gpc: scikit-learn's GaussianProcessClassifier (Laplace), RBF with one lengthscale and an amplitude, one-vs-rest, on a
  random subset of 1,000 training rows. Classes that are not in the subset have probability 1e-12.
- svgp: GPyTorch's SVGP, 512 learned inducing points from random rows (256 for ten or more classes). The kernel is
  Matern 5/2 with one lengthscale per column, the same for the latent processes of all classes. The likelihood is
  softmax, or probit for two classes. Adam at 0.03, batches of 256 rows, 1,024 above 10,000 rows, for 100 epochs or
  SECONDS. It stops earlier if the mean ELBO over ten epochs improves by less than 0.002 nats per row over the ten
  before. 256 draws for probabilities of softmax.
- gpboost: for two classes, bernoulli_logit with GPBoost's Vecchia approximation, 30 neighbors, Matern 3/2, ARD.
- boosting: HistGradientBoostingClassifier with its defaults, and early stopping on a random tenth of the training rows
  (without rows that are the only ones of their class). The racer boosting-slow is the same at a learning rate of 0.03
  and with at most 1,000 rounds. It was added after the first split had shown the results of boosting for rare classes.
- logistic: multinomial logistic regression, scikit-learn's penalty (C = 1).

A racer of a package that is not installed is left out, with a word. Results are lines of JSON that are added to
`--out`; what stands there already is not run again; `--page` gets means and standard errors.

    python -m benchmarks.races.classification [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS]
                                              [--out FILE] [--page FILE]
"""

import importlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.races import processes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

MODULE = "benchmarks.races.classification"
TABLES = ("banknote", "cmc", "wifi", "car", "yeast", "abalone-3", "abalone-28", "nursery", "chess")
FLOOR, BINS, SUBSET = 1e-12, 15, 1000
EPOCHS, WINDOW, SETTLED, SECONDS = 100, 10, 0.002, 600
COLUMNS = ("accuracy", "log_density", "calibration", "fit_s", "predict_s")
FEWER = {
    **{("gpc", table): 3 for table in ("nursery", "chess")},
    ("boosting-slow", "chess"): 3,
    ("gpc", "abalone-28"): 2,
    ("svgp", "abalone-28"): 2,
    ("svgp", "nursery"): 2,
    ("svgp", "chess"): 1,
}


class Answer(NamedTuple):
    """The probabilities of test rows, (n, num_classes), and the seconds of the fit alone."""

    probabilities: Array
    fit_seconds: float


FitPredict = Callable[[Array, Codes, Array, int], Answer]
"""`fit_predict(x_train, y_train, x_test, num_classes)`: (n, d), (n,), (n_test, d), and how many codes there are."""


@dataclass(frozen=True)
class Racer:
    """A method for probabilities of classes.

    Attributes:
        package: The required module, which is loaded before the clock starts.
        fit_predict: The method.
        most_rows: The largest number of training rows, a random subset.
        most_classes: The largest number of classes.
    """

    package: str
    fit_predict: FitPredict
    most_rows: int | None = None
    most_classes: int | None = None


class Split(NamedTuple):
    """Standardized rows and codes; a test row of a class that training rows lack has code -1."""

    x: Array
    y: Codes
    x_test: Array
    y_test: Codes
    num_classes: int


@cache
def table(name: str) -> tuple[Array, NDArray[Any]]:
    from rfgp import datasets

    rows = datasets.load(name.partition("-")[0])
    y = np.digitize(rows.y, [8.5, 10.5]) if name == "abalone-3" else np.asarray(rows.y)
    return np.asarray(rows.X, dtype=np.float64), y


def split(name: str, seed: int) -> Split:
    X, y = table(name)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    X = X[:, X[train].std(0) > 0]
    X = (X - X[train].mean(0)) / X[train].std(0)
    classes, codes = np.unique(y[train], return_inverse=True)
    place = np.minimum(np.searchsorted(classes, y[test]), len(classes) - 1)
    return Split(X[train], codes, X[test], np.where(classes[place] == y[test], place, -1), len(classes))


def measures(probabilities: Array, y: Codes) -> dict[str, float]:
    """Return accuracy, mean log density and expected calibration error of probabilities (n, c).

    The codes y (n,) are -1 for unknown classes.
    """
    known = np.where(y >= 0, probabilities[np.arange(len(y)), y], 0.0)
    top, right = probabilities.max(1), probabilities.argmax(1) == y
    place = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = [abs(np.sum(right[place == k]) - np.sum(top[place == k])) for k in range(BINS)]
    density = np.log(np.maximum(known, FLOOR)).mean()
    return {"accuracy": float(right.mean()), "log_density": float(density), "calibration": float(sum(gaps) / len(y))}


# --- racers ----------------------------------------------------------------------------------------------------------


def estimator(make: Callable[[], Any]) -> FitPredict:
    """Return the method of anything with `fit`, `predict_proba` and `classes_`, as scikit-learn's classifiers have."""

    def fit_predict(x: Array, y: Codes, z: Array, num_classes: int) -> Answer:
        begin = time.perf_counter()
        model = make().fit(x, y)
        seconds = time.perf_counter() - begin
        return Answer(spread(model.predict_proba(z), model.classes_, num_classes), seconds)

    return fit_predict


def spread(probabilities: Array, classes: Codes, num_classes: int) -> Array:
    """Return probabilities of all codes, zero for those that a subset of rows did not have."""
    out = np.zeros((len(probabilities), num_classes))
    out[:, classes] = probabilities
    return out


def gpc() -> Any:
    from sklearn.gaussian_process import GaussianProcessClassifier, kernels

    return GaussianProcessClassifier(1.0 * kernels.RBF(1.0), random_state=0)


def rfgp() -> Any:
    from rfgp import RandomFeatures, kernels
    from rfgp.sklearn import GPClassifier

    return GPClassifier(kernels.RBF(), RandomFeatures(512), random_state=0)


def logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=5000)


def boosting(x: Array, y: Codes, z: Array, num_classes: int, **options: Any) -> Answer:
    from sklearn.ensemble import HistGradientBoostingClassifier

    begin = time.perf_counter()
    order = np.random.default_rng(0).permutation(len(y))
    first = np.unique(y[order], return_index=True)[1]
    kept = np.setdiff1d(np.arange(len(y) - len(y) // 10, len(y)), first)
    out, left = order[kept], np.delete(order, kept)
    model = HistGradientBoostingClassifier(early_stopping=True, random_state=0, **options)
    model.fit(x[left], y[left], X_val=x[out], y_val=y[out])
    seconds = time.perf_counter() - begin
    return Answer(spread(model.predict_proba(z), model.classes_, num_classes), seconds)


def gpboost(x: Array, y: Codes, z: Array, num_classes: int) -> Answer:
    import gpboost as package

    begin = time.perf_counter()
    options = {"cov_function": "matern_ard", "cov_fct_shape": 1.5, "gp_approx": "vecchia", "num_neighbors": 30}
    model = package.GPModel(gp_coords=x, likelihood="bernoulli_logit", num_parallel_threads=1, **options)
    model.fit(y=y.astype(float), X=np.ones((len(y), 1)))
    seconds = time.perf_counter() - begin
    second = np.asarray(model.predict(gp_coords_pred=z, X_pred=np.ones((len(z), 1)), predict_response=True)["mu"])
    return Answer(np.stack([1 - second, second], axis=1), seconds)


def variational(points: Any, latents: int) -> Any:
    """Return GPyTorch's SVGP with one kernel for `latents` processes, from inducing points (m, d)."""
    import gpytorch
    import torch

    shape = torch.Size([latents] if latents > 1 else [])

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(points), batch_shape=shape)
            strategy: Any = gpytorch.variational.VariationalStrategy(self, points, law)
            if latents > 1:
                strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=latents)
            super().__init__(strategy)
            kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=points.shape[1])
            kernel.lengthscale = points.shape[1] ** 0.5
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    return Model()


def ascend(model: Any, likelihood: Any, x: Any, y: Any) -> None:
    """Raise the ELBO by Adam until it settles."""
    import gpytorch
    import torch

    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    begin = time.perf_counter()
    seen: list[float] = []
    for _ in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(x)).split(1024 if len(x) > 10_000 else 256):
            optimizer.zero_grad()
            loss = -objective(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch) / len(x)
            if time.perf_counter() - begin > SECONDS:
                return
        seen.append(total)
        if len(seen) >= 2 * WINDOW and np.mean(seen[-WINDOW:]) > np.mean(seen[-2 * WINDOW : -WINDOW]) - SETTLED:
            return


def svgp(x: Array, y: Codes, z: Array, num_classes: int) -> Answer:
    import gpytorch
    import torch

    begin = time.perf_counter()
    torch.manual_seed(0)
    rows, binary = torch.as_tensor(x).float(), num_classes == 2
    points = rows[torch.randperm(len(rows))[: 512 if num_classes < 10 else 256]].clone()
    model = variational(points, 1 if binary else num_classes)
    chosen: Any = gpytorch.likelihoods.BernoulliLikelihood()
    if not binary:
        sizes = {"num_features": num_classes, "num_classes": num_classes}
        chosen = gpytorch.likelihoods.SoftmaxLikelihood(**sizes, mixing_weights=False)
    ascend(model, chosen, rows, torch.as_tensor(y).float() if binary else torch.as_tensor(y))
    seconds = time.perf_counter() - begin
    model.eval(), chosen.eval()
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(256):
        laws = [chosen(model(part)).probs for part in torch.as_tensor(z).float().split(256)]
    found = torch.cat(laws) if binary else torch.cat([law.mean(0) for law in laws])
    return Answer((torch.stack([1 - found, found], 1) if binary else found).double().numpy(), seconds)


RACERS = {
    "rfgp": Racer("rfgp.sklearn", estimator(rfgp)),
    "logistic": Racer("sklearn.linear_model", estimator(logistic)),
    "boosting": Racer("sklearn.ensemble", boosting),
    "boosting-slow": Racer("sklearn.ensemble", partial(boosting, learning_rate=0.03, max_iter=1000)),
    "gpboost": Racer("gpboost", gpboost, most_classes=2),
    "gpc": Racer("sklearn.gaussian_process", estimator(gpc), most_rows=SUBSET),
    "svgp": Racer("gpytorch", svgp),
}


def run(racer: str, seed: int, case: Split) -> dict[str, float | int]:
    """Fit and predict in this process, and return the figures."""
    warnings.simplefilter("ignore")
    chosen, rows = RACERS[racer], np.arange(len(case.y))
    importlib.import_module(chosen.package)
    if chosen.most_rows is not None and len(rows) > chosen.most_rows:
        rows = np.random.default_rng(seed).choice(rows, chosen.most_rows, replace=False)
    begin = time.perf_counter()
    answer = chosen.fit_predict(case.x[rows], case.y[rows], case.x_test, case.num_classes)
    seconds = {"fit_s": answer.fit_seconds, "predict_s": time.perf_counter() - begin - answer.fit_seconds}
    sizes = {"train": len(rows), "test": len(case.y_test), "unknown": int(np.sum(case.y_test < 0))}
    return {**measures(answer.probabilities, case.y_test), **seconds, **sizes}


def cases(tables: list[str], racers: list[str], splits: int) -> Iterator[tuple[str, int, str]]:
    """Yield the runs, all of one seed before the next."""
    known = processes.present({name: RACERS[name].package for name in racers})
    classes = {name: len(np.unique(table(name)[1])) for name in tables}
    for seed in range(splits):
        for name in tables:
            for racer in known:
                most = RACERS[racer].most_classes
                if (most is None or classes[name] <= most) and seed < FEWER.get((racer, name), splits):
                    yield name, seed, racer


def main() -> None:
    options = processes.options(TABLES, list(RACERS))
    if options.run:
        racer, seed, file = options.run
        rows = np.load(file)
        case = Split(*(rows[name] for name in Split._fields[:-1]), int(rows["num_classes"]))
        print(json.dumps(run(racer, int(seed), case)))
        return
    wanted = cases(options.tables, options.racers, options.splits)
    found = processes.run_all(MODULE, wanted, lambda *case: split(*case)._asdict(), options.limit, options.out)
    processes.show(processes.page(found, COLUMNS), options.page)


if __name__ == "__main__":
    main()
