"""Fits, predictions and walks on a Dask cluster (`pip install 'rfgp[dask]'`)."""

from rfgp.errors import requires_extra

with requires_extra("dask"):
    from rfgp.dask.partitions import Partitions as Partitions
    from rfgp.dask.prediction import Predicted as Predicted
    from rfgp.dask.prediction import fit as fit
    from rfgp.dask.prediction import predict as predict
    from rfgp.dask.prediction import sample_walks as sample_walks
