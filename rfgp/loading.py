"""Models from files."""

from pathlib import Path
from typing import Any

from rfgp.errors import ModelFileError
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP, MeshGP, RoadGP
from rfgp.models.spec import ModelSpec
from rfgp.presets import ExactGP, SparseSpectrumGP
from rfgp.saving import read
from rfgp.torch_context import with_torch_defaults

CLASSES: dict[str, type[GP]] = {
    kind.__name__: kind for kind in (GP, ExactGP, SparseSpectrumGP, GraphGP, MeshGP, RoadGP)
}
"""The classes of models by their names in files."""


@with_torch_defaults()
def load(path: str | Path) -> Any:
    """Load a model from a file that `save` wrote.

    All numbers are restored bit for bit, on the CPU. No code of the file is run.

    Args:
        path: The file.

    Returns:
        A `GP`, `SparseSpectrumGP`, `ExactGP`, `GraphGP`, `RoadGP` or `MeshGP`. If it was saved without data, it
        predicts, but `exact`, `with_approximation` and `update` need `condition` first.

    Raises:
        ModelFileError: If the file is missing, damaged, not a saved model, or of another version of the format.

    Examples:
        >>> import os, tempfile
        >>> import rfgp
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), approximation=rfgp.RandomFeatures(4), seed=0)
        >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
        >>> gp.condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5]).save(file)
        >>> rfgp.load(file).num_observations
        3
    """
    file = Path(path)
    try:
        saved = read(file)
        kind, spec = CLASSES[saved.kind], saved.state.spec
        if not isinstance(spec, ModelSpec) or not isinstance(spec.options.kernel, kind.leaf):
            raise ValueError(f"a {saved.kind} has another kernel")
        first = next(iter(spec.approximations.values()))
        if not isinstance(first, kind.approximation_class):
            raise ValueError(f"the approximation is not that of a {saved.kind}")
        model = kind.of(saved.state, saved.report)
    except ModelFileError:
        raise
    except Exception as error:  # a well-formed file with a wrong content may break anything here
        raise ModelFileError(
            f"{file} must hold a consistent model, got {repr(error)[:200]}. Save the model again."
        ) from error
    model.metadata = saved.metadata
    return model
