// A job's page follows the job, and a verb for all that match goes on by itself. Both work without this file, by hand.
"use strict";
(() => {
    const FAILURES = 5;

    // The page of one job: the part between the marks is fetched again while the tab is seen and nobody reads in it.
    const follow = () => {
        let failures = 0;
        const busy = (live) => {
            const selection = document.getSelection();
            return live.contains(document.activeElement) || (selection && !selection.isCollapsed && live.contains(selection.anchorNode));
        };
        const again = (seconds) => setTimeout(round, seconds * 1000);
        const round = async () => {
            const live = document.getElementById("job-live");
            if (document.hidden || busy(live)) {
                return again(1);
            }
            try {
                const answer = await fetch(window.location.href, {credentials: "same-origin", redirect: "error"});
                const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("job-live");
                if (!answer.ok || !next) {
                    throw new Error(answer.status);
                }
                if (!busy(live) && next.innerHTML !== live.dataset.was) {
                    const was = next.innerHTML;
                    for (const open of live.querySelectorAll("details[open]")) {
                        const same = next.querySelector(`#${CSS.escape(open.id)}`);
                        if (same) {
                            same.open = true;
                        }
                    }
                    const old = new Map([...live.querySelectorAll("pre")].map((pre, index) => [index, pre.scrollTop]));
                    live.replaceWith(next);
                    next.dataset.was = was;
                    next.querySelectorAll("pre").forEach((pre, index) => { pre.scrollTop = old.get(index) || 0; });
                }
                failures = 0;
            } catch (error) {
                failures += 1;
            }
            const every = Number(document.getElementById("job-live").dataset.every);
            return failures < FAILURES * 4 ? again(every * Math.min(1 + failures, FAILURES)) : null;
        };
        again(Number(document.getElementById("job-live").dataset.every));
        document.addEventListener("visibilitychange", () => { failures = 0; });
    };

    // Posts the form until the server says that all is done; the button stays for when a post fails.
    const goOn = async (form) => {
        const field = (name) => form.elements.namedItem(name);
        const button = form.querySelector("button");
        button.hidden = true;
        try {
            while (field("place").value) {
                const answer = await fetch(form.action, {
                    method: "POST", body: new FormData(form), credentials: "same-origin", redirect: "error",
                    headers: {Accept: "application/json"},
                });
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
            }
            button.remove();
            form.querySelector("a").textContent = form.dataset.back || form.querySelector("a").textContent;
        } catch (error) {
            button.hidden = false;
        }
    };

    document.addEventListener("DOMContentLoaded", () => {
        if (document.getElementById("job-live")) {
            follow();
        }
        const form = document.querySelector("form[data-goes-on]");
        if (form) {
            goOn(form);
        }
    });
})();
