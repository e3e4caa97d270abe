/* Draws the charts of a page, from the document with the id figures, in the colors of the viewer's theme. */
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const text = dark.matches ? "#e8ecf3" : "#1b2330", grid = dark.matches ? "#2a3342" : "#e6e9ef";
  for (const figure of JSON.parse(document.getElementById("figures").textContent)) {
    const axes = {};
    for (const name of ["xaxis", "yaxis"]) {
      axes[name] = Object.assign({ color: text, gridcolor: grid, zerolinecolor: grid, automargin: true },
        figure.layout[name]);
    }
    const layout = Object.assign({}, figure.layout, axes,
      { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text } });
    Plotly.react(figure.id, figure.data, layout, { responsive: true, displaylogo: false });
  }
}
dark.addEventListener("change", draw);
draw();
