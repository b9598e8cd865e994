"""Figures that are measured, each by a script with its protocol in its docstring; run from the repository's root.

- `papers/`: published tables and figures, reproduced.
- `races/`: time, memory and accuracy beside other packages, as ratios in one run.
- `studies/`: what the package's own defaults, thresholds and shipped solutions rest on.

`python -m benchmarks.studies.energy` runs one; `protocol.py` is what they share.
"""
