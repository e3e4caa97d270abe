/* Keeps the name that the viewer typed, and fills every other field for it. */
(function () {
    "use strict";

    const { addCallbacks } = window.barrierscope;
    const KEY = "viewer-name";
    let name = "";
    // A browser may refuse to keep anything. Then the name is kept until the page is loaded again.
    try { name = window.localStorage.getItem(KEY) || ""; } catch { name = ""; }

    addCallbacks({
        // A field that has just been added has no value yet. One with another value than the kept name was typed into.
        viewerName: function (values) {
            const typed = values.find((v) => v !== undefined && v !== null && v !== name);
            if (typed !== undefined) {
                name = typed;
                try { window.localStorage.setItem(KEY, name); } catch { /* kept until the page is loaded again */ }
            }
            // The field that is typed into keeps its value, so that no letter is lost.
            return values.map((v) => ((v || "") === name ? window.dash_clientside.no_update : name));
        },
    });
})();
