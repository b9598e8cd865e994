"""Models from files."""

from pathlib import Path
from typing import Any

from rfgp.ambient import plain
from rfgp.errors import ModelFileError
from rfgp.models import ExactGP, Process, SparseSpectrumGP, TableGP
from rfgp.models.process import Fitted
from rfgp.saving import Codec, read


@plain()
def load(path: str | Path) -> Any:
    """Load a model that `save` wrote: the same draw and numbers, bit for bit, on the CPU.

    Returns:
        A `GP`, `TableGP`, `SparseSpectrumGP`, `ExactGP`, `GraphGP`, `RoadGP` or `MeshGP`. Without data it predicts;
        `exact`, `redraw`, `with_approximation` and `update` ask to `condition` first.

    Raises:
        ModelFileError: the file is missing, truncated, damaged, not ours, or of a newer version.
    """
    file = Path(path)
    try:
        saved = read(file, _codec_of)
        kind = _class_of(saved.kind)
        leaf = getattr(kind, "leaf", None)
        options: Any = saved.regression.family.options
        if leaf is not None and not isinstance(options.kernel, leaf):
            raise ValueError(f"a {saved.kind} has another kernel")
        model = kind.of(saved.regression.family, Fitted.of(saved.regression, saved.report))
    except ModelFileError:
        raise
    except Exception as error:  # a well-formed file with a wrong content may break anything here
        raise ModelFileError(f"{file} does not hold a model that fits together: {repr(error)[:200]}") from error
    model.metadata = saved.metadata
    return model


def _class_of(kind: str) -> type[Process[Any]]:
    if kind in ("GP", "GraphGP", "MeshGP", "RoadGP"):
        from rfgp.models.fields import MeshGP, RoadGP  # graphs are loaded where they are needed
        from rfgp.models.gp import GP
        from rfgp.models.graph import GraphGP

        models: dict[str, type[GP]] = {each.__name__: each for each in (GP, GraphGP, MeshGP, RoadGP)}
        return models[kind]
    tables: dict[str, type[Process[Any]]] = {each.__name__: each for each in (TableGP, SparseSpectrumGP, ExactGP)}
    if kind not in tables:
        raise ValueError(f"there is no model class {kind!r}")
    return tables[kind]


def _codec_of(kind: str) -> Codec:
    from rfgp.saving.gp import MODELS  # graphs are loaded where they are needed

    _class_of(kind)
    return MODELS
