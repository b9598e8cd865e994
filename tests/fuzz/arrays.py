"""Arrays of odd shapes, types and sizes: specifications in JSON, and what they stand for."""

import numpy as np
import torch
from hypothesis import strategies as st

FORMS = ["numpy", "numpy", "tensor", "list", "fortran", "strided", "reversed", "frame", "masked", "readonly", "swapped"]
TYPES = ["float64", "float64", "float32", "int64", "int8", "bool", "float16", "complex128", "object", "str"]
FILLS = ["normal", "normal", "zero", "constant", "huge", "tiny", "nan", "inf", "integer", "step"]
NO_ARRAYS = [None, "text", 3.5, True, [], [[]], {}, [1, "a"], [[1.0], [1.0, 2.0]], -1]


@st.composite
def arrays(draw, shape, odd=0.3):
    """A specification of an array that mostly has a shape, type and form that will do."""
    spec = {"shape": list(shape), "type": "float64", "form": "numpy", "fill": "normal", "seed": draw(st.integers(0, 9))}
    if draw(st.floats(0, 1)) > odd:
        return spec
    for name in draw(st.lists(st.sampled_from(["shape", "type", "form", "fill", "none"]), min_size=1, max_size=2)):
        if name == "shape":
            spec["shape"] = draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, *shape]), max_size=3))
        elif name == "none":
            spec["none"] = draw(st.sampled_from(NO_ARRAYS))
        else:
            spec[name] = draw(st.sampled_from({"type": TYPES, "form": FORMS, "fill": FILLS}[name]))
    return spec


def is_plain(spec):
    """Return whether an array's numbers are of the ordinary size, so that a twin is as exact as the package."""
    return isinstance(spec, dict) and "none" not in spec and spec["fill"] == "normal" and spec["type"] == "float64"


def build(spec):
    """Return the array of a specification."""
    if not isinstance(spec, dict) or "shape" not in spec:
        return spec
    if "none" in spec:
        return spec["none"]
    rng, shape = np.random.default_rng([9, spec["seed"]]), tuple(spec["shape"])
    values = rng.standard_normal(shape)
    values = {
        "normal": lambda: values,
        "zero": lambda: 0 * values,
        "constant": lambda: 0 * values + 3.7,
        "huge": lambda: values * 1e200,
        "tiny": lambda: values * 1e-310,
        "nan": lambda: np.where(values > 1, np.nan, values),
        "inf": lambda: np.where(values > 1, np.inf, values),
        "integer": lambda: np.round(3 * values),
        "step": lambda: np.sign(values),
    }[spec["fill"]]()
    with np.errstate(all="ignore"):
        values = np.asarray(values).astype(spec["type"])
    return _FORMS[spec["form"]](values)


def _tensor(values):
    return torch.as_tensor(np.array(values)) if values.dtype.kind in "fiubc" else values.tolist()


def _frame(values):
    import pandas as pd

    return pd.DataFrame(values) if values.ndim == 2 else pd.Series(values) if values.ndim == 1 else values


def _readonly(values):
    values = values.copy()
    values.flags.writeable = False
    return values


_FORMS = {
    "numpy": lambda v: v,
    "tensor": _tensor,
    "list": lambda v: v.tolist(),
    "fortran": np.asfortranarray,
    "strided": lambda v: np.repeat(v, 2, axis=0)[::2] if v.ndim else v,
    "reversed": lambda v: v[::-1].copy()[::-1] if v.ndim else v,
    "frame": _frame,
    "masked": lambda v: np.ma.MaskedArray(v),
    "readonly": _readonly,
    "swapped": lambda v: v.astype(v.dtype.newbyteorder()) if v.dtype.kind in "fi" else v,
}
