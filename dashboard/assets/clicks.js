/* Clicks and keys that belong to no component, and the way from one checkpoint to its neighbours. */
(function () {
    "use strict";

    const { go, setProps, still } = window.barrierscope;
    const copied = new WeakMap();  // the text of each button that says "Copied" at present

    // A click on a cell with its own link (alerts, advice) follows that link, any other cell opens the job of the row.
    function rowHref(node) {
        const row = node.closest("#fleet-grid .ag-row");
        const cell = node.closest(".ag-cell");
        const link = row && ((cell && cell.querySelector("a[href]")) || row.querySelector("a.row-link"));
        return link ? link.getAttribute("href") : null;
    }

    document.addEventListener("click", function (event) {
        const copy = event.target.closest("[data-copy]");
        if (copy) {
            navigator.clipboard.writeText(copy.getAttribute("data-copy")).then(function () {
                const word = copy.querySelector("span:last-child");
                // A second press within the 1.2 s must not take "Copied" for the text of the button.
                const before = copied.get(word) || word.textContent;
                copied.set(word, before);
                word.textContent = "Copied";
                window.setTimeout(function () { word.textContent = before; copied.delete(word); }, 1200);
            }, function () { window.prompt("Copy:", copy.getAttribute("data-copy")); });
            return;
        }
        const href = rowHref(event.target);
        if (href && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
            event.preventDefault();
            go(href);
        }
    });

    document.addEventListener("keydown", function (event) {
        if (event.key === "Enter" && event.target.closest(".ag-cell")) {
            const href = rowHref(event.target);
            if (href) {
                event.preventDefault();
                go(href);
            }
        }
        if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && event.target.closest("#front-scrubber")) {
            event.preventDefault();
            event.stopPropagation();
            document.getElementById(event.key === "ArrowLeft" ? "front-back" : "front-next").click();
        }
        if (event.key === " " && event.target.closest("#front-slider")) {
            event.preventDefault();
            if (!still.matches) { document.getElementById("front-play").click(); }
        }
    }, true);

    // --- buttons in the rows of a long list (dashboard/components/presses.py) ------------------------------------------

    let presses = 0;
    document.addEventListener("click", function (event) {
        const button = event.target.closest("button[data-press]");
        if (!button) { return; }
        const { press, ...words } = button.dataset;
        presses += 1;
        setProps(press + "-pressed", { data: words });
        setProps(press, { n_clicks: presses });
    });

    // --- from one checkpoint to its neighbours ----------------------------------------------------------------------

    // Opens a neighbouring checkpoint with the same opened vertices, picked subtask and order, so that the same subtask
    // is shown.
    function step(link) {
        const now = new URLSearchParams(window.location.search);
        const kept = new URLSearchParams();
        for (const [name, value] of now) {
            if (["open", "pick", "sort", "heat", "find", "fold", "view"].includes(name)) { kept.append(name, value); }
        }
        const text = kept.toString();
        go(link.getAttribute("href") + (text ? "?" + text : ""));
    }

    document.addEventListener("click", function (event) {
        const link = event.target.closest(".step > a");
        if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
            event.preventDefault();
            event.stopPropagation();
            step(link);
        }
    }, true);

    document.addEventListener("keydown", function (event) {
        const isKey = (event.key === "<" || event.key === ">") && !event.ctrlKey && !event.metaKey && !event.altKey;
        if (!isKey || event.target.closest("input, textarea, select, [contenteditable], [role=textbox]")) { return; }
        const link = document.querySelector('.step[data-step="' + event.key + '"] > a');
        const button = document.getElementById(event.key === "<" ? "comparison-a-previous" : "comparison-a-next");
        if (link) { step(link); } else if (button) { button.click(); } else { return; }
        event.preventDefault();
    });
})();
