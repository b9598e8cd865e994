"""Progress of a fit, and checkpoints from which it resumes.

A fit is a sequence of searches. Everything between them, such as the comparison of starts, new bases and the posterior,
follows from their ends. A checkpoint holds the ends of the searches so far, and the hyperparameters of the present one
after its last iteration. The file is written again after each iteration, through a temporary one. A fit that is
repeated reads the ends, and continues the last search from its hyperparameters. L-BFGS begins without its memory of
earlier gradients, so the end agrees within the tolerance of the search.

After two lines, the file has a record of each search: a length, a CRC-32 and a safetensors body. It contains no
executable code.
"""

import hashlib
import json
import math
import struct
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import Tensor

from rfgp.errors import CheckpointError, CheckpointWarning, FileWriteError, InvalidArgumentError
from rfgp.files import check_target, write_atomically
from rfgp.linalg import in_bytes
from rfgp.messages import counted
from rfgp.models import FitReport, GPState, Stage
from rfgp.progress import Bar, seconds_in_words
from rfgp.rows import ArrayRows, SourceRows, parts_of

# --- Progress reports of a fit while it runs -------------------------------------------------------------------------

Callback = Callable[[int, float], None]


@dataclass(frozen=True)
class Progress:
    """The progress of a fit.

    Attributes:
        stage: The name of the stage.
        rows: The number of rows of the stage.
        iteration: The number of completed iterations of the stage, or blocks of rows of a pass.
        iterations: The maximum number of iterations or blocks of the stage.
        log_marginal_likelihood: The last value, in nats and the user's units, of the rows used at that time. NaN before
            the first.
        seconds: The seconds since the start of the fit.
        seconds_left: The seconds left in this stage at its present pace. This is an upper bound, because most stages
            converge before their last iteration.
        unit: The unit of `iteration`, "iterations" or "blocks".

    Examples:
        >>> print(Progress("all rows", 100, 3, 50, -20.0, seconds=1.0, seconds_left=16.0))
        all rows, 100 rows: 3 of at most 50 iterations, log density -0.2000 a row, 1 s, at most 16 s left
    """

    stage: str
    rows: int
    iteration: int
    iterations: int
    log_marginal_likelihood: float
    seconds: float
    seconds_left: float
    unit: str = "iterations"

    def __str__(self) -> str:
        most, score = "", ""
        if self.unit == "iterations":
            most, score = "at most ", f", log density {self.log_marginal_likelihood / max(self.rows, 1):.4f} a row"
        return (
            f"{self.stage}, {counted(self.rows, 'row')}: {self.iteration} of {most}"
            f"{counted(self.iterations, self.unit.removesuffix('s'))}{score}"
            f"{seconds_in_words(self.seconds, self.seconds_left, most)}"
        )


class Reporter:
    """Calls a callback and a progress function after each iteration.

    Args:
        callback: A function of the total number of iterations and the log marginal likelihood. If None, none is called.
        progress: A function of a `Progress`. If True, progress is written to the standard error. If False, it is not
            reported.

    Examples:
        >>> values = []
        >>> reporter = Reporter(lambda iterations, value: values.append((iterations, value)))
        >>> reporter.begin("all rows", rows=100, iterations=50)
        >>> reporter.iteration(1, -20.0)
        >>> values
        [(1, -20.0)]
    """

    def __init__(self, callback: Callback | None = None, progress: bool | Callable[[Progress], None] = False) -> None:
        self._callback = callback
        self._bar = Bar() if progress is True else None
        self._progress = progress if callable(progress) else (self._show if progress else None)
        self._start = self._stage_start = time.monotonic()
        self._stage, self._rows, self._iterations, self._total = "", 0, 1, 0
        self._about = ""
        self._value = math.nan

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    @contextmanager
    def about(self, task: str) -> Iterator[None]:
        """Prefix the names of stages with a task as long as the context lasts.

        Args:
            task: The prefix, which is followed by a colon.
        """
        self._about, before = f"{task}: ", self._about
        try:
            yield
        finally:
            self._about = before

    def begin(self, stage: str, rows: int, iterations: int) -> None:
        """Begin a stage.

        Args:
            stage: The name of the stage.
            rows: The number of its rows.
            iterations: The maximum number of iterations, or the number of blocks of a pass.
        """
        stage = self._about + stage
        self._stage, self._rows, self._iterations = stage, rows, max(iterations, 1)
        self._stage_start = time.monotonic()

    def iteration(self, done: int, value: float) -> None:
        """Report an iteration and its log marginal likelihood.

        Args:
            done: The number of completed iterations of this stage.
            value: The log marginal likelihood, in nats and the user's units.
        """
        self._total, self._value = self._total + 1, value
        if self._callback is not None:
            self._callback(self._total, value)
        self._notify(done, value, "iterations")

    def block(self, done: int) -> None:
        """Report a completed block of a pass.

        Args:
            done: The number of completed blocks of this stage.
        """
        self._notify(done, self._value, "blocks")

    def _notify(self, done: int, value: float, unit: str) -> None:
        if self._progress is None:
            return
        now = time.monotonic()
        left = (now - self._stage_start) / max(done, 1) * max(self._iterations - done, 0)
        self._progress(Progress(self._stage, self._rows, done, self._iterations, value, now - self._start, left, unit))

    def _show(self, progress: Progress) -> None:
        assert self._bar is not None
        stage = f"{progress.stage}, {counted(progress.rows, 'row')}"
        self._bar(stage, progress.iteration, progress.iterations, str(progress))


# --- Checkpoints: the searches of a fit, so that an interrupted one resumes ------------------------------------------

_MAGIC = b"rfgp checkpoint 4\n"
_HEAD = struct.Struct("<QI")

Tensors = Mapping[str, Tensor]


class Searched(NamedTuple):
    """A search that ended, or the last iteration of one that did not."""

    number: int  # of the search in its fit, from 1. One that raised an error has no record
    stage: str  # its name
    tensors: Tensors  # the hyperparameters by name
    report: FitReport  # of the iterations so far
    has_ended: bool


class Checkpoint:
    """A checkpoint in a file, or none.

    Contract: The same fit begins searches with the same names in the same order each time.

    Args:
        path: The file. The first record creates it. If None, there is no file, and each search is made from its start.
        identity: A short text that identifies the fit, such as a `fingerprint`.

    Raises:
        CheckpointError: If the file is not a checkpoint, is damaged, or is that of another fit.
        FileWriteError: If the folder is missing or cannot be written.

    Examples:
        >>> Checkpoint().begin("all rows", {"noise": torch.zeros(())}) is None
        True
    """

    def __init__(self, path: Path | None = None, identity: str = "") -> None:
        first = _MAGIC + identity.encode() + b"\n"
        self._parts, self._known = [first], dict[int, Searched]()  # the first lines and records; searches by number
        self._path, self._stage, self._number = path, "", 0
        if path is None:
            return
        if path.is_dir():
            raise CheckpointError(f"The checkpoint must be a file, got the folder {path}. Name a file in it.")
        if path.exists() and not path.is_file():
            raise CheckpointError(f"The checkpoint must be a regular file, got {path}. Choose another name.")
        check_target(path)
        if path.exists():
            self._known = {found.number: found for found in _read(path, first)}

    def begin(self, stage: str, tensors: Tensors) -> Searched | None:
        """Begin a search, and return what an earlier run recorded of it, or None.

        Args:
            stage: The name of the search.
            tensors: The hyperparameters (...) at its start, by name.

        Raises:
            CheckpointError: If the file has another search here, or other hyperparameters.
        """
        self._stage, self._number = stage, self._number + 1
        found = self._known.pop(self._number, None) if self._path is not None else None
        if found is None:
            return None
        is_alike = found.tensors.keys() == tensors.keys() and all(
            (tensor.shape, tensor.dtype) == (tensors[name].shape, tensors[name].dtype)
            for name, tensor in found.tensors.items()
        )
        if found.stage != stage or not is_alike:
            raise CheckpointError(f"The next search in {self._path} must be {stage!r}, got {found.stage!r}. Delete it.")
        if found.has_ended:
            self._parts.append(_in_bytes(found))
        return found

    def record(self, tensors: Tensors, report: FitReport, *, has_ended: bool) -> None:
        """Record the present search, and write the file.

        Args:
            tensors: The hyperparameters (...) by name.
            report: The report of its iterations so far.
            has_ended: Whether the search has ended.

        Warns:
            CheckpointWarning: If the file cannot be written. The fit continues without a checkpoint.
        """
        if self._path is None:
            return
        last = _in_bytes(Searched(self._number, self._stage, tensors, report, has_ended))
        try:
            write_atomically(self._path, b"".join([*self._parts, last, *map(_in_bytes, self._known.values())]))
        except FileWriteError as error:
            message = f"{self._path} cannot be written ({error.strerror}). The fit continues without a checkpoint."
            self.close()
            warnings.warn(CheckpointWarning(message), stacklevel=2)
        if has_ended:
            self._parts.append(last)

    def close(self) -> None:
        """Stop reading and recording. Later searches are made from their starts."""
        self._path = None


def _read(path: Path, first: bytes) -> list[Searched]:
    """Return the searches in a file, which must have these first lines."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be opened: {error.strerror}. Choose another name.") from error
    if not content.startswith(_MAGIC):
        raise CheckpointError(f"{path} is not a checkpoint of a fit. Choose another name.")
    if not content.startswith(first):
        raise CheckpointError(
            f"{path} is the checkpoint of another fit, with other data, options, seed or version. Delete it, "
            "or choose another name. (A model without a seed draws a new one each time.)"
        )
    searches, place = list[Searched](), len(first)
    try:
        while place < len(content):
            size, checksum = _HEAD.unpack_from(content, place)
            place += _HEAD.size + size
            body = content[place - size : place]
            if len(body) < size or zlib.crc32(body) != checksum:
                raise CheckpointError(f"{path} is damaged. Delete it to start again.")
            searches.append(_of_bytes(body))
    except CheckpointError:
        raise
    except Exception as error:  # a foreign record may raise anything here
        raise CheckpointError(f"{path} has a record that no fit has written. Delete it.") from error
    return searches


def _in_bytes(search: Searched) -> bytes:
    """Return the record of a search in a file."""
    from safetensors.torch import save as to_bytes

    about = json.dumps([search.number, search.stage, asdict(search.report), search.has_ended])
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in search.tensors.items()}
    body = to_bytes(tensors, {"search": about})
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _of_bytes(body: bytes) -> Searched:
    """Return the search of a record without its head.

    Raises:
        ValueError: If a value has another type than a search writes.
    """
    from safetensors.torch import load as from_bytes

    size = int.from_bytes(body[:8], "little")
    number, stage, fields, has_ended = json.loads(json.loads(body[8 : 8 + size])["__metadata__"]["search"])
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    report = FitReport(**{**fields, "stages": tuple(Stage(**part) for part in fields["stages"])})
    numbers = (number, report.iterations, report.evaluations, report.log_marginal_likelihood, *report.trace)
    is_known = all(type(one) in (int, float) for one in numbers) and type(report.converged) is type(has_ended) is bool
    has_parts = report.trace and (report.stages or not has_ended)
    if not (is_known and has_parts and isinstance(stage, str) and isinstance(report.message, str)):
        raise ValueError("a search has numbers, names, a trace and a stage")
    tensors = {name: tensor.clone() for name, tensor in from_bytes(body).items()}
    return Searched(number, stage, tensors, report, has_ended)


def open_checkpoint(path: str | Path | None, identity: Callable[[], str]) -> Checkpoint:
    """Return the checkpoint of a fit.

    Args:
        path: The file. If None, each search is made from its start.
        identity: Returns a short text that identifies the fit.

    Raises:
        CheckpointError: If the file is not a checkpoint, is damaged, or is that of another fit.
        FileWriteError: If the folder is missing or cannot be written.

    Examples:
        >>> import tempfile
        >>> stage = Stage("all rows", rows=40, iterations=1, evaluations=2, gain=1.0)
        >>> report = FitReport(True, 1, 2, -3.0, "the gradient is zero", trace=(-4.0, -3.0), stages=(stage,))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoint = open_checkpoint(f"{folder}/fit", lambda: "a fit")
        ...     _ = checkpoint.begin("all rows", {"noise": torch.zeros(())})
        ...     checkpoint.record({"noise": torch.ones(())}, report, has_ended=True)
        ...     again = open_checkpoint(f"{folder}/fit", lambda: "a fit")
        ...     again.begin("all rows", {"noise": torch.zeros(())}).report == report
        True
    """
    return Checkpoint() if path is None else Checkpoint(Path(path), identity())


def fingerprint(state: GPState, fixed: tuple[str, ...], max_iterations: int | None, *others: object) -> str:
    """Return a hash of all inputs of a fit, such as data, starts and options.

    Hyperpriors enter by their density at the starting values.

    Args:
        state: The state at its starting values.
        fixed: The names of fixed hyperparameters.
        max_iterations: The maximum number of iterations. If None, the default.
        *others: Further options of the fit.

    Examples:
        >>> import rfgp
        >>> state = rfgp.ExactGP().condition([[0.0], [1.0]], [0.0, 1.0]).state
        >>> fingerprint(state, (), None) == fingerprint(state, ("noise",), None)
        False
    """
    try:
        log_hyperprior = float(state.hyperparameters.log_hyperprior().detach())
    except InvalidArgumentError:  # the starting values have none
        log_hyperprior = -math.inf
    header = [
        version("rfgp"),
        str(sorted(fixed)),
        str(max_iterations),
        repr(others),
        torch.__version__,
        str(log_hyperprior),
    ]
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
