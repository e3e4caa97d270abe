/* The part of the dashboard that runs in the browser: theme, time zone and pause switches, ages, the keys of the
   scrubber, and the cells of the fleet grid. Names are inserted as text only, never as HTML. */
(function () {
    "use strict";

    const NO = () => window.dash_clientside.no_update;

    function stored(key) {
        try {
            return JSON.parse(window.localStorage.getItem(key));
        } catch (error) {
            return null;  // Storage is blocked: use the default.
        }
    }

    function themeNow(data) {
        const value = data || stored("theme");
        if (value === "dark" || value === "light") {
            return value;
        }
        return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    }

    // A shared link may contain a time zone. This zone applies until the viewer chooses another one.
    let linkedZone = new URLSearchParams(window.location.search).get("tz");
    try {
        new Intl.DateTimeFormat("en", { timeZone: linkedZone || "UTC" });
    } catch (error) {
        linkedZone = null;  // There is no such zone.
    }

    function zoneNow(data) {
        if (linkedZone) { return linkedZone; }
        const value = data || stored("zone") || "local";
        return value === "UTC" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
    }

    // Whether Dash's layout has the component. When the viewer leaves a page, its elements stay a moment longer.
    function hasComponent(id) {
        try {
            return Boolean(window.dash_component_api.getLayout(id));
        } catch (error) {
            return false;  // Dash looks up a component that is gone with an exception.
        }
    }

    // Sets properties of a component, unless the page with the component has been left.
    function setProps(id, properties) {
        if (hasComponent(id)) { window.dash_clientside.set_props(id, properties); }
    }

    // In a window as narrow as that of a phone, charts and tables have another form.
    const narrow = window.matchMedia("(max-width: 640px)");
    narrow.addEventListener("change", function () {
        window.dash_clientside.set_props("narrow", { data: narrow.matches });
        nameCells();
    });

    // The viewer prefers reduced motion: nothing plays, and the barrier front is shown at five instants instead.
    const still = window.matchMedia("(prefers-reduced-motion: reduce)");

    // On a phone, each row of a table is a card, and each cell has the head of its column before it. Roles keep the
    // table a table for screen readers, because a style that changes the display removes them.
    function nameCells() {
        if (!narrow.matches) { return; }
        document.querySelectorAll(".plain-table").forEach(function (table) {
            const heads = [...table.querySelectorAll("thead th")]
                .map((h) => (h.querySelector(".visually-hidden") ? "" : h.textContent));
            const isNew = [...table.rows].some((row) => !row.hasAttribute("role"));
            if (!isNew) { return; }
            table.setAttribute("role", "table");
            table.querySelectorAll("thead, tbody").forEach((part) => part.setAttribute("role", "rowgroup"));
            for (const row of table.rows) {
                row.setAttribute("role", "row");
                [...row.cells].forEach(function (cell, i) {
                    const isHead = cell.tagName === "TH";
                    cell.setAttribute("role", isHead ? (row.closest("thead") ? "columnheader" : "rowheader") : "cell");
                    if (heads[i] && i > 0) { cell.setAttribute("data-label", heads[i]); }
                });
            }
        });
    }

    function paint(theme) {
        document.documentElement.setAttribute("data-mantine-color-scheme", theme);
        document.documentElement.setAttribute("data-ag-theme-mode", theme);
        if (document.body) {
            document.body.setAttribute("data-ag-theme-mode", theme);
        }
    }
    // Set the theme before anything is drawn, so that a dark page does not flash white.
    paint(themeNow());

    function go(href) {
        window.history.pushState({}, "", href);
        window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
        window.scrollTo(0, 0);
    }

    // Sets or removes parameters of the page's address. The others stay.
    function setQuery(values) {
        const query = new URLSearchParams(window.location.search);
        Object.entries(values).forEach(function ([name, value]) {
            if (value === null || value === undefined) { query.delete(name); } else { query.set(name, String(value)); }
        });
        const text = query.toString();
        window.history.replaceState(window.history.state, "", window.location.pathname + (text ? "?" + text : ""));
    }

    function age(ms) {
        const s = Math.max(0, Math.round(ms / 1000));
        if (s < 60) { return s + " s ago"; }
        if (s < 3600) { return Math.floor(s / 60) + " min ago"; }
        if (s < 86400) { return Math.floor(s / 3600) + " h ago"; }
        return Math.floor(s / 86400) + " d ago";
    }

    function left(ms) {
        const s = Math.abs(ms) / 1000;
        const two = (n) => String(Math.floor(n)).padStart(2, "0");
        const text = s < 60 ? s.toFixed(1) + " s"
            : s < 3600 ? Math.floor(s / 60) + " min " + two(s % 60) + " s"
            : s < 86400 ? Math.floor(s / 3600) + " h " + two(s % 3600 / 60) + " min"
            : Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
        return ms < 0 ? "passed, end not read yet" : text;
    }

    // The clock of the service minus the clock of the browser, from the header Date of the responses. It has whole
    // seconds, so a difference below two seconds counts as none.
    let clockOffset = 0;

    function learnClock(answer) {
        const at = Date.parse(answer.headers.get("Date"));
        if (!Number.isNaN(at)) {
            const found = at + 500 - Date.now();
            clockOffset = Math.abs(found) < 2000 ? 0 : found;
        }
        return answer;
    }

    // An attribute is written only if it changes, because each write makes the browser compute styles again.
    function write(node, name, value) {
        if (node.getAttribute(name) !== value) { node.setAttribute(name, value); }
    }

    function showTimes() {
        const now = Date.now() + clockOffset;
        for (const node of document.querySelectorAll(".age[data-instant]")) {
            const past = now - Date.parse(node.getAttribute("data-instant"));
            write(node, "data-age", age(past));
            node.classList.toggle("is-old", past > 60000);
        }
        for (const node of document.querySelectorAll(".countdown[data-deadline]")) {
            const rest = Date.parse(node.getAttribute("data-deadline")) - now;
            write(node, "data-left", left(rest));
            node.classList.toggle("is-late", rest < 0);
        }
    }

    // The pages of which a part got no content although every request was answered. They are shown as they are.
    const incomplete = new WeakSet();

    // Sets the classes that the style sheet needs: one while the first data of the page is missing, one if a message
    // states a problem, and one if the subject of the page does not exist.
    function markPage() {
        const page = document.querySelector("#page > div");
        if (!page) { return; }
        const messages = [...page.children].filter((p) => p.id.endsWith("-message") && p.firstChild !== null);
        // The viewer corrects a request that was refused with the controls of the page.
        const isRefused = messages.some((p) => p.querySelector(":scope > .refused, :scope > .answer") !== null);
        const isEmpty = [...page.getElementsByClassName("awaited")].some((p) => p.firstChild === null);
        page.classList.toggle("is-awaiting", isEmpty && !isRefused && !incomplete.has(page));
        page.classList.toggle("has-problem", messages.length > 0);
        page.classList.toggle("is-not-found", messages.some((p) => p.querySelector(":scope > .not-found") !== null));
    }

    function showIncomplete() {
        const page = document.querySelector("#page > .is-awaiting:not(.has-problem)");
        if (page) { incomplete.add(page); markPage(); }
    }

    window.setInterval(showTimes, 250);
    // A new element gets its text before it is painted. Otherwise it would be empty for a moment and move its line.
    new MutationObserver(function () { showTimes(); markPage(); nameCells(); }).observe(document.documentElement, {
        subtree: true, childList: true, attributeFilter: ["data-instant", "data-deadline"],
    });

    // --- no tick while answers are outstanding ------------------------------------------------------------------------

    // A tick restarts a callback that is still running, and callbacks that depend on it then never start. On a slow
    // machine, parts of the page would stay empty, and more and more requests would wait for a slow service. Requests
    // caused by a click do not delay the tick. Only this function switches the tick on and off: Dash sets the output of
    // a callback later than the callback returns, when the value may be out of date.
    let isPausedNow = false;
    let awaited = 0;
    let isHeld = false;

    let calm = 0;

    function hold() {
        const isHeldNow = isPausedNow || awaited > 0;
        if (isHeldNow !== isHeld && window.dash_clientside.set_props) {
            isHeld = isHeldNow;
            window.dash_clientside.set_props("tick", { disabled: isHeldNow });
        }
        window.clearTimeout(calm);
        // One answer may cause the next request, which Dash sends within a tenth of a second.
        if (awaited === 0) { calm = window.setTimeout(showIncomplete, 1000); }
    }

    // The intervals of single pages, which ask how a backtest, a confirmation or a simulation is, or ask again what the
    // API did not answer. Each of them waits for the answer that it asked for. Otherwise, an answer that takes longer than the interval would never be shown. Their
    // switch belongs to the server, so they are held by the number of ticks: none, or any number.
    const POLLS = [
        "backtest-tick", "lab-tick", "lab-fill-retry", "runbook-retry", "whatif-tick", "whatif-better",
        "whatif-answer-retry", "whatif-fill-retry",
    ];

    // The other scripts of the pages use these values and functions.
    window.barrierscope = {
        narrow: narrow, still: still, setQuery: setQuery, go: go, isPaused: () => isPausedNow, setProps: setProps,
    };

    // --- no answer for a page that was left ---------------------------------------------------------------------------

    // Two pages of one kind have components with the same ids. An answer that was requested by the first page and arrives
    // after the second one was opened would fill the second page with the values of the first.
    let openedPages = 0;

    function isOfPage(body) {
        const output = /"output":("(?:[^"\\]|\\.)*")/.exec(body);
        const ids = output ? JSON.parse(output[1]).split(/\.\.\.?/).map((one) => one.slice(0, one.lastIndexOf("."))) : [];
        return ids.some(function (id) {
            const node = id && document.getElementById(id);
            return node && node.id !== "page" && node.closest("#page") !== null;
        });
    }

    function dropIfLeft(answer, askedAt) {
        const read = answer.json.bind(answer);
        // Dash keeps the values of outputs that an answer does not contain.
        answer.json = () => read().then((data) => askedAt === openedPages ? data : { multi: true, response: {} });
        return answer;
    }

    function countPage(answer) {
        const read = answer.json.bind(answer);
        answer.json = () => read().then(function (data) { openedPages += 1; return data; });
        return answer;
    }

    function ofItsPage(body, asked) {
        if (body.startsWith('{"output":"..page.children.."')) { return asked.then(countPage); }
        const askedAt = openedPages;
        return isOfPage(body) ? asked.then((answer) => dropIfLeft(answer, askedAt)) : asked;
    }

    const ask = window.fetch;
    window.fetch = function (address, options) {
        const body = options && typeof options.body === "string" ? options.body : "";
        const changed = /"changedPropIds":\[[^\]]*\]/.exec(body);
        if (!changed) {
            return ask.apply(this, arguments);
        }
        const asked = ofItsPage(body, ask.apply(this, arguments));
        if (changed[0].includes("n_clicks")) {
            return asked;
        }
        const poll = POLLS.find((id) => changed[0].includes('"' + id + '.n_intervals"'));
        if (poll) { setProps(poll, { max_intervals: 0 }); }
        awaited += 1;
        hold();
        return asked.then(learnClock).finally(function () {
            if (poll) { setProps(poll, { max_intervals: -1 }); }
            awaited -= 1;
            hold();
        });
    };

    // --- keep the focus and opened details across refreshes ----------------------------------------------------------

    // Each answer of the server replaces the elements of a panel by new ones. An element that had the focus or was
    // opened is found again by its name, which stays the same.
    let focused = null;
    const openedDetails = new Set();

    function nameOf(node) {
        return [node.tagName, node.getAttribute("href"), node.getAttribute("aria-label"), node.textContent].join("|");
    }

    function panelOf(node) {
        const panel = node.parentElement && node.parentElement.closest("[id]");
        return panel ? panel.id : null;
    }

    function detailsKey(node) {
        const summary = node.querySelector("summary");
        // The key leaves out the numbers in the summary, because a refresh may change them.
        return panelOf(node) + "|" + (summary ? summary.textContent.replace(/[0-9]+/g, "") : "");
    }

    document.addEventListener("focusin", function (event) {
        const node = event.target;
        focused = node === document.body ? null : {node: node, id: node.id, panel: panelOf(node), name: nameOf(node)};
    });

    // An element fires this event if the viewer leaves it. If it fires because a refresh removed the element, the focus
    // must return to the new element, so the event is ignored.
    document.addEventListener("focusout", function (event) {
        if (event.target.isConnected && event.relatedTarget === null) {
            window.setTimeout(function () {
                // If the viewer went to another window, the element is still the active one, so the viewer has not
                // left it.
                const isLeft = event.target.isConnected && document.activeElement !== event.target;
                if (focused && focused.node === event.target && isLeft) { focused = null; }
            }, 0);
        }
    });

    document.addEventListener("toggle", function (event) {
        if (event.target.tagName === "DETAILS" && event.target.isConnected) {
            openedDetails[event.target.open ? "add" : "delete"](detailsKey(event.target));
        }
    }, true);

    function refocus() {
        if (!focused || focused.node.isConnected || document.activeElement !== document.body) {
            return;
        }
        const panel = focused.panel && document.getElementById(focused.panel);
        const again = focused.id
            ? document.getElementById(focused.id)
            : panel && [...panel.getElementsByTagName(focused.node.tagName)].find((n) => nameOf(n) === focused.name);
        if (again) {
            again.focus({preventScroll: true});
        }
    }

    // A link that is replaced between press and release gets no click. Follow it anyway.
    let pressed = null;
    document.addEventListener("pointerdown", function (event) {
        const link = event.button === 0 && event.target.closest("a[href^='/ui/']");
        pressed = link ? {node: link, href: link.getAttribute("href"), x: event.clientX, y: event.clientY} : null;
    }, true);
    document.addEventListener("pointerup", function (event) {
        const before = pressed;
        pressed = null;
        if (before && !before.node.isConnected && !event.ctrlKey && !event.metaKey && !event.shiftKey
                && Math.hypot(event.clientX - before.x, event.clientY - before.y) < 6) {
            go(before.href);
        }
    }, true);

    // Screen readers learn from these attributes that a field opens a list, and whether the list is open.
    function tellExpanded(node) {
        write(node, "aria-expanded", String(node.getAttribute("data-expanded") === "true"));
    }

    // The pattern of cells without a value. The style sheet has its colours and the area that it fills.
    document.addEventListener("DOMContentLoaded", function () {
        const holder = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        holder.setAttribute("class", "visually-hidden");
        holder.setAttribute("aria-hidden", "true");
        holder.innerHTML = '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            + 'patternTransform="rotate(45)"><rect width="6" height="6"></rect><path d="M1 0V6"></path></pattern>';
        document.body.append(holder);
    });

    // The buttons of a figure appear only on hover and are hidden from screen readers, so the Tab key skips them. In a
    // Dash dropdown, the Tab key stops at the button instead of a hidden helper.
    function orderTabs(added) {
        if (added.nodeType !== Node.ELEMENT_NODE) { return; }
        const all = function (names) { return [...(added.matches(names) ? [added] : []), ...added.querySelectorAll(names)]; };
        all(".modebar-btn, .dash-dropdown-focus-target").forEach(function (node) { node.tabIndex = -1; });
        all("button.dash-dropdown").forEach(function (node) { node.tabIndex = 0; });
        // A header element in a dialog would count as a second header of the page.
        all("header.mantine-Modal-header").forEach(function (node) { node.setAttribute("role", "none"); });
        all("input.mantine-Select-input").forEach(function (node) { node.setAttribute("role", "combobox"); tellExpanded(node); });
    }

    function reopen(added) {
        if (openedDetails.size === 0 || added.nodeType !== Node.ELEMENT_NODE) {
            return;
        }
        const found = added.tagName === "DETAILS" ? [added] : added.querySelectorAll("details:not([open])");
        found.forEach(function (node) {
            if (openedDetails.has(detailsKey(node))) { node.open = true; }
        });
    }

    new MutationObserver(function (changes) {
        changes.forEach(function (change) {
            if (change.type === "attributes") { tellExpanded(change.target); }
            change.addedNodes.forEach(function (added) { reopen(added); orderTabs(added); });
        });
        refocus();
    }).observe(document.documentElement, {childList: true, subtree: true, attributeFilter: ["data-expanded"]});

    // --- clicks and keys that belong to no component ---------------------------------------------------------------

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
                const before = word.textContent;
                word.textContent = "Copied";
                window.setTimeout(function () { word.textContent = before; }, 1200);
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

    // --- the range of a job's charts -------------------------------------------------------------------------------

    const UNIT_MS = { m: 60000, h: 3600000, d: 86400000 };

    // A range up to now. Its start moves in steps, so that the charts are not drawn again with every tick.
    function movingRange(name, engineOffset) {
        if (name === "all") { return { range: name, since: 0, until: null }; }
        const found = /^([0-9]+)([mhd])$/.exec(name);
        const length = found ? Number(found[1]) * UNIT_MS[found[2]] : UNIT_MS.d;
        const step = Math.max(2000, length / 200);
        const now = Date.now() + clockOffset + (engineOffset || 0);
        return { range: name, since: Math.floor((now - length) / step) * step, until: null };
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

    // --- playing the barrier front ---------------------------------------------------------------------------------

    // The next frame is requested when the previous one is drawn. A slow server thus drops frames and does not lag.
    const FIT_MS = 6000, FRAME_MS = 100, PATIENCE_MS = 2000;
    let show = null;

    function begin(slider, playing, value, max, speed) {
        const from = value === null || value === undefined || value >= max ? 0 : value;
        end();
        show = {
            slider: slider, playing: playing, path: window.location.pathname, from: from, max: max, began: Date.now(), asked: 0, sent: null, isDrawn: true,
            speed: speed > 0 ? speed : max / FIT_MS,
        };
        show.timer = window.setInterval(frame, FRAME_MS);
    }

    // The viewer moved the slider, so playing continues from its new position.
    function moved(slider, value) {
        if (show && show.slider === slider && value !== show.sent) {
            Object.assign(show, { from: value, began: Date.now(), sent: value });
        }
    }

    function end() {
        if (show) {
            window.clearInterval(show.timer);
            show = null;
        }
    }

    function frame() {
        const now = Date.now();
        if (window.location.pathname !== show.path || !document.getElementById(show.slider)) {
            end();
            return;
        }
        if (!show.isDrawn && now - show.asked < PATIENCE_MS) { return; }
        const at = show.from + (now - show.began) * show.speed;
        const isOver = at >= show.max;
        show.asked = now;
        show.isDrawn = false;
        show.sent = Math.round(Math.min(at, show.max));
        setProps(show.slider, { value: show.sent });
        if (isOver) {
            const playing = show.playing;
            end();
            setProps(playing, { data: false });
        }
    }

    // --- callbacks -------------------------------------------------------------------------------------------------

    let scrubTimer = null;
    let scrubValue = null;
    let scrubSent = [];

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        bs: {
            toggleTheme: function (clicks, now) {
                return clicks ? (themeNow(now) === "dark" ? "light" : "dark") : NO();
            },
            toggleZone: function (clicks, now) {
                if (clicks && linkedZone) {
                    linkedZone = null;
                    setQuery({ tz: null });
                    setProps("zone-find", { value: null });
                }
                return clicks ? ((now || stored("zone")) === "UTC" ? "local" : "UTC") : NO();
            },
            look: function (themeData, zoneData, _isNarrow, found, before) {
                if (found && window.dash_clientside.callback_context.triggered_id === "zone-find") {
                    linkedZone = found;
                    setQuery({ tz: found });
                }
                const look = { theme: themeNow(themeData), zone: zoneNow(zoneData), is_narrow: narrow.matches, is_still: still.matches };
                paint(look.theme);
                const isSame = before && JSON.stringify(before) === JSON.stringify(look);
                const isDark = look.theme === "dark";
                return [
                    isSame ? NO() : look,
                    look.theme,
                    "icon icon-" + (isDark ? "sun" : "moon"),
                    isDark ? "Light" : "Dark",
                    linkedZone || (look.zone === "UTC" ? "UTC" : "Local time"),
                ];
            },
            togglePause: function (clicks, now) {
                return clicks ? !now : NO();
            },
            paused: function (isPaused) {
                isPausedNow = Boolean(isPaused);
                hold();
                return [
                    "icon icon-" + (isPaused ? "play" : "pause"),
                    isPaused ? "Resume" : "Pause", isPaused ? "paused" : "live",
                    isPaused ? "live-word is-paused" : "live-word",
                ];
            },
            // The parts of a page that change seldom are read at every fifth tick.
            statusTick: (tick) => (tick && tick % 5 === 0 ? tick / 5 : NO()),
            navigation: function (pathname) {
                // An error of the page that was left says nothing about the next page.
                setProps("unexpected", { children: null });
                // Links between pages have no zone. Add it, so that the address of each page can be shared.
                if (linkedZone) { setQuery({ tz: linkedZone }); }
                const path = pathname || "";
                const here = path.startsWith("/ui/targets") ? 1 : path.startsWith("/ui/lab") ? 2
                    : /^\/ui\/(alerts|incidents|runbooks)/.test(path) ? 3 : /^\/ui\/?(jobs\/.*)?$/.test(path) ? 0 : -1;
                return [0, 1, 2, 3].map(function (i) { return i === here ? "nav-link is-here" : "nav-link"; });
            },
            title: function (title) {
                document.title = title ? title + " · Barrierscope" : "Barrierscope";
                return NO();
            },
            expanded: (isOpen) => String(Boolean(isOpen)),
            closeDialog: function (cancelled, confirmed) {
                return cancelled || confirmed ? false : NO();
            },
            scrub: function (value, max) {
                // While dragging, request only the newest position, about ten times a second. At the right end, the
                // front follows a checkpoint in progress.
                scrubValue = value >= max ? null : value;
                moved("front-slider", value);
                if (scrubTimer === null && value !== undefined && value !== null) {
                    scrubTimer = window.setTimeout(function () {
                        scrubTimer = null;
                        const sent = [window.location.pathname, scrubValue];
                        // Ignore the position if the server set it.
                        const isNew = sent[0] !== scrubSent[0] ? scrubValue !== null : scrubValue !== scrubSent[1];
                        // The viewer may have left the page since.
                        if (isNew && document.getElementById("front-slider")) {
                            setProps("front-at", { data: scrubValue });
                        }
                        scrubSent = sent;
                    }, 90);
                }
                return NO();
            },
            moved: function (value, slider) {
                moved(slider, value);
                return NO();
            },
            pressPlay: function (clicks, isPlaying) {
                return clicks ? !isPlaying : NO();
            },
            play: function (isPlaying, ...rest) {
                // A page may offer no choice of speed.
                const [value, max, slider, playing] = rest.slice(-4);
                if (isPlaying) { begin(slider, playing, value, max, rest.length > 4 ? Number(rest[0]) : 0); } else { end(); }
                return ["icon icon-" + (isPlaying ? "pause" : "play"), isPlaying ? "Stop" : "Play", String(Boolean(isPlaying))];
            },
            played: function () {
                if (show) { show.isDrawn = true; }
                return NO();
            },
            step: function (back, next, steps, now) {
                const trigger = window.dash_clientside.callback_context.triggered_id;
                if (!trigger || !steps || !steps.length) {
                    return NO();
                }
                const at = now || 0;
                if (trigger === "front-next") {
                    const later = steps.find(function (s) { return s > at + 0.05; });
                    return later === undefined ? NO() : later;
                }
                const earlier = steps.filter(function (s) { return s < at - 0.05; });
                return earlier.length ? earlier[earlier.length - 1] : NO();
            },
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
            linkLog: function (pressed) {
                setQuery({ log: pressed === "true" ? "1" : null });
                return NO();
            },
            togglePressed: function (clicks, now) {
                return clicks ? (now === "true" ? "false" : "true") : NO();
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
                const text = query.toString();
                window.history.replaceState(window.history.state, "", window.location.pathname + (text ? "?" + text : ""));
                return NO();
            },
            placeWindows: function (chosen) {
                setQuery({
                    "before-from": chosen.before && chosen.before[0], "before-to": chosen.before && chosen.before[1],
                    "after-from": chosen.after && chosen.after[0], "after-to": chosen.after && chosen.after[1],
                    measure: chosen.measure === "end_to_end_duration_ms" ? null : chosen.measure,
                });
                return NO();
            },
            placeComparison: function (chosen) {
                setQuery({ a: chosen.a, b: chosen.b, vertex: chosen.vertex, order: chosen.order === "difference" ? "difference" : null });
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
                const text = query.toString();
                window.history.replaceState(window.history.state, "", window.location.pathname + (text ? "?" + text : ""));
                return NO();
            },
        },
    });

    // A grid has one Tab stop for its head and one for its rows. The arrow keys move between cells.
    window.dashAgGridFunctions = Object.assign({
        bsLeave: () => false,
    }, window.dashAgGridFunctions);

    // --- cells of the fleet grid -----------------------------------------------------------------------------------

    const cells = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});

    function h() {
        return window.React.createElement.apply(window.React, arguments);
    }

    // A row has no data until its block has arrived.
    function whenLoaded(cell) {
        return function (props) { return props.data ? cell(props) : null; };
    }

    cells.BsJob = whenLoaded(function (props) {
        return h("div", { className: "cell-stack" },
            h("a", { className: "row-link", href: props.data.href, tabIndex: -1, title: props.data.name }, props.data.name),
            h("span", { className: "sub", title: props.data.target }, narrow.matches ? props.data.verdict : props.data.target));
    });

    cells.BsBadge = whenLoaded(function (props) {
        const cell = props.data[props.colDef.field + "_badge"];
        if (!cell) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing" }, "–"));
        }
        return h("div", { className: "cell-mid" },
            h(cell.href ? "a" : "span", { className: "badge tone-" + cell.tone, title: cell.hint, href: cell.href, tabIndex: cell.href ? -1 : undefined },
                h("span", { className: "icon icon-" + cell.icon, "aria-hidden": "true" }), h("span", null, cell.word)));
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
        return h("div", { className: "cell-mid cell-right" }, h("span", { className: isMissing ? "missing" : "number", title: props.data[props.colDef.field + "_hint"] || (isMissing ? "not reported" : undefined) }, isMissing ? "–" : text));
    });

    // The age in intervals, which grows while the row is shown. The server sends a row again only if more than its age
    // has changed.
    cells.BsAge = whenLoaded(function (props) {
        const row = props.data;
        row.receivedAt = row.receivedAt || Date.now();
        const isMissing = row.age === null || !row.interval_ms;
        const age = isMissing ? 0 : row.age + (Date.now() - row.receivedAt) / row.interval_ms;
        return h("div", { className: "cell-mid cell-right" },
            h("span", { className: isMissing ? "missing" : "number", title: row.age_hint }, isMissing ? "–" : age.toFixed(age < 100 ? 1 : 0) + " ×"));
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
