"""What the races share: a case measured in a process of its own, and what that process holds."""

import subprocess
import sys
from pathlib import Path
from typing import Any


def measured(module: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run a benchmark again in a new process, with other arguments; its output is text, a failure is left to see."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def last_line(module: str, *arguments: Any) -> str:
    """Return what a case printed last; a case that fails shows its own error."""
    done = measured(module, *arguments)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(f"{module} {' '.join(map(str, arguments))} failed")
    return done.stdout.splitlines()[-1]


def status(name: str) -> int:
    """Return bytes of this process alone: `VmRSS` is what it holds, `VmHWM` the most that it held."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))
