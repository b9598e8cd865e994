"""What the package itself wrote, changed: models, checkpoints, and solutions in the cache folder.

Bytes are changed as they are, and contents under checksums that are right again: whoever can write a file can write
its checksum, and what is read must then fit together, or be refused by name.
"""

import hashlib
import io
import json
import os
import struct
import tempfile
import warnings
import zlib
from functools import lru_cache
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from hypothesis import strategies as st
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

import rfgp
from rfgp.couplings.energy import store
from rfgp.saving.container import digest
from tests.fuzz.mutations import json_mutated, mutated
from tests.fuzz.rules import NAMED, FoundError, is_error, outcome
from tests.fuzz.targets import ROOT, Target, on_file

_DTYPES = [torch.float64, torch.float32, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool]


@st.composite
def _tensors_changed(draw, tensors):
    """Some of named tensors with another value, shape, type or name; left out, or twice."""
    out = dict(tensors)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(out) or [""]))
        if not name:
            break
        tensor = out[name]
        kind = draw(st.sampled_from(["value", "value", "shape", "type", "drop", "rename", "swap", "row"]))
        if kind == "value" and tensor.numel():
            flat = tensor.clone().reshape(-1)
            value = draw(st.sampled_from([0.0, -1.0, 1.0, 5.0, 100.0, 1e9, 1e300, 1e-300, float("nan"), float("inf")]))
            flat[draw(st.integers(0, len(flat) - 1))] = (
                torch.tensor(value).nan_to_num(0, 100, -100).clamp(-100, 100).to(flat.dtype)
                if not flat.is_floating_point()
                else torch.tensor(value, dtype=torch.float64).to(flat.dtype)
            )
            out[name] = flat.reshape(tensor.shape)
        elif kind == "shape":
            shapes = [(-1,), (1, -1), (-1, 1), (*tensor.shape, 1), (1, *tensor.shape)]
            out[name] = tensor.reshape(draw(st.sampled_from(shapes))) if tensor.numel() else tensor
        elif kind == "type":
            out[name] = tensor.to(draw(st.sampled_from(_DTYPES)))
        elif kind == "drop":
            del out[name]
        elif kind == "rename":
            out[name + draw(st.sampled_from(["x", ".raw", ""]))] = out.pop(name)
        elif kind == "swap":
            other = draw(st.sampled_from(sorted(out)))
            out[name], out[other] = out[other].clone(), tensor.clone()
        elif kind == "row" and tensor.ndim:
            cut = draw(st.sampled_from([0, 1, max(len(tensor) - 1, 0)]))
            out[name] = draw(st.sampled_from([tensor[:cut], torch.cat([tensor, tensor[:1]])])).clone()
    return {name: tensor.contiguous() for name, tensor in out.items()}


# --- models ------------------------------------------------------------------------------------------

_KINDS = ("fourier", "laplace", "rows", "exact", "exact-noise-weights", "fourier-data", "two-outputs", "structured")
_KINDS += ("fast-simplex", "priors", "learned", "columns", "float32", "graph-exact", "graph-walks", "graph-sigma")
_KINDS += ("graph-chebyshev", "graph-taylor", "graph-spectrum", "graph-spectrum-rows", "graph-free")
_KINDS += ("graph-exact-two-outputs", "graph-walks-positions", "exact-two-outputs")
_TERMS = ("terms", "terms-data", "terms-outputs", "terms-bernoulli", "terms-domains", "terms-walks", "terms-average")
_KINDS += _TERMS


_FOLDER = ROOT / "tests" / "rfgp" / "saving" / "models"


@lru_cache
def model_file(kind):
    """A saved model of the package's own tests."""
    return (_FOLDER / f"{kind}.safetensors").read_bytes()


@lru_cache
def columns():
    """Four rows of all columns that the models of terms read."""
    expected = json.loads((_FOLDER / "expected.json").read_text())
    return {key: np.array(values) for kind in _TERMS for key, values in expected[kind]["inputs"].items()}


def opened(content):
    """The header and the tensors of a model file."""
    size = int.from_bytes(content[:8], "little")
    entry = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["rfgp"])
    return entry, json.loads(entry["header"]), {name: t.clone() for name, t in from_bytes(content).items()}


def closed(entry, header, tensors):
    """A model file with its checksum."""
    text = json.dumps(header)
    return to_bytes(tensors, {"rfgp": json.dumps({**entry, "header": text, "sha256": digest(text, tensors)})})


@st.composite
def models(draw):
    """Model files whose header or tensors are others, under a right checksum."""
    entry, header, tensors = opened(model_file(draw(st.sampled_from(_KINDS))))
    what = draw(st.sampled_from(["header", "tensors", "tensors", "both"]))
    if what != "tensors":
        header = draw(json_mutated([header], most=2))
    if what != "header":
        tensors = draw(_tensors_changed(tensors))
    if not tensors:
        return b""
    try:
        return closed(entry, header, tensors)
    except (ValueError, OverflowError):
        return b""


def use(model):
    """Ask a model everything; what it answers is finite, and variances are no less than 0."""
    if model.__class__.__name__ == "GraphGP":
        new = model.graph.labels or range(model.graph.num_nodes)
        new = list(new)[:5]
    elif model.__class__.__name__ == "GP":
        new = columns()
    else:
        d = len(model.state.scaling.inputs.scale)
        new = np.random.default_rng(0).standard_normal((4, d))
    p = outcome(lambda: model.predict(new))
    if is_error(p):
        return
    for name in ("mean", "variance", "covariance"):
        value = outcome(lambda name=name: getattr(p, name))
        if is_error(value):
            continue
        value = np.asarray(value, dtype=float)
        if np.isnan(value).any():
            raise FoundError(f"a model was read whose {name} is not a number")
        if name == "variance" and (value < -1e-6 * (1 + np.abs(value).max())).any():
            raise FoundError("a model was read whose variance is negative")
    calls = [lambda: p.sample(2), lambda: p.observed().variance, lambda: repr(model)]
    calls += [model.log_marginal_likelihood, model.leave_one_out]
    if hasattr(model, "terms"):
        calls += [lambda: model.terms, lambda: model.kernel, lambda: model.exact().predict(new).mean]
        calls += [lambda: model.sample_functions(1, seed=0)(new), lambda: [term.std for term in p.terms.values()]]
    count = 4 if isinstance(new, dict) else len(new)
    calls += [lambda: model.update(new, np.arange(float(count))).predict(new).mean]
    for call in calls:
        outcome(call)


def _read_model(path):
    model = outcome(lambda: rfgp.load(path))
    if is_error(model):
        if not isinstance(model, rfgp.ModelFileError):
            raise FoundError(f"a model file is refused as {type(model).__name__}: {model}")
        return
    use(model)


def _models():
    return st.one_of(models(), models(), mutated([model_file(kind) for kind in _KINDS]))


# --- checkpoints -------------------------------------------------------------------------------------


def _problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(12)


def _fit(path, kind):
    gp = rfgp.SparseSpectrumGP(num_frequencies=3, coupling="iid", learn_frequencies=kind == "learned", seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp.fit(*_problem(), max_iterations=2, checkpoint=path)
    return gp


@lru_cache
def _whole(kind):
    """The checkpoint of a fit that was not disturbed, and what it predicts."""
    with tempfile.TemporaryDirectory() as folder:
        gp = _fit(Path(folder) / "c", kind)
        p = gp.predict(_problem()[0])
        return (Path(folder) / "c").read_bytes(), np.concatenate([p.mean, p.variance])


_HEAD = struct.Struct("<QI")


def records(content):
    """The beginning of a checkpoint, and its records as (step, tensors)."""
    at = content.index(b"\n", content.index(b"\n") + 1) + 1
    begin, out = content[:at], []
    while at < len(content):
        size, _ = _HEAD.unpack_from(content, at)
        body = content[at + _HEAD.size : at + _HEAD.size + size]
        names = int.from_bytes(body[:8], "little")
        out.append((json.loads(body[8 : 8 + names])["__metadata__"]["step"], from_bytes(body)))
        at += _HEAD.size + size
    return begin, out


@st.composite
def _checkpoints(draw):
    """Checkpoints whose records are others, under right checksums; the kind of fit is the first byte."""
    kind = draw(st.sampled_from(["fixed", "learned"]))
    begin, steps = records(_whole(kind)[0])
    at = draw(st.integers(0, len(steps) - 1))
    what = draw(st.sampled_from(["tensors", "tensors", "step", "drop", "twice", "raw"]))
    bodies = [to_bytes({k: t.contiguous() for k, t in tensors.items()}, {"step": step}) for step, tensors in steps]
    if what == "tensors":
        bodies[at] = to_bytes(draw(_tensors_changed(steps[at][1])), {"step": steps[at][0]})
    elif what == "step":
        bodies[at] = to_bytes(steps[at][1], {"step": draw(st.sampled_from(["", "x", steps[0][0], "evaluate"]))})
    elif what == "drop":
        del bodies[at]
    elif what == "twice":
        bodies.insert(at, bodies[at])
    else:
        bodies[at] = draw(mutated([bodies[at]], least=1, most=2))
    body = b"".join(_HEAD.pack(len(b), zlib.crc32(b)) + b for b in bodies)
    return (b"F" if kind == "fixed" else b"L") + b"!" + begin + body


def _changed_checkpoints():
    seeds = [(b"F" if kind == "fixed" else b"L") + b"." + _whole(kind)[0] for kind in ("fixed", "learned")]
    return st.one_of(_checkpoints(), mutated(seeds).filter(lambda c: c[:2] in (b"F.", b"L.")))


def _resume(content):
    """A fit goes on from a checkpoint that was changed to the same end, or refuses it by name.

    Where a record was written anew under a right checksum, another end cannot be told; it must be numbers.
    """
    kind, is_forged = {b"F": "fixed", b"L": "learned"}[content[:1]], content[1:2] == b"!"
    content = content[2:]
    if is_forged:  # under the identity that the fit has here and now: it tells the versions of rfgp and torch
        content = records(_whole(kind)[0])[0] + content.split(b"\n", 2)[2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c"
        path.write_bytes(content)
        gp = outcome(lambda: _fit(path, kind))
        if is_error(gp):
            if not isinstance(gp, rfgp.CheckpointError) and not is_forged:
                raise FoundError(f"a checkpoint is refused as {type(gp).__name__}: {gp}")
            return
        p = gp.predict(_problem()[0])
    found = np.concatenate([p.mean, p.variance])
    if not np.isfinite(found).all():
        raise FoundError("a fit went on from a checkpoint to no numbers")
    if not is_forged and not np.array_equal(found, _whole(kind)[1]):
        raise FoundError("a fit went on from a damaged checkpoint to another end")


# --- solved directions -------------------------------------------------------------------------------

_SIZE = (8, 3)


def _draw():
    coupling = rfgp.couplings.by_name("energy")
    spectrum = rfgp.spectra.Matern(1.25)
    return coupling.sample(*_SIZE, spectrum=spectrum, generator=torch.Generator().manual_seed(0)).dense().numpy()


class CacheFolder:
    """The cache folder is another one, and nothing is in memory."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.patches = [
            mock.patch.dict(os.environ, RFGP_CACHE_DIR=self.folder.name),
            mock.patch.dict(store.memory, clear=True),
        ]
        for patch in self.patches:
            patch.start()
        return Path(self.folder.name)

    def __exit__(self, *error):
        for patch in self.patches:
            patch.stop()
        self.folder.cleanup()


@lru_cache
def _solved():
    """The name of a solution in the cache folder, its content, and the frequencies that follow."""
    with CacheFolder() as folder:
        found = _draw()
        (path,) = folder.rglob("*.npz")
        return path.relative_to(folder), path.read_bytes(), found


@st.composite
def _solutions(draw):
    """Solutions whose arrays are others, under a right checksum."""
    payload = _solved()[1][32:]
    with np.load(io.BytesIO(payload)) as arrays:
        content = {name: torch.from_numpy(arrays[name].copy()) for name in arrays.files}
    changed = {name: t.numpy() for name, t in draw(_tensors_changed(content)).items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **changed)
    payload = draw(st.sampled_from([buffer.getvalue(), b""])) or draw(mutated([payload], least=1))
    return b"!" + hashlib.sha256(payload).digest() + payload


def _from_cache(content):
    """What a damaged solution gives is what none gives; a forged one gives finite numbers, or is solved again."""
    name, _, expected = _solved()
    with CacheFolder() as folder:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content[1:])
        found = outcome(_draw)
    if isinstance(found, NAMED):
        raise FoundError(f"a damaged cache is no reason for {type(found).__name__}: {found}")
    if not np.isfinite(found).all() or found.shape != expected.shape:
        raise FoundError("frequencies from a forged cache are no numbers")
    if content[:1] == b"." and not np.array_equal(found, expected):
        raise FoundError("frequencies from a damaged cache are others")


def _caches():
    damaged = mutated([b"." + _solved()[1]]).filter(lambda c: c[:1] == b".")
    return st.one_of(_solutions(), damaged)


TARGETS = [
    Target("model", on_file(".safetensors", _read_model), _models),
    Target("checkpoint", _resume, _changed_checkpoints, share=0.4),
    Target("cache", _from_cache, _caches, share=0.5),
]
