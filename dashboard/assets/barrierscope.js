/* The part of the dashboard that runs in the browser: theme, time zone and pause switches, tables and CSV, ages,
   the keys of the scrubber, and the cells of the fleet grid. Names are inserted as text only, never as HTML. */
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

    function zoneNow(data) {
        const value = data || stored("zone") || "local";
        return value === "UTC" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
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

    function csvCell(value) {
        if (value === null || value === undefined) {
            return "";
        }
        let text = String(value);
        // A spreadsheet would run a name that looks like a formula.
        if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) {
            text = "'" + text;
        }
        return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
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
        const text = s < 60 ? s.toFixed(1) + " s" : Math.floor(s / 60) + " min " + String(Math.floor(s % 60)).padStart(2, "0") + " s";
        return ms < 0 ? "overdue by " + text : text;
    }

    window.setInterval(function () {
        const now = Date.now();
        document.querySelectorAll(".age[data-instant]").forEach(function (node) {
            const past = now - Date.parse(node.getAttribute("data-instant"));
            node.setAttribute("data-age", age(past));
            node.classList.toggle("is-old", past > 60000);
        });
        document.querySelectorAll(".countdown[data-deadline]").forEach(function (node) {
            const rest = Date.parse(node.getAttribute("data-deadline")) - now;
            node.setAttribute("data-left", left(rest));
            node.classList.toggle("is-late", rest < 0);
        });
    }, 250);

    // --- no tick while answers are outstanding ------------------------------------------------------------------------

    // A tick restarts a callback that is still running, and callbacks that depend on it then never start. On a slow
    // machine, parts of the page would stay empty. Requests caused by a click do not delay the tick.
    let isPausedNow = false;
    let awaited = 0;
    let isHeld = false;

    function hold() {
        const isHeldNow = isPausedNow || awaited > 0;
        if (isHeldNow !== isHeld && window.dash_clientside.set_props) {
            isHeld = isHeldNow;
            window.dash_clientside.set_props("tick", { disabled: isHeldNow });
        }
    }

    const ask = window.fetch;
    window.fetch = function (address, options) {
        const body = options && typeof options.body === "string" ? options.body : "";
        const changed = /"changedPropIds":\[[^\]]*\]/.exec(body);
        if (!changed || changed[0].includes("n_clicks")) {
            return ask.apply(this, arguments);
        }
        awaited += 1;
        hold();
        return ask.apply(this, arguments).finally(function () {
            awaited -= 1;
            hold();
        });
    };

    // --- keep the focus and opened details across refreshes ----------------------------------------------------------

    // Each answer replaces the elements of a panel. The new elements have the same names.
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
        // Numbers in the summary may change.
        return panelOf(node) + "|" + (summary ? summary.textContent.replace(/[0-9]+/g, "") : "");
    }

    document.addEventListener("focusin", function (event) {
        const node = event.target;
        focused = node === document.body ? null : {node: node, id: node.id, panel: panelOf(node), name: nameOf(node)};
    });

    // An element that the viewer leaves fires focusout; a removed element may not.
    document.addEventListener("focusout", function (event) {
        if (event.target.isConnected && event.relatedTarget === null) {
            window.setTimeout(function () {
                // If another window came to the front, the element stays active.
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

    // The buttons of a figure appear only on hover and are hidden from screen readers, so the Tab key skips them. In a
    // Dash dropdown, the Tab key stops at the button instead of a hidden helper.
    function orderTabs(added) {
        if (added.nodeType !== Node.ELEMENT_NODE) { return; }
        const all = function (names) { return [...(added.matches(names) ? [added] : []), ...added.querySelectorAll(names)]; };
        all(".modebar-btn, .dash-dropdown-focus-target").forEach(function (node) { node.tabIndex = -1; });
        all("button.dash-dropdown").forEach(function (node) { node.tabIndex = 0; });
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
        changes.forEach((change) => change.addedNodes.forEach(function (added) { reopen(added); orderTabs(added); }));
        refocus();
    }).observe(document.documentElement, {childList: true, subtree: true});

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
            document.getElementById("front-play").click();
        }
    }, true);

    // --- the range of the timeline ---------------------------------------------------------------------------------

    const PLACES = 200;
    // The places that the page set, and the viewer's last range: both differ from a new choice.
    let placedEnds = [0, PLACES];
    let movedRange = null;

    function rangePlaces(range, span) {
        const place = function (value, otherwise) {
            if (value === null || value === undefined || !span || span[1] <= span[0]) { return otherwise; }
            return Math.min(PLACES, Math.max(0, Math.round(PLACES * (value - span[0]) / (span[1] - span[0]))));
        };
        return range ? [place(range.since, 0), place(range.until, PLACES)] : [0, PLACES];
    }

    // --- playing the barrier front ---------------------------------------------------------------------------------

    // The next frame is requested when the previous one is drawn. A slow server thus drops frames and does not lag.
    const FIT_MS = 6000, FRAME_MS = 100, PATIENCE_MS = 2000, REDUCED_MS = 1000;
    let show = null;

    function begin(value, max, speed, steps) {
        const from = value === null || value === undefined || value >= max ? 0 : value;
        end();
        show = {
            path: window.location.pathname, from: from, max: max, began: Date.now(), asked: 0, sent: null, isDrawn: true,
            speed: speed > 0 ? speed : max / FIT_MS, steps: steps || [],
            // With reduced motion: one event each second.
            isStill: window.matchMedia("(prefers-reduced-motion: reduce)").matches,
        };
        show.timer = window.setInterval(frame, FRAME_MS);
    }

    function end() {
        if (show) {
            window.clearInterval(show.timer);
            show = null;
        }
    }

    function stillAt(now) {
        if (now - show.asked < REDUCED_MS) { return null; }
        const at = show.sent === null ? show.from : show.sent;
        const next = show.steps.find(function (s) { return s > at + 0.5; });
        return next === undefined ? show.max : next;
    }

    function frame() {
        const now = Date.now();
        if (window.location.pathname !== show.path || !document.getElementById("front-slider")) {
            end();
            return;
        }
        if (!show.isDrawn && now - show.asked < PATIENCE_MS) { return; }
        const at = show.isStill ? stillAt(now) : show.from + (now - show.began) * show.speed;
        if (at === null) { return; }
        const isOver = at >= show.max;
        show.asked = now;
        show.isDrawn = false;
        show.sent = Math.round(Math.min(at, show.max));
        window.dash_clientside.set_props("front-slider", { value: show.sent });
        if (isOver) {
            end();
            window.dash_clientside.set_props("front-playing", { data: false });
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
                return clicks ? ((now || stored("zone")) === "UTC" ? "local" : "UTC") : NO();
            },
            look: function (themeData, zoneData, before) {
                const look = { theme: themeNow(themeData), zone: zoneNow(zoneData) };
                paint(look.theme);
                const isSame = before && before.theme === look.theme && before.zone === look.zone;
                const isDark = look.theme === "dark";
                return [
                    isSame ? NO() : look,
                    look.theme,
                    "icon icon-" + (isDark ? "sun" : "moon"),
                    isDark ? "Light" : "Dark",
                    look.zone === "UTC" ? "UTC" : "Local time",
                ];
            },
            togglePause: function (clicks, now) {
                return clicks ? !now : NO();
            },
            paused: function (isPaused) {
                isPausedNow = Boolean(isPaused);
                isHeld = isPausedNow || awaited > 0;
                return [
                    isHeld, isPausedNow, "icon icon-" + (isPaused ? "play" : "pause"),
                    isPaused ? "Resume" : "Pause", isPaused ? "paused" : "live",
                    isPaused ? "live-word is-paused" : "live-word",
                ];
            },
            navigation: function (pathname) {
                const path = pathname || "";
                const here = path.startsWith("/ui/targets") ? 1 : /^\/ui\/(alerts|runbooks)/.test(path) ? 2 : 0;
                return [0, 1, 2].map(function (i) { return i === here ? "nav-link is-here" : "nav-link"; });
            },
            title: function (title) {
                document.title = title ? title + " · Barrierscope" : "Barrierscope";
                return NO();
            },
            twin: function (clicks, data) {
                const isOpen = Boolean(clicks && clicks % 2);
                const figure = { display: isOpen ? "none" : "block" };
                if (!isOpen) {
                    // A figure that was hidden has no size yet.
                    const by = String(window.dash_clientside.callback_context.triggered_id || "");
                    if (by.endsWith("-toggle")) {
                        window.setTimeout(function () { window.dispatchEvent(new Event("resize")); }, 50);
                    }
                    return [NO(), NO(), { display: "none" }, figure, "false"];
                }
                const columns = (data && data.columns) || [];
                const rows = ((data && data.rows) || []).map(function (row) {
                    return Object.fromEntries(row.map(function (value, i) { return ["c" + i, value]; }));
                });
                const defs = columns.map(function (name, i) {
                    const isNumber = data.rows.some(function (row) { return typeof row[i] === "number"; });
                    return {
                        field: "c" + i, headerName: name, cellDataType: isNumber ? "number" : "text",
                        type: isNumber ? "rightAligned" : undefined,
                        // Null is shown as missing, never as a number.
                        valueFormatter: { function: "params.value == null ? '–' : params.value" },
                    };
                });
                return [defs, rows, { display: "block" }, figure, "true"];
            },
            csv: function (clicks, data) {
                if (!clicks || !data) {
                    return NO();
                }
                const lines = [data.columns].concat(data.rows).map(function (row) { return row.map(csvCell).join(","); });
                const link = document.createElement("a");
                link.href = URL.createObjectURL(new Blob(["\ufeff" + lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
                link.download = "barrierscope-" + data.name + ".csv";
                link.click();
                window.setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
                return "saved " + data.rows.length + " rows";
            },
            scrub: function (value, max) {
                // While dragging, request only the newest position, about ten times a second. At the right end, the
                // front follows a checkpoint in progress.
                scrubValue = value >= max ? null : value;
                if (show && value !== show.sent) {
                    // The viewer moved the slider: continue from there.
                    Object.assign(show, { from: value, began: Date.now(), sent: value });
                }
                if (scrubTimer === null && value !== undefined && value !== null) {
                    scrubTimer = window.setTimeout(function () {
                        scrubTimer = null;
                        const sent = [window.location.pathname, scrubValue];
                        // Ignore the position if the server set it.
                        if (sent[0] !== scrubSent[0] ? scrubValue !== null : scrubValue !== scrubSent[1]) {
                            window.dash_clientside.set_props("front-at", { data: scrubValue });
                        }
                        scrubSent = sent;
                    }, 90);
                }
                return NO();
            },
            pressPlay: function (clicks, isPlaying) {
                return clicks ? !isPlaying : NO();
            },
            play: function (isPlaying, speed, value, max, steps) {
                if (isPlaying) { begin(value, max, Number(speed), steps); } else { end(); }
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
            brush: function (selected, now) {
                if (!selected) {
                    return now ? null : NO();
                }
                const times = (selected.points || []).map(function (p) { return p.customdata && p.customdata[2]; })
                    .filter(function (t) { return typeof t === "number"; });
                return times.length ? { since: Math.min.apply(null, times), until: Math.max.apply(null, times) } : NO();
            },
            moveRange: function (ends, now, span) {
                if (!ends || !span || (ends[0] === placedEnds[0] && ends[1] === placedEnds[1])) {
                    return NO();  // The page moved the slider.
                }
                const placed = rangePlaces(now, span);
                placedEnds = ends;
                // An end that was not moved keeps its instant. An end at the edge has no limit.
                const at = function (i, key, edge) {
                    if (ends[i] === edge) { return null; }
                    const isKept = now && now[key] !== null && ends[i] === placed[i];
                    return isKept ? now[key] : Math.round(span[0] + (span[1] - span[0]) * ends[i] / PLACES);
                };
                const range = { since: at(0, "since", 0), until: at(1, "until", PLACES) };
                const chosen = range.since === null && range.until === null ? null : range;
                movedRange = JSON.stringify(chosen);
                return chosen;
            },
            clearRange: function (clicks) {
                return clicks ? null : NO();
            },
            placeRange: function (range, span) {
                const by = window.dash_clientside.callback_context.triggered_id;
                // The viewer may have moved the ends further by now. Do not move them back.
                if (by !== "job-range" || JSON.stringify(range) !== movedRange) {
                    placedEnds = rangePlaces(range, span);
                    window.dash_clientside.set_props("job-range-slider", { value: placedEnds });
                }
                movedRange = null;
                const query = new URLSearchParams(window.location.search);
                [["from", "since"], ["to", "until"]].forEach(function (names) {
                    const value = range && range[names[1]];
                    if (typeof value === "number") { query.set(names[0], String(value)); } else { query.delete(names[0]); }
                });
                const text = query.toString();
                window.history.replaceState(window.history.state, "", window.location.pathname + (text ? "?" + text : ""));
                return !range;
            },
            permalink: function (opened, sort, at, picked) {
                const query = new URLSearchParams();
                if (opened) { (opened.length ? opened : [""]).forEach(function (vertex) { query.append("open", vertex); }); }
                if (sort && sort !== "topology") { query.set("sort", sort); }
                if (typeof at === "number") { query.set("t", String(Math.round(at))); }
                if (picked) { query.set("pick", picked); }
                const text = query.toString();
                window.history.replaceState(window.history.state, "", window.location.pathname + (text ? "?" + text : ""));
                return NO();
            },
        },
    });

    // --- cells of the fleet grid -----------------------------------------------------------------------------------

    const cells = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});

    function h() {
        return window.React.createElement.apply(window.React, arguments);
    }

    cells.BsJob = function (props) {
        return h("div", { className: "cell-stack" },
            h("a", { className: "row-link", href: props.data.href, tabIndex: -1, title: props.data.name }, props.data.name),
            h("span", { className: "sub", title: props.data.target }, props.data.target));
    };

    cells.BsBadge = function (props) {
        const cell = props.data[props.colDef.field + "_badge"];
        if (!cell) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing" }, "–"));
        }
        return h("div", { className: "cell-mid" },
            h(cell.href ? "a" : "span", { className: "badge tone-" + cell.tone, title: cell.hint, href: cell.href, tabIndex: cell.href ? -1 : undefined },
                h("span", { className: "icon icon-" + cell.icon, "aria-hidden": "true" }), h("span", null, cell.word)));
    };

    cells.BsChip = function (props) {
        const cell = props.data[props.colDef.field + "_chip"];
        if (!cell) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing", title: "not reported" }, "–"));
        }
        return h("div", { className: "cell-mid" },
            h(cell.href ? "a" : "span", { className: "chip", title: cell.hint, href: cell.href, tabIndex: cell.href ? -1 : undefined },
                h("span", { className: "swatch " + cell.swatch, "aria-hidden": "true" }), h("span", null, cell.word)));
    };

    cells.BsText = function (props) {
        const text = props.data[props.colDef.field + "_text"];
        const isMissing = text === "–" || text === undefined;
        return h("div", { className: "cell-mid cell-right" }, h("span", { className: isMissing ? "missing" : "number", title: props.data[props.colDef.field + "_hint"] || (isMissing ? "not reported" : undefined) }, isMissing ? "–" : text));
    };

    cells.BsShare = function (props) {
        const value = props.value;
        if (value === null || value === undefined) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing", title: "not reported" }, "–"));
        }
        const text = props.data[props.colDef.field + "_text"];
        return h("div", { className: "cell-mid" },
            h("div", { className: "share", title: "share of time the most backpressured vertex is backpressured: " + text },
                h("i", { style: { width: Math.round(value * 100) + "%" } }), h("b", null, text)));
    };

    cells.BsSpark = function (props) {
        const points = props.data.spark || [];
        if (!points.length) {
            return h("div", { className: "cell-mid" }, h("span", { className: "missing", title: "no finished checkpoint yet" }, "–"));
        }
        const width = 120, height = 30, pad = 4;
        const highest = Math.max.apply(null, points.map(function (p) { return p[0] || 0; })) || 1;
        const at = points.map(function (p, i) {
            const x = pad + (width - 2 * pad) * (points.length === 1 ? 1 : i / (points.length - 1));
            return [x, height - pad - (height - 2 * pad) * (p[0] || 0) / highest, p[1]];
        });
        const line = at.map(function (p, i) { return (i ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1); }).join("");
        const marks = at.filter(function (p) { return p[2] === "failed"; }).map(function (p, i) {
            const x = p[0].toFixed(1), y = p[1].toFixed(1);
            return h("path", { key: i, d: "M" + x + " " + y + "m-2.6 -2.6l5.2 5.2m0 -5.2l-5.2 5.2", stroke: "#d55e00", strokeWidth: 1.7, fill: "none" });
        });
        return h("svg", { className: "spark", viewBox: "0 0 " + width + " " + height, preserveAspectRatio: "none", role: "img", "aria-label": props.data.spark_text },
            h("title", null, props.data.spark_text),
            h("path", { d: line, fill: "none", stroke: "currentColor", strokeWidth: 1.4, opacity: 0.75 }), marks);
    };
})();
