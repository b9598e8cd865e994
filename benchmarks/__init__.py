"""Scripts that measure figures, each with its protocol. Run them from the root of the repository.

- `papers/`: published tables and figures compared with ours, and in `papers/own` our own figures for README and docs.
- `races/`: time, memory and accuracy compared with other packages and methods, as ratios in one run.

`python -m benchmarks.papers --only couplings/table-1` runs one, `python -m benchmarks.races.rows` another;
`protocol.py` has the tables and splits that they share, `record.py` makes files of results.
"""
