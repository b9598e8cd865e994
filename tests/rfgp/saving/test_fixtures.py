"""Saved models load and predict the same ever after.

`models` holds small files, and `expected.json` what each of them answered when it was written first. Until the first
release a change of the format writes them again (`python -m tests.golden.fixtures`), but never their answers.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import rfgp
from tests.golden.results import LOOSER

FOLDER = Path(__file__).parent / "models"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if name.startswith("golden-") and i % 4 else [])
    for i, name in enumerate(EXPECTED)
]
"""Of the golden cases one in four is a fast test."""
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}
"""Of the largest number of those that are compared: processors round differently."""
ESTIMATES = {
    "golden-neighbors-latent": 0.24,
    "golden-neighbors-latent-features": 0.12,
    "golden-neighbors-learned": 0.6,
}
"""Standard errors of log marginal likelihoods that conjugate gradients estimated. A sparse factor computes them now."""
RESOLVED = {"golden-neighbors-learned": 1e-5}
"""Tolerances of models whose posterior another solver computes when rows are added. Its jitter differs by 1e-11."""
ROUNDED = {
    "neighbors-gaussian-column": 2e-5,
    "roads-data": 3e-10,
    "golden-roads-smooth": 3e-10,
    "terms-domains": 1e-8,
    "neighbors-latent-factor": 1e-7,
    "golden-neighbors-learned": 1e-7,
}
"""Tolerances of ill-conditioned models. A lengthscale that differs by 1e-15 moves predictions by up to 1e-5, 1e-10 and
2e-10 of their size (the largest of 60 or more perturbations), and another elimination order those of "terms-domains" by
3e-9.
"""
READ_SINGLY = {"roads-data": 1e-10, "golden-roads-smooth": 1e-10}
"""Tolerances of smooth fields on roads. Points read the ends of their pieces now, and once refined the field."""
WITH_DATA = [name for name, expected in EXPECTED.items() if expected["data"]]
WITHOUT_DATA = [name for name, expected in EXPECTED.items() if not expected["data"]]


def load(name):
    return rfgp.load(FOLDER / f"{name}.safetensors")


def inputs_of(name, values):
    """Return labels, columns by name, or numbers as an array, as tensors where the model was given tensors."""
    if isinstance(values, dict):
        return {key: np.array(column) for key, column in values.items()}
    if EXPECTED[name]["class"] == "GraphGP":
        return [tuple(label) if isinstance(label, list) else label for label in values]
    return torch.tensor(values, dtype=torch.float64) if EXPECTED[name]["tensors"] else np.array(values)


def assert_close(gp, found, expected, tolerance=0.0):
    found, expected = (np.asarray(values, dtype=np.float64) for values in (found, expected))
    tolerance = max(TOLERANCE[next(gp.hyperparameters.parameters()).dtype], tolerance)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def assert_predicts(name, gp, expected, tolerance=0.0):
    """The law at the inputs of `expected.json` has the mean and the variance that are expected."""
    tolerance = max(tolerance, LOOSER.get(name.replace("golden-", "models/"), 0.0), READ_SINGLY.get(name, 0.0))
    tolerance = max(tolerance, ROUNDED.get(name, 0.0))
    prediction = gp.predict(inputs_of(name, EXPECTED[name]["inputs"]))
    for found, values in ((prediction.mean, expected["mean"]), (prediction.variance, expected["variance"])):
        assert isinstance(found, torch.Tensor) == EXPECTED[name]["tensors"]
        assert_close(gp, found, values, tolerance)


def test_every_file_is_expected_and_every_expected_file_is_there():
    assert {path.name for path in FOLDER.iterdir()} == {"expected.json", *(f"{name}.safetensors" for name in EXPECTED)}


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_predicts_as_it_did(name):
    gp = load(name)
    assert type(gp).__name__ == EXPECTED[name]["class"]
    assert_predicts(name, gp, EXPECTED[name])


@pytest.mark.parametrize("name", NAMES)
def test_saved_model_has_its_hyperparameters_and_report(name):
    gp, expected = load(name), EXPECTED[name]
    assert gp.num_observations == expected["num_observations"]
    assert gp.metadata == expected["metadata"]
    assert set(gp.hyperparameters.names) == set(expected["hyperparameters"])
    for name, value in expected["hyperparameters"].items():
        assert_close(gp, gp.hyperparameters.value(name).detach(), value)
    if expected["fit"] is None:
        assert gp.fit_report is None
    else:
        assert {field: getattr(gp.fit_report, field) for field in expected["fit"]} == expected["fit"]


@pytest.mark.parametrize("name", WITH_DATA)
def test_a_model_saved_with_its_data_has_their_likelihood(name):
    gp = load(name)
    with torch.no_grad():
        found, expected = gp.log_marginal_likelihood(), EXPECTED[name]["log_marginal_likelihood"]
    if name in ESTIMATES:
        assert abs(float(found) - expected) <= 5 * ESTIMATES[name]
    else:
        tolerance = max(LOOSER.get(name.replace("golden-", "models/"), 0.0), ROUNDED.get(name, 0.0))
        assert_close(gp, found, expected, tolerance)


@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_a_model_saved_without_its_data_says_so(name):
    with pytest.raises(rfgp.NotFittedError, match="saved without data"):
        load(name).log_marginal_likelihood()


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_takes_more_data_as_it_did(name):
    """With its data, or where its posterior absorbs new rows; otherwise it says what it lacks."""
    gp, update = load(name), EXPECTED[name]["update"]
    if update is None:
        with pytest.raises(rfgp.NotFittedError, match="saved without data"):
            gp.update(inputs_of(name, EXPECTED[name]["inputs"]), np.zeros(len(EXPECTED[name]["mean"])))
        return
    targets = np.array(update["targets"])
    gp.update(inputs_of(name, update["inputs"]), torch.as_tensor(targets) if EXPECTED[name]["tensors"] else targets)
    assert gp.num_observations == EXPECTED[name]["num_observations"] + len(targets)
    assert_predicts(name, gp, update, RESOLVED.get(name, 0.0))
