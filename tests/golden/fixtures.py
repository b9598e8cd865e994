"""Save the models of a folder again, and compare what they answer with what they answered before.

python -m tests.golden.fixtures tests/rfgp/saving/models

The checkout must read the files as they are, and writes its own format. A file stays as it was unless its model, read
again, predicts the same.
"""

import contextlib
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import rfgp


def answers(gp, inputs):
    """Return predictions at inputs, the hyperparameters, and the likelihood if the rows are known."""
    prediction = gp.predict(inputs)
    found = [prediction.mean, prediction.variance, *(gp.hyperparameters.value(n) for n in gp.hyperparameters.names)]
    with contextlib.suppress(rfgp.NotFittedError):
        found.append(gp.log_marginal_likelihood())
    return [np.asarray(value.detach() if hasattr(value, "detach") else value, dtype=np.float64) for value in found]


def save_again(path, inputs, has_data):
    """Save the model of a file in the present format. Return a message, empty if all is well."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp, again = rfgp.load(path), Path(folder) / path.name
        gp.save(again, data=has_data)
        pairs = list(zip(answers(gp, inputs), answers(rfgp.load(again), inputs), strict=True))
        apart = max(float(np.abs(a - b).max(initial=0.0) / max(np.abs(a).max(initial=0.0), 1e-12)) for a, b in pairs)
        if not apart <= 1e-12:
            return f"{path.name}: answers differ by {apart:.2g}"
        path.write_bytes(again.read_bytes())
    return ""


def main(folder):
    """Save all models of a folder again. Return 1 if one of them differs."""
    from tests.contracts import test_files as known

    messages = [
        save_again(folder / f"{name}.safetensors", known.inputs_of(name, one["inputs"]), one["data"])
        for name, one in known.EXPECTED.items()
    ]
    print("\n".join(message for message in messages if message) or f"{len(messages)} models were saved again.")
    return int(any(messages))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
