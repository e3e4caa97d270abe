/* The map of a large job graph: where the vertices are, which part of the graph is visible, and moving that part. */
(function () {
    "use strict";

    const SVG = "http://www.w3.org/2000/svg";
    // The visible part is stored when it has not moved for this time, so that the next drawing of the graph shows the
    // same part.
    const SETTLED_MS = 150;
    let timer = null;
    let extent = [[0, 0], [0, 0]];

    function draw(tag, attributes, parent) {
        const node = document.createElementNS(SVG, tag);
        Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, String(value)));
        parent.appendChild(node);
        return node;
    }

    function graph() {
        return document.querySelector("#front-graph .js-plotly-plot") || document.getElementById("front-graph");
    }

    function ranges() {
        const layout = graph() && graph()._fullLayout;
        return layout && layout.xaxis ? [layout.xaxis.range, layout.yaxis.range] : null;
    }

    // Shows on the map which part of the graph is visible. The map's vertical axis points down.
    function place() {
        const box = document.querySelector("#front-map .visible-part");
        const found = ranges();
        if (!box || !found) { return; }
        const [[left, right], [bottom, top]] = found;
        const now = { x: left, y: -top, width: right - left, height: top - bottom };
        Object.entries(now).forEach(function ([name, value]) {
            if (box.getAttribute(name) !== String(value)) { box.setAttribute(name, String(value)); }
        });
    }

    function remember() {
        window.clearTimeout(timer);
        timer = window.setTimeout(function () {
            const found = ranges();
            if (!found || !document.querySelector("#front-map .visible-part")) { return; }
            const centre = found.map(([from, to]) => Math.round((from + to) / 2));
            window.barrierscope.setProps("front-centre", { data: centre });
            window.barrierscope.setQuery({ view: centre.join(",") });
        }, SETTLED_MS);
    }

    function moveTo(event, svg) {
        const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        const found = ranges();
        if (!found) { return; }
        // Limit the move, so that the visible part stays inside the graph.
        const around = function ([from, to], middle, [low, high]) {
            const half = (to - from) / 2;
            const inside = 2 * half > high - low ? (low + high) / 2 : Math.min(Math.max(middle, low + half), high - half);
            return [inside - half, inside + half];
        };
        window.Plotly.relayout(graph(), {
            "xaxis.range": around(found[0], point.x, extent[0]), "yaxis.range": around(found[1], -point.y, extent[1]),
        });
    }

    function listen() {
        const plot = graph();
        if (!plot || !plot.on || plot.hasMap) { return; }
        plot.hasMap = true;
        plot.on("plotly_afterplot", place);
        plot.on("plotly_relayouting", place);
        plot.on("plotly_relayout", function (changed) {
            place();
            // The event also reports a new size of the window, which does not move the visible part.
            if (changed && Object.keys(changed).some((name) => name.startsWith("xaxis.range"))) { remember(); }
        });
    }

    // The graph is drawn when it comes near the window, which may be after its map.
    document.addEventListener("chartdrawn", function (event) {
        if (event.target.closest("#front-graph")) {
            listen();
            place();
        }
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        front: {
            drawMap: function (data) {
                const map = document.getElementById("front-map");
                if (!map) { return window.dash_clientside.no_update; }
                map.replaceChildren();
                map.classList.toggle("is-shown", Boolean(data));
                if (!data) { return window.dash_clientside.no_update; }
                extent = data.extent;
                const [[left, right], [bottom, top]] = extent;
                const svg = draw("svg", {
                    viewBox: [left, -top, right - left, top - bottom].join(" "), "aria-hidden": "true",
                }, map);
                data.edges.forEach(([x0, y0, x1, y1]) => draw("line", { x1: x0, y1: -y0, x2: x1, y2: -y1 }, svg));
                data.marks.forEach(([x, y, color, isMarked]) => draw("circle", {
                    cx: x, cy: -y, r: isMarked ? 56 : 40, fill: color, class: isMarked ? "is-marked" : "",
                }, svg));
                draw("rect", { class: "visible-part", x: left, y: -top, width: 0, height: 0 }, svg);
                svg.addEventListener("pointerdown", function (event) {
                    svg.setPointerCapture(event.pointerId);
                    moveTo(event, svg);
                });
                svg.addEventListener("pointermove", function (event) {
                    if (event.buttons) { moveTo(event, svg); }
                });
                listen();
                place();
                return window.dash_clientside.no_update;
            },
        },
    });
})();
