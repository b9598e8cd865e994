"""Results of every model at given hyperparameters and draws, to compare two versions of the package by."""
