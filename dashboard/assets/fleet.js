/* The rows of the fleet grid: which rows the grid shows, where it gets them from, and when the page asks for changes. */
(function () {
    "use strict";

    const NO = () => window.dash_clientside.no_update;
    const { narrow, setQuery } = window.barrierscope;
    const NEWS_ADDRESS = "/ui/_news/fleet";
    // After this time, a request for rows counts as lost.
    const LOST_MS = 10000;
    const BLOCKS_MAX = 12;
    const CHECK_MS = 1000;
    const TRY_MAX_MS = 120000;

    function fleetGrid() {
        try {
            return window.dash_ag_grid.getApi("fleet-grid");
        } catch (error) {
            return null;  // The grid is not drawn yet.
        }
    }

    // On a phone, the fleet shows the job with what limits it, its health and its alerts. The job's page has the rest.
    const WIDE_COLUMNS = ["verdict", "debt", "success", "p50", "p99", "phase", "mode", "advice", "pressure", "spark"];

    function fitColumns(grid) {
        const column = grid.getColumn("p50");
        if (column && column.isVisible() === narrow.matches) {
            grid.setColumnsVisible(WIDE_COLUMNS, !narrow.matches);
            grid.refreshCells({ columns: ["name"], force: true });
        }
    }

    // --- where the grid gets its rows from ---------------------------------------------------------------------------

    // The grid requests blocks of rows. A block that was read before is shown at once, even if its rows are old or in
    // the previous order, and is replaced when the response arrives. So the grid is never empty while it waits, and an
    // error leaves the rows as they are. Blocks are requested one after the other, because Dash drops the response to a
    // request if a newer one was sent.
    let board = null;
    let number = 0;

    function begin(grid) {
        board = {
            grid: grid, order: null, age: 0, total: null, blocks: new Map(), waiting: new Map(), wanted: new Map(),
            sent: null, source: { getRows: serve },
        };
        fitColumns(grid);
        grid.setGridOption("datasource", board.source);
    }

    // The grid component sets a source of its own whenever it is created.
    function ensureSource() {
        const grid = fleetGrid();
        if (grid && !(board && board.grid === grid && grid.getGridOption("datasource") === board.source)) {
            begin(grid);
        }
    }

    // Returns whether ended jobs are shown. The state of the button decides.
    function endedShown() {
        const button = document.getElementById("fleet-ended");
        return button ? button.getAttribute("aria-pressed") : "false";
    }

    function isShown(first, end) {
        const grid = board.grid;
        return first <= grid.getLastDisplayedRowIndex() && end > grid.getFirstDisplayedRowIndex();
    }

    function serve(asked) {
        const order = JSON.stringify([asked.sortModel, asked.filterModel, endedShown()]);
        if (order !== board.order) {
            Object.assign(board, { order: order, sent: null, age: board.age + 1 });
            board.wanted.clear();
            board.waiting.clear();
        }
        const block = board.blocks.get(asked.startRow);
        if (block) {
            asked.successCallback(block.rows, board.total);
        } else {
            board.waiting.set(asked.startRow, asked);
        }
        // An old block that is not visible is not requested now. When the viewer has scrolled to it, the refresh finds
        // out whether its rows have changed, and the block is then requested.
        if (!block || (block.age !== board.age && (block.order !== order || isShown(asked.startRow, asked.endRow)))) {
            board.wanted.set(asked.startRow, {
                startRow: asked.startRow, endRow: asked.endRow, sortModel: asked.sortModel,
                filterModel: asked.filterModel,
            });
            request();
        }
        markBusy();
    }

    // Requests the next block, unless a response is outstanding.
    function request() {
        if (board.sent && Date.now() - board.sent.at < LOST_MS) { return; }
        if (!isThere()) { return; }
        const next = [...board.wanted.values()].find((b) => isShown(b.startRow, b.endRow))
            || board.wanted.values().next().value;
        if (!next) { return; }
        number += 1;
        board.sent = { number: number, at: Date.now(), first: next.startRow, age: board.age };
        window.barrierscope.setProps("fleet-request", { data: Object.assign({ number: number }, next) });
    }

    function receive(answer) {
        const sent = board && board.sent;
        if (!answer || !sent || answer.number !== sent.number) { return; }
        board.sent = null;
        if (!answer.rows) {
            // The block stays wanted and is requested again a moment later. The refresh shows the error.
            askNow();
            return;
        }
        board.total = answer.total;
        board.wanted.delete(sent.first);
        board.blocks.delete(sent.first);
        board.blocks.set(sent.first, { rows: answer.rows, age: sent.age, order: board.order });
        while (board.blocks.size > BLOCKS_MAX) { board.blocks.delete(board.blocks.keys().next().value); }
        const waiting = board.waiting.get(sent.first);
        board.waiting.delete(sent.first);
        if (waiting) {
            waiting.successCallback(answer.rows, answer.total);
        } else {
            board.grid.refreshInfiniteCache();
        }
        request();
        markBusy();
    }

    // Rows of the previous order are marked until the rows of the new order arrive.
    function markBusy() {
        const isBusy = [...board.wanted.keys()].some(function (first) {
            const block = board.blocks.get(first);
            return !block || block.order !== board.order;
        });
        const node = document.getElementById("fleet-board");
        if (node) { node.setAttribute("aria-busy", String(isBusy)); }
    }

    function replace(row) {
        for (const block of board.blocks.values()) {
            const i = block.rows.findIndex((r) => r.id === row.id);
            if (i >= 0) { block.rows[i] = row; }
        }
    }

    // --- when the page asks for changes ------------------------------------------------------------------------------

    // The server reports over a WebSocket that rows of this page have changed, and the page then asks for them. While
    // there is no connection, the page asks with each tick.
    let socket = null;
    let told = null;
    let mustAsk = true;
    let newest = null;
    let askedEnded = null;
    let tries = 0;
    let nextTryAt = 0;

    // The viewer may have left the fleet while an answer or a message was under way. Setting a property of a component
    // that is gone would raise an exception.
    const isThere = () => document.getElementById("fleet-page") !== null;

    function askNow() {
        mustAsk = true;
        if (!isThere()) { return; }
        window.barrierscope.setProps("fleet-news", { data: Date.now() });
    }

    function isPaused() { return window.barrierscope.isPaused(); }

    function listen() {
        if (Date.now() < nextTryAt) { return; }
        // A proxy may refuse WebSockets. Each attempt logs an error in the browser's console, so they become rare.
        nextTryAt = Date.now() + Math.min(TRY_MAX_MS, CHECK_MS * 2 ** tries);
        tries += 1;
        told = null;
        mustAsk = true;
        const scheme = window.location.protocol === "https:" ? "wss://" : "ws://";
        socket = new WebSocket(scheme + window.location.host + NEWS_ADDRESS);
        socket.onopen = function () { tries = 0; };
        socket.onmessage = function (message) {
            window.barrierscope.heard();
            if (isPaused()) { return; }
            const news = JSON.parse(message.data);
            if (news.newest_observed_at) {
                newest = news.newest_observed_at;
                markNewest();
            }
            if (news.is_changed) { askNow(); }
        };
        socket.onclose = function () { socket = null; };
    }

    function markNewest() {
        const node = document.querySelector("#fleet-source .age[data-instant]");
        if (node && newest && node.getAttribute("data-instant") < newest) { node.setAttribute("data-instant", newest); }
    }

    function isListening() { return socket !== null && socket.readyState === WebSocket.OPEN; }

    // Tells the server which rows the page shows.
    function tell(view) {
        const text = JSON.stringify([view.first, view.ids, view.total, view.sortModel, view.filterModel, view.ended]);
        if (isListening() && text !== told) {
            told = text;
            socket.send(JSON.stringify(view));
        }
    }

    // Keeps one connection open while the fleet is shown, and none otherwise. A connection that is being opened is left
    // alone, because the browser would log an error.
    window.setInterval(function () {
        ensureSource();
        const isWanted = isThere() && !isPaused();
        if (!isWanted && isListening()) { socket.close(); }
        if (isWanted && board && board.wanted.size) { request(); }
        if (isWanted && isListening() && board && !board.wanted.size) { tell(viewOf(null)); }
    }, CHECK_MS);

    // Returns the oldest of these versions of the board, or null if they come from different server processes.
    function oldest(versions) {
        const parts = versions.map((v) => v.split("-"));
        if (!parts.length || parts.some((p) => p[0] !== parts[0][0])) { return null; }
        return parts[0][0] + "-" + Math.min.apply(null, parts.map((p) => Number(p[1])));
    }

    // Returns which rows the grid shows, their order, and the version of the board from which they were read.
    function viewOf(tick) {
        const view = { tick: tick, first: 0, ids: [], since: null, sortModel: [], filterModel: {} };
        view.ended = endedShown();
        const grid = fleetGrid();
        if (!grid) { return view; }
        view.sortModel = grid.getColumnState().filter((c) => c.sort)
            .sort((a, b) => a.sortIndex - b.sortIndex).map((c) => ({ colId: c.colId, sort: c.sort }));
        view.filterModel = grid.getFilterModel();
        view.first = Math.max(0, grid.getFirstDisplayedRowIndex());
        const versions = [];
        // List the loaded rows without a gap. If a block is missing, list the rows before it or, if there are none, the
        // rows after it.
        for (let i = view.first; i <= grid.getLastDisplayedRowIndex(); i += 1) {
            const node = grid.getDisplayedRowAtIndex(i);
            if (!node || !node.data) {
                if (view.ids.length) { break; }
                view.first = i + 1;
                continue;
            }
            view.ids.push(node.data.id);
            versions.push(node.data.version);
        }
        view.since = oldest(versions);
        view.total = grid.isLastRowIndexKnown() ? grid.getDisplayedRowCount() : null;
        view.digest = document.getElementById("fleet-page").getAttribute("data-digest");
        return view;
    }

    // --- callbacks ---------------------------------------------------------------------------------------------------

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        fleet: {
            begin: function () {
                mustAsk = true;
                told = null;
                window.dash_ag_grid.getApiAsync("fleet-grid").then(ensureSource);
                if (socket === null && !isPaused()) { listen(); }
                return "1";
            },
            view: function (tick, look, _news, ended) {
                if (!look) { return NO(); }
                if (window.location.pathname === "/ui/") { setQuery({ ended: ended === "true" ? "1" : null }); }
                mustAsk = mustAsk || ended !== askedEnded;
                askedEnded = ended;
                const grid = fleetGrid();
                const hasError = Boolean(document.querySelector("#fleet-message > *"));
                if (grid) {
                    fitColumns(grid);
                    grid.refreshCells({ columns: ["debt"], force: true });
                }
                if (socket === null) {
                    listen();
                } else if (isListening() && grid && !mustAsk && !hasError) {
                    return NO();
                }
                mustAsk = false;
                return Object.assign(viewOf(tick), { ended: ended });
            },
            delta: function (delta) {
                const grid = fleetGrid();
                if (!delta || !grid || !board) { return NO(); }
                let isMoved = grid.isLastRowIndexKnown() && grid.getDisplayedRowCount() !== delta.total;
                delta.ids.forEach(function (id, i) {
                    const node = grid.getDisplayedRowAtIndex(delta.first + i);
                    isMoved = isMoved || Boolean(node && node.data && node.data.id !== id);
                    if (node && node.data && node.data.id === id) { node.data.version = delta.version; }
                });
                delta.rows.forEach(function (row) {
                    replace(row);
                    const node = grid.getRowNode(row.id);
                    if (node) { node.setData(row); }
                });
                // If rows have moved, the grid must request all visible rows again.
                if (isMoved) {
                    board.age += 1;
                    grid.refreshInfiniteCache();
                }
                return NO();
            },
            rows: function (answer) {
                receive(answer);
                return NO();
            },
        },
    });

    window.dashAgGridFunctions = Object.assign({
        // The address of the fleet contains its order.
        bsSorted: function () {
            const grid = fleetGrid();
            const column = grid && grid.getColumnState().find((c) => c.sort);
            setQuery({ sort: column && column.colId, desc: column && column.sort === "desc" ? "1" : null });
        },
    }, window.dashAgGridFunctions);
})();
