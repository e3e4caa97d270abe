/* Draws the charts of the report of an experiment. FIGURES is defined before this. */
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const text = dark.matches ? "#e8ecf3" : "#1b2330", grid = dark.matches ? "#2a3342" : "#e6e9ef";
  FIGURES.forEach(function (figure, i) {
    const axes = {};
    ["xaxis", "yaxis"].forEach(function (name) {
      axes[name] = Object.assign({ gridcolor: grid, automargin: true }, figure.layout[name]);
    });
    const layout = Object.assign({}, figure.layout, axes,
      { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text } });
    Plotly.react("chart-" + i, figure.data, layout, { responsive: true, displaylogo: false });
  });
}
dark.addEventListener("change", draw);
draw();
