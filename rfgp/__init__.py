"""Scalable Gaussian processes on tables, graphs, meshes and roads.

Start with `rfgp.GP`. `import rfgp` is fast: torch is imported with the first name that needs it.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from rfgp.clash import check_graphs

check_graphs()

from rfgp import errors as errors  # noqa: E402
from rfgp.errors import *  # noqa: E402, F403

if TYPE_CHECKING:
    from rfgp import attention as attention
    from rfgp import botorch as botorch
    from rfgp import compare as compare
    from rfgp import couplings as couplings
    from rfgp import dask as dask
    from rfgp import datasets as datasets
    from rfgp import features as features
    from rfgp import fields as fields
    from rfgp import gpytorch as gpytorch
    from rfgp import kernels as kernels
    from rfgp import learn as learn
    from rfgp import lengthscales as lengthscales
    from rfgp import likelihoods as likelihoods
    from rfgp import metrics as metrics
    from rfgp import plotting as plotting
    from rfgp import priors as priors
    from rfgp import report as report
    from rfgp import sampling as sampling
    from rfgp import sklearn as sklearn
    from rfgp import spectra as spectra
    from rfgp import tables as tables
    from rfgp import testing as testing
    from rfgp import theory as theory
    from rfgp.approximations import Chebyshev as Chebyshev
    from rfgp.approximations import EquispacedFourier as EquispacedFourier
    from rfgp.approximations import Exact as Exact
    from rfgp.approximations import InducingPoints as InducingPoints
    from rfgp.approximations import RandomFeatures as RandomFeatures
    from rfgp.approximations import RandomWalks as RandomWalks
    from rfgp.approximations import RationalPrecision as RationalPrecision
    from rfgp.approximations import SparsePrecision as SparsePrecision
    from rfgp.approximations import Taylor as Taylor
    from rfgp.approximations import TruncatedSpectrum as TruncatedSpectrum
    from rfgp.approximations import Vecchia as Vecchia
    from rfgp.forecasts import Backtest as Backtest
    from rfgp.gp import GP as GP
    from rfgp.graph_gp import GraphGP as GraphGP
    from rfgp.graph_gp import MeshGP as MeshGP
    from rfgp.graph_gp import RoadGP as RoadGP
    from rfgp.inference.prediction import LogNormal as LogNormal
    from rfgp.inference.prediction import Prediction as Prediction
    from rfgp.loading import load as load
    from rfgp.models.variogram import Variogram as Variogram
    from rfgp.presets import ExactGP as ExactGP
    from rfgp.presets import SparseSpectrumGP as SparseSpectrumGP

    __version__: str

_HOMES = {
    "load": "rfgp.loading",
    "Backtest": "rfgp.forecasts",
    "Chebyshev": "rfgp.approximations",
    "EquispacedFourier": "rfgp.approximations",
    "Exact": "rfgp.approximations",
    "ExactGP": "rfgp.presets",
    "GP": "rfgp.gp",
    "GraphGP": "rfgp.graph_gp",
    "InducingPoints": "rfgp.approximations",
    "LogNormal": "rfgp.inference.prediction",
    "MeshGP": "rfgp.graph_gp",
    "Prediction": "rfgp.inference.prediction",
    "RandomFeatures": "rfgp.approximations",
    "RandomWalks": "rfgp.approximations",
    "RationalPrecision": "rfgp.approximations",
    "RoadGP": "rfgp.graph_gp",
    "SparsePrecision": "rfgp.approximations",
    "SparseSpectrumGP": "rfgp.presets",
    "Taylor": "rfgp.approximations",
    "TruncatedSpectrum": "rfgp.approximations",
    "Variogram": "rfgp.models.variogram",
    "Vecchia": "rfgp.approximations",
}
"""The modules of classes and functions that are imported on first use."""
_CORE = ("couplings", "features", "kernels", "learn", "likelihoods", "metrics", "spectra", "theory")
_RIM = ("attention", "botorch", "compare", "dask", "datasets", "fields", "gpytorch", "report", "sklearn")
_TOOLS = ("lengthscales", "plotting", "priors", "sampling", "tables", "testing")

__all__ = [*errors.__all__, *_HOMES, *_CORE, "errors"]


def __getattr__(name: str) -> Any:
    """Import a class or a module on first use."""
    if name in _HOMES:
        found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found
    if name == "__version__":
        from importlib.metadata import version

        return version("rfgp")
    if name.startswith("_") or importlib.util.find_spec(f"rfgp.{name}") is None:
        raise AttributeError(f"module 'rfgp' has no attribute {name!r}")
    return importlib.import_module(f"rfgp.{name}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_RIM, *_TOOLS, "__version__"])
