/* The requests of the pages: no tick while answers are outstanding, no answer for a page that was left, and the pause
   switch. */
(function () {
    "use strict";

    const { addCallbacks, learnClock, setProps, showIncomplete } = window.barrierscope;
    const NO = () => window.dash_clientside.no_update;

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
    // API did not answer. Each of them waits for the answer that it asked for. Otherwise, an answer that takes longer than
    // the interval would never be shown. Their switch belongs to the server, so they are held by the number of ticks:
    // none, or any number.
    const POLLS = [
        "backtest-tick", "lab-tick", "lab-fill-retry", "runbook-retry", "whatif-tick", "whatif-better",
        "whatif-answer-retry", "whatif-fill-retry",
    ];

    window.barrierscope.isPaused = () => isPausedNow;

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

    addCallbacks({
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
    });
})();
