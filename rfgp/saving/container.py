"""Files that models are saved in: safetensors with a JSON header. Nothing in a file is ever executed.

The metadata of the safetensors file has one entry, `rfgp`: JSON with the format's `version`, the `header` (what is no
array), and the `sha256` of the header and the tensors, which finds damage (it is no signature: whoever can write the
file can write the checksum).
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rfgp.errors import InvalidArgumentError, ModelFileError
from rfgp.files import write_atomically
from rfgp.linalg import in_bytes, packed

FORMAT = 7
"""Raised when older readers could not read what newer ones write. 2: graph models of all kinds of features; 3:
roads that meet inside each other; 4: latent neighbours that are solved by a sparse factor, and models of terms;
5: fields on meshes and roads are models of terms; 6: averages of models of terms, and the jitter of their inducing
points."""


def write_file(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a header and tensors (...), whole or not at all.

    Raises:
        InvalidArgumentError: A number of the header is not finite.
    """
    from safetensors.torch import save as to_bytes

    try:
        text = json.dumps(header, allow_nan=False, sort_keys=True)
    except ValueError as error:
        raise InvalidArgumentError(
            f"The numbers of options, priors and reports must be finite in a file, got others ({error}). Replace "
            "infinite ones by large ones."
        ) from error
    whole = {name: packed(value.detach().cpu()) for name, value in tensors.items()}
    entry = {"version": FORMAT, "header": text, "sha256": digest(text, whole)}
    write_atomically(path, to_bytes(whole, {"rfgp": json.dumps(entry)}))


def read_file(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors (...) of a file whose checksum is right.

    Raises:
        ModelFileError: The file is missing, truncated, damaged, not ours, or of a newer version.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    if file.is_dir():
        raise ModelFileError(
            f"The model must be a file, got the folder {file}. Name a file, such as {file / 'model.safetensors'}."
        )
    if not file.is_file():
        raise ModelFileError(f"There is no file {file}.")
    content = file.read_bytes()
    try:
        tensors = {name: tensor.clone() for name, tensor in from_bytes(content).items()}  # aligned, as torch's own are
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    except (SafetensorError, ValueError, RuntimeError, KeyError, RecursionError) as error:
        raise ModelFileError(f"{file} is {_guess(content)}: {str(error)[:120]}.") from error
    if "rfgp" not in metadata:
        raise ModelFileError(f"{file} is a safetensors file, but not a model of rfgp.")
    try:
        entry = json.loads(metadata["rfgp"])
        _check_version(file, entry["version"])
        if digest(entry["header"], tensors) != entry["sha256"]:
            raise ModelFileError(f"{file} is damaged: its checksum is not that of its content. Save the model again.")
        header: dict[str, Any] = json.loads(entry["header"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{file} has a header that cannot be read: {repr(error)[:120]}.") from error
    return header, tensors


def _guess(content: bytes) -> str:
    if content[:2] == b"PK" or content[:1] == b"\x80":
        return "a pickle or an archive of pickles, which rfgp never opens, and not a saved model"
    size = int.from_bytes(content[:8], "little")
    looks_ours = content[8:9] == b"{" and b"__metadata__" in content[: min(8 + size, 2**20)]
    return "truncated or damaged" if looks_ours else "not a saved model"


def _check_version(file: Path, version: Any) -> None:
    if not isinstance(version, int) or not 1 <= version <= 10**6:
        raise ModelFileError(f"{file} has format version {repr(version)[:20]}, which is no version of rfgp.")
    if version > FORMAT:
        raise ModelFileError(
            f"{file} has format version {version}; this rfgp reads versions up to {FORMAT}. Install a newer rfgp."
        )


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the checksum of a header and of tensors (...)."""
    out = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        out.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        out.update(in_bytes(tensor))
    return out.hexdigest()
