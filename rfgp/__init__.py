"""Gaussian processes whose kernel is replaced by the best random features known.

`import rfgp` loads torch, numpy and scipy. `GraphGP` and the adapters (`rfgp.gpytorch`, ...) load
what they need on first use.
"""

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rfgp import couplings as couplings
from rfgp import errors as errors
from rfgp import features as features
from rfgp import learn as learn
from rfgp import metrics as metrics
from rfgp import spectra as spectra
from rfgp import theory as theory
from rfgp.errors import BlocksWarning as BlocksWarning
from rfgp.errors import CacheWarning as CacheWarning
from rfgp.errors import CheckpointError as CheckpointError
from rfgp.errors import CheckpointWarning as CheckpointWarning
from rfgp.errors import ConstantTargetWarning as ConstantTargetWarning
from rfgp.errors import ConvergenceWarning as ConvergenceWarning
from rfgp.errors import DataError as DataError
from rfgp.errors import InvalidArgumentError as InvalidArgumentError
from rfgp.errors import JitterWarning as JitterWarning
from rfgp.errors import MissingExtraError as MissingExtraError
from rfgp.errors import ModelFileError as ModelFileError
from rfgp.errors import NotDifferentiableError as NotDifferentiableError
from rfgp.errors import NotFittedError as NotFittedError
from rfgp.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from rfgp.errors import OverfittingWarning as OverfittingWarning
from rfgp.errors import PackageClashError as PackageClashError
from rfgp.errors import PoorFeaturesWarning as PoorFeaturesWarning
from rfgp.errors import RfgpError as RfgpError
from rfgp.errors import RfgpWarning as RfgpWarning
from rfgp.errors import SolverError as SolverError
from rfgp.errors import VarianceStarvationWarning as VarianceStarvationWarning
from rfgp.inference.prediction import LogNormal as LogNormal
from rfgp.inference.prediction import Prediction as Prediction
from rfgp.loading import load as load
from rfgp.models import ExactGP as ExactGP
from rfgp.models import SparseSpectrumGP as SparseSpectrumGP

if TYPE_CHECKING:
    from rfgp import attention as attention
    from rfgp import botorch as botorch
    from rfgp import dask as dask
    from rfgp import datasets as datasets
    from rfgp import fields as fields
    from rfgp import gpytorch as gpytorch
    from rfgp import plotting as plotting
    from rfgp import report as report
    from rfgp import sklearn as sklearn
    from rfgp import tables as tables
    from rfgp.models.graph import GraphGP as GraphGP

__version__ = importlib.metadata.version("rfgp")

_LAZY = {
    "GraphGP": "rfgp.models.graph",
    "attention": "rfgp.attention",
    "botorch": "rfgp.botorch",
    "compare": "rfgp.compare",
    "dask": "rfgp.dask",
    "datasets": "rfgp.datasets",
    "gpytorch": "rfgp.gpytorch",
    "fields": "rfgp.fields",
    "plotting": "rfgp.plotting",
    "report": "rfgp.report",
    "sklearn": "rfgp.sklearn",
    "tables": "rfgp.tables",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'rfgp' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    return getattr(module, name) if name == "GraphGP" else module


_MODULES = ("couplings", "errors", "features", "learn", "metrics", "spectra", "theory")


def __dir__() -> list[str]:
    own = {name for name, value in globals().items() if getattr(value, "__module__", "").startswith("rfgp.")}
    return sorted({*own, *_MODULES, *_LAZY, "__version__"})


def _check_graphs() -> None:
    """Refuse a package `graphs` that is not the one installed beside this one."""
    spec = importlib.util.find_spec("graphs")
    ours = Path(__file__).resolve().parent.parent / "graphs" / "__init__.py"
    found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    if found != ours:
        raise PackageClashError(
            f"rfgp needs the package 'graphs' of its own distribution ({ours.parent}), but Python finds "
            f"{found or 'none'}. Rename or uninstall the other one, or move it behind rfgp on sys.path."
        )


_check_graphs()
