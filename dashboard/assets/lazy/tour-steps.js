/* The steps of the tour, and the engine that shows them. The library driver.js dims the page, places the text next to the
   element of a step, and keeps the Tab key between the two. The engine moves between pages, waits for elements, and steps
   aside for dialogs of the page. Names are inserted as text only, never as HTML. */
(function () {
    "use strict";

    const LOOK_MS = 200;
    // A page that has not shown the element of a step after this time gets a note that says so.
    const LATE_MS = 1500;
    const ASK_AGAIN_MS = 2000;

    const { go } = window.barrierscope;

    // The first element that is on the page and has a size.
    function seen(names) {
        return [...document.querySelectorAll(names)].find((node) => node.getClientRects().length > 0) || null;
    }

    const card = () => seen("#advice-cards section.card");
    const applyButton = () => seen('#advice-cards [id*="advice-apply"]');
    // The card has the button that undoes the change only while the change is in force.
    const isApplied = () => Boolean(seen('#advice-cards [id*="advice-undo"]') || seen("#advice-outcome"));

    // A step has the address of its page (null while it is not known), the element that it points to, a title, and a text.
    // A step whose ``isOver`` is true is left out.
    function stepsOf(plan) {
        const name = plan.job.name;
        const row = '#fleet-grid [row-id="' + CSS.escape(plan.job.id) + '"]';
        return [
            {
                path: plan.fleet, find: () => seen(row),
                title: plan.is_healthy ? "A job that was in trouble" : "A job in trouble",
                text: () => "The fleet shows all jobs, the most urgent first, with what limits each. " + name
                    + " is a demo job: its records arrive faster than one of its vertices works.",
            },
            {
                path: plan.page, find: () => seen("#job-verdict"), title: "What is wrong",
                text: () => "Each job has a verdict: a sentence that says what holds its checkpoints up, and why. The"
                    + " evidence is in the same place.",
            },
            {
                path: plan.page, find: () => seen("#timeline-figure"), title: "Since when",
                text: () => "Each mark is a checkpoint, at its trigger time and with its duration. Failed ones have a"
                    + " cross, and many of them together are a band. A click on a mark opens the checkpoint.",
            },
            {
                path: plan.checkpoint, find: () => seen("#cp-verdict"), title: "The culprit",
                text: () => (plan.is_failed ? "Checkpoint " + plan.number + " failed. " : "Checkpoint " + plan.number
                    + " was the slowest. ") + "The verdict names the vertex and the subtasks that held the barrier, the"
                    + " phase, and the reason.",
            },
            {
                path: plan.checkpoint, find: () => (seen("#front-figure") || document.body).closest(".card"), title: "The barrier front",
                text: () => "The position of the barrier on the job's graph. Move the slider: the barrier stops in front"
                    + " of the vertex that holds it, behind a full queue.",
            },
            {
                path: plan.advice, find: () => seen("#advice-cards .advice-columns"), title: "The cure",
                text: () => "The proposed change, setting by setting. Beside it is the predicted effect with its interval,"
                    + " from a replay of the recorded checkpoints.",
            },
            {
                path: plan.advice, find: applyButton, title: "Apply it", isOver: () => Boolean(card()) && !applyButton(),
                text: () => "Press Apply now and confirm. It changes the running demo job, and nothing else. The card then"
                    + " shows how to roll it back. To leave the job as it is, go on to the next step.",
            },
            {
                path: plan.advice, find: () => seen("#advice-outcome") || seen("#advice-cards .card-head"),
                title: "The effect",
                text: function () {
                    if (seen("#advice-outcome")) {
                        return "Predicted and measured, side by side: each checkpoint before and after the change, and the"
                            + " predicted interval as a band. The card above says whether the prediction was right.";
                    }
                    return isApplied() || !applyButton()
                        ? "The change is being measured. When five checkpoints have ended, which takes half a minute, the"
                            + " measured effect appears here next to the prediction."
                        : "When a change is applied, the measured effect appears here next to the prediction. This change"
                            + " was not applied.";
                },
            },
            {
                path: plan.advice, find: () => seen("#nav-targets"), title: "Your own jobs",
                text: () => "Add a Flink cluster under Targets. Barrierscope reads its REST API and installs nothing. The"
                    + " button Tour shows these steps again.",
            },
        ];
    }

    window.barrierscope.tourOf = function (plan, host) {
        let steps = stepsOf(plan);
        let index = 0, began = 0, asked = 0, direction = 1;
        // What is shown now: the element, the text and the place of the element, or null.
        let shown = null;
        let noted = null;
        const library = window.driver.js.driver({
            animate: false, allowKeyboardControl: false, overlayOpacity: 0.45, stagePadding: 6, stageRadius: 8,
            popoverClass: "tour-popover", popoverOffset: 8,
        });
        const timer = window.setInterval(look, LOOK_MS);
        document.addEventListener("keydown", onKey, true);

        const popover = () => document.getElementById("driver-popover-content");

        function hide() {
            if (shown) { library.destroy(); }
            shown = null;
        }

        function say(words, buttons) {
            if (noted !== words) { host.showNote("", words, [...buttons, ["End the tour", end]]); }
            noted = words;
        }

        function unsay() {
            if (noted !== null) { host.closeNote(); }
            noted = null;
        }

        function stop() {
            window.clearInterval(timer);
            document.removeEventListener("keydown", onKey, true);
            hide();
            unsay();
        }

        function end() {
            stop();
            host.ended();
        }

        function show(wanted) {
            direction = wanted < index ? -1 : 1;
            index = Math.max(0, Math.min(wanted, steps.length - 1));
            began = Date.now();
            host.at(index);
            unsay();
            hide();
            const path = steps[index].path;
            if (path && window.location.pathname !== path) { go(path); }
            look();
        }

        function next() {
            if (index + 1 < steps.length) { show(index + 1); } else { end(); }
        }

        function look() {
            const step = steps[index];
            // A dialog of the page, such as the one that confirms a change, has the keys and the viewer's attention.
            if ([...document.querySelectorAll("[role=dialog]")].some((node) => node !== popover())) { hide(); return; }
            if (!step.path) { await_(); return; }
            if (window.location.pathname !== step.path) { elsewhere(); return; }
            if (step.isOver && step.isOver()) { show(index + direction); return; }
            const element = step.find();
            if (element) { point(step, element); return; }
            hide();
            if (Date.now() - began > LATE_MS) {
                say("The tour waits for this part of the page.", [["Next step", next, true]]);
            }
        }

        // Asks for the plan again until there is a checkpoint to show.
        function await_() {
            hide();
            say("The tour waits for the first checkpoint that shows the trouble. It takes up to half a minute.", []);
            if (Date.now() - asked > ASK_AGAIN_MS) {
                asked = Date.now();
                host.ask();
            }
        }

        // Handles a move of the viewer to another page. If a later step is on that page, the tour goes on with this step.
        function elsewhere() {
            if (Date.now() - began < LATE_MS) { return; }
            const there = steps.findIndex((s, i) => i > index && s.path === window.location.pathname);
            if (there >= 0) { show(there); return; }
            hide();
            say("The tour is paused, because this page is not part of it.", [["Go on", () => show(index), true]]);
        }

        function placeOf(element) {
            const box = element.getBoundingClientRect();
            return [box.x, box.y, box.width, box.height].map(Math.round).join(" ");
        }

        function point(step, element) {
            unsay();
            const words = step.text();
            if (shown && shown.element === element && shown.words === words) {
                const place = placeOf(element);
                if (place !== shown.place) { library.refresh(); }
                shown.place = place;
                return;
            }
            const isNew = !shown || shown.index !== index;
            const focused = document.activeElement;
            const wasInside = popover() !== null && popover().contains(focused);
            library.highlight({
                element: element,
                popover: {
                    title: "-", description: "-", side: "bottom", align: "start",
                    showButtons: ["previous", "next", "close"], disableButtons: index === 0 ? ["previous"] : [],
                    showProgress: true, progressText: "Step " + (index + 1) + " of " + steps.length,
                    nextBtnText: index + 1 < steps.length ? "Next" : "End", prevBtnText: "Back",
                    onNextClick: next, onPrevClick: () => show(index - 1), onCloseClick: end,
                    onPopoverRender: function (parts) {
                        parts.title.textContent = step.title;
                        parts.description.textContent = words;
                        parts.closeButton.setAttribute("aria-label", "End the tour");
                        parts.closeButton.title = "End the tour (Escape)";
                    },
                },
            });
            // With this class, the library makes the rest of the page inactive. The tour removes it, so the page stays usable.
            document.body.classList.remove("driver-active");
            // The library gives the element attributes of a button that opens a dialog. They are removed, because most of
            // these elements are no such buttons.
            ["aria-haspopup", "aria-expanded", "aria-controls"].forEach((name) => element.removeAttribute(name));
            shown = { element: element, words: words, index: index, place: placeOf(element) };
            // At a new step, the focus moves to the text of the step. If the page only replaced the element, the focus stays
            // where it was.
            window.requestAnimationFrame(function () {
                const box = popover();
                const button = box && box.querySelector(".driver-popover-next-btn");
                if (button && (isNew || wasInside)) {
                    button.focus({ preventScroll: true });
                } else if (focused && focused.isConnected) {
                    focused.focus({ preventScroll: true });
                }
            });
        }

        // The arrow keys belong to the tour only while the focus is in its text, because parts of pages use them too.
        function onKey(event) {
            if (!shown || event.ctrlKey || event.metaKey || event.altKey) { return; }
            const box = popover();
            const isInside = box !== null && box.contains(document.activeElement);
            if (event.key === "Escape") {
                end();
            } else if (isInside && event.key === "ArrowRight") {
                next();
            } else if (isInside && event.key === "ArrowLeft" && index > 0) {
                show(index - 1);
            } else {
                return;
            }
            event.preventDefault();
            event.stopPropagation();
        }

        return {
            show: show,
            stop: stop,
            update: function (found) {
                steps = stepsOf(found);
                plan = found;
                const path = steps[index].path;
                if (path) { show(index); }
            },
        };
    };
})();
