"""Run the code of the README and of how-to pages with an installed wheel, outside the checkout: `pages.py CHECKOUT`.

The blocks of a page are one program. A page that reads a file of the checkout, or a package that is not installed, is
left out and named, and so is one that has not begun in time. The README never is.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

SECONDS = 60.0
"""The seconds after which no page begins."""


def code_of(path: Path) -> str:
    """Return the Python blocks of a page as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL))


def missing(code: str) -> list[str]:
    """Return the files of the checkout and the packages that a program needs and an installed wheel lacks."""
    import rfgp

    files = Path(rfgp.__file__).parent / "datasets" / "files"
    inside = {file.name.partition(".")[0] for file in files.iterdir()}
    names = re.findall(r"datasets\.\w*load\w*\(\"([^\"]+)\"", code)
    packages = re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE)
    found = [*(name for name in names if name not in inside), *(one for one in packages if find_spec(one) is None)]
    return [*found, *re.findall(r"\"((?:data|examples)/[^\"]*)", code)]


def run(path: Path, end: float) -> tuple[str, str, float]:
    """Run a page in an empty folder before `end`; return why it was left out or failed, its error, and the seconds."""
    code, begin = code_of(path), time.perf_counter()
    if time.time() > end:
        return f"left out, not begun within {SECONDS:g} s", "", 0.0
    if lacks := missing(code):
        return f"left out, needs {', '.join(dict.fromkeys(lacks))}", "", 0.0
    before, text = Path.cwd(), ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            exec(compile(code, path.name, "exec"), {"__name__": path.stem})
        except Exception:
            text = traceback.format_exc()
        os.chdir(before)
    return "failed" if text else "", text, time.perf_counter() - begin


def main(checkout: Path) -> int:
    """Run all pages in two processes; return how many failed, or 1 if the README was left out."""
    os.environ.pop("RFGP_DATA_DIR", None)
    os.environ |= {"RFGP_DATA_URL": "http://127.0.0.1:9", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    pages = [checkout / "README.md", *sorted((checkout / "docs" / "howto").glob("*.md"))]
    pages = [page for page in pages if code_of(page)]
    failed, ran = list[Path](), list[Path]()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for page, (why, error, seconds) in zip(pages, pool.map(run, pages, repeat(time.time() + SECONDS)), strict=True):
            print(f"{page.name:30} {why or f'{seconds:.1f} s'}", error, sep="\n" if error else "", flush=True)
            failed += [page] * bool(error)
            ran += [page] * (not why)
    print(f"The code of {len(ran)} of {len(pages)} pages ran with the installed wheel.")
    return len(failed) or int(pages[0] not in ran)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
