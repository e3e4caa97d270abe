/* The part of the Lab page that runs in the browser: its address, and which charts are in view. */
(function () {
    "use strict";

    const NAMES = {
        shape: "shape", protocol: "protocol", with: "second_protocol", parallelism: "parallelism",
        duration: "duration_s", seed: "seed",
    };
    // A chart is drawn a little before it comes into view.
    const MARGIN = "200px 0px";
    let observer = null;

    // Reports which charts are in view. The server draws only these.
    function watch() {
        if (observer) { observer.disconnect(); }
        observer = new IntersectionObserver(function (entries) {
            entries.forEach(function (entry) {
                // If the chart left the view because the viewer left the page, its component no longer exists.
                if (!entry.target.isConnected) { return; }
                const name = entry.target.id.replace(/-figure$/, "");
                window.barrierscope.setProps(name + "-visible", { data: entry.isIntersecting });
            });
        }, { rootMargin: MARGIN });
        document.querySelectorAll("#lab-results [id$='-figure']").forEach((figure) => observer.observe(figure));
        return window.dash_clientside.no_update;
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        lab: {
            place: function (wanted, checkpoint, at, caps) {
                if (!wanted || !window.location.pathname.startsWith("/ui/lab")) {
                    return window.dash_clientside.no_update;
                }
                const query = new URLSearchParams();
                const zone = new URLSearchParams(window.location.search).get("tz");
                Object.entries(NAMES).forEach(function ([name, key]) {
                    const value = wanted[key];
                    if (value !== null && value !== undefined) { query.set(name, String(value)); }
                });
                Object.entries(wanted.settings).sort().forEach(([key, value]) => query.set(key, value));
                if (checkpoint !== null && checkpoint !== undefined) { query.set("checkpoint", checkpoint); }
                if (checkpoint !== null && checkpoint !== undefined && typeof at === "number") {
                    query.set("t", String(Math.round(at)));
                }
                if (caps) { query.set("caps", caps); }
                if (zone) { query.set("tz", zone); }
                window.history.replaceState(window.history.state, "", window.location.pathname + "?" + query.toString());
                return window.dash_clientside.no_update;
            },
            watch: watch,
            // Shows the setting that the address names, once the page has it.
            arrive: function () {
                window.requestAnimationFrame(function () {
                    const named = document.getElementById(window.location.hash.slice(1));
                    if (named) { named.scrollIntoView(); named.classList.add("is-named"); }
                });
                return window.dash_clientside.no_update;
            },
            words: (at) => (typeof at === "number" ? window.barrierscope.duration(at) : ""),
        },
    });
})();
