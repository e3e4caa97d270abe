/* Draws the charts of the page of a backtest, from the document with the id figures. */
const dark=matchMedia('(prefers-color-scheme: dark)').matches;
for(const f of JSON.parse(document.getElementById('figures').textContent)){
  const ink=dark?'#e6eaf0':'#1c2430',line=dark?'#333c48':'#d5dbe3';
  const axis={color:ink,gridcolor:line,zerolinecolor:line};
  Plotly.newPlot(f.id,f.data,Object.assign({},f.layout,{paper_bgcolor:'transparent',plot_bgcolor:'transparent',
    font:{color:ink},xaxis:Object.assign({},axis,f.layout.xaxis),yaxis:Object.assign({},axis,f.layout.yaxis)}),
    {responsive:true,displaylogo:false});
}
