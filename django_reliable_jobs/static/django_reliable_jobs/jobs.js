// A verb for all jobs that match goes on by itself, and says what has failed. It works without this file, by hand.
"use strict";
(() => {
    const FAILURES = 5;

    const show = (element, text) => {
        element.textContent = text;
        element.hidden = !text;
    };

    // Posts the form until the server says that all is done. The buttons stay: one goes on after a post has failed, the
    // other stops after the step that is under way.
    const goOn = async (form) => {
        const field = (name) => form.elements.namedItem(name);
        const [button, stop] = form.querySelectorAll("button");
        const problem = document.getElementById("act-problem");
        let stopping = false;
        let lost = false;
        let working = false;
        stop.addEventListener("click", (event) => {
            if (working) {
                event.preventDefault();
                stopping = stop.disabled = true;
            }
        });
        const step = async () => {
            const answer = await fetch(form.action, {
                method: "POST", body: new FormData(form), credentials: "same-origin", redirect: "manual",
                headers: {Accept: "application/json"},
            });
            if (answer.type === "opaqueredirect" || answer.status === 403) {
                show(problem, form.dataset.refused);
                return false;
            }
            if (!answer.ok) {
                throw new Error(answer.status);
            }
            const state = await answer.json();
            field("tally").value = state.tally;
            field("place").value = state.place || "";
            document.getElementById("act-text").textContent = state.text;
            const bar = document.getElementById("act-progress");
            if (bar.hasAttribute("max")) {
                bar.value = state.place ? Math.min(state.done, bar.max) : bar.max;
            } else if (!state.place) {
                bar.value = bar.max = 1;
            }
            return true;
        };
        const run = async () => {
            working = true;
            button.hidden = true;
            show(problem, "");
            try {
                while (field("place").value && !stopping) {
                    if (!await step()) {
                        break;
                    }
                }
            } catch {
                lost = true;
                show(problem, form.dataset.failed);
            }
            working = false;
            if (!field("place").value) {
                document.getElementById("act-title").textContent = form.dataset.done;
                show(problem, lost ? form.dataset.lost : "");
                form.hidden = true;
                document.getElementById("act-back").hidden = false;
            } else if (stopping) {
                stop.disabled = false;
                stop.click();
            } else {
                button.hidden = false;
            }
        };
        form.addEventListener("submit", (event) => {
            if (event.submitter === button) {
                event.preventDefault();
                run();
            }
        });
        run();
    };

    document.addEventListener("DOMContentLoaded", () => {
        const form = document.querySelector("form[data-goes-on]");
        if (form) {
            goOn(form);
        }
    });
})();
