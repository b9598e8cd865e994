"""Targets: what is fuzzed, and the search for an example that does what may not be."""

import json
import re
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz.rules import FoundError, bounded

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """One thing to fuzz.

    Attributes:
        name: As the runner and the corpus call it.
        check: Raises `FoundError` for an example that does what may not be; files are given as (content, folder).
        strategy: Returns a strategy of examples: bytes, or JSON.
        machine: Instead: a state machine whose findings have a `plan`.
        share: How many examples one of the others' stands for.
    """

    name: str
    check: Callable[[Any], None]
    strategy: Callable[[], Any] | None = None
    machine: Any = None
    share: float = 1.0

    def run(self, example):
        """Check one example within the bounds.

        Raises:
            FoundError: with what it showed.
        """
        with bounded():
            self.check(example)

    def search(self, examples, *, seed=None, passing=(), before=None, steps=12, shrink=True):
        """Return the smallest example found that does what may not be, with what it does; None where all is well.

        Args:
            examples: How many to try.
            seed: None: always the same ones.
            passing: Signatures of findings that are known.
            before: Called with each example before it is run.
            steps: Of a machine.
            shrink: Whether what is found is made small.
        """
        options = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=seed is None,
            report_multiple_bugs=False,
            phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
            suppress_health_check=list(HealthCheck),
            stateful_step_count=steps,
        )
        found = {}
        try:
            if self.machine is not None:
                run_state_machine_as_test(self._recording(found, seed, passing, before), settings=options)
            else:
                self._wrapped(found, seed, passing, before, options)()
        except FoundError:
            return found["example"], found["what"]
        except Exception as error:  # hypothesis says that a failure did not repeat, for example
            if found:
                return found["example"], f"{found['what']} ({type(error).__name__})"
            raise
        return None

    def _wrapped(self, found, seed, passing, before, options):
        @options
        @given(self.strategy())
        def wrapped(example):
            if before is not None:
                before(example)
            try:
                self.run(example)
            except FoundError as error:
                if signature(error) in passing:
                    return
                found.update(example=example, what=signature(error))
                raise

        return wrapped if seed is None else hypothesis.seed(seed)(wrapped)

    def _recording(self, found, seed, passing, before):
        class Recording(self.machine):
            """The machine, which tells what it found."""

            def fail(self, error):
                if signature(error) in passing:
                    hypothesis.reject()
                found.update(example=error.plan, what=signature(error))
                raise error

            def tell(self, plan):
                if before is not None:
                    before(plan)

        return Recording if seed is None else hypothesis.seed(seed)(Recording)


def signature(error):
    """Return what a finding is, and the last line of the packages that it passed through."""
    frames, now = [], error
    while now is not None:
        frames = (
            frames
            or [
                f"{Path(frame.filename).relative_to(ROOT)}:{frame.name}"
                for frame in traceback.extract_tb(now.__traceback__)
                if Path(frame.filename).is_relative_to(ROOT) and Path(frame.filename).parts[len(ROOT.parts)] != "tests"
            ][-1:]
        )
        now = now.__cause__
    words = re.sub(r"'[^']*'|[0-9]+|/[^ ]*", "_", " ".join(str(error).split())[:160])
    return f"{words} [{frames[0] if frames else 'no line'}]"


def on_file(suffix, read):
    """Return a check of a file's content: `read` is given the path, and a folder that is empty but for it."""

    def check(content):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix}"
            path.write_bytes(content)
            read(path)

    return check


# --- the corpus --------------------------------------------------------------------------------------

CORPUS = Path(__file__).parent / "corpus"


def entries():
    """Return (target's name, file's name, what it showed, whether it still does) of all that is kept."""
    out = []
    for notes in sorted(CORPUS.glob("*/notes.json")):
        for name, note in sorted(json.loads(notes.read_text(encoding="utf-8")).items()):
            out.append((notes.parent.name, name, note["what"], note.get("known", False)))
    return out


def load(target, name):
    """Return an example of the corpus."""
    content = (CORPUS / target / name).read_bytes()
    return json.loads(content) if name.endswith(".json") else content


def keep(target, example, what, known=True):
    """Write an example into the corpus with what it showed, and return its file."""
    import hashlib

    is_bytes = isinstance(example, bytes)
    content = example if is_bytes else (json.dumps(example, indent=1, sort_keys=True) + "\n").encode()
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(content).hexdigest()[:10]}{'.bin' if is_bytes else '.json'}"
    path.write_bytes(content)
    notes = folder / "notes.json"
    told = json.loads(notes.read_text(encoding="utf-8")) if notes.exists() else {}
    told[path.name] = {"what": what, "known": known} if known else {"what": what}
    notes.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path
