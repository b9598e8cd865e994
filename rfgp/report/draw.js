// Draws every plot from the JSON beside it. document.documentElement.dataset says how it went: drawn, of, failed.
(function () {
  "use strict";
  var root = document.documentElement;
  var plots = Array.prototype.slice.call(document.querySelectorAll(".plot"));
  function config(layout) {
    var view = !!layout.scene || layout.dragmode === "pan";  // only views need buttons
    return { responsive: true, displaylogo: false, displayModeBar: view, scrollZoom: view,
      modeBarButtonsToRemove: ["lasso2d", "select2d", "toImage"] };
  }
  var canvas = document.createElement("canvas");
  var webgl = !!(window.WebGLRenderingContext && (canvas.getContext("webgl") || canvas.getContext("webgl2")));
  var drawn = 0;
  function tell() {
    root.dataset.of = plots.length;
    root.dataset.drawn = drawn;
  }
  function fail(plot, reason) {
    root.dataset.failed = (root.dataset.failed || "") + plot.id + ": " + reason + "; ";
    plot.textContent = "This plot could not be drawn: " + reason;
  }
  tell();
  plots.forEach(function (plot) {
    var content = JSON.parse(document.getElementById(plot.id.replace("plot", "data")).textContent);
    if (!webgl && content.layout.scene) {
      plot.parentNode.classList.add("no-webgl");
      drawn += 1;
      tell();
      return;
    }
    if (window.innerWidth < 600) {
      content.layout.margin = { l: 48, r: 8, t: 24, b: 44 };
    }
    Plotly.newPlot(plot, content.data, content.layout, config(content.layout)).then(
      function () { drawn += 1; tell(); },
      function (reason) { fail(plot, String(reason)); }
    );
  });
  window.addEventListener("beforeprint", function () {
    plots.forEach(function (plot) { if (plot.data) { Plotly.Plots.resize(plot); } });
  });
})();
