"""Settings of the documentation site: `make docs` writes it to out/docs without a network."""

import os
import re
import sys
import warnings
import zlib
from collections.abc import Mapping
from importlib.metadata import version as version_of
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["RFGP_DATA_DIR"] = str(ROOT / "data")  # so that examples download nothing

project = "rfgp"
author = "The rfgp authors"
version = release = version_of("rfgp")
root_doc = "index"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]  # the order of the gallery is a function, which cannot be cached

templates_path = ["_templates"]
exclude_patterns = ["generated/tables/*"]  # pages include them
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # signatures in the sources have shapes; types of torch would hide them
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # an attribute that is also a property is described once
default_role = "code"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": [str(ROOT / "examples" / name) for name in ("tutorials", "gallery")],
    "gallery_dirs": ["tutorials", "gallery"],
    "filename_pattern": r"/\w+\.py",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "parallel": int(os.environ.get("WORKERS", 0)),  # the processes of the gallery, if not 0; `make docs` names them
    "plot_gallery": "True",
    "show_signature": False,
    "ignore_repr_types": r"matplotlib",
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("rfgp", "graphs"),
}
warnings.filterwarnings("ignore", category=UserWarning, module="matplotlib")
warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")  # and was replaced
BOTH = {"InvalidArgumentError", "MissingDependencyError", "NotPositiveDefiniteError"}  # of both packages


def inventory(listed):
    """Write the inventory of another project's names, and return its address and the file.

    Args:
        listed: The names that this site mentions. The first line is "# address", the others have the format of an
            inventory of version 2, without compression.
    """
    address, names = listed.read_text(encoding="utf-8").removeprefix("# ").split("\n", 1)
    header = f"# Sphinx inventory version 2\n# Project: {listed.stem}\n# Version: \n# zlib\n"
    file = ROOT / "out" / "inventories" / f"{listed.stem}.inv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(header.encode() + zlib.compress(names.encode()))
    return address, str(file)


intersphinx_mapping = {file.stem: inventory(file) for file in sorted((ROOT / "docs" / "inventories").glob("*.txt"))}

html_theme = "pydata_sphinx_theme"
html_sidebars = {"index": [], "start": []}
html_title = "rfgp"
html_static_path = ["_static"]
html_css_files = ["rfgp.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["header-links", "theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_prev_next": False,
    "navigation_with_keys": False,
}


def edit_docstring(app, what, name, obj, options, lines):
    """Escape formulas, name the page of an error of both packages, and list the keys of a mapping."""
    if isinstance(obj, Mapping):
        lines[:] = ["A mapping with the keys " + ", ".join(f"``{key}``" for key in obj) + "."]
        return
    in_example = False
    for i, line in enumerate(lines):
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        error = re.match(r"    (\w+):", line)
        if error and error[1] in BOTH:
            lines[i] = f"    ~rfgp.{escaped(line.strip())}"
        elif not in_example:
            lines[i] = escaped(line)


def escaped(line):
    """Return a line with the characters escaped that reStructuredText would read, outside its code."""
    parts = re.split(r"(``[^`]*``|`[^`]*`|:\w+(?: [\w.*|]+)*:)", line)
    parts[::2] = [re.sub(r"(?<!\\)([*|]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def skip_member(app, what, name, obj, skip, options):
    """Leave out the methods that scikit-learn's metadata routing adds: their text refers to its own manual."""
    return skip or bool(re.fullmatch(r"(set_\w+_request|get_metadata_routing)", name))


def write_results(app):
    """Write the pages and tables of results, and draw the scores of other packages."""
    from benchmarks import page
    from benchmarks.rivals import pictures

    page.generate(Path(app.srcdir) / "generated")
    pictures.draw(Path(app.srcdir) / "pictures" / "rivals")


def setup(app):
    """Write the pages of results, and edit docstrings before napoleon reads their sections."""
    app.connect("builder-inited", write_results)
    app.connect("autodoc-process-docstring", edit_docstring, priority=100)
    app.connect("autodoc-skip-member", skip_member)
    app.extensions["sphinx-mathjax-offline"].parallel_read_safe = True  # it adds a file, and does not say so
