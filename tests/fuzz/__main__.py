"""Fuzz one target for some time, and keep what is found: `python -m tests.fuzz --target csv --minutes 60`.

The examples run in a process of their own, which is killed when it is silent for too long and started again when it
has died; what it was at then is a finding like any other. Each finding is the smallest example that shows it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.registry import TARGETS
from tests.fuzz.rules import SECONDS
from tests.fuzz.targets import entries, keep

SILENT = 6 * SECONDS
ROUND = 200  # examples under one seed


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split(":")[0])
    parser.add_argument("--target", required=True, choices=sorted(TARGETS))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--now", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.now:
        _search(TARGETS[options.target], options.minutes, options.seed, Path(options.now))
    else:
        _watch(options)


def _write(path, example):
    is_bytes = isinstance(example, bytes)
    path.write_bytes(b"B" + example if is_bytes else b"J" + json.dumps(example).encode())


def _read(path):
    content = path.read_bytes()
    return content[1:] if content[:1] == b"B" else json.loads(content[1:])


def _search(target, minutes, seed, now):
    """Search under one seed after the other until the time is over; of each finding only the first is kept."""
    end, count = time.monotonic() + 60 * minutes, [0]
    passing = {what for name, _, what, _ in entries() if name == target.name}

    def before(example):
        count[0] += 1
        _write(now, example)

    while time.monotonic() < end:
        found = target.search(ROUND, seed=seed, passing=passing, before=before, steps=25)
        seed += 1
        if found is not None:
            passing.add(found[1])
            print(f"{target.name}: {keep(target.name, *found).name}: {found[1]}", flush=True)
    print(f"{target.name}: {count[0]} examples, the next seed is {seed}", flush=True)


def _watch(options):
    """Run the search in a process of its own, over and over, until the time is over."""
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder) / "now"
        while (left := (end - time.monotonic()) / 60) > 0:
            command = [sys.executable, "-m", "tests.fuzz", "--target", options.target, "--minutes", f"{left:.3f}"]
            now.write_bytes(b"J null")
            with subprocess.Popen([*command, "--seed", str(seed), "--now", str(now)], env=environment) as process:
                while process.poll() is None and time.time() - now.stat().st_mtime < SILENT + 60:
                    time.sleep(0.5)
                is_silent = process.poll() is None
                process.kill()
            if process.returncode in (0, 1) and not is_silent:  # 1: the target itself is wrong, and has said so
                break
            what = f"no answer in {SILENT:g} s" if is_silent else f"the process died with {process.returncode}"
            print(f"{options.target}: {keep(options.target, _read(now), what).name}: {what}", flush=True)
            seed += 1000


if __name__ == "__main__":
    main()
