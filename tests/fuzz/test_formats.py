"""Files of the package's own formats, damaged at random places, and forged ones under a right checksum."""

import json
import struct
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

import rfgp
from tests.fuzz.rules import bounded, is_error, options, outcome
from tests.support.model_files import MODELS, closed, opened

pytestmark = pytest.mark.filterwarnings("ignore")
KINDS = ("fourier", "exact-noise-weights", "two-outputs", "structured", "graph-walks", "graph-spectrum", "roads-data")
KINDS += ("mesh", "terms", "terms-domains", "terms-average", "golden-categorical", "golden-neighbors-features")
EXPECTED = json.loads((MODELS / "expected.json").read_text())
ODD = [None, True, [], {}, "", "nan", "../x", -1, 0, 2, 2**31, 2**70, 0.5, 1e300, float("inf"), float("nan")]
SIZES = [0, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


@st.composite
def damaged(draw, contents):
    """Return one of some files with a few bytes or words changed, left out, repeated or inserted, or cut."""
    content = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["flip", "word", "cut", "repeat", "insert", "end"]))
        at, size = draw(st.integers(0, max(len(content) - 1, 0))), draw(st.integers(1, 12))
        if kind == "flip":
            content[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif kind == "word":
            content[at : at + 4] = struct.pack("<I", draw(st.sampled_from(SIZES)))
        elif kind == "repeat":
            content[at:at] = content[at : at + size] * draw(st.sampled_from([1, 50]))
        elif kind == "insert":
            content[at:at] = draw(st.binary(max_size=6))
        else:
            del content[at : at + size if kind == "cut" else None]
    return bytes(content)


@st.composite
def other_tensors(draw, tensors):
    """Return named tensors, one of them with another value, shape, type or name, left out, or in another's place."""
    out = dict(tensors)
    name, other = (draw(st.sampled_from(sorted(out))) for _ in range(2))
    tensor = out[name]
    kind = draw(st.sampled_from(["value", "value", "shape", "type", "drop", "rename", "swap", "row"]))
    if kind == "value" and tensor.numel():
        value = torch.tensor(draw(st.sampled_from([0.0, -1.0, 5.0, 100.0, 1e300, 1e-300, np.nan, np.inf])))
        value = value if tensor.is_floating_point() else value.nan_to_num(0).clamp(-100, 100)
        out[name] = tensor.clone()
        out[name].view(-1)[draw(st.integers(0, tensor.numel() - 1))] = value.to(tensor.dtype)
    elif kind == "shape" and tensor.numel():
        out[name] = tensor.reshape(draw(st.sampled_from([(-1,), (1, -1), (-1, 1), (*tensor.shape, 1)])))
    elif kind == "type":
        out[name] = tensor.to(draw(st.sampled_from([torch.float64, torch.float32, torch.int64, torch.bool])))
    elif kind in ("drop", "rename"):
        del out[name]
        out |= {f"{name}.raw": tensor} if kind == "rename" else {}
    elif kind == "swap":
        out[name], out[other] = out[other].clone(), tensor.clone()
    elif kind == "row" and tensor.ndim:
        out[name] = torch.cat([tensor, tensor[:1]]) if draw(st.booleans()) else tensor[:1].clone()
    return out


@st.composite
def other_json(draw, value):
    """Return a JSON value with a part replaced, left out, repeated, or in the place of another."""
    root = [json.loads(json.dumps(value))]
    places = list(places_of(root))
    (holder, key), (other, name) = (places[draw(st.integers(0, len(places) - 1))] for _ in range(2))
    kind = draw(st.sampled_from(["replace", "replace", "remove", "repeat", "graft"]))
    if kind == "remove" and holder is not root:
        del holder[key]
    elif kind == "repeat" and isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[key] = json.loads(json.dumps(other[name])) if kind == "graft" else draw(st.sampled_from(ODD))
    return root[0]


def places_of(value):
    for key in range(len(value)) if isinstance(value, list) else list(value):
        yield value, key
        if isinstance(value[key], list | dict):
            yield from places_of(value[key])


def read_from(content, read):
    """Return the outcome of reading a file with a content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        return outcome(lambda: read(path))


# --- models ------------------------------------------------------------------------------------------


def file_of(kind):
    return (MODELS / f"{kind}.safetensors").read_bytes()


@st.composite
def forged_models(draw, kind):
    header, tensors = opened(file_of(kind))
    if draw(st.booleans()):
        return closed(draw(other_json(header)), tensors)
    return closed(header, draw(other_tensors(tensors)))


MODEL_FILES = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), forged_models(kind)))


def inputs_of(kind):
    """Return inputs of a recorded model, and their number."""
    inputs = EXPECTED[kind]["inputs"]
    if isinstance(inputs, dict):
        return {key: np.array(values) for key, values in inputs.items()}
    return [tuple(x) if isinstance(x, list) else x for x in inputs] if kind.startswith("graph") else np.array(inputs)


def use(gp, new, count):
    """A model answers with numbers, among them no negative variance, or with named errors."""
    p = outcome(lambda: gp.predict(new))
    if is_error(p):
        return
    for part in ("mean", "variance", "covariance"):
        value = outcome(lambda part=part: np.asarray(getattr(p, part), dtype=float))
        if not is_error(value):
            assert not np.isnan(value).any(), f"a model was read whose {part} is no number"
            assert part != "variance" or (value > -1e-6 * (1 + np.abs(value).max())).all(), "a negative variance"
    outcome(lambda: (repr(gp), gp.terms, p.observed().variance, p.sample(2)))
    outcome(gp.log_marginal_likelihood)
    outcome(gp.leave_one_out)
    outcome(lambda: gp.exact().predict(new).mean)
    outcome(lambda: gp.update(new, np.arange(float(count))).predict(new).mean)


@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_forged_models_are_refused_or_answer(examples):
    @options(examples)
    @given(MODEL_FILES)
    def check(example):
        kind, content = example
        with bounded():
            gp = read_from(content, rfgp.load)
            if is_error(gp):
                assert isinstance(gp, rfgp.ModelFileError), gp
            else:
                use(gp, inputs_of(kind), len(EXPECTED[kind]["mean"]))

    check()


@options(60)
@given(damaged([file_of(kind) for kind in KINDS]))
def test_damaged_models_are_refused(content):
    """Unless a change was undone by another one."""
    with bounded():
        found = read_from(content, rfgp.load)
    assert isinstance(found, rfgp.ModelFileError) or content in [file_of(kind) for kind in KINDS]


# --- checkpoints -------------------------------------------------------------------------------------

HEAD = struct.Struct("<QI")
X = np.random.default_rng(0).standard_normal((12, 2))


def fit(path):
    gp = rfgp.SparseSpectrumGP(num_frequencies=3, coupling="iid", seed=0)
    return gp.fit(X, np.sin(X[:, 0]) + 0.1 * X[:, 1] ** 2, max_iterations=2, checkpoint=path)


@lru_cache
def whole():
    """Return the checkpoint of a fit that was not disturbed, and its predictions."""
    with tempfile.TemporaryDirectory() as folder:
        gp = fit(Path(folder) / "c")
        return (Path(folder) / "c").read_bytes(), predictions(gp)


def records():
    """Return the first lines of the checkpoint, and its records as (search, tensors)."""
    content, out = whole()[0], []
    at = content.index(b"\n", content.index(b"\n") + 1) + 1
    begin = content[:at]
    while at < len(content):
        size, _ = HEAD.unpack_from(content, at)
        body = content[at + HEAD.size : at + HEAD.size + size]
        names = int.from_bytes(body[:8], "little")
        out.append((json.loads(body[8 : 8 + names])["__metadata__"]["search"], from_bytes(body)))
        at += HEAD.size + size
    return begin, out


def checkpoint_of(begin, searches):
    bodies = [to_bytes({k: t.contiguous() for k, t in tensors.items()}, {"search": text}) for text, tensors in searches]
    return begin + b"".join(HEAD.pack(len(body), zlib.crc32(body)) + body for body in bodies)


def predictions(gp):
    p = gp.predict(X)
    return np.concatenate([p.mean, p.variance])


@options(15)
@given(st.data())
def test_damaged_checkpoints_end_alike_or_are_refused(data):
    content = data.draw(damaged([whole()[0]]))
    with bounded():
        gp = read_from(content, fit)
        assert isinstance(gp, rfgp.CheckpointError) or np.array_equal(predictions(gp), whole()[1])


WRONG = {
    "no noise": (0, "noise", None),
    "no mean": (-1, "mean", None),
    "whole numbers": (0, "noise", torch.Tensor.long),
    "half precision": (0, "rbf.lengthscale", torch.Tensor.half),
    "short lengthscales": (-1, "rbf.lengthscale", lambda t: t[:1]),
    "a vector of noises": (0, "noise", lambda t: t.reshape(1, -1)),
}
"""The place of a record, its tensor, and what changes it."""


@pytest.mark.parametrize(
    "change", [{"trace": ["a"]}, {"trace": 5}, {"evaluations": "x"}, {"stages": []}, {"converged": 2}]
)
def test_reports_of_other_types_are_refused(change):
    begin, searches = records()
    number, stage, report, has_ended = json.loads(searches[-1][0])
    searches[-1] = json.dumps([number, stage, report | change, has_ended]), searches[-1][1]
    found = read_from(checkpoint_of(begin, searches), fit)
    assert isinstance(found, rfgp.CheckpointError), found


@pytest.mark.parametrize("name", WRONG)
def test_records_that_do_not_fit_are_refused(name):
    place, key, change = WRONG[name]
    begin, searches = records()
    tensor = searches[place][1].pop(key)
    if change is not None:
        searches[place][1][key] = change(tensor)
    found = read_from(checkpoint_of(begin, searches), fit)
    assert isinstance(found, rfgp.CheckpointError), found
