/* Tells from the browser's own clock that the service no longer answers, and keeps the word beside the switches true:
   live, final, stale, no fresh data, no answer. A page of which nothing follows a job has no word. */
(function () {
    "use strict";

    const { now, setProps, write } = window.barrierscope;
    const LIVE_ADDRESS = "/health/live";
    const TICK_MS = 2000;
    // Two refreshes are missed after two ticks. The rest is the time that a service on a slow machine takes to answer.
    const SILENT_MS = 3 * TICK_MS;
    const CHECK_MS = 500;

    // When the service last answered, by the clock that never jumps and by that of the service.
    let heardAt = performance.now();
    let heardInstant = now();
    // The refreshes that wait for their answer, by when they were sent.
    const refreshes = new Set();
    let isAsking = false;

    function heard() {
        heardAt = performance.now();
        heardInstant = now();
    }

    function isRefresh(options) {
        const body = options && typeof options.body === "string" ? options.body : "";
        return /"changedPropIds":\[[^\]]*"(status-)?tick\.n_intervals"/.test(body);
    }

    const ask = window.fetch;
    window.fetch = function (address, options) {
        const sent = { at: performance.now() };
        if (isRefresh(options)) { refreshes.add(sent); }
        return ask.apply(this, arguments).then(function (answer) {
            if (answer.ok) { heard(); }
            return answer;
        }).finally(() => refreshes.delete(sent));
    };

    // A page that requests nothing for a while asks whether the service is there. The request is given up in time.
    function check() {
        if (isAsking || document.hidden || performance.now() - heardAt < 2 * TICK_MS) { return; }
        isAsking = true;
        const stop = new AbortController();
        const late = window.setTimeout(() => stop.abort(), SILENT_MS);
        ask.call(window, LIVE_ADDRESS, { cache: "no-store", signal: stop.signal })
            .then((answer) => { if (answer.ok) { heard(); } })
            .catch(() => null)
            .finally(function () { window.clearTimeout(late); isAsking = false; });
    }

    function isSilent() {
        const at = performance.now();
        return Math.max(at - heardAt, ...[...refreshes].map((r) => at - r.at)) > SILENT_MS;
    }

    function wordNow(silent) {
        if (silent) { return ["no answer", "live-word is-silent"]; }
        if (document.querySelector("#page [data-api='silent']")) { return ["no fresh data", "live-word is-silent"]; }
        if (document.querySelector("#page [data-stale='page'], #page [data-stale='rows']")) {
            return ["stale", "live-word is-stale"];
        }
        // What has ended is shown as it was stored, whether or not anything is still read.
        if (document.querySelector("#page [data-stale='final']")) { return ["final", "live-word is-final"]; }
        if (document.querySelector("#page [data-stale='none']")) { return ["", "live-word is-none"]; }
        return ["live", "live-word"];
    }

    function show() {
        const banner = document.getElementById("api-silence");
        const word = document.getElementById("live-word");
        if (!banner || !word || window.barrierscope.isPaused()) {
            if (banner) { banner.hidden = true; }
            document.documentElement.removeAttribute("data-api");
            return;
        }
        check();
        const silent = isSilent();
        if (silent) { write(banner.querySelector(".age"), "data-instant", new Date(heardInstant).toISOString()); }
        if (banner.hidden === silent) { banner.hidden = !silent; }
        if (document.documentElement.hasAttribute("data-api") !== silent) {
            document.documentElement.toggleAttribute("data-api", silent);
        }
        const [text, className] = wordNow(silent);
        if (word.textContent !== text || word.className !== className) {
            setProps("live-word", { children: text, className: className });
        }
    }

    window.setInterval(show, CHECK_MS);
    document.addEventListener("visibilitychange", show);
    window.barrierscope.heard = heard;
})();
