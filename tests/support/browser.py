"""A real headless Chromium, where there is one: open a page, wait until it says it is done, ask what happened."""

import html
import json
import re
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BINARY = next((path for path in map(shutil.which, NAMES) if path), None)

needs_browser = pytest.mark.skipif(
    BINARY is None, reason="no Chromium found; on Debian and Ubuntu `apt install chromium` brings one"
)

# Runs before anything else on the page: what goes wrong is kept.
_WATCH = """<script>
window.__errors = [];
window.addEventListener("error", function (e) { window.__errors.push("error: " + e.message); });
window.addEventListener("unhandledrejection", function (e) { window.__errors.push("rejection: " + e.reason); });
document.addEventListener("securitypolicyviolation", function (e) {
  window.__errors.push("policy: " + e.violatedDirective + " " + e.blockedURI);
});
(function (old) { console.error = function () {
  window.__errors.push("console: " + Array.prototype.join.call(arguments, " "));
  old.apply(console, arguments);
}; })(console.error);
</script>"""

# Runs last: reports once every plot is drawn, or after ten seconds.
_TELL = """<script>
(function () {
  var start = Date.now();
  function marks(plot) {
    return plot.querySelectorAll(".scatterlayer path, .barlayer path, .shapelayer path, canvas").length;
  }
  function tell() {
    var root = document.documentElement, plots = Array.prototype.slice.call(document.querySelectorAll(".plot"));
    var done = root.dataset.drawn !== undefined && root.dataset.drawn === root.dataset.of;
    if (!done && Date.now() - start < 10000) { setTimeout(tell, 50); return; }
    var found = {
      drawn: Number(root.dataset.drawn), of: Number(root.dataset.of), failed: root.dataset.failed || "",
      errors: window.__errors, width: root.clientWidth, scroll: root.scrollWidth, height: root.scrollHeight,
      loaded: performance.getEntriesByType("resource").map(function (e) { return e.name; })
        .filter(function (name) { return !/^(data|blob):/.test(name); }),
      plots: plots.map(function (plot) {
        var box = plot.getBoundingClientRect();
        return { id: plot.id, x: box.x, y: box.y + window.scrollY, width: box.width, height: box.height,
          marks: marks(plot), wider: plot.scrollWidth > plot.clientWidth + 1 };
      })
    };
    root.dataset.probe = JSON.stringify(found);
    if (window.parent !== window) { window.parent.postMessage(found, "*"); }
  }
  tell();
})();
</script>"""

_FRAME = """<!doctype html><body style="margin:0"><script>
window.addEventListener("message", function (e) { document.documentElement.dataset.probe = JSON.stringify(e.data); });
</script><iframe src="PAGE" style="border:0;width:WIDTHpx;height:HEIGHTpx"></iframe>"""


def probe(page, folder, *, size=(1100, 900), frame=None):
    """Open a page and return what it says of itself; `frame` (width, height) shows it in a frame of that size."""
    watched = page.replace("<head>", "<head>" + _WATCH, 1).replace("</body>", _TELL + "</body>", 1)
    assert watched.count(_WATCH) == watched.count(_TELL) == 1
    path = folder / "watched.html"
    path.write_text(watched, encoding="utf-8")
    if frame is not None:
        outer = path.with_name("frame.html")
        filled = _FRAME.replace("PAGE", path.name).replace("WIDTH", f"{frame[0]}").replace("HEIGHT", f"{frame[1]}")
        outer.write_text(filled, encoding="utf-8")
        path = outer
    dom = run(folder, path, size, "--dump-dom")
    found = re.search(r'<html[^>]*? data-probe="([^"]*)"', dom)
    assert found, "the page never said how it went"
    return json.loads(html.unescape(found.group(1)))


def screenshot(page, folder, *, size):
    """Return the page's top as a PNG of the given size."""
    path, picture = folder / "page.html", folder / "page.png"
    path.write_text(page, encoding="utf-8")
    run(folder, path, size, f"--screenshot={picture}")
    return picture


def run(folder, path, size, *options):
    """Run Chromium once on a file, without a network, and return its standard output."""
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [
        BINARY,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--use-gl=angle",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        f"--window-size={size[0]},{size[1]}",
        "--virtual-time-budget=20000",
        *options,
        path.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
