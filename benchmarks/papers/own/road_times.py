"""Speeds on roads at several times: a Gaussian process with time as a column, against replicates of one field.

The data are MetricGraph's `pems_repl`: 26 replicates of the speeds at 319 sensors on the highways of San Jose. The file
has no dates and no hours. The only column of time is the number of the replicate, so no season is known.

The file lies next to `traffic/pems.rda` in the folder that RFGP_DATA_DIR names. The command is

    OMP_NUM_THREADS=1 python -m benchmarks.papers --only own/road-times
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

import graphs
import rfgp
from benchmarks.protocol import Law
from benchmarks.record import Result, Scale, Value
from rfgp import kernels as k
from rfgp.datasets import fetch

FOLDS, PERMUTATIONS = 5, 2
PERIOD = 4.0
"""The period of the season, in replicates. It is a guess, because the data have no dates."""
WARM_UP = 6
"""The number of times of the untimed fits that compile what numba compiles."""
MEASURES = ("RMSE", "CRPS", "NLPD", "CPU seconds of the fit", "CPU seconds of the prediction")
MAIN, REPLICATES, RESIDUALS, LEVEL, MEAN = (
    "time as a column",
    "replicates",
    "mean field and replicates of residuals",
    "time as a level",
    "mean, one sd",
)
COMPARED = (REPLICATES, RESIDUALS, LEVEL, MEAN)
"""The models from which the scores of `MAIN` are subtracted, fold by fold."""

Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]
Moments = tuple[Numbers, Numbers]
"""Means and variances of observations, (new sensors, new times) each."""
Model = Callable[["Case"], Callable[[], Moments]]
"""A fit, which returns the prediction."""


@dataclass(frozen=True, eq=False)
class Case:
    """Readings, with the sensors and times for training and for predictions.

    Attributes:
        network: The roads.
        positions: The road and the fraction of each sensor, (S, 2).
        y: The speeds in mph, (S, T).
        sensors: The training sensors.
        times: The training times.
        new_sensors: The sensors of the predictions. Either the sensors or the times are new.
        new_times: The times of the predictions.
    """

    network: graphs.RoadNetwork
    positions: Numbers
    y: Numbers
    sensors: Indices
    times: Indices
    new_sensors: Indices
    new_times: Indices

    @property
    def train(self) -> Numbers:
        """The training targets, (training sensors, training times)."""
        return self.y[np.ix_(self.sensors, self.times)]

    @property
    def holds_out_times(self) -> bool:
        """Whether the held-out rows are of new times, and not of new sensors."""
        return not np.isin(self.new_times, self.times).any()

    def rows(self, sensors: Indices, times: Indices) -> dict[str, NDArray[np.generic]]:
        """Return the columns of all pairs of sensors and times."""
        sensor, when = (grid.ravel() for grid in np.meshgrid(sensors, times, indexing="ij"))
        road, fraction = self.positions[sensor].T
        return {"road": road.astype(int), "fraction": fraction, "sensor": sensor, "time": when.astype(float)}


def whole_data() -> Case:
    """Return all readings for training, and for prediction as well."""
    roads = graphs.read_roads(fetch("pems").with_name("pems_repl.rda"))
    edges, fractions, _ = roads.sensor_positions()
    y = roads.values.reshape(-1, len(edges)).T
    sensors, times = (np.arange(count) for count in y.shape)
    positions = np.stack([edges, fractions], axis=1)
    return Case(graphs.RoadNetwork.from_roads(roads), positions, y, sensors, times, sensors, times)


def folds(data: Case, axis: str, permutations: int) -> Iterator[Case]:
    """Yield the folds over "sensors" or over "times"."""
    everything = data.times if axis == "times" else data.sensors
    for seed in range(permutations):
        order = np.random.default_rng(seed).permutation(everything)
        for fold in range(FOLDS):
            held_out = np.sort(order[fold::FOLDS])
            kept = np.setdiff1d(everything, held_out)
            if axis == "times":
                yield replace(data, times=kept, new_times=held_out)
            else:
                yield replace(data, sensors=kept, new_sensors=held_out)


def kernels(network: graphs.RoadNetwork) -> dict[str, k.Kernel]:
    """Return the kernels of the processes on rows, by name. No two terms share a factor's hyperparameters."""
    roads, sensor = k.Roads(network, name="roads"), k.Group("sensor", name="sensor")
    product = (k.Roads(network) * k.Matern("time", nu=0.5)).named("roads x time")
    level = k.Group("time", name="time") + (k.Roads(network) * k.Group("time")).named("roads x time")
    return {
        MAIN: roads + k.Matern("time", nu=0.5, name="time") + product + sensor,
        "time as a column, season": roads + k.Periodic("time", period=PERIOD, name="season") + product + sensor,
        LEVEL: roads + level + sensor,
        "roads and sensor, no time": roads + sensor,
        "roads alone, no time": roads,
    }


def of_rows(name: str) -> Model:
    """Return the Gaussian process on single readings with a kernel by name."""

    def fit(case: Case) -> Callable[[], Moments]:
        gp = rfgp.GP(kernels(case.network)[name], seed=0)
        gp.fit(case.rows(case.sensors, case.times), case.train.ravel())

        def predict() -> Moments:
            p = gp.predict(case.rows(case.new_sensors, case.new_times)).observed()
            shape = len(case.new_sensors), len(case.new_times)
            return p.mean.reshape(shape), p.variance.reshape(shape)

        return predict

    return fit


def at_new_times(mean: Numbers, variance: Numbers, count: int) -> Moments:
    """Return the moments of a mixture over the training times, (S, T), for each of `count` new times."""
    moments = mean.mean(1), variance.mean(1) + mean.var(1)
    first, second = (np.repeat(moment[:, None], count, axis=1) for moment in moments)
    return first, second


def fit_replicates(case: Case, targets: Numbers) -> Callable[[], Moments]:
    """Fit one field to columns of targets (training sensors, training times) that share its hyperparameters."""
    gp = rfgp.RoadGP(case.network, seed=0).fit(case.positions[case.sensors], targets)

    def predict() -> Moments:
        p = gp.predict(case.positions[case.new_sensors]).observed()
        return at_new_times(p.mean, p.variance, len(case.new_times)) if case.holds_out_times else (p.mean, p.variance)

    return predict


def replicates(case: Case) -> Callable[[], Moments]:
    """Fit one field, with the times as replicates."""
    return fit_replicates(case, case.train)


def residuals(case: Case) -> Callable[[], Moments]:
    """Fit a field to the means of the sensors, and another one to the replicates of the residuals."""
    means = case.train.mean(1)
    rest = fit_replicates(case, case.train - means[:, None])
    gp = None
    if not case.holds_out_times:
        gp = rfgp.RoadGP(case.network, seed=0).fit(case.positions[case.sensors], means)

    def predict() -> Moments:
        mean, variance = rest()
        if gp is None:
            return mean + means[:, None], variance
        p = gp.predict(case.positions[case.new_sensors]).observed()
        return mean + p.mean[:, None], variance + p.variance[:, None]

    return predict


def average(one_sd: bool) -> Model:
    """Return the mean of each sensor over training times, or for new sensors of each time over training sensors.

    Args:
        one_sd: Whether one standard deviation holds for all, and not one for each mean.
    """

    def fit(case: Case) -> Callable[[], Moments]:
        axis = 1 if case.holds_out_times else 0
        mean = case.train.mean(axis, keepdims=True)
        variance = case.train.var(axis, ddof=1, keepdims=True) * (1 + 1 / case.train.shape[axis])
        shape = len(case.new_sensors), len(case.new_times)
        spread = np.full_like(variance, variance.mean()) if one_sd else variance
        return lambda: (np.broadcast_to(mean, shape), np.broadcast_to(spread, shape))

    return fit


def models(network: graphs.RoadNetwork) -> dict[str, Model]:
    """Return the models by name."""
    found = {name: of_rows(name) for name in kernels(network)}
    found |= {REPLICATES: replicates, RESIDUALS: residuals}
    return found | {MEAN: average(one_sd=True), "mean, an sd for each": average(one_sd=False)}


def scores(model: Model, case: Case) -> Numbers:
    """Return the `MEASURES` of a model on the held-out rows, (5,)."""
    begin = time.process_time()
    predict = model(case)
    fitted = time.process_time()
    moments = predict()
    end = time.process_time()
    y = case.y[np.ix_(case.new_sensors, case.new_times)].ravel()
    mean, variance = (torch.tensor(moment.ravel()) for moment in moments)
    p = Law(mean, variance.diag())
    measures = (rfgp.metrics.rmse, rfgp.metrics.crps, rfgp.metrics.nlpd)
    return np.array([*(measure(y, p) for measure in measures), fitted - begin, end - fitted])


def with_errors(label: str, found: Numbers, names: Sequence[str] = MEASURES) -> list[Value]:
    """Return means over folds (folds, measures); the permutations repeat the same rows, and count as one."""
    errors = found.std(0, ddof=1) / FOLDS**0.5
    return [
        Value(f"{label}: {name}", float(mean), float(error))
        for name, mean, error in zip(names, found.mean(0), errors, strict=True)
    ]


def of_split(axis: str, found: Mapping[str, Numbers]) -> list[Value]:
    """Return the scores of each model, and the differences of others from `MAIN`, fold by fold."""
    values = [value for name, one in found.items() for value in with_errors(f"{axis} held out, {name}", one)]
    for other in COMPARED:
        difference = (found[other] - found[MAIN])[:, :3]
        values += with_errors(f"{axis} held out, {other} minus {MAIN}", difference, MEASURES[:3])
    return values


def of_all_rows(data: Case) -> list[Value]:
    """Return the hyperparameters and the latent values of `MAIN` on all rows."""
    gp = rfgp.GP(kernels(data.network)[MAIN], seed=0).fit(data.rows(data.sensors, data.times), data.train.ravel())
    sizes = {f"latent values of {name}": term.cost.num_features for name, term in gp.terms.items()}
    fitted = {path: gp.hyperparameters[path].item() for path in gp.hyperparameters.names}
    return [Value(f"all rows, {MAIN}: {name}", float(value)) for name, value in {**fitted, **sizes}.items()]


def road_times(scale: Scale) -> Result:
    """Return the scores of each model for held-out times and held-out sensors."""
    data = whole_data()
    if scale.quick:
        data = replace(data, times=data.times[:WARM_UP], new_times=data.times[:WARM_UP])
    chosen = models(data.network)
    values: list[Value] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rfgp.RfgpWarning)
        for model in chosen.values():
            scores(model, replace(data, times=data.times[:WARM_UP], new_times=data.times[:WARM_UP]))
        for axis in ("times", "sensors"):
            cases = list(folds(data, axis, scale(PERMUTATIONS, least=1)))
            found = {name: np.array([scores(model, case) for case in cases]) for name, model in chosen.items()}
            values += of_split(axis, found)
        values += of_all_rows(data)
    return Result("speeds on roads with time as a column, against replicates", PROTOCOL, values, NOTES)


PROTOCOL = (
    "Fixed before the scores were seen, but for those of one fold of the first model, which was run to learn its "
    "seconds. MetricGraph's pems_repl: 8,294 speeds in mph, of 319 sensors in 26 replicates. The time is the number of "
    f"the replicate, because the file has no dates. {FOLDS} folds of whole times and {FOLDS} folds of whole sensors, "
    f"fold f the entries f, f + {FOLDS}, ... of a permutation, of {PERMUTATIONS} permutations (seeds 0 and 1). RMSE, "
    "CRPS and NLPD are of the marginal distributions of single held-out observations. Values are means over all folds. "
    f"Errors are their standard deviation over all folds, divided by the root of {FOLDS}. All fields have alpha 1 and "
    "Neumann's condition, all fits default starts, and nothing was tuned. Seconds are CPU time with one thread, after "
    "an untimed fit to six times that compiles the loops. 'time as a column' is the kernel Roads + Matern(time) + Roads"
    " * Matern(time) + Group(sensor) with nu = 0.5. 'season' replaces the term of time by Periodic with a period of 4 "
    "replicates, which is a guess. 'time as a level' replaces both kernels of time by Group(time). 'replicates' is "
    "RoadGP of y (n, T): independent fields with common hyperparameters, but with a mean and a scale for each time. It "
    "cannot predict a new time. There its prediction is the mixture of those of the training times at the sensor, as a "
    "normal distribution of the same mean and variance. 'mean field and replicates of residuals' is RoadGP of the "
    "means of the sensors plus RoadGP of the residuals; for new times it takes the means of the sensors themselves. "
    "'mean' is that of the sensor over training times; for new sensors it is that of the time over training sensors. "
    "Differences are those of another model minus 'time as a column', fold by fold: above 0 the latter is better."
)
NOTES = ("No rows were left out: the product has 26,260 latent values on all rows.",)
FIGURES: dict[str, Callable[[Scale], Result]] = {"road-times": road_times}
