"""Checkpoints: what a fit has computed, in the order in which it computed it.

A fit is a deterministic sequence of expensive steps (evaluations of the likelihood, runs of Adam, passes over all
rows). A journal appends the result of each to a file; a fit that is started again reads them instead of computing
them, and goes on where they end, to the same bits. A record has a length, a CRC-32 and a safetensors body, so one
that was cut off by a kill is found and written again. Nothing in the file is ever executed.
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
    """What a file remembers of a step; a tensor that it lacks is said as a fault of the file."""

    def __init__(self, tensors: Tensors, path: Path) -> None:
        super().__init__(tensors)
        self._path = path

    def __missing__(self, name: str) -> Tensor:
        raise CheckpointError(f"{self._path} has a record without {name!r}. Delete it to begin anew.")


class Journal:
    """Remembers results of a deterministic computation; this one in memory only, so it never remembers.

    Laws: `memoize` is called with the same names in the same order whenever the same fit runs.
    """

    def memoize(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """Return the tensors (of any shapes) that `compute` returns, or returned in a run before this one."""
        return compute()


class FileJournal(Journal):
    """A journal in a file.

    Args:
        path: The file; made where it is missing.
        identity: What the fit is a function of, as a short text.

    Raises:
        CheckpointError: the file is no checkpoint, or one of another fit.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        if path.is_dir():
            raise CheckpointError(f"{path} is a folder; give a file in it.")
        if not path.exists():
            write_atomically(path, _MAGIC + identity.encode() + b"\n")
        elif not path.is_file():
            raise CheckpointError(f"{path} is no regular file, which a checkpoint is. Choose another name.")
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
        self.has_told = False  # whether the last step was read and not computed

    def memoize(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """Return the tensors (of any shapes) that `compute` returns, or returned in a run before this one.

        Warns:
            CheckpointWarning: the file cannot be written; the fit goes on without.

        Raises:
            CheckpointError: the file remembers another step here, or not all that a step computes, which is said
                where it is asked for.
        """
        if self._replaying and (record := self._read()) is not None:
            step, tensors = record
            if step != name:
                raise CheckpointError(f"{self.path} has {step!r} where this fit has {name!r}. Delete it to begin anew.")
            if self._steps == 0:
                self._compare(tensors, compute())
            self._steps, self.has_told = self._steps + 1, True
            return _Record(tensors, self.path)
        self._replaying = self.has_told = False
        tensors = compute()
        self._append(name, tensors)
        return tensors

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _compare(self, before: Tensors, now: Tensors) -> None:
        """Refuse a first step with other likelihoods: its hyperpriors, say, are not in the identity."""
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
            f"{self.path} is the checkpoint of another fit: other data, options, seed or version. Delete it, or choose "
            "another name. (A model without a seed takes another one each time.)"
        )

    def _check(self, identity: str) -> None:
        assert self._file is not None
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise CheckpointError(f"{self.path} is not a checkpoint of a fit. Choose another name.")
        if self._file.read(len(identity) + 1) != identity.encode() + b"\n":
            raise CheckpointError(self._foreign)

    def _read(self) -> tuple[str, Tensors] | None:
        """Return the next record; where there is none, or half of one, make the file end there."""
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
                except Exception as error:  # a record that is not ours may break anything here
                    raise CheckpointError(f"{self.path} holds a record that no fit has written. Delete it.") from error
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
            message = f"{self.path} cannot be written ({error.strerror}); the fit goes on without a checkpoint."
            with suppress(OSError):
                self._file.close()
            self._file = None
            warnings.warn(CheckpointWarning(message), stacklevel=2)


@contextmanager
def open_journal(path: str | Path | None, identity: Callable[[], str]) -> Iterator[Journal]:
    """Open a fit's journal; without a path one that never remembers.

    Raises:
        CheckpointError: the file is no checkpoint, or one of another fit, or a step cannot go on from what it tells.
        OSError: the folder is missing or cannot be written.
    """
    if path is None:
        yield Journal()
        return
    journal = FileJournal(Path(path), identity())
    try:
        yield journal
    except RfgpError:
        raise
    except Exception as error:
        if not journal.has_told:
            raise
        raise CheckpointError(
            f"{path} has a record that does not fit this fit ({type(error).__name__}: {str(error)[:100]}). Delete it "
            "to begin anew."
        ) from error
    finally:
        journal.close()


def fingerprint(regression: GPState, fixed: tuple[str, ...], max_iterations: int | None) -> str:
    """Return a hash of what a fit is a function of: family, data, start, draw and version.

    Hyperpriors have no bytes of their own; where the first step has likelihoods, the journal tells them by these.
    """
    words = [version("rfgp"), str(sorted(fixed)), str(max_iterations), torch.__version__]
    digest = hashlib.sha256("\n".join(words).encode())
    for part in _parts(regression):
        if isinstance(part, str):
            digest.update(f"\n{part}\n".encode())
            continue
        digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
        digest.update(in_bytes(part))
    return digest.hexdigest()


def _parts(regression: GPState) -> Iterator[str | Tensor]:
    """Yield the specification, the start and the data. Rows that are read in blocks give a digest of their values."""
    yield from regression.spec.identity()
    yield regression.hyperparameters.flat()
    for affine in (regression.scaling.targets, regression.scaling.inputs):
        if affine is not None:
            yield from (affine.location, affine.scale)
    for part in parts_of(regression.needed_rows("a fit")):
        if isinstance(part, SourceRows):
            yield part.digest
        elif isinstance(part, ArrayRows):
            yield from (t for t in (part.inputs, part.targets, part.fixed_noise, part.weight) if t is not None)
