"""Dates in an index, integer names, lists of targets and other containers are taken, or refused with a remedy."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from frames import CONTAINERS
from sklearn.base import clone

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPRegressor, GraphGPRegressor

DATES = pd.date_range("2024-01-01", periods=40, name="date")
Y = np.sin(np.arange(40) / 5)
SERIES = pd.DataFrame({"y": Y, "z": -Y}, index=DATES)
RIGHT = rfgp.GP(k.RBF("date"), seed=0).condition({"date": DATES}, Y).predict({"date": DATES}).mean


def model(kernel):
    return rfgp.GP(kernel, seed=0)


INDICES = {
    "by name": (SERIES[["y"]], "date"),
    "without a name": (SERIES[["y"]].rename_axis(index=None), "index"),
    "of two levels": (SERIES[["y"]].set_index(np.arange(40) % 2, append=True), "date"),
}


@pytest.mark.parametrize(("frame", "name"), INDICES.values(), ids=INDICES)
def test_terms_read_an_index_by_name(frame, name):
    gp = model(k.RBF(name)).condition(frame, "y")
    for new in (frame, frame[[]]):
        np.testing.assert_allclose(gp.predict(new).mean, RIGHT, atol=1e-8)


def test_an_index_is_no_column_of_a_kernel_of_all():
    frame = SERIES.assign(a=np.arange(40.0))
    assert [c.key for c in model(k.RBF()).condition(frame, "y").spec.schema.columns] == ["z", "a"]
    with pytest.raises(rfgp.DataError, match="index is date"):
        model(k.RBF("day")).condition(frame, "y")


@pytest.mark.parametrize("dates", [DATES, DATES.to_series(), DATES.to_numpy(), DATES.tz_localize("Europe/Berlin")])
def test_dates_are_inputs_of_one_column(dates):
    gp = model(k.RBF()).condition(dates, Y)
    np.testing.assert_allclose(gp.predict(dates).mean, RIGHT, atol=1e-8)


def test_integer_names_are_targets():
    frame = SERIES.reset_index(drop=True).assign(a=np.arange(40.0)).set_axis([0, 1, 2], axis=1)
    gp = model(k.RBF(2)).condition(frame, 0)
    np.testing.assert_allclose(gp.predict(frame).mean, model(k.RBF(2)).condition(frame, frame[0]).predict(frame).mean)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_lists_name_several_targets(container):
    table = container({"a": list(np.arange(40.0)), "u": list(Y), "v": list(-Y)})
    mean = model(k.RBF("a")).condition(table, ["u", "v"]).predict(table).mean
    np.testing.assert_allclose(mean, model(k.RBF("a")).condition(table, np.c_[Y, -Y]).predict(table).mean)


def test_lists_of_targets_may_be_tensors():
    columns = {"a": torch.arange(40.0), "u": torch.tensor(Y).float(), "v": -torch.tensor(Y).float()}
    assert model(k.RBF()).condition(columns, ("u", "v")).predict(columns).mean.shape == (40, 2)


REFUSED = {
    "scipy.sparse": (sp.csr_array(np.eye(40)), "toarray"),
    "a series of numbers": (pd.Series(Y), "to_frame"),
}


@pytest.mark.parametrize(("X", "remedy"), REFUSED.values(), ids=REFUSED)
def test_other_containers_are_refused_with_a_remedy(X, remedy):
    with pytest.raises(rfgp.DataError, match=remedy):
        model(k.RBF()).condition(X, Y)


def test_xarray_is_refused_with_a_remedy():
    xr = pytest.importorskip("xarray")
    for X in (xr.Dataset({"y": ("t", Y)}), xr.DataArray(Y)):
        with pytest.raises(rfgp.DataError, match="to_dataframe"):
            model(k.RBF()).condition(X, Y)


@pytest.mark.parametrize("estimator", [GPRegressor(k.RBF()), GraphGPRegressor(np.eye(2))])
def test_parts_of_options_cannot_be_set(estimator):
    with pytest.raises(rfgp.InvalidArgumentError, match="whole"):
        clone(estimator).set_params(kernel__lengthscale=2.0)
