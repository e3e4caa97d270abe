/* The part of the page of what-ifs that runs in the browser: the positions of the sliders, and the address. */
(function () {
    "use strict";

    // The page asks for a prediction when no slider has moved for this long.
    const PAUSE_MS = 250;
    const WITH_TIMEOUT = "aligned-with-timeout";
    let waiting = null;

    function settingsOf(ids, positions, choices, choiceIds, flags, flagIds, ranges) {
        const settings = {};
        choiceIds.forEach(function (id, i) {
            if (choices[i] !== ranges[id.key].current) { settings[id.key] = choices[i]; }
        });
        const mode = settings.mode || (ranges.mode || {}).current;
        ids.forEach(function (id, i) {
            const range = ranges[id.key];
            const value = range.values[positions[i]];
            if (value === undefined) { return; }
            window.dash_clientside.set_props({ type: "whatif-words", key: id.key }, { children: range.words[positions[i]] });
            if (id.key === "aligned-timeout" && mode !== WITH_TIMEOUT) { return; }
            if (id.key === "in-flight-cap" && mode === "aligned") { return; }
            if (value !== range.current) { settings[id.key] = value; }
        });
        flagIds.forEach(function (id, i) { if (flags[i]) { settings[id.key] = "true"; } });
        return settings;
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        whatif: {
            move: function (positions, choices, flags, ids, choiceIds, flagIds, ranges, wanted) {
                const none = window.dash_clientside.no_update;
                if (!ranges || !wanted || !ids.length) { return none; }
                const settings = settingsOf(ids, positions, choices, choiceIds, flags, flagIds, ranges);
                window.clearTimeout(waiting);
                const sorted = (s) => JSON.stringify(Object.entries(s).sort());
                if (sorted(settings) === sorted(wanted.settings)) { return none; }
                waiting = window.setTimeout(function () {
                    if (!document.getElementById("whatif-controls")) { return; }
                    window.barrierscope.setProps("whatif-wanted", { data: { settings: settings } });
                }, PAUSE_MS);
                return none;
            },
            place: function (wanted, confirmation) {
                const none = window.dash_clientside.no_update;
                if (!wanted || !/^\/ui\/jobs\/[^/]+\/whatif/.test(window.location.pathname)) { return none; }
                const query = new URLSearchParams();
                const zone = new URLSearchParams(window.location.search).get("tz");
                Object.entries(wanted.settings).sort().forEach(([key, value]) => query.set(key, value));
                if (confirmation) { query.set("confirmation", confirmation); }
                if (zone) { query.set("tz", zone); }
                const text = query.toString();
                const address = window.location.pathname + (text ? "?" + text : "");
                window.history.replaceState(window.history.state, "", address);
                return none;
            },
        },
    });
})();
