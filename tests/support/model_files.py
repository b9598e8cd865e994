"""Model files with other contents under a right checksum, by the description of the format alone."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load, save

MODELS = Path(__file__).parents[1] / "rfgp" / "saving" / "models"
"""The folder of recorded models."""
GONE = object()
"""In the place of a value that is removed."""


def opened(content):
    """Return the header and the tensors of a model file."""
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    return json.loads(json.loads(metadata["rfgp"])["header"]), {name: t.clone() for name, t in load(content).items()}


def closed(header, tensors, *, version=8, sha256=None):
    """Return a model file with these contents and, unless another is given, its checksum."""
    text = json.dumps(header, sort_keys=True)
    entry = {"version": version, "header": text, "sha256": sha256 or checksum(text, tensors)}
    return save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"rfgp": json.dumps(entry)})


def checksum(text, tensors):
    """Return the SHA-256 of a header, and of the names, types, shapes and bytes of tensors."""
    out = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        out.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        out.update(bytes(tensor.contiguous().flatten().view(torch.uint8).numpy()) if tensor.numel() else b"")
    return out.hexdigest()


def forged(content, *changes):
    """Return a model file with changed contents.

    Args:
        content: The file.
        changes: The place of each change, and the value there, a function of the old value, or `GONE`. A place is the
            name of a tensor, or keys of the header with slashes between them.
    """
    header, tensors = opened(content)
    for place, value in changes:
        keys = [int(key) if key.isdigit() else key for key in place.split("/")]
        holder = header if keys[0] in header else tensors
        for key in keys[:-1]:
            holder = holder[key]
        if value is GONE:
            del holder[keys[-1]]
        else:
            holder[keys[-1]] = value(holder[keys[-1]]) if callable(value) else value
    return closed(header, tensors)
