"""Models of the scales of residuals in files."""

import math
from dataclasses import fields

import torch
from torch import Tensor

from rfgp.inference.scales import NODES, ScaleBasis, ScaleModel
from rfgp.saving.container import Json, Tensors

_BASIS = tuple(field.name for field in fields(ScaleBasis))
_OWN = ("weights", "covariance", "row_weights", "row_nodes")


def encode_scales(model: ScaleModel) -> tuple[Json, dict[str, Tensor]]:
    """Return a model of scales as JSON, and tensors (...).

    Args:
        model: The model.
    """
    tensors = {name: getattr(model.basis, name) for name in _BASIS} | {name: getattr(model, name) for name in _OWN}
    described = {"df": None if math.isinf(model.df) else model.df, "floor": model.floor}
    return described, {name: tensor for name, tensor in tensors.items() if tensor is not None}


def decode_scales(described: Json, tensors: Tensors, num_rows: int, num_columns: int) -> ScaleModel:
    """Return the model that `encode_scales` wrote.

    Args:
        described: The JSON.
        tensors: The tensors (...) by name.
        num_rows: The number of rows of the model.
        num_columns: The number of columns of its inputs.

    Raises:
        ValueError: If the parts are inconsistent.
    """
    basis = ScaleBasis(**{name: tensors[name] for name in _BASIS})
    d, row_weights = len(basis.columns), tensors.get("row_weights")
    shapes = {"columns": (d,), "column_ranges": (4, d), "mean_range": (4,), "variance_range": (4,)}
    shapes |= {"frequencies": (d, len(basis.phases)), "phases": (len(basis.phases),)}
    shapes |= {"weights": (len(basis.blocks),), "covariance": 2 * (len(basis.blocks),), "row_weights": (num_rows,)}
    shapes["row_nodes"] = (len(NODES), num_rows)
    if any(tuple(tensor.shape) != shapes[name] for name, tensor in tensors.items()):
        raise ValueError("the tensors of the scales must match each other, the rows and the columns")
    kinds = {name: torch.int64 if name == "columns" else torch.float64 for name in tensors}
    if any(tensor.dtype != kinds[name] for name, tensor in tensors.items()):
        raise ValueError("the tensors of the scales must have valid types")
    if bool(((basis.columns < 0) | (basis.columns >= num_columns)).any()):
        raise ValueError("the scales must read columns of the model")
    df, floor = described["df"], described["floor"]
    if not (df is None or (isinstance(df, float) and df > 2)) or not (isinstance(floor, float) and floor >= 0):
        raise ValueError("the degrees of freedom and the floor of the scales must be valid")
    if row_weights is not None and not bool((row_weights > 0).all()):
        raise ValueError("the weights of rows must be positive")
    weights = tensors["weights"], tensors["covariance"]
    return ScaleModel(basis, *weights, math.inf if df is None else df, floor, row_weights, tensors.get("row_nodes"))
