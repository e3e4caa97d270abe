/* What every page needs in the browser: theme and time zone, ages, the marks of a page without data, and the values and
   functions that the other scripts use. Names are inserted as text only, never as HTML. */
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

    // Replaces the parameters of the page's address.
    function showQuery(query) {
        const text = query.toString();
        window.history.replaceState(window.history.state, "", window.location.pathname + (text ? "?" + text : ""));
    }

    // Sets or removes parameters of the page's address. The others stay.
    function setQuery(values) {
        const query = new URLSearchParams(window.location.search);
        Object.entries(values).forEach(function ([name, value]) {
            if (value === null || value === undefined) { query.delete(name); } else { query.set(name, String(value)); }
        });
        showQuery(query);
    }

    // Spells a time span with one unit, which counts up in few characters.
    function span(ms) {
        const s = Math.max(0, Math.round(ms / 1000));
        if (s < 60) { return s + " s"; }
        if (s < 3600) { return Math.floor(s / 60) + " min"; }
        if (s < 86400) { return Math.floor(s / 3600) + " h"; }
        return Math.floor(s / 86400) + " d";
    }

    // Spells a whole number as the server does, with narrow spaces between its groups of three digits.
    function count(number) { return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u202f"); }

    function age(ms) { return span(ms) + " ago"; }

    // Spells milliseconds as spelling.duration does on the server, so that a number has one spelling on a page.
    function duration(ms) {
        if (ms < 9.95 && ms !== Math.floor(ms)) { return Number(ms.toPrecision(2)) + " ms"; }
        if (ms < 995) { return Math.round(ms) + " ms"; }
        if (ms < 59950) { return (ms / 1000).toFixed(1) + " s"; }
        const units = [["min", "s", 1000, 60], ["h", "min", 60000, 48], ["d", "h", 3600000, Infinity]];
        for (const [large, small, smallMs, most] of units) {
            const all = Math.round(ms / smallMs), base = large === "d" ? 24 : 60;
            if (all / base < most) { return Math.floor(all / base) + " " + large + (all % base ? " " + all % base + " " + small : ""); }
        }
        return "";
    }

    function left(ms) {
        return ms < 0 ? "passed, end not read yet" : duration(ms);
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

    // The time by the clock of the service, in epoch ms.
    function now() { return Date.now() + clockOffset; }

    // An attribute is written only if it changes, because each write makes the browser compute styles again.
    function write(node, name, value) {
        if (node.getAttribute(name) !== value) { node.setAttribute(name, value); }
    }

    function showTimes() {
        const instant = now();
        for (const node of document.querySelectorAll(".age[data-instant]")) {
            const past = instant - Date.parse(node.getAttribute("data-instant"));
            write(node, "data-age", age(past));
            node.classList.toggle("is-old", past > 60000);
        }
        // Nobody knows the debt of a job while the service is silent: a checkpoint may have completed.
        const debts = document.documentElement.hasAttribute("data-api") ? ".debt-of-none" : "";
        for (const node of document.querySelectorAll(debts || ".debt[data-instant]")) {
            // Whole seconds: tenths of a number that counts up four times a second cannot be read.
            const past = Math.max(0, instant - Date.parse(node.getAttribute("data-instant")));
            write(node, "data-age", past < 60000 ? span(past) : duration(1000 * Math.floor(past / 1000)));
        }
        for (const node of document.querySelectorAll(debts || ".debt-records[data-instant]")) {
            const past = Math.max(0, instant - Date.parse(node.getAttribute("data-instant")));
            write(node, "data-age", count(past * Number(node.getAttribute("data-rate"))));
        }
        for (const node of document.querySelectorAll(debts || ".debt-catch-up[data-instant]")) {
            const past = Math.max(0, instant - Date.parse(node.getAttribute("data-instant")));
            const all = Number(node.getAttribute("data-base")) + past * Number(node.getAttribute("data-pace"));
            write(node, "data-age", all < 60000 ? span(all) : duration(1000 * Math.floor(all / 1000)));
        }
        for (const node of document.querySelectorAll(".countdown[data-deadline]")) {
            const rest = Date.parse(node.getAttribute("data-deadline")) - instant;
            write(node, "data-left", left(rest));
            node.classList.toggle("is-late", rest < 0);
        }
    }

    // The pages of which a part got no content although every request was answered. They are shown as they are.
    const incomplete = new WeakSet();

    // Sets the classes that the style sheet needs: while the first data of the page is missing, if a message states a
    // problem, if all that the page shows is stale, and if its subject does not exist.
    function markPage() {
        const page = document.querySelector("#page > div");
        if (!page) { return; }
        const messages = [...page.children].filter((p) => p.id.endsWith("-message") && p.firstChild !== null);
        // The viewer corrects a request that was refused with the controls of the page.
        const isRefused = messages.some((p) => p.querySelector(":scope > .refused, :scope > .answer") !== null);
        const isEmpty = [...page.getElementsByClassName("awaited")].some((p) => p.firstChild === null);
        page.classList.toggle("is-awaiting", isEmpty && !isRefused && !incomplete.has(page));
        page.classList.toggle("has-problem", messages.length > 0);
        const notes = [...page.children].filter((p) => p.id.endsWith("-stale"));
        page.classList.toggle("is-stale", notes.some((p) => p.querySelector(":scope > [data-stale=page]") !== null));
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

    // The pattern of cells without a value. The style sheet has its colours and the area that it fills.
    document.addEventListener("DOMContentLoaded", function () {
        const holder = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        holder.setAttribute("class", "visually-hidden");
        holder.setAttribute("aria-hidden", "true");
        holder.innerHTML = '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            + 'patternTransform="rotate(45)"><rect width="6" height="6"></rect><path d="M1 0V6"></path></pattern>';
        document.body.append(holder);
    });

    // Adds functions that Dash calls. Python names them by ClientsideFunction("bs", name).
    function addCallbacks(functions) {
        const known = window.dash_clientside || {};
        window.dash_clientside = Object.assign({}, known, { bs: Object.assign({}, known.bs, functions) });
    }

    // The other scripts of the pages use these values and functions. Files are loaded in the order of their names, this
    // one first.
    window.barrierscope = {
        narrow: narrow, still: still, setQuery: setQuery, showQuery: showQuery, go: go, setProps: setProps,
        write: write, now: now, learnClock: learnClock, showIncomplete: showIncomplete, addCallbacks: addCallbacks,
        duration: duration, span: span,
    };

    addCallbacks({
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
        // The answer to a press is shown, also if the page has grown above it meanwhile.
        showAnswer: function (children, id) {
            const answer = document.getElementById(id);
            if (children && answer) {
                window.requestAnimationFrame(function () { answer.scrollIntoView({ block: "nearest" }); });
            }
        },
        navigation: function (pathname) {
            // An error of the page that was left says nothing about the next page.
            setProps("unexpected", { children: null });
            // Links between pages have no zone. Add it, so that the address of each page can be shared.
            if (linkedZone) { setQuery({ tz: linkedZone }); }
            const path = pathname || "";
            const here = path.startsWith("/ui/targets") ? 1 : path.startsWith("/ui/lab") ? 2
                : /^\/ui\/(alerts|incidents|runbooks)/.test(path) ? 3 : /^\/ui\/?((jobs|causes)\/.*)?$/.test(path) ? 0 : -1;
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
        togglePressed: function (clicks, now) {
            return clicks ? (now === "true" ? "false" : "true") : NO();
        },
    });
})();
