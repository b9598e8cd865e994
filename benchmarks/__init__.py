"""Figures that are measured, each by a script with its protocol; run from the repository's root.

- `papers/`: published tables and figures beside ours, and in `papers/own` what README and docs quote of our own.
- `races/`: time, memory and accuracy beside other packages and methods, as ratios in one run.

`python -m benchmarks.papers --only couplings/table-1` runs one, `python -m benchmarks.races.rows` another;
`protocol.py` has the tables and splits that they share, `record.py` makes files of results.
"""
