"""One file over HTTP: resumed after breaks, bounded in size and time, checked by its sha256."""

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rfgp.errors import DataError

Progress = Callable[[str, int, int], object]

_PIECE = 1 << 14
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
_WRONG_FILES = 2


@dataclass(frozen=True)
class Patience:
    """How long a download waits for its server.

    Attributes:
        connect: Seconds for a connection.
        read: Seconds without a byte.
        total: Seconds for the whole file, all attempts together.
        attempts: Requests for one file.
        backoff: Seconds before the second request; doubled before each further one.
    """

    connect: float = 10.0
    read: float = 20.0
    total: float = 300.0
    attempts: int = 4
    backoff: float = 0.5


class _InterruptedError(Exception):
    """The answer broke off or cannot be used; asking again may help."""


class _RefusedError(Exception):
    """Asking again cannot help."""


class _WrongFileError(Exception):
    """The server sent other bytes than the file's."""


@dataclass(frozen=True)
class Transfer:
    """A downloader for `pooch`.

    What has arrived is kept in `part` until the file is whole, so that a later call, also of another
    process, asks for the rest only.

    Attributes:
        what: The data set's name, for messages and `progress`.
        size: The file's bytes; not one more is stored.
        sha256: The checksum of the file.
        part: Where to keep what has arrived.
        remedy: What a person can do if the download fails; ends the messages.
        patience: How long to wait.
        progress: Called with (what, bytes so far, size).
    """

    what: str
    size: int
    sha256: str
    part: Path
    remedy: str
    patience: Patience
    progress: Progress | None = None

    def __call__(self, url: str, output_file: str, pooch: object = None) -> None:
        """Write the file at `url` to `output_file`.

        Raises:
            DataError: the server cannot be reached, refuses, is too slow, or has another file.
            OSError: the disk is full or cannot be written.
        """
        with _open_part(self.part) as part:
            self._complete(url, part)
            part.seek(0)
            Path(output_file).write_bytes(part.read())
            part.truncate(0)

    def _complete(self, url: str, part: IO[bytes]) -> None:
        deadline = time.monotonic() + self.patience.total
        wrong = 0
        for attempt in range(1, self.patience.attempts + 1):
            try:
                self._extend(url, part, deadline)
                self._check(part)
                return
            except _RefusedError as error:
                raise self._failure(url, error, attempt, part) from error
            except (_InterruptedError, _WrongFileError) as error:
                if isinstance(error, _WrongFileError):
                    part.truncate(0)
                    wrong += 1
                if wrong == _WRONG_FILES or attempt == self.patience.attempts:
                    raise self._failure(url, error, attempt, part) from error
            time.sleep(max(0.0, min(self.patience.backoff * 2 ** (attempt - 1), deadline - time.monotonic())))

    def _extend(self, url: str, part: IO[bytes], deadline: float) -> None:
        """Ask once for the bytes that are missing and append what arrives."""
        done = _length(part)
        if done > self.size:
            part.truncate(0)
            done = 0
        if done < self.size:
            with self._ask(url, done, deadline) as response:
                self._prepare(response, part, done)
                self._receive(response, part, deadline)

    def _ask(self, url: str, done: int, deadline: float) -> Any:
        import requests

        outer = sys.exception()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
        left = self._time_left(deadline)
        patience = (min(self.patience.connect, left), min(self.patience.read, left))
        try:
            return requests.get(url, headers=headers, stream=True, timeout=patience)
        except (requests.RequestException, UnicodeError) as error:
            unusable = isinstance(error, ValueError | requests.TooManyRedirects)
            raise (_RefusedError if unusable else _InterruptedError)(_reason(error, outer)) from error

    def _prepare(self, response: Any, part: IO[bytes], done: int) -> None:
        """Check the status of an answer; empty `part` unless the answer continues it."""
        status = response.status_code
        if status in _TRANSIENT:
            raise _InterruptedError(f"the server answered {status} {response.reason}")
        if status not in (200, 206, 416):
            raise _RefusedError(f"the server answered {status} {response.reason}")
        if status == 206 and _range_start(response) == done:
            return
        part.truncate(0)
        if status == 206:
            raise _InterruptedError("the server answered with a range that was not asked for")
        if status == 416:
            raise _InterruptedError("the server answered that the file ends earlier")

    def _receive(self, response: Any, part: IO[bytes], deadline: float) -> None:
        done = _length(part)
        self._report(done)
        for piece in _pieces(response):
            done += len(piece)
            if done > self.size:
                raise _WrongFileError(f"more than its {self.size} bytes arrived")
            part.write(piece)
            part.flush()
            self._report(done)
            if done < self.size:
                self._time_left(deadline)
        if done < self.size:
            raise _InterruptedError(f"the connection ended after {done} of {self.size} bytes")

    def _check(self, part: IO[bytes]) -> None:
        part.seek(0)
        found = hashlib.sha256(part.read()).hexdigest()
        if found != self.sha256:
            raise _WrongFileError(f"expected sha256 {self.sha256}, found {found}")

    def _time_left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _RefusedError(f"it was not complete after {self.patience.total:g} s")
        return left

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(self.what, done, self.size)

    def _failure(self, url: str, error: Exception, attempts: int, part: IO[bytes]) -> DataError:
        tried = f"{attempts} attempt{'s' if attempts > 1 else ''}"
        if isinstance(error, _WrongFileError):
            return DataError(f"{self.what}: {url} sent a wrong file ({error}; {tried}). It was not kept. {self.remedy}")
        kept = _length(part)
        resume = f" {kept} of {self.size} bytes are kept; the next call goes on from there." if kept else ""
        return DataError(f"{self.what}: {url} could not be downloaded: {error} ({tried}).{resume} {self.remedy}")


@contextmanager
def _open_part(path: Path) -> Iterator[IO[bytes]]:
    """Open the kept part, or a file of our own where another process holds it; leave no empty file.

    Windows lacks `fcntl`: there every download has a file of its own, and a killed one starts anew.
    """
    with ExitStack() as stack:
        if os.name == "nt" or not _lock(shared := stack.enter_context(path.open("a+b"))):
            yield stack.enter_context(tempfile.TemporaryFile(dir=path.parent))
            return
        try:
            yield shared
        finally:
            if _length(shared) == 0:
                path.unlink(missing_ok=True)


def _lock(file: IO[bytes]) -> bool:
    """Take the lock that a process loses when it ends; False where another has it or there is none."""
    import fcntl

    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _length(file: IO[bytes]) -> int:
    return file.seek(0, 2)


def _range_start(response: Any) -> int | None:
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _pieces(response: Any) -> Iterator[bytes]:
    """Yield the body as it arrives: `read1` returns after one packet, so that a slow server is noticed."""
    import urllib3

    outer = sys.exception()
    read = getattr(response.raw, "read1", response.raw.read)
    try:
        while piece := read(_PIECE):
            yield piece
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _InterruptedError(_reason(error, outer)) from error


def _reason(error: BaseException, outer: BaseException | None) -> str:
    """Return what the innermost cause says, without the layers of the HTTP library.

    `outer` is what the caller was handling already; it is no cause.
    """
    while (inner := error.__cause__ or error.__context__) and inner is not outer:
        error = inner
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
