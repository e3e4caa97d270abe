/* What a refresh must not take away: the focus, opened details, a link under the pointer; and the order of Tab stops. */
(function () {
    "use strict";

    const { go, write } = window.barrierscope;

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
})();
