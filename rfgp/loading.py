"""Models from files."""

from pathlib import Path
from typing import Any

from rfgp.ambient import plain
from rfgp.errors import ModelFileError
from rfgp.models.fields import MeshGP, RoadGP
from rfgp.models.fitted import Fitted
from rfgp.models.gp import GP
from rfgp.models.graph import GraphGP
from rfgp.models.presets import ExactGP, SparseSpectrumGP
from rfgp.regression.spec import ModelSpec
from rfgp.saving import read
from rfgp.saving.gp import MODELS

CLASSES: dict[str, type[GP]] = {
    kind.__name__: kind for kind in (GP, ExactGP, SparseSpectrumGP, GraphGP, MeshGP, RoadGP)
} | {"TableGP": GP}
"""The classes of models by their names in files."""


@plain()
def load(path: str | Path) -> Any:
    """Load a model that `save` wrote: the same draw and numbers, bit for bit, on the CPU.

    Returns:
        A `GP`, `SparseSpectrumGP`, `ExactGP`, `GraphGP`, `RoadGP` or `MeshGP`. Without data it predicts;
        `exact`, `with_approximation` and `update` ask to `condition` first.

    Raises:
        ModelFileError: the file is missing, truncated, damaged, not ours, or of a newer version.
    """
    file = Path(path)
    try:
        saved = read(file, lambda kind: dict.fromkeys(CLASSES, MODELS)[kind])
        kind, spec = CLASSES[saved.kind], saved.regression.family
        if not isinstance(spec, ModelSpec) or not isinstance(spec.options.kernel, kind.leaf):
            raise ValueError(f"a {saved.kind} has another kernel")
        first = next(iter(spec.approximations.values()))
        if not isinstance(first, kind.approximation_class):
            raise ValueError(f"the approximation is not that of a {saved.kind}")
        model = kind.of(spec, Fitted.of(saved.regression, saved.report))
    except ModelFileError:
        raise
    except Exception as error:  # a well-formed file with a wrong content may break anything here
        raise ModelFileError(f"{file} does not hold a model that fits together: {repr(error)[:200]}") from error
    model.metadata = saved.metadata
    return model
