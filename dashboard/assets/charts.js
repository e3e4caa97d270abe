/* Draws the charts, those near the visible part of the page first, and shows their tables and CSV files. */
(function () {
    "use strict";

    // A chart is drawn at once if it is less than this far from the window, so that it is complete when it comes into view.
    const MARGIN = "600px 0px";
    const near = new WeakSet();
    // The newest figures that are not drawn yet, by the elements of their charts.
    const held = new Map();
    // What was bound to the events of a chart before its first drawing.
    const bound = new WeakMap();
    let react = null;
    let redraw = null;
    let resize = null;

    // A higher chart scrolls in a box of its own.
    const TALL_PX = 2400;

    const isDrawn = (graph) => Boolean(graph._fullLayout);
    // Before its data, a chart has no figure or one that Python marks.
    const isAwaited = (figure) => !figure.data || Boolean(figure.layout && figure.layout.meta === "awaited");

    function fit(graph, figure) {
        const box = graph.closest("[id$=-box]");
        const height = figure.layout && figure.layout.height;
        if (!box || !height) { return; }
        if (box.style.height !== height + "px") { box.style.height = height + "px"; }
        // What follows a chart of a thousand vertices must not be thirty screens away.
        const whole = box.closest("figure");
        if (whole) { whole.classList.toggle("is-tall", height > TALL_PX); }
    }

    // --- room for the names of the rows -----------------------------------------------------------------------------

    // The gap between a name and its axis, with some room for hinting.
    const GAP_PX = 12;
    const pen = document.createElement("canvas").getContext("2d");

    // The width of a name in the font of this machine. Names are in Plotly's markup, with bold parts and entities.
    function widthOf(name, font) {
        let isBold = false, width = 0;
        name.split(/(<\/?b>)/).forEach(function (part) {
            if (part === "<b>" || part === "</b>") { isBold = part === "<b>"; return; }
            const plain = part.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
            pen.font = (isBold ? "bold " : "") + font.size + "px " + font.family;
            width += pen.measureText(plain).width;
        });
        return width;
    }

    function namesOf(layout) {
        const axis = layout.yaxis || {};
        const beside = (layout.annotations || []).filter((a) => a.xref === "paper" && a.x === 0 && a.xanchor === "right");
        const family = layout.font.family;
        return [
            ...(axis.showticklabels === false ? [] : axis.ticktext || []).map((t) => [t, { size: axis.tickfont.size, family }]),
            ...beside.map((a) => [a.text, { size: a.font.size, family }]),
        ];
    }

    // Which font is drawn depends on the machine, so Python cannot know how wide the names are. Plotly's own automatic
    // margin takes seconds for hundreds of names, and leaves out annotations.
    function withRoom(figure) {
        const layout = figure.layout;
        if (!layout || layout.meta !== "measured-names") { return figure; }
        const widest = namesOf(layout).reduce((most, [name, font]) => Math.max(most, widthOf(name, font)), 0);
        const left = Math.max(layout.margin.l, Math.ceil(widest) + GAP_PX);
        // The figure belongs to Dash, so it is not changed.
        return { ...figure, layout: { ...layout, margin: { ...layout.margin, l: left } } };
    }

    function draw(graph, figure) {
        held.delete(graph);
        fit(graph, figure);
        const isFirst = !isDrawn(graph);
        const done = react(graph, withRoom(figure));
        if (isFirst) {
            // Drawing gave the element its real function ``on``.
            (bound.get(graph) || []).forEach(([name, call]) => graph.on(name, call));
            bound.delete(graph);
            graph.dispatchEvent(new CustomEvent("chartdrawn", { bubbles: true }));
        }
        return done;
    }

    function drawHeld() {
        for (const [graph, figure] of [...held]) {
            if (!graph.isConnected) { held.delete(graph); } else if (!isAwaited(figure)) { draw(graph, figure); }
        }
    }

    // The charts that are further away are drawn one by one when the browser has nothing else to do.
    const whenIdle = window.requestIdleCallback || ((call) => window.setTimeout(call, 200));
    let isWaiting = false;

    function drawLater() {
        if (isWaiting) { return; }
        isWaiting = true;
        whenIdle(function () {
            isWaiting = false;
            for (const [graph, figure] of held) {
                if (!graph.isConnected) { held.delete(graph); continue; }
                if (isAwaited(figure) || graph.getClientRects().length === 0) { continue; }
                draw(graph, figure);
                drawLater();
                return;
            }
        }, { timeout: 2000 });
    }

    const observer = new IntersectionObserver(function (entries) {
        entries.forEach(function (entry) {
            const graph = entry.target;
            if (!entry.isIntersecting) { near.delete(graph); return; }
            near.add(graph);
            const figure = held.get(graph);
            if (figure && !isAwaited(figure)) { draw(graph, figure); }
        });
    }, { rootMargin: MARGIN });

    // Dash calls this function for each new figure, and binds events to the element when it returns.
    function show(graph, figure) {
        if (!(graph instanceof Element)) { return react(graph, figure); }
        if (near.has(graph) && !isAwaited(figure)) { return draw(graph, figure); }
        held.set(graph, figure);
        if (!isDrawn(graph)) {
            // The content after a chart must not move when the chart is drawn.
            fit(graph, figure);
            if (!bound.has(graph)) {
                bound.set(graph, []);
                graph.on = (name, call) => bound.get(graph).push([name, call]);
                observer.observe(graph);
                boxes.observe(graph);
            }
        }
        if (!isAwaited(figure)) { drawLater(); }
        return Promise.resolve(graph);
    }

    // --- the size of a chart ----------------------------------------------------------------------------------------

    const isFull = (graph) => {
        const svg = graph.querySelector(".main-svg");
        if (!svg) { return false; }
        const drawn = svg.getBoundingClientRect();
        return Math.abs(drawn.width - graph.clientWidth) < 2 && Math.abs(drawn.height - graph.clientHeight) < 2;
    };

    const isAmiss = (graph) =>
        graph.isConnected && graph.getClientRects().length > 0 && isDrawn(graph) && !isFull(graph);

    // Plotly redraws a chart a tenth of a second after its box has another size. If it fails then, nothing else asks it
    // again, and the chart would stand out of its card.
    const REDRAWN_AFTER_MS = 500;
    const checks = new Map();
    const boxes = new ResizeObserver(function (entries) {
        entries.forEach(function ({ target: graph }) {
            window.clearTimeout(checks.get(graph));
            checks.set(graph, window.setTimeout(function () {
                checks.delete(graph);
                if (!isAmiss(graph)) { return; }
                // Plotly may have noted the size before it failed; then it takes the chart for resized. The viewer may
                // have gone to another page meanwhile, and Dash has then emptied the chart.
                resize(graph).then(() => isAmiss(graph) && redraw(graph), () => { /* hidden by now */ });
            }, REDRAWN_AFTER_MS));
        });
    });

    // Dash asks for the size of every chart again after drawing it. Nothing is to do if the size is the same.
    function resizeIfNew(graph) {
        if (!isDrawn(graph)) { return Promise.resolve(graph); }
        const { width, height } = graph._fullLayout;
        const isSame = Math.abs(graph.clientWidth - width) < 1 && Math.abs(graph.clientHeight - height) < 1;
        return isSame ? Promise.resolve(graph) : resize(graph);
    }

    // Dash loads Plotly when a page has its first chart.
    let plotly;
    Object.defineProperty(window, "Plotly", {
        configurable: true,
        get: () => plotly,
        set: function (loaded) {
            plotly = loaded;
            react = loaded.react;
            redraw = loaded.redraw;
            resize = loaded.Plots.resize;
            loaded.react = show;
            loaded.Plots.resize = resizeIfNew;
        },
    });

    window.addEventListener("beforeprint", drawHeld);

    // --- the table of a chart ---------------------------------------------------------------------------------------

    // The data of the charts of this page, by their names.
    const tables = new Map();

    function csvCell(value) {
        if (value === null || value === undefined) {
            return "";
        }
        let text = String(value);
        // A spreadsheet would run a name that looks like a formula.
        if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) {
            text = "'" + text;
        }
        return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    }

    function tableOf(data) {
        const columns = (data && data.columns) || [];
        const rows = ((data && data.rows) || []).map(function (row) {
            return Object.fromEntries(row.map(function (value, i) { return ["c" + i, value]; }));
        });
        const defs = columns.map(function (name, i) {
            const isNumber = data.rows.some(function (row) { return typeof row[i] === "number"; });
            return {
                field: "c" + i, headerName: name, cellDataType: isNumber ? "number" : "text",
                type: isNumber ? "rightAligned" : undefined,
                // Null is shown as missing, never as a number.
                valueFormatter: { function: "params.value == null ? '–' : params.value" },
            };
        });
        return { columnDefs: defs, rowData: rows };
    }

    function gridOf(id, shown) {
        return {
            type: "AgGrid",
            namespace: "dash_ag_grid",
            props: Object.assign({
                id: id,
                defaultColDef: { sortable: true, resizable: true, filter: true, minWidth: 90 },
                columnSize: "autoSize",
                dashGridOptions: {
                    theme: { function: "themeQuartz.withPart(colorSchemeVariable)" },
                    rowHeight: 30,
                    headerHeight: 34,
                    // Screen readers need every column to be in the page, in the order that is displayed.
                    ensureDomOrder: true,
                    suppressColumnVirtualisation: true,
                    tabToNextCell: { function: "bsLeave()" },
                    tabToNextHeader: { function: "bsToRows(params)" },
                },
                style: { height: "320px" },
            }, shown),
        };
    }

    function fillTable(name) {
        const shown = tableOf(tables.get(name));
        if (document.getElementById(name + "-grid")) {
            window.barrierscope.setProps(name + "-grid", shown);
        } else {
            window.barrierscope.setProps(name + "-wrap", { children: gridOf(name + "-grid", shown) });
        }
    }

    const isOpen = (name) => document.getElementById(name + "-toggle").getAttribute("aria-pressed") === "true";

    function toggleTable(name) {
        const willOpen = !isOpen(name);
        document.getElementById(name + "-toggle").setAttribute("aria-pressed", String(willOpen));
        document.getElementById(name + "-wrap").style.display = willOpen ? "block" : "none";
        document.getElementById(name + "-figure").style.display = willOpen ? "none" : "block";
        if (willOpen) {
            fillTable(name);
        } else {
            // A figure that was hidden may have another size now.
            window.setTimeout(function () { window.dispatchEvent(new Event("resize")); }, 50);
        }
    }

    function save(name) {
        const data = tables.get(name);
        if (!data) { return; }
        const lines = [data.columns].concat(data.rows).map(function (row) { return row.map(csvCell).join(","); });
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob(["\ufeff" + lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
        link.download = "barrierscope-" + data.name + ".csv";
        link.click();
        window.setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
        document.getElementById(name + "-saved").textContent = "saved " + data.rows.length + " rows";
    }

    document.addEventListener("click", function (event) {
        const button = event.target.closest("button[data-chart]");
        if (!button) { return; }
        (button.id.endsWith("-csv") ? save : toggleTable)(button.getAttribute("data-chart"));
    });

    // The component with the data of a chart's table. It shows nothing itself.
    function ChartData(props) {
        const name = props.id.replace(/-data$/, "");
        window.React.useEffect(function () {
            tables.set(name, props.data);
            if (document.getElementById(name + "-toggle") && isOpen(name)) { fillTable(name); }
        }, [props.data]);
        window.React.useEffect(() => () => { tables.delete(name); }, []);
        return null;
    }

    window.barrierscope_components = Object.assign(window.barrierscope_components || {}, { ChartData: ChartData });
})();
