/* Offers the tour to a viewer who opens the fleet for the first time, starts it, and resumes it after a reload. The steps
   and the library that shows them are loaded when a tour starts. Names are inserted as text only, never as HTML. */
(function () {
    "use strict";

    const NO = () => window.dash_clientside.no_update;
    const FOLDER = "/ui/assets/lazy/";
    // What the viewer decided about the tour: "declined" or "ended". It stays in this browser.
    const DECIDED = "barrierscope-tour";
    // The step of the running tour. It is kept until the browser's tab is closed.
    const STEP = "barrierscope-tour-step";

    // Without access to the storage, a tour is offered at each visit, and a reload ends it.
    function kept(storage, key, value) {
        try {
            if (value === undefined) { return window[storage].getItem(key); }
            if (value === null) { window[storage].removeItem(key); } else { window[storage].setItem(key, value); }
        } catch (error) {
            return null;
        }
        return value;
    }

    // --- a note in the corner: the offer, a reason, or what a step waits for ------------------------------------------

    let note = null;

    function closeNote() {
        if (note) { note.remove(); }
        note = null;
    }

    // Shows a note. A button is a word and a function. The note takes no focus and moves nothing on the page.
    function showNote(title, words, buttons) {
        closeNote();
        note = document.createElement("section");
        note.id = "tour-note";
        note.className = "tour-note";
        note.setAttribute("aria-label", "Tour");
        const text = document.createElement("div");
        text.setAttribute("role", "status");
        if (title) { text.appendChild(document.createElement("h2")).textContent = title; }
        const told = text.appendChild(document.createElement("p"));
        note.appendChild(text);
        const row = note.appendChild(document.createElement("div"));
        row.className = "dialog-buttons";
        buttons.forEach(function ([word, act, isFirst]) {
            const button = row.appendChild(document.createElement("button"));
            button.type = "button";
            button.className = "button" + (isFirst ? " primary" : "");
            button.textContent = word;
            button.addEventListener("click", act);
        });
        document.body.appendChild(note);
        // A screen reader announces a text only if the element was on the page before the text, so the text is added
        // later.
        window.setTimeout(function () { told.textContent = words; }, 0);
    }

    document.addEventListener("keydown", function (event) {
        if (event.key === "Escape" && note && note.contains(document.activeElement)) {
            const decline = note.querySelector(".dialog-buttons button:last-child");
            if (decline) { decline.click(); }
        }
    });

    // --- loading and starting ------------------------------------------------------------------------------------------

    let loading = null;
    let tour = null;

    function loaded() {
        function element(tag, values) {
            return new Promise(function (resolve, reject) {
                const node = Object.assign(document.createElement(tag), values);
                node.onload = resolve;
                node.onerror = function () { reject(new Error(values.src || values.href)); };
                document.head.appendChild(node);
            });
        }
        const style = (name) => element("link", { rel: "stylesheet", href: FOLDER + name });
        const script = (name) => element("script", { src: FOLDER + name });
        // tour.css is loaded after driver.css, so that its rules override those of the library.
        loading = loading || style("driver.css").then(() => Promise.all([
            style("tour.css"), script("driver.js").then(() => script("tour-steps.js")),
        ]));
        loading.catch(function () { loading = null; });
        return loading;
    }

    function start(plan, index) {
        const before = document.activeElement;
        closeNote();
        loaded().then(function () {
            if (tour) { tour.stop(); }
            tour = window.barrierscope.tourOf(plan, {
                at: (number) => kept("sessionStorage", STEP, String(number)),
                ask: () => ask("wait"),
                showNote: showNote,
                closeNote: closeNote,
                ended: function () {
                    tour = null;
                    kept("sessionStorage", STEP, null);
                    kept("localStorage", DECIDED, "ended");
                    closeNote();
                    // The focus returns to where the tour was started, or to the button that starts it again.
                    const isThere = before && before.isConnected && before !== document.body;
                    (isThere ? before : document.getElementById("tour-start")).focus({ preventScroll: true });
                },
            });
            tour.show(index);
        }, function (error) {
            showNote("Tour", "The tour could not be loaded (" + error.message + ").", [["Close", closeNote]]);
        });
    }

    function offer(plan) {
        showNote("New here?", "A tour of three minutes: a job in trouble, the culprit, the cure, and its effect.", [
            ["Take the tour", () => start(plan, 0), true],
            ["No, thanks", function () {
                kept("localStorage", DECIDED, "declined");
                closeNote();
            }],
        ]);
    }

    // --- when the page asks for the plan ---------------------------------------------------------------------------------

    let isAsked = false;

    function ask(why) {
        window.dash_clientside.set_props("tour-ask", { data: { why: why, at: Date.now() } });
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        tour: {
            ask: function (_clicks, pathname) {
                if (window.dash_clientside.callback_context.triggered_id === "tour-start") {
                    return { why: "button", at: Date.now() };
                }
                if (tour || isAsked) { return NO(); }
                const isOpen = kept("sessionStorage", STEP) !== null;
                const isNew = pathname === "/ui/" && kept("localStorage", DECIDED) === null;
                isAsked = isOpen || isNew;
                return isAsked ? { why: isOpen ? "resume" : "visit", at: Date.now() } : NO();
            },
            receive: function (plan) {
                const why = plan && plan.asked && plan.asked.why;
                if (why === "wait") {
                    if (tour && plan.job) { tour.update(plan); }
                } else if (why === "visit") {
                    if (plan.job && !tour) { offer(plan); } else if (!plan.job && !plan.is_absent) { isAsked = false; }
                } else if (why && plan.job) {
                    start(plan, why === "resume" ? Number(kept("sessionStorage", STEP)) || 0 : 0);
                } else if (why === "button") {
                    showNote("Tour", plan.reason, [["Close", function () {
                        closeNote();
                        document.getElementById("tour-start").focus({ preventScroll: true });
                    }]]);
                } else if (why === "resume" && plan.is_absent) {
                    kept("sessionStorage", STEP, null);
                }
                return NO();
            },
        },
    });
})();
