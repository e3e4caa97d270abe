/* Keeps the name that the viewer typed, and fills every other field for it. */
(function () {
    "use strict";

    const { addCallbacks } = window.barrierscope;
    const KEY = "viewer-name";
    let name = "";
    // A browser may refuse to keep anything. Then the name is kept until the page is loaded again.
    try { name = window.localStorage.getItem(KEY) || ""; } catch { name = ""; }

    function isField(element) {
        return element instanceof HTMLInputElement && element.id.includes(`"type":"${KEY}"`);
    }

    // The name is read from the event of the field that is typed into, and never from the values of the callback: those
    // lag behind fast typing, and the older name in another field would look like a new one.
    document.addEventListener("input", (event) => {
        if (!isField(event.target)) return;
        name = event.target.value;
        try { window.localStorage.setItem(KEY, name); } catch { /* kept until the page is loaded again */ }
    }, true);

    addCallbacks({
        // Dash asks when a field is added (it has no value yet) and at each letter.
        viewerName: function (values) {
            // The field that is typed into keeps its value, so that no letter is lost.
            const typedInto = isField(document.activeElement) ? JSON.parse(document.activeElement.id).of : null;
            const outputs = window.dash_clientside.callback_context.outputs_list;
            return outputs.map(({ id }, i) =>
                (values[i] || "") === name || id.of === typedInto ? window.dash_clientside.no_update : name);
        },
    });
})();
