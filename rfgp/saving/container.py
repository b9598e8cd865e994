"""Files of saved models: safetensors with a JSON header. No code of a file is executed.

The metadata of the safetensors file have one entry, `rfgp`: JSON with the format's `version`, the `header` with
everything except arrays, and the `sha256` of the header and the tensors. The checksum detects damage. It is not a
signature, because anybody who can write the file can write the checksum.
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
"""The version of the format, which increases if older readers cannot read new files. 2: graph models with all kinds of
features. 3: roads that meet inside each other. 4: latent neighbors with a sparse factor, and models of terms. 5: fields
on meshes and roads as models of terms. 6: averages of models of terms, and the jitter of inducing points. 7: exact
products of kernels at rows on a grid."""


def write_file(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a header and tensors to a file, atomically.

    Args:
        path: The file.
        header: The header, as JSON values.
        tensors: The tensors (...) by name.

    Raises:
        InvalidArgumentError: If a number of the header is not finite.
    """
    from safetensors.torch import save as to_bytes

    try:
        text = json.dumps(header, allow_nan=False, sort_keys=True)
    except ValueError as error:
        raise InvalidArgumentError(
            f"The numbers of options, priors and reports must be finite in a file, got others ({error}). Replace "
            "infinite numbers by large ones."
        ) from error
    whole = {name: packed(value.detach().cpu()) for name, value in tensors.items()}
    entry = {"version": FORMAT, "header": text, "sha256": digest(text, whole)}
    write_atomically(path, to_bytes(whole, {"rfgp": json.dumps(entry)}))


def read_file(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors (...) of a file with a valid checksum.

    Args:
        file: The file.

    Raises:
        ModelFileError: If the file is missing, truncated, damaged, foreign, or of a newer version.
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
        tensors = {name: tensor.clone() for name, tensor in from_bytes(content).items()}  # aligned like torch's tensors
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    except (SafetensorError, ValueError, RuntimeError, KeyError, RecursionError) as error:
        raise ModelFileError(f"{file} is {_guess(content)}: {str(error)[:120]}.") from error
    if "rfgp" not in metadata:
        raise ModelFileError(f"{file} must be a model of rfgp, got another safetensors file. Save the model with rfgp.")
    try:
        entry = json.loads(metadata["rfgp"])
        _check_version(file, entry["version"])
        if digest(entry["header"], tensors) != entry["sha256"]:
            raise ModelFileError(f"{file} is damaged: its checksum does not match its content. Save the model again.")
        header: dict[str, Any] = json.loads(entry["header"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"{file} is damaged: its header cannot be read, {repr(error)[:120]}. Save the model again."
        ) from error
    return header, tensors


def _guess(content: bytes) -> str:
    if content[:2] == b"PK" or content[:1] == b"\x80":
        return "a pickle or an archive of pickles, which rfgp never opens, and not a saved model"
    size = int.from_bytes(content[:8], "little")
    looks_ours = content[8:9] == b"{" and b"__metadata__" in content[: min(8 + size, 2**20)]
    return "truncated or damaged" if looks_ours else "not a saved model"


def _check_version(file: Path, version: Any) -> None:
    if not isinstance(version, int) or not 1 <= version <= 10**6:
        raise ModelFileError(
            f"{file} must have a format version from 1 to {FORMAT}, got {repr(version)[:20]}. Save the model again."
        )
    if version > FORMAT:
        raise ModelFileError(
            f"{file} must have a format version up to {FORMAT} for this rfgp, got {version}. Install a newer rfgp."
        )


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 checksum of a header and tensors, in hexadecimal.

    Args:
        text: The header as JSON text.
        tensors: The tensors (...) by name.
    """
    out = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        out.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        out.update(in_bytes(tensor))
    return out.hexdigest()
