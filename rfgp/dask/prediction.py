"""Fits and predictions of table models on a cluster."""

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from distributed import Client

from rfgp.dask.partitions import Partitions, blocks_of, known_lengths
from rfgp.errors import DataError
from rfgp.models import SparseSpectrumGP
from rfgp.models.process import predictor_of
from rfgp.models.state import Kept


class Predicted(NamedTuple):
    """The law of the latent function, or with noise of an observation, at each row; lazy.

    Attributes:
        mean: A Dask array (n,), or (n, k) for k outputs.
        variance: Likewise.
    """

    mean: da.Array
    variance: da.Array


def fit(
    gp: SparseSpectrumGP,
    X: Any,
    y: Any,
    *,
    noise: Any = None,  # (n,)
    sample_weight: Any = None,  # (n,)
    client: Client | None = None,
    **options: Any,
) -> SparseSpectrumGP:
    """Fit a model to rows on a cluster, in place: `gp.fit(Partitions(X, y, ...))`.

    Hyperparameters, and frequencies where they are learned, come from a random sample of 32,768 rows that is taken to
    the client; noise and output scale, the posterior and the likelihood from all rows, where they lie. The result is
    that of `gp.fit` on the same rows read in blocks (`rfgp.tables.Blocks`) but for the rounding of sums, whatever the
    workers and partitions. Of rows in memory a fit may use more than the sample for the hyperparameters.

    Args:
        gp: The model.
        X: A Dask array (n, d) or dataframe.
        y: Targets (n,) or (n, k), or names of columns; see `Partitions`.
        noise: As there.
        sample_weight: As there.
        client: As there.
        options: Of `SparseSpectrumGP.fit`.

    Returns:
        The model; it predicts here, and by `predict` on the cluster.

    Raises:
        DataError: the data cannot be used.
    """
    return gp.fit(Partitions(X, y, noise, sample_weight, client=client), **options)


def predict(gp: SparseSpectrumGP, X: Any, *, observed: bool = False) -> Predicted:
    """Return means and variances at the rows of a Dask collection, computed where they lie when they are asked for.

    They are those of the model as it is at the call. Each is computed apart, so that the mean alone is cheap.

    Args:
        gp: A fitted model; what it needs of itself goes to each worker once.
        X: A Dask array (n, d), or a dataframe with the columns of the training data.
        observed: Whether the variance is that of an observation, with the noise, rather than that of the function.

    Raises:
        NotFittedError: there are no data yet.
        InvalidArgumentError: no collection of Dask.
    """
    scale = gp._known().scaling.targets.scale
    tail = tuple(scale.shape)
    parts, lengths = blocks_of(X, "X"), known_lengths(X)
    model = dask.delayed(_without_data(gp), pure=False, traverse=False)
    rows = [math.nan] * len(parts) if lengths is None else lengths
    columns = []
    for name in Predicted._fields:
        moment = dask.delayed(partial(_moment, name, observed), pure=False)
        found = [moment(model, part) for part in parts]
        blocks = [da.from_delayed(each, (n, *tail), dtype=float) for each, n in zip(found, rows, strict=True)]
        columns.append(da.concatenate(blocks, allow_unknown_chunksizes=True))
    return Predicted(*columns)


def _moment(name: str, observed: bool, gp: SparseSpectrumGP, X: Any) -> Any:
    """Return the mean or the variance at the rows of one partition."""
    if not len(X):
        return np.empty((0, *gp._known().scaling.targets.scale.shape))
    columns = gp._known().scaling.columns
    if columns is not None and hasattr(X, "columns"):
        names = list(map(str, X.columns))
        missing = [name for name in columns if name not in names]
        if missing:
            raise DataError(f"The dataframe has no column {missing[0]!r}, which the training data have.")
        X = X.iloc[:, [names.index(name) for name in columns]]
    p = gp.predict(X)
    p = p.observed() if observed else p
    return np.asarray(getattr(p, name), dtype=float)


def _without_data(gp: SparseSpectrumGP) -> SparseSpectrumGP:
    """Return a copy that predicts, without the training data."""
    predictor_of(gp)
    kept, light = gp._kept, copy.copy(gp)
    assert kept is not None
    known = gp._known()
    light._state = replace(known, data=None, hyperparameters=copy.deepcopy(known.hyperparameters))
    light._kept = Kept(light._state, kept.raw, kept.tensors)
    return light
