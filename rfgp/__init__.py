"""Scalable Gaussian processes on tables, graphs, meshes and roads.

Start with `rfgp.GP`. `import rfgp` is fast: torch is imported with the first name that needs it.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rfgp import errors as errors
from rfgp.errors import BaselineNotBeatenWarning as BaselineNotBeatenWarning
from rfgp.errors import BooleanTargetWarning as BooleanTargetWarning
from rfgp.errors import CacheWarning as CacheWarning
from rfgp.errors import CheckpointError as CheckpointError
from rfgp.errors import CheckpointWarning as CheckpointWarning
from rfgp.errors import ConstantTargetWarning as ConstantTargetWarning
from rfgp.errors import ConvergenceWarning as ConvergenceWarning
from rfgp.errors import CouplingWarning as CouplingWarning
from rfgp.errors import DataError as DataError
from rfgp.errors import DataSavedWarning as DataSavedWarning
from rfgp.errors import FileWriteError as FileWriteError
from rfgp.errors import ForecastWarning as ForecastWarning
from rfgp.errors import IdentifierWarning as IdentifierWarning
from rfgp.errors import IndexColumnWarning as IndexColumnWarning
from rfgp.errors import InvalidArgumentError as InvalidArgumentError
from rfgp.errors import JitterWarning as JitterWarning
from rfgp.errors import LatentVarianceWarning as LatentVarianceWarning
from rfgp.errors import MissingDependencyError as MissingDependencyError
from rfgp.errors import MissingFolderError as MissingFolderError
from rfgp.errors import ModelFileError as ModelFileError
from rfgp.errors import NewLevelWarning as NewLevelWarning
from rfgp.errors import NotDifferentiableError as NotDifferentiableError
from rfgp.errors import NotFittedError as NotFittedError
from rfgp.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from rfgp.errors import OutlierWarning as OutlierWarning
from rfgp.errors import OverdispersionWarning as OverdispersionWarning
from rfgp.errors import OverfittingWarning as OverfittingWarning
from rfgp.errors import PackageClashError as PackageClashError
from rfgp.errors import PoorFeaturesWarning as PoorFeaturesWarning
from rfgp.errors import RfgpError as RfgpError
from rfgp.errors import RfgpWarning as RfgpWarning
from rfgp.errors import SolverError as SolverError
from rfgp.errors import TermWarning as TermWarning
from rfgp.errors import UnderfittingWarning as UnderfittingWarning
from rfgp.errors import VarianceStarvationWarning as VarianceStarvationWarning

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
    from rfgp.approximations import MeasuredFeatures as MeasuredFeatures
    from rfgp.approximations import RandomFeatures as RandomFeatures
    from rfgp.approximations import RandomWalks as RandomWalks
    from rfgp.approximations import RationalPrecision as RationalPrecision
    from rfgp.approximations import SparsePrecision as SparsePrecision
    from rfgp.approximations import Taylor as Taylor
    from rfgp.approximations import TruncatedSpectrum as TruncatedSpectrum
    from rfgp.approximations import Vecchia as Vecchia
    from rfgp.inference.prediction import LogNormal as LogNormal
    from rfgp.inference.prediction import Prediction as Prediction
    from rfgp.loading import load as load
    from rfgp.models import ExactGP as ExactGP
    from rfgp.models import SparseSpectrumGP as SparseSpectrumGP
    from rfgp.models.gp import GP as GP
    from rfgp.models.graph import GraphGP as GraphGP
    from rfgp.models.graph import MeshGP as MeshGP
    from rfgp.models.graph import RoadGP as RoadGP

    __version__: str

__all__ = [
    "GP",
    "BaselineNotBeatenWarning",
    "BooleanTargetWarning",
    "CacheWarning",
    "Chebyshev",
    "CheckpointError",
    "CheckpointWarning",
    "ConstantTargetWarning",
    "ConvergenceWarning",
    "CouplingWarning",
    "DataError",
    "DataSavedWarning",
    "EquispacedFourier",
    "Exact",
    "ExactGP",
    "FileWriteError",
    "ForecastWarning",
    "IdentifierWarning",
    "IndexColumnWarning",
    "InducingPoints",
    "InvalidArgumentError",
    "JitterWarning",
    "LatentVarianceWarning",
    "LogNormal",
    "MeasuredFeatures",
    "MissingDependencyError",
    "MissingFolderError",
    "ModelFileError",
    "NewLevelWarning",
    "NotDifferentiableError",
    "NotFittedError",
    "NotPositiveDefiniteError",
    "OutlierWarning",
    "OverdispersionWarning",
    "OverfittingWarning",
    "PackageClashError",
    "PoorFeaturesWarning",
    "Prediction",
    "RandomFeatures",
    "RandomWalks",
    "RationalPrecision",
    "RfgpError",
    "RfgpWarning",
    "SolverError",
    "SparsePrecision",
    "SparseSpectrumGP",
    "Taylor",
    "TermWarning",
    "TruncatedSpectrum",
    "UnderfittingWarning",
    "VarianceStarvationWarning",
    "Vecchia",
    "couplings",
    "errors",
    "features",
    "kernels",
    "learn",
    "likelihoods",
    "load",
    "metrics",
    "spectra",
    "theory",
]  # the names of `import *`; optional modules and graph models are imported by name

_HOMES = {
    "TruncatedSpectrum": "rfgp.approximations",
    "Taylor": "rfgp.approximations",
    "MeasuredFeatures": "rfgp.approximations",
    "RationalPrecision": "rfgp.approximations",
    "RandomWalks": "rfgp.approximations",
    "Chebyshev": "rfgp.approximations",
    "EquispacedFourier": "rfgp.approximations",
    "Exact": "rfgp.approximations",
    "ExactGP": "rfgp.models",
    "GP": "rfgp.models.gp",
    "GraphGP": "rfgp.models.graph",
    "InducingPoints": "rfgp.approximations",
    "MeshGP": "rfgp.models.graph",
    "RoadGP": "rfgp.models.graph",
    "LogNormal": "rfgp.inference.prediction",
    "Prediction": "rfgp.inference.prediction",
    "RandomFeatures": "rfgp.approximations",
    "SparsePrecision": "rfgp.approximations",
    "SparseSpectrumGP": "rfgp.models",
    "Vecchia": "rfgp.approximations",
    "load": "rfgp.loading",
}
_RIM = (
    "attention",
    "botorch",
    "compare",
    "dask",
    "datasets",
    "fields",
    "gpytorch",
    "lengthscales",
    "plotting",
    "priors",
    "report",
    "sampling",
    "sklearn",
    "testing",
)


def __getattr__(name: str) -> Any:
    """Import a class or a module on first use."""
    if name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = found
        return found
    if name == "__version__":
        from importlib.metadata import version

        return version("rfgp")
    if name.startswith("_") or importlib.util.find_spec(f"rfgp.{name}") is None:
        raise AttributeError(f"module 'rfgp' has no attribute {name!r}")
    return importlib.import_module(f"rfgp.{name}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_RIM, "GraphGP", "MeshGP", "RoadGP", "__version__", "tables"])


def _check_graphs() -> None:
    """Check that the package `graphs` is the one of this distribution."""
    spec = importlib.util.find_spec("graphs")
    ours = Path(__file__).resolve().parent.parent / "graphs" / "__init__.py"
    found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    if found != ours:
        raise PackageClashError(
            f"rfgp needs the package 'graphs' of its own distribution ({ours.parent}), but Python finds "
            f"{found or 'none'}. Rename or uninstall the other one, or move it after rfgp on sys.path."
        )


_check_graphs()
