"""The sentences of docs/security.md that code can check: what is opened, sent and executed, and from where."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")

WATCHED = """
import json, os, struct, sys, warnings
from pathlib import Path
import numpy as np
import torch
import rfgp, graphs, rfgp.tables, rfgp.report

folder = Path(sys.argv[1])
os.environ["RFGP_CACHE_DIR"] = str(folder / "cache")
warnings.simplefilter("ignore")
X = np.random.default_rng(0).standard_normal((60, 2))
y = np.sin(X[:, 0])
rows = "\\n".join(f"{a},{b},{c}" for (a, b), c in zip(X, y))
(folder / "t.csv").write_text("a,b,y\\n" + rows)
(folder / "secret").write_bytes(bytes(48))
(folder / "m.obj").write_text("mtllib secret\\nusemtl m\\nv 0 0 0\\nv 1 0 0\\nv 0 1 0\\nf 1 2 3\\n")
described = json.dumps({
    "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
    "buffers": [{"byteLength": 48, "uri": "secret"}], "bufferViews": [{"buffer": 0, "byteLength": 36}],
    "accessors": [{"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"}],
    "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
}).encode()
described += b" " * (-len(described) % 4)
head = struct.pack("<4sIIII", b"glTF", 2, 20 + len(described), len(described), 0x4E4F534A)
(folder / "m.glb").write_bytes(head + described)
(folder / "g.gml").write_text('graph [ node [ id 0 label "a" ] node [ id 1 label "b" ] edge [ source 0 target 1 ] ]')

seen, on = set(), False
FOREIGN = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "urllib.", "http.")


def by_numba():
    frame = sys._getframe()
    while frame is not None:
        if f"{os.sep}numba{os.sep}" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def watch(event, args):
    if not on:
        return
    if event == "open" and isinstance(args[0], str) and args[0].startswith(str(folder)):
        written = bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        seen.add(("writes" if written else "reads", str(Path(args[0]).relative_to(folder))))
    elif event == "open" and isinstance(args[0], str) and args[2] & (os.O_WRONLY | os.O_CREAT) and not by_numba():
        seen.add(("writes elsewhere", args[0]))
    elif event.startswith(FOREIGN) or (event.startswith("pickle") and not by_numba()):
        seen.add((event, str(args[:2])))


sys.addaudithook(watch)
on = True
coupling = rfgp.couplings.Energy(distances=[[0.31, 1.0]])
for _ in range(2):
    gp = rfgp.SparseSpectrumGP(num_frequencies=20, coupling="energy", seed=0)
    gp.fit(X, y, max_iterations=3, checkpoint=folder / "checkpoint")
coupling.sample(20, 2, generator=torch.Generator().manual_seed(0))
gp.save(folder / "model")
rfgp.load(folder / "model").predict(X).variance
table = rfgp.tables.read_table(folder / "t.csv", "y")
report = rfgp.report.table_report(rfgp.report.study_table(table, gp, compare=False), table)
graphs.Graph.from_mesh(graphs.load_mesh(folder / "m.obj"), nodes="vertices")
try:
    graphs.load_mesh(folder / "m.glb")
    sys.exit("the GLB has no vertices of its own")
except graphs.GraphError:
    pass
graph = graphs.Graph.from_gml(folder / "g.gml")
graphs.sample_walks(graph, seed=0).features(graphs.kernels.Diffusion(1.0))
on = False
if "default-src 'none'; script-src" not in report:
    sys.exit("a report may ask for something")
print(sorted(seen))
"""


@pytest.mark.slow
def test_only_named_files_are_opened_and_nothing_is_sent(tmp_path):
    """Only what was named, a temporary file beside it, and the cache; no network, no program, no pickle but numba's."""
    run = subprocess.run([sys.executable, "-c", WATCHED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    seen = eval(run.stdout)
    read = {name for event, name in seen if event == "reads" and not name.startswith("cache")}
    named = {"checkpoint", "model", "t.csv", "m.obj", "m.glb", "g.gml"}
    assert read == named, "the meshes name the file `secret`"
    for event, name in seen:
        if event == "writes":
            assert name in ("checkpoint", "model") or re.fullmatch(r"\.[\w.-]+", name), name
        else:
            assert event == "reads", (event, name)


def sources():
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for package in ("rfgp", "graphs")
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def named(pattern):
    return {file for file, text in sources().items() if re.search(pattern, text, re.MULTILINE)}


def test_the_environment_variables_are_those_of_the_page():
    ours = {name for text in sources().values() for name in re.findall(r"environ[^\n]*?\"([A-Z_]+)\"", text)}
    assert ours == {"LOCALAPPDATA", "RFGP_CACHE_DIR", "RFGP_DATA_DIR", "RFGP_DATA_URL", "XDG_CACHE_HOME"}
    assert all(f"`{name}`" in PAGE for name in ours)


def test_only_downloads_reach_for_the_network():
    assert named(r"^\s*(import|from) (requests|urllib|http|socket|ftplib)\b") == {"rfgp/datasets/catalog.py"}


@pytest.mark.slow
def test_nothing_that_is_read_executes():
    assert named(r"^\s*(import|from) (pickle|cloudpickle|dill|joblib|marshal|shelve|yaml)\b") == set()
    assert (
        named(r"torch\.load\(|(?<![\w.])(eval|exec)\(|os\.system|allow_pickle=True|np\.load\((?!.*allow_pickle=False)")
        == set()
    )
