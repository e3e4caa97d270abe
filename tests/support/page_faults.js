// Finds the faults of the layout that a viewer would see: text that is cut off, that overlaps other text, or that has
// too little contrast in a chart. Returns a list of sentences.
() => {
    "use strict";
    const faults = new Set();
    const short = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 60));
    const name = function (node) {
        const near = node.closest("[id]");
        const kind = typeof node.className === "string" ? node.className : node.className.baseVal || node.tagName;
        return `${near ? "#" + near.id + " " : ""}${kind || node.tagName}`;
    };
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > width + 1) {
        faults.add(`the page scrolls sideways: ${document.documentElement.scrollWidth} px of ${width} px`);
    }

    // --- the part of each line of text that is visible ---

    const isShown = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    const scrolls = (value) => value === "auto" || value === "scroll";
    // A graph that is larger than its box is moved with the mouse or on its small map, as another box is scrolled.
    const isMoved = (svg) => svg.closest(".js-plotly-plot")?._fullLayout?.dragmode === "pan";

    function intersection(a, b) {
        return {
            left: Math.max(a.left, b.left), right: Math.min(a.right, b.right),
            top: Math.max(a.top, b.top), bottom: Math.min(a.bottom, b.bottom),
        };
    }

    // Returns the visible part of a box: the part that its ancestors do not hide. ``lost`` is a hidden part that the
    // viewer cannot scroll to.
    function clip(rect, node) {
        let box = { left: rect.left, right: rect.right, top: rect.top, bottom: rect.bottom };
        let lost = null;
        for (let up = node; up && up !== document.body; up = up.parentElement) {
            const style = getComputedStyle(up);
            if (style.overflowX === "visible" && style.overflowY === "visible") {
                if (style.position === "fixed") { break; }
                continue;
            }
            if (up instanceof SVGElement && up.tagName !== "svg") { continue; }
            const around = up.getBoundingClientRect();
            const hidden = Math.max(around.left - box.left, box.right - around.right, 0);
            const below = Math.max(around.top - box.top, box.bottom - around.bottom, 0);
            const isMeant = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
            if (up.tagName === "svg" && isMoved(up)) { return { box: intersection(box, around), lost: lost }; }
            if (hidden > 1.5 && !scrolls(style.overflowX) && style.overflowX !== "visible") {
                lost = lost || { by: up, px: hidden, isMeant: isMeant };
            }
            if (below > 3.5 && !scrolls(style.overflowY) && style.overflowY !== "visible") {
                lost = lost || { by: up, px: below, isMeant: isMeant };
            }
            box = intersection(box, around);
        }
        return { box: box, lost: lost };
    }

    // The box around slanted text is larger than the text.
    function isSlanted(text) {
        const matrix = text.getScreenCTM();
        return Math.abs(matrix.a) > 0.01 && Math.abs(matrix.b) > 0.01;
    }

    const lines = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const owner = node.parentElement;
        if (!node.data.trim() || owner.closest("script, style, noscript, .visually-hidden, .skip-link, title")) { continue; }
        // On a phone, the heads of tables are in their cells, and the rows of heads are for screen readers only.
        if (!isShown(owner) || getComputedStyle(owner.closest("thead") || owner).clipPath === "inset(50%)") { continue; }
        const inSvg = owner.closest("svg");
        const text = inSvg ? owner.closest("text") : null;
        if (inSvg && !text) { continue; }
        let rects;
        if (text) {
            rects = [owner.getBoundingClientRect()];
        } else {
            const range = document.createRange();
            range.selectNodeContents(node);
            rects = [...range.getClientRects()];
        }
        for (const rect of rects) {
            if (rect.width < 1 || rect.height < 1) { continue; }
            const { box, lost } = clip(rect, owner);
            if (lost) {
                const whole = owner.closest("[title], [aria-label]");
                if (!lost.isMeant) {
                    faults.add(`cut off by ${lost.px.toFixed(0)} px: ${short(node.data)} in ${name(owner)}, by ${name(lost.by)}`);
                } else if (!whole && !owner.closest("button, .ag-header-cell")) {
                    faults.add(`shortened, and no title says the whole: ${short(node.data)} in ${name(owner)}`);
                }
            }
            if (box.right - box.left < 1 || box.bottom - box.top < 1) { continue; }
            lines.push({ box: box, owner: text || owner, data: node.data, isSlanted: text !== null && isSlanted(text) });
        }
    }

    // --- text over text ---

    lines.sort((a, b) => a.box.top - b.box.top);
    for (let i = 0; i < lines.length; i += 1) {
        const a = lines[i].box;
        for (let j = i + 1; j < lines.length && lines[j].box.top < a.bottom; j += 1) {
            const b = lines[j].box;
            if (lines[i].owner === lines[j].owner || lines[i].isSlanted || lines[j].isSlanted) { continue; }
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            const least = Math.min(a.bottom - a.top, b.bottom - b.top);
            if (wide > 2 && high > 0.4 * least) {
                faults.add(`overlap of ${wide.toFixed(0)} x ${high.toFixed(0)} px: ${short(lines[i].data)} in `
                    + `${name(lines[i].owner)} and ${short(lines[j].data)} in ${name(lines[j].owner)}`);
            }
        }
    }

    // --- legends over bars and lines ---

    for (const legend of document.querySelectorAll(".js-plotly-plot .legend")) {
        const a = legend.getBoundingClientRect();
        if (!isShown(legend) || a.width < 1) { continue; }
        for (const drawn of legend.closest("svg").parentElement.querySelectorAll(".cartesianlayer .plot, .legend ~ .legend")) {
            const b = drawn.getBoundingClientRect();
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (drawn !== legend && high > 3 && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3) {
                faults.add(`the legend covers ${high.toFixed(0)} px of the drawing in ${name(legend)}`);
            }
        }
    }

    // --- contrast, also where accessibility checkers leave it undecided, as over the bars of charts ---

    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.canvas.width = canvas.canvas.height = 1;
    const known = new Map();
    function rgba(color, opacity) {
        if (!known.has(color)) {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
            known.set(color, [...canvas.getImageData(0, 0, 1, 1).data]);
        }
        const [r, g, b, a] = known.get(color);
        return [r, g, b, a / 255 * opacity];
    }
    const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
    function luminance([r, g, b]) {
        const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    }
    function opacityOf(node, name) {
        let found = name ? Number(getComputedStyle(node)[name]) : 1;
        for (let up = node; up; up = up.parentElement) { found *= Number(getComputedStyle(up).opacity); }
        return found;
    }
    // The colour that an element paints at a point, or null if it paints none there.
    function paint(node) {
        const style = getComputedStyle(node);
        if (!(node instanceof SVGElement)) {
            return style.backgroundColor === "rgba(0, 0, 0, 0)" ? null : rgba(style.backgroundColor, opacityOf(node));
        }
        if (["svg", "g", "text", "tspan", "image"].includes(node.tagName) || node.closest("text")) { return null; }
        if (node.matches(".drag, .nsewdrag, .legendtoggle") || style.fill === "none") { return null; }
        // A straight line, such as the zero line of an axis, has no area that its fill could paint.
        const drawn = node instanceof SVGGeometryElement ? node.getBBox() : null;
        if (drawn && !(drawn.width && drawn.height)) { return null; }
        const pattern = /^url\("?#([^")]+)/.exec(style.fill);
        const fill = pattern
            ? document.getElementById(pattern[1])?.querySelector("rect, stop")?.getAttribute("fill")
            : style.fill;
        return fill ? rgba(fill, opacityOf(node, "fillOpacity")) : null;
    }
    function isCentreVisible(box, node) {
        const seen = clip(box, node).box;
        const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
        return x > seen.left && x < seen.right && y > seen.top && y < seen.bottom;
    }
    const touchable = document.createElement("style");
    touchable.textContent = "* { pointer-events: all !important; } .top { position: static !important; }";
    document.head.append(touchable);
    const place = [window.scrollX, window.scrollY];
    const scrolled = [...document.body.querySelectorAll("*")]
        .filter((node) => node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight)
        .map((node) => [node, node.scrollLeft, node.scrollTop]);
    const judged = new Set();
    // What is typed into a field is no text of the document.
    const fields = [...document.querySelectorAll("input, select, textarea")].filter(function (field) {
        const box = field.getBoundingClientRect();
        const isText = !["checkbox", "radio", "range", "color", "file"].includes(field.type);
        return isText && box.width > 1 && box.height > 1 && isShown(field) && !field.closest(".visually-hidden");
    });
    try {
        for (const owner of [...lines.map((line) => line.owner), ...fields]) {
            const part = owner.querySelector("tspan") || owner;
            if (judged.has(owner) || owner.closest(":disabled, [aria-disabled=true], .is-off, option")) { continue; }
            judged.add(owner);
            let box = owner.getBoundingClientRect();
            if (box.bottom > window.innerHeight || box.top < 0 || !isCentreVisible(box, owner)) {
                owner.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
                box = owner.getBoundingClientRect();
            }
            // Only the text of a graph that is moved can still be hidden.
            if (!isCentreVisible(box, owner)) { continue; }
            const layers = [];
            for (const node of document.elementsFromPoint(box.left + box.width / 2, box.top + box.height / 2)) {
                const layer = paint(node);
                if (layer) { layers.push(layer); }
                if (layer && layer[3] > 0.99) { break; }
            }
            let ground = [255, 255, 255, 1];
            for (const layer of layers.reverse()) { ground = over(layer, ground); }
            const style = getComputedStyle(part);
            const inSvg = part instanceof SVGElement;
            const ink = over(rgba(inSvg ? style.fill : style.color, opacityOf(part, inSvg ? "fillOpacity" : "")), ground);
            const [high, low] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
            const ratio = (high + 0.05) / (low + 0.05);
            const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
            if (ratio < (isLarge ? 3 : 4.5) && style.textShadow === "none") {
                faults.add(`contrast ${ratio.toFixed(2)}: ${short(owner.value || owner.textContent)} in ${name(owner)}, `
                    + `rgb(${ink.slice(0, 3).map(Math.round)}) on rgb(${ground.slice(0, 3).map(Math.round)})`);
            }
        }
    } finally {
        touchable.remove();
        for (const [node, left, top] of scrolled) {
            if (node.scrollLeft !== left || node.scrollTop !== top) { node.scrollTo(left, top); }
        }
        window.scrollTo(...place);
    }
    return [...faults];
}
