/* What the viewer chose on a page, in the address of the page. */
(function () {
    "use strict";

    const { addCallbacks, setQuery, showQuery } = window.barrierscope;
    const NO = () => window.dash_clientside.no_update;

    addCallbacks({
        linkLog: function (pressed) {
            setQuery({ log: pressed === "true" ? "1" : null });
            return NO();
        },
        placeHeatmap: function (measure, vertex, group, isLog) {
            setQuery({
                measure: measure === "duration" ? null : measure,
                vertex: vertex || null,
                rows: group === "host" ? group : null,
                "heat-scale": isLog === "true" ? "log" : null,
            });
            return NO();
        },
        placePressure: function (length, vertex, measure) {
            const isLinked = length === "chosen";
            setQuery({
                last: isLinked || length === "1h" ? null : length,
                vertex: vertex || null,
                measure: measure === "backpressured" ? null : measure,
            });
            if (!isLinked) { setQuery({ from: null, to: null }); }
            return NO();
        },
        placeBacktest: function (id) {
            if (/^\/ui\/jobs\/[^/]+\/backtest/.test(window.location.pathname)) { setQuery({ id: id }); }
            return NO();
        },
        placeSpaceTime: function (opened, ends, at) {
            setQuery({ from: ends && ends[0], to: ends && ends[1], t: at, open: null });
            const query = new URLSearchParams(window.location.search);
            (opened || []).forEach((vertex) => query.append("open", vertex));
            showQuery(query);
            return NO();
        },
        placeWindows: function (chosen, shown) {
            if (!/\/compare-windows\/?$/.test(window.location.pathname) || !(chosen.before || shown)) { return NO(); }
            // Until the viewer chooses windows, those that the page shows stand in the address.
            const [before, after] = chosen.before ? [chosen.before, chosen.after] : shown.windows;
            setQuery({
                "before-from": before[0], "before-to": before[1], "after-from": after[0], "after-to": after[1],
                "with": chosen.with, against: null,
                measure: chosen.measure === "end_to_end_duration_ms" ? null : chosen.measure,
            });
            return NO();
        },
        // An answer to what is no longer in the field, because the viewer typed more or chose a job, is too late.
        jobsFound: function (found, id) {
            const field = document.getElementById(id);
            return found && field && field.value === (found.typed || "") ? found.options : NO();
        },
        placeComparison: function (chosen, shown) {
            if (!/\/compare\/?$/.test(window.location.pathname)) { return NO(); }
            const key = (side) => chosen[side] || (shown && shown.with === chosen.with && shown[side] ? shown[side].key : null);
            setQuery({
                a: key("a"), b: chosen.with ? key("b") : chosen.b, "with": chosen.with, vertex: chosen.vertex,
                order: chosen.order === "difference" ? "difference" : null,
            });
            return NO();
        },
        permalink: function (opened, sort, at, picked, heat, found, fold) {
            const query = new URLSearchParams(window.location.search);
            ["open", "sort", "t", "pick", "heat", "find", "fold"].forEach((name) => query.delete(name));
            if (opened) { (opened.length ? opened : [""]).forEach(function (vertex) { query.append("open", vertex); }); }
            if (sort && sort !== "topology") { query.set("sort", sort); }
            if (typeof at === "number") { query.set("t", String(Math.round(at))); }
            if (picked) { query.set("pick", picked); }
            if (heat && heat !== "none") { query.set("heat", heat); }
            if (found) { query.set("find", found); }
            if (found && fold === "true") { query.set("fold", "1"); }
            showQuery(query);
            return NO();
        },
    });
})();
