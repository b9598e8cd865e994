"""Model files with other contents under a right checksum."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import rfgp
from rfgp.saving import container


def rewrite(saved, path, change, *, sign=True):
    """Write the file again after change(options, tensors, header), with its checksum right if `sign`."""
    tensors, content = load_file(saved), saved.read_bytes()
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    entry = json.loads(metadata["rfgp"])
    header = json.loads(entry["header"])
    change(header["options"], tensors, header)
    entry["header"] = json.dumps(header, sort_keys=True)
    if sign:
        entry["sha256"] = container.digest(entry["header"], tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, {"rfgp": json.dumps(entry)})


def assert_refused(saved, change, message="consistent model"):
    """A file with other contents under a right checksum is refused when it is loaded."""
    forged = saved.with_name("forged")
    rewrite(saved, forged, change)
    with pytest.raises(rfgp.ModelFileError, match=message):
        pytest.fail(f"it is loaded: {rfgp.load(forged)}")


def assert_same(a, b):
    """Predictions are the same to the last bit."""
    for name in ("mean", "variance", "covariance"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


# --- changes -----------------------------------------------------------------------------------------


def entry(name, value):
    return lambda options, tensors, header: header.__setitem__(name, value)


def option(name, value):
    return lambda options, *_: options.__setitem__(name, value)


def leaf(place, **changes):
    return lambda options, *_: options["resolved"]["leaves"][place].update(changes)


def argument(place, name, value):
    return lambda options, *_: options["resolved"]["leaves"][place]["arguments"].__setitem__(name, value)


def term(place, **changes):
    return lambda options, *_: options["resolved"]["terms"][place].update(changes)


def draw(place, **changes):
    return lambda options, *_: options["draws"][place].update(changes)


def shared(place, **changes):
    return lambda options, *_: options["objects"][place].update(changes)


def tensor(name, value):
    return lambda options, tensors, _: tensors.__setitem__(name, value)


def changed(name, change):
    return lambda options, tensors, _: tensors.__setitem__(name, change(tensors[name].clone()))
