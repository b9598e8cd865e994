"""Checkpoints: the results of the steps of a fit, in order.

A fit is a deterministic sequence of expensive steps: evaluations of the likelihood, runs of Adam, passes over all rows.
A checkpoint log appends the result of each step to a file. A restarted fit reads these results instead of computing
them, and continues where they end, to the same bits. A record has a length, a CRC-32 and a safetensors body. A
truncated record is detected and written again. The file contains no executable code.
"""

import hashlib
import json
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from rfgp.errors import CheckpointError, CheckpointWarning, RfgpError
from rfgp.files import write_atomically
from rfgp.linalg import in_bytes
from rfgp.regression import GPState
from rfgp.rows import ArrayRows, SourceRows, parts_of

_MAGIC = b"rfgp checkpoint 2\n"
_HEAD = struct.Struct("<QI")

Tensors = dict[str, Tensor]


class _Record(dict[str, Tensor]):
    """The tensors of a step, read from a file.

    A missing tensor raises a `CheckpointError`.
    """

    def __init__(self, tensors: Tensors, path: Path) -> None:
        super().__init__(tensors)
        self._path = path

    def __missing__(self, name: str) -> Tensor:
        raise CheckpointError(f"{self._path} has a record without {name!r}. Delete it to start again.")


class CheckpointLog:
    """A checkpoint log without a file, which computes each step.

    Contract: The same fit calls `memoize` with the same names in the same order each time.

    Examples:
        >>> CheckpointLog().memoize("step", lambda: {"value": torch.tensor(2.0)})
        {'value': tensor(2.)}
    """

    def memoize(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """Return the tensors (...) of a step, computed now or read from an earlier run.

        Args:
            name: The name of the step.
            compute: Computes the tensors.
        """
        return compute()

    def close(self) -> None:
        """Stop reading and recording. Later steps are computed."""


class FileCheckpointLog(CheckpointLog):
    """A checkpoint log in a file.

    Args:
        path: The file. It is created if it is missing.
        identity: A short text that identifies the fit, such as a `fingerprint`.

    Raises:
        CheckpointError: If the file is not a checkpoint, or is that of another fit.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        if path.is_dir():
            raise CheckpointError(f"The checkpoint must be a file, got the folder {path}. Name a file in it.")
        if not path.exists():
            write_atomically(path, _MAGIC + identity.encode() + b"\n")
        elif not path.is_file():
            raise CheckpointError(f"The checkpoint must be a regular file, got {path}. Choose another name.")
        try:
            self._file: BinaryIO | None = path.open("r+b")
        except OSError as error:
            raise CheckpointError(f"{path} cannot be opened: {error.strerror}. Choose another name.") from error
        try:
            self._check(identity)
        except BaseException:
            self._file.close()
            raise
        self._replaying, self._steps = True, 0
        self.has_replayed = False  # whether the last step was read instead of computed

    def memoize(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """Return the tensors (...) of a step, computed now or read from an earlier run.

        Args:
            name: The name of the step.
            compute: Computes the tensors.

        Warns:
            CheckpointWarning: If the file cannot be written. The fit continues without a checkpoint.

        Raises:
            CheckpointError: If the file has another step here. A record that lacks a tensor raises it on access.
        """
        if self._replaying and (record := self._read()) is not None:
            step, tensors = record
            if step != name:
                raise CheckpointError(f"The next step in {self.path} must be {name!r}, got {step!r}. Delete the file.")
            if self._steps == 0:
                self._compare(tensors, compute())
            self._steps, self.has_replayed = self._steps + 1, True
            return _Record(tensors, self.path)
        self._replaying = self.has_replayed = False
        tensors = compute()
        self._append(name, tensors)
        return tensors

    def close(self) -> None:
        """Close the file. Later steps are computed, and not recorded."""
        if self._file is not None:
            self._file.close()
        self._file, self._replaying = None, False

    def _compare(self, before: Tensors, now: Tensors) -> None:
        """Raise if the first step has other likelihoods, for example other hyperpriors."""
        alike = all(
            key in now
            and (value.shape, value.dtype) == (now[key].shape, now[key].dtype)
            and torch.allclose(value, now[key].cpu(), rtol=1e-5)
            for key, value in before.items()
            if key in ("value", "values", "likelihoods")
        )
        if not alike:
            raise CheckpointError(self._foreign)

    @property
    def _foreign(self) -> str:
        return (
            f"{self.path} is the checkpoint of another fit, with other data, options, seed or version. Delete it, or "
            "choose another name. (A model without a seed draws a new one each time.)"
        )

    def _check(self, identity: str) -> None:
        assert self._file is not None
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise CheckpointError(f"{self.path} is not a checkpoint of a fit. Choose another name.")
        if self._file.read(len(identity) + 1) != identity.encode() + b"\n":
            raise CheckpointError(self._foreign)

    def _read(self) -> tuple[str, Tensors] | None:
        """Return the next record.

        If it is missing or incomplete, truncate the file and return None.
        """
        from safetensors.torch import load as from_bytes

        assert self._file is not None
        begin = self._file.tell()
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            size, checksum = _HEAD.unpack(head)
            left = os.fstat(self._file.fileno()).st_size - self._file.tell()
            body = self._file.read(size) if size <= left else b""
            if len(body) == size and zlib.crc32(body) == checksum:
                try:
                    names = int.from_bytes(body[:8], "little")
                    name = json.loads(body[8 : 8 + names])["__metadata__"]["step"]
                    return str(name), {key: tensor.clone() for key, tensor in from_bytes(body).items()}
                except Exception as error:  # a foreign record may raise anything here
                    raise CheckpointError(f"{self.path} has a record that no fit has written. Delete it.") from error
        self._file.seek(begin)
        self._file.truncate()
        return None

    def _append(self, name: str, tensors: Tensors) -> None:
        from safetensors.torch import save as to_bytes

        if self._file is None:
            return
        body = to_bytes({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, {"step": name})
        try:
            self._file.write(_HEAD.pack(len(body), zlib.crc32(body)) + body)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            message = f"{self.path} cannot be written ({error.strerror}). The fit continues without a checkpoint."
            with suppress(OSError):
                self._file.close()
            self._file = None
            warnings.warn(CheckpointWarning(message), stacklevel=2)


@contextmanager
def open_checkpoint_log(path: str | Path | None, identity: Callable[[], str]) -> Iterator[CheckpointLog]:
    """Open the checkpoint log of a fit.

    Args:
        path: The file. If None, each step is computed.
        identity: Returns a short text that identifies the fit.

    Yields:
        The checkpoint log. The file is closed at the end of the context.

    Raises:
        CheckpointError: If the file is not a checkpoint, is that of another fit, or has an unusable record.
        OSError: If the folder is missing or cannot be written.

    Examples:
        >>> import tempfile
        >>> def step():
        ...     return {"value": torch.tensor(2.0)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open_checkpoint_log(f"{folder}/fit", lambda: "a fit") as log:
        ...         _ = log.memoize("step", step)
        ...     with open_checkpoint_log(f"{folder}/fit", lambda: "a fit") as log:
        ...         log.memoize("step", step)["value"], log.has_replayed
        (tensor(2.), True)
    """
    if path is None:
        yield CheckpointLog()
        return
    checkpoint_log = FileCheckpointLog(Path(path), identity())
    try:
        yield checkpoint_log
    except RfgpError:
        raise
    except Exception as error:
        if not checkpoint_log.has_replayed:
            raise
        raise CheckpointError(
            f"{path} has a record that this fit cannot use ({type(error).__name__}: {str(error)[:100]}). Delete it "
            "to start again."
        ) from error
    finally:
        checkpoint_log.close()


def fingerprint(state: GPState, fixed: tuple[str, ...], max_iterations: int | None) -> str:
    """Return a hash of all inputs of a fit, such as data, starts and options.

    Hyperpriors are not included. The log compares the likelihoods of the first step instead.

    Args:
        state: The state at its starting values.
        fixed: The names of fixed hyperparameters.
        max_iterations: The maximum number of iterations. If None, the default.

    Examples:
        >>> import rfgp
        >>> state = rfgp.ExactGP().condition([[0.0], [1.0]], [0.0, 1.0]).state
        >>> fingerprint(state, (), None) == fingerprint(state, ("noise",), None)
        False
    """
    header = [version("rfgp"), str(sorted(fixed)), str(max_iterations), torch.__version__]
    digest = hashlib.sha256("\n".join(header).encode())
    for part in _parts(state):
        if isinstance(part, str):
            digest.update(f"\n{part}\n".encode())
            continue
        digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
        digest.update(in_bytes(part))
    return digest.hexdigest()


def _parts(state: GPState) -> Iterator[str | Tensor]:
    """Yield the parts that identify the spec, the starting values and the data.

    Rows that are read in blocks yield a digest of all values.
    """
    yield from state.spec.identity()
    yield state.hyperparameters.flat()
    for affine in (state.scaling.targets, state.scaling.inputs):
        if affine is not None:
            yield from (affine.location, affine.scale)
    for part in parts_of(state.require_rows(purpose="a fit")):
        if isinstance(part, SourceRows):
            yield part.digest
        elif isinstance(part, ArrayRows):
            yield from (t for t in (part.inputs, part.targets, part.fixed_noise, part.weight) if t is not None)
