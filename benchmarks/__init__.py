"""Scripts that measure figures, each with its protocol. Run them from the root of the repository.

- `papers/`: published tables and figures compared with ours, and in `papers/own` our own figures for README and docs.
  `python -m benchmarks.papers --only couplings/table-1` computes one. `protocol.py` has the tables and splits that they
  share, `record.py` writes their files of results, and `page.py` and `tables.py` make pages from these files.
- `races/`: models of this and of other packages on the same rows. A script has tables and a list of models.
  `race.py` runs each fit in its own process, `models.py` wraps the models of each package, and `scores.py` scores
  predictions. `python -m benchmarks.races.counts` runs one. Some scripts measure time and memory alone.
- `rivals/`: files of results of races, and the tables and pictures of docs/rivals.md.
"""
