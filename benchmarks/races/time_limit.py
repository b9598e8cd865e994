"""Wall seconds of `rfgp.GP(time_limit=...)` against its limit, alone and beside busy processes.

Protocol. A table of 8 standard normal columns is drawn at seed 0, with the target sin(2 a) + b c + 0.3 |d| + noise of
deviation 0.1. Each fit has a process of its own on as many threads as the environment says. The process first fits 400
rows without a limit, so that imports and the compilation of loops do not count. Figures are the wall and processor
seconds of the fit, the standard deviations of the error of 1,000 further rows, and the kernel. `--busy` processes
that only count run meanwhile.

    python -m benchmarks.races.time_limit [--rows N,...] [--limits SECONDS,...] [--busy N]
"""

import argparse
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack

import numpy as np

ROWS, LIMITS = (500, 5000, 50_000), (5.0, 20.0, 60.0)


def fit(rows: int, limit: float) -> str:
    """Return the figures of one fit as text.

    Args:
        rows: The number of rows.
        limit: The time limit in seconds.
    """
    import rfgp

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows + 1000, 8))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * np.abs(X[:, 3])
    y = f + 0.1 * rng.normal(size=len(f))
    rfgp.GP(seed=0).fit(X[:400], y[:400])
    wall, processor = time.monotonic(), time.process_time()
    gp = rfgp.GP(time_limit=limit, seed=0).fit(X[:rows], y[:rows])
    wall, processor = time.monotonic() - wall, time.process_time() - processor
    error = float(np.std(gp.predict(X[rows:]).mean - f[rows:]))
    assert gp.selection is not None
    return f"{rows:>7,} {limit:>6g} {wall:>8.1f} {processor:>9.1f} {error:>7.3f}  {gp.selection.chosen.name}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: [int(part) for part in text.split(",")], default=ROWS)
    parser.add_argument("--limits", type=lambda text: [float(part) for part in text.split(",")], default=LIMITS)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="fit in this process")
    chosen = parser.parse_args()
    if chosen.alone:
        print(fit(chosen.rows[0], chosen.limits[0]), flush=True)
        return
    print("   rows  limit     wall processor   error  kernel", flush=True)
    with ExitStack() as stack:
        for _ in range(chosen.busy):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        for rows in chosen.rows:
            for limit in chosen.limits:
                options = ["--alone", "--rows", str(rows), "--limits", str(limit)]
                subprocess.run([sys.executable, "-m", "benchmarks.races.time_limit", *options], check=True)


if __name__ == "__main__":
    main()
