// Draws every plot from its JSON. document.documentElement.dataset has the numbers "drawn" and "of", and "failed".
(function () {
  "use strict";
  var root = document.documentElement;
  var plots = Array.prototype.slice.call(document.querySelectorAll(".plot"));
  var narrow = window.innerWidth < 600;
  function config(layout) {
    var view = !!layout.scene || layout.dragmode === "pan";  // only views need buttons
    return { responsive: true, displaylogo: false, displayModeBar: view, scrollZoom: view,
      modeBarButtonsToRemove: ["lasso2d", "select2d", "toImage"] };
  }
  var canvas = document.createElement("canvas");
  var webgl = !!(window.WebGLRenderingContext && (canvas.getContext("webgl") || canvas.getContext("webgl2")));
  var drawn = 0;
  function report() {
    root.dataset.of = plots.length;
    root.dataset.drawn = drawn;
  }
  function fail(plot, reason) {
    root.dataset.failed = (root.dataset.failed || "") + plot.id + ": " + reason + "; ";
    plot.textContent = "This plot could not be drawn: " + reason;
  }
  // The plotting library is packed: a script of its own once it is unpacked.
  function load() {
    var packed = document.getElementById("library").textContent;
    if (typeof DecompressionStream === "undefined") {
      return Promise.reject("this browser is from before 2023");
    }
    var bytes = Uint8Array.from(atob(packed), function (c) { return c.charCodeAt(0); });
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text().then(function (text) {
      var script = document.createElement("script");
      script.textContent = text;
      document.head.appendChild(script);
    });
  }
  // A narrow frame is as wide as high, and has the scale below the body, which then fills the width.
  function fit(plot, content) {
    var scene = content.layout.scene, surface = content.data[0];
    plot.style.height = plot.clientWidth + "px";
    content.layout.margin = { l: 0, r: 0, t: 0, b: 0 };
    scene.domain = { x: [0, 1], y: [0.2, 1] };
    surface.colorbar = Object.assign({}, surface.colorbar, { orientation: "h", x: 0.5, y: 0, yanchor: "bottom", len: 0.9,
      thickness: 12, title: Object.assign({}, surface.colorbar.title, { side: "top" }) });
  }
  // In a narrow frame small multiples are below each other.
  function stack(plot, layout) {
    var names = Object.keys(layout).filter(function (name) { return /^xaxis\d*$/.test(name); });
    if (names.length < 2) { return; }
    names.sort(function (a, b) { return Number(a.slice(5) || 1) - Number(b.slice(5) || 1); });
    names.forEach(function (name, i) {
      var y = layout[name.replace("x", "y")];
      layout[name].domain = [0, 1];
      y.domain = [1 - (i + 0.68) / names.length, 1 - i / names.length];
      y.showticklabels = true;
    });
    plot.style.height = 180 * names.length + "px";
  }
  function draw(plot) {
    var content = JSON.parse(document.getElementById(plot.id.replace("plot", "data")).textContent);
    if (!webgl && content.layout.scene) {
      plot.parentNode.classList.add("no-webgl");
      drawn += 1;
      report();
      return;
    }
    if (narrow && content.layout.scene) {
      fit(plot, content);
    } else if (narrow) {
      content.layout.margin = { l: 48, r: 8, t: 24, b: 44 };
      stack(plot, content.layout);
    }
    Plotly.newPlot(plot, content.data, content.layout, config(content.layout)).then(
      function () { drawn += 1; report(); },
      function (reason) { fail(plot, String(reason)); }
    );
  }
  report();
  load().then(
    function () { plots.forEach(draw); },
    function (reason) { plots.forEach(function (plot) { fail(plot, String(reason)); }); }
  );
  window.addEventListener("beforeprint", function () {
    plots.forEach(function (plot) { if (plot.data) { Plotly.Plots.resize(plot); } });
  });
})();
