/* The range of a job's charts: chosen, moved with the time, typed, selected on a chart, and kept in the address. */
(function () {
    "use strict";

    const { addCallbacks, now, setProps, setQuery } = window.barrierscope;
    const NO = () => window.dash_clientside.no_update;

    const UNIT_MS = { m: 60000, h: 3600000, d: 86400000 };

    // A range up to now. Its start moves in steps, so that the charts are not drawn again with every tick.
    function movingRange(name, engineOffset) {
        if (name === "all") { return { range: name, since: 0, until: null }; }
        const found = /^([0-9]+)([mhd])$/.exec(name);
        const length = found ? Number(found[1]) * UNIT_MS[found[2]] : UNIT_MS.d;
        const step = Math.max(2000, length / 200);
        const until = now() + (engineOffset || 0);
        return { range: name, since: Math.floor((until - length) / step) * step, until: null };
    }

    function rangeQuery(range) {
        const isMoving = Boolean(range && range.range);
        const end = (name) => (range && !isMoving && range[name] !== undefined ? range[name] : null);
        return { range: isMoving ? range.range : null, from: end("since"), to: end("until") };
    }

    function rangeOfAddress() {
        const query = new URLSearchParams(window.location.search);
        const end = (name) => (/^[0-9]{1,13}$/.test(query.get(name) || "") ? Number(query.get(name)) : null);
        if (query.get("range")) { return { range: query.get("range") }; }
        const range = { since: end("from"), until: end("to") };
        return range.since === null && range.until === null ? null : range;
    }

    // Returns how many earlier ranges of this page the browser's Back button can reach.
    const depthOfRange = () => (window.history.state && window.history.state.bsRanges) || 0;

    window.addEventListener("popstate", function () {
        if (document.getElementById("job-range-choice")) {
            setProps("job-range", { data: rangeOfAddress() });
        }
    });

    // The range that the page last wrote into the fields in which the viewer can type a range.
    let shownEnds = null;

    // Formats a time in the viewer's time zone, in the form in which the viewer types one.
    function typedTime(ms, zone) {
        const format = { timeZone: zone, dateStyle: "short", timeStyle: "medium" };
        return new Intl.DateTimeFormat("sv-SE", format).format(new Date(ms));
    }

    addCallbacks({
        brush: function (selected) {
            const keys = ((selected && selected.points) || []).map((p) => p.customdata)
                .filter((k) => k && typeof k[2] === "number");
            if (!keys.length) { return NO(); }
            // On a chart in steps, a point stands for a step, so the range ends where the last step ends.
            const since = Math.min(...keys.map((k) => k[2]));
            const until = Math.max(...keys.map((k) => k[2] + (k.length > 3 ? k[3] - 1 : 0)));
            // If a single checkpoint was selected, the range is one second long.
            return until > since ? { since: since, until: until } : { since: since - 500, until: since + 500 };
        },
        chooseRange: function (choice, now, engineOffset) {
            const present = now ? now.range || "own" : "newest";
            if (!choice || choice === present) { return NO(); }  // The page itself set the choice, not the viewer.
            if (choice === "own") {
                document.getElementById("job-range-own").open = true;
                document.getElementById("job-range-from").focus();
                return NO();
            }
            return choice === "newest" ? null : movingRange(choice, engineOffset);
        },
        moveRange: function (_tick, engineOffset, now) {
            if (!now || !now.range || (now.range === "all" && now.since === 0)) { return NO(); }
            const moved = movingRange(now.range, engineOffset);
            return moved.since === now.since ? NO() : moved;
        },
        stepRange: function (_earlier, _later, _out, _back, span) {
            const by = window.dash_clientside.callback_context.triggered_id;
            if (by === "job-range-back") {
                if (depthOfRange() > 0) { window.history.back(); }
                return NO();
            }
            if (!by || !span) { return NO(); }
            const length = Math.max(1000, span.until - span.since);
            const [before, after] = { "job-range-earlier": [-1, -1], "job-range-later": [1, 1] }[by] || [-0.5, 0.5];
            const since = Math.max(0, Math.round(span.since + before * length));
            return { since: since, until: Math.round(span.until + after * length) };
        },
        placeRange: function (range) {
            const before = window.location.search;
            const query = rangeQuery(range);
            const state = Object.assign({}, window.history.state, { bsRanges: depthOfRange() + 1 });
            const address = new URLSearchParams(before);
            const isNew = Object.entries(query)
                .some(([name, value]) => (value === null ? address.has(name) : address.get(name) !== String(value)));
            // Each range that the viewer chooses is an entry in the history, so that the browser can go back to it.
            if (isNew) {
                window.history.pushState(state, "", window.location.href);
                setQuery(query);
            }
            setProps("job-range-choice", { value: range ? range.range || "own" : "newest" });
            // The card of the last 7 days does not follow the range.
            return [depthOfRange() === 0, { display: range ? "none" : "block" }];
        },
        showEnds: function (span, look) {
            // Do not replace what the viewer types or has typed.
            const ends = span && look ? JSON.stringify([span, look.zone, window.location.pathname]) : null;
            if (!ends || ends === shownEnds) { return [NO(), NO()]; }
            shownEnds = ends;
            const isFree = (id) => document.activeElement !== document.getElementById(id);
            return [["job-range-from", span.since], ["job-range-to", span.until]]
                .map(([id, ms]) => (isFree(id) ? typedTime(ms, look.zone) : NO()));
        },
    });
})();
