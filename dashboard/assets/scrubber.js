/* The sliders over time: playing the barrier front, stepping, and dragging. */
(function () {
    "use strict";

    const { addCallbacks, setProps } = window.barrierscope;
    const NO = () => window.dash_clientside.no_update;

    // The next frame is requested when the previous one is drawn. A slow server thus drops frames and does not lag.
    const FIT_MS = 6000, FRAME_MS = 100, PATIENCE_MS = 2000;
    let show = null;
    // Where the barrier front opens, if that is not the right end of its slider.
    let opening = null;

    function begin(slider, playing, value, max, speed) {
        // Where the page opens, nothing was chosen: the viewer sees the whole checkpoint.
        const isChosen = value !== null && value !== undefined && value < max;
        const from = isChosen && !(slider === "front-slider" && value === opening) ? value : 0;
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

    let scrubTimer = null;
    let scrubValue = null;
    let scrubSent = [];

    addCallbacks({
        scrub: function (value, max, opens) {
            // While dragging, request only the newest position, about ten times a second. Where the page opens, the
            // front follows a checkpoint in progress. That is the right end, except of a checkpoint that failed and
            // whose barriers went on.
            const isEarly = opens !== null && opens !== undefined && opens < max;
            opening = isEarly ? opens : null;
            scrubValue = (isEarly ? value === opens : value >= max) ? null : value;
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
    });
})();
