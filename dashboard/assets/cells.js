/* The cells of the fleet grid. Names are inserted as text only, never as HTML. */
(function () {
    "use strict";

    const { narrow, span } = window.barrierscope;

    // A grid has one Tab stop for its head and one for its rows. The arrow keys move between cells.
    window.dashAgGridFunctions = Object.assign({
        bsLeave: () => false,
        // From the head, Tab goes on to the first row. Row -1 of the head stands for the rows below it.
        bsToRows: function (asked) {
            const column = asked.api.getAllDisplayedColumns()[0];
            return asked.backwards || !column ? false : { headerRowIndex: -1, column: column };
        },
    }, window.dashAgGridFunctions);

    const cells = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});

    function h() {
        return window.React.createElement.apply(window.React, arguments);
    }

    // A row has no data until its block has arrived.
    function whenLoaded(cell) {
        return function (props) { return props.data ? cell(props) : null; };
    }

    // What a stale row was, and how long ago. The script of all pages keeps the age current.
    function past(row, className) {
        return h("span", { className: className, title: row.health_badge.hint }, row.was,
            row.was_at ? h("span", { className: "age", key: row.was_at, "data-instant": row.was_at }, ", ") : null);
    }

    cells.BsJob = whenLoaded(function (props) {
        return h("div", { className: "cell-stack" },
            h("a", { className: "row-link", href: props.data.href, tabIndex: -1, title: props.data.name }, props.data.name),
            narrow.matches && props.data.was
                ? past(props.data, "sub")
                : h("span", { className: "sub", title: props.data.target }, narrow.matches ? props.data.verdict : props.data.target));
    });

    cells.BsBadge = whenLoaded(function (props) {
        const cell = props.data[props.colDef.field + "_badge"];
        if (!cell) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing" }, "–"));
        }
        const badge = h(cell.href ? "a" : "span", { className: "badge tone-" + cell.tone, title: cell.hint, href: cell.href, tabIndex: cell.href ? -1 : undefined },
            h("span", { className: "icon icon-" + cell.icon, "aria-hidden": "true" }), h("span", null, cell.word));
        return props.colDef.field === "verdict" && props.data.was
            ? h("div", { className: "cell-stack cell-past" }, badge, past(props.data, "sub"))
            : h("div", { className: "cell-mid" }, badge);
    });

    cells.BsChip = whenLoaded(function (props) {
        const cell = props.data[props.colDef.field + "_chip"];
        if (!cell) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing", title: "not reported" }, "–"));
        }
        return h("div", { className: "cell-mid" },
            h(cell.href ? "a" : "span", { className: "chip", title: cell.hint, href: cell.href, tabIndex: cell.href ? -1 : undefined },
                h("span", { className: "swatch " + cell.swatch, "aria-hidden": "true" }), h("span", null, cell.word)));
    });

    cells.BsText = whenLoaded(function (props) {
        const text = props.data[props.colDef.field + "_text"];
        const isMissing = text === "–" || text === undefined;
        return h("div", { className: "cell-mid cell-right" }, h("span", { className: isMissing ? "missing" : "number", title: props.data[props.colDef.field + "_hint"] || (isMissing ? "not reported" : text) }, isMissing ? "–" : text));
    });

    // The replay debt, which grows while the row is shown. The server sends a row again only if more than its ages has
    // changed. It does not grow if the row is stale or the service silent: a checkpoint may have completed meanwhile.
    cells.BsDebt = whenLoaded(function (props) {
        const row = props.data;
        row.receivedAt = row.receivedAt || Date.now();
        const isPast = row.was || document.documentElement.hasAttribute("data-api");
        if (!isPast || row.debtNow === undefined) { row.debtNow = row.debt + (isPast ? 0 : Date.now() - row.receivedAt); }
        const isMissing = row.debt === null || row.debt === undefined;
        const text = isMissing ? "–" : (row.debt_is_least ? "≥ " : "") + span(row.debtNow);
        return h("div", { className: "cell-mid cell-right" },
            h("span", { className: isMissing ? "missing" : "number", title: row.debt_hint }, text));
    });

    cells.BsShare = whenLoaded(function (props) {
        const value = props.value;
        if (value === null || value === undefined) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing", title: "not reported" }, "–"));
        }
        const text = props.data[props.colDef.field + "_text"];
        return h("div", { className: "cell-mid" },
            h("div", { className: "share", title: "share of time the most backpressured vertex is backpressured: " + text },
                h("i", { style: { width: Math.round(value * 100) + "%" } }), h("b", null, text)));
    });

    cells.BsSpark = whenLoaded(function (props) {
        const points = props.data.spark || [];
        if (!points.length) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing", title: props.data.spark_text }, "–"));
        }
        const width = 120, height = 30, pad = 4;
        const highest = Math.max.apply(null, points.map(function (p) { return p[0] || 0; })) || 1;
        const at = points.map(function (p, i) {
            const x = pad + (width - 2 * pad) * (points.length === 1 ? 1 : i / (points.length - 1));
            return [x, height - pad - (height - 2 * pad) * (p[0] || 0) / highest, p[1]];
        });
        // A checkpoint without a duration interrupts the line. If this checkpoint failed, its mark is at the lower
        // edge.
        const line = at.map(function (p, i) {
            if (points[i][0] === null) { return ""; }
            const isFirst = i === 0 || points[i - 1][0] === null;
            return (isFirst ? "M" : "L") + p[0].toFixed(1) + " " + p[1].toFixed(1);
        }).join("");
        const marks = at.filter(function (p) { return p[2] === "failed"; }).map(function (p, i) {
            const x = p[0].toFixed(1), y = p[1].toFixed(1);
            return h("path", { key: i, d: "M" + x + " " + y + "m-2.6 -2.6l5.2 5.2m0 -5.2l-5.2 5.2", stroke: "#d55e00", strokeWidth: 1.7, fill: "none" });
        });
        return h("svg", { className: "spark", viewBox: "0 0 " + width + " " + height, preserveAspectRatio: "none", role: "img", "aria-label": props.data.spark_text },
            h("title", null, props.data.spark_text),
            h("path", { d: line, fill: "none", stroke: "currentColor", strokeWidth: 1.4, opacity: 0.75 }), marks);
    });
})();
