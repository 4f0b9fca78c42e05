// Refreshes a part of a page in place (the overview, a job): asks for it every few seconds, and changes only what is
// different, so that focus, selection, scroll position and what is unfolded stay. Without this file the page is a plain one.
"use strict";

(() => {
    const box = document.querySelector("[data-live]");
    const part = box?.querySelector("[data-live-part]");
    const said = box?.querySelector("[role=status]");
    if (!box || !part || !said) {
        return;
    }
    // Milliseconds; the part may want another pace than the page, such as a job that has ended.
    const interval = () => Number(part.firstElementChild.dataset.interval || box.dataset.interval);
    let timer = null;
    let asking = null;
    let failures = 0;
    let over = false;
    let waited = 0;

    // A live region speaks when its text changes: that is when there are other problems, not with every refresh.
    const listed = () => new Map([...part.querySelectorAll("[data-key]")].map((item) => [item.dataset.key, item]));
    let known = listed();
    function announce() {
        const now = listed();
        const fresh = [...now.keys()].filter((key) => !known.has(key));
        if (fresh.length) {
            tell(fresh.slice(0, 3).map((key) => now.get(key).textContent.replace(/\s+/g, " ").trim()).join(" "), false);
        } else if (known.size && !now.size && box.dataset.calm) {
            tell(box.dataset.calm, false);
        }
        known = now;
    }

    function tell(text, shown) {
        if (said.textContent !== text) {
            said.textContent = text;
        }
        said.classList.toggle("jobs-shown", shown);
    }

    function plan(milliseconds) {
        clearTimeout(timer);
        timer = over || document.hidden ? null : setTimeout(refresh, milliseconds);
    }

    // Nothing may move under a pointer that is about to press a button; one that merely rests there does not stop the page.
    const BUTTONS = "button, a.job-button";
    const aiming = () => waited < 10 && [...part.querySelectorAll(BUTTONS)].some((button) => button.matches(":active") ||
        (matchMedia("(hover: hover)").matches && button.matches(":hover")));

    async function refresh() {
        if (aiming()) {
            waited += 1;
            plan(500);
            return;
        }
        asking = new AbortController();
        const limit = setTimeout(() => asking.abort(), 30000);
        try {
            const answer = await fetch(box.dataset.url, {
                credentials: "same-origin", cache: "no-store", redirect: "manual", signal: asking.signal,
            });
            if (answer.type === "opaqueredirect" || answer.status === 403) {
                over = true;  // logged out, or not allowed any more
                tell(box.dataset.stopped, true);
                return;
            }
            if (!answer.ok) {
                throw new Error(`status ${answer.status}`);
            }
            const page = new DOMParser().parseFromString(await answer.text(), "text/html");
            if (document.hidden) {
                return;
            }
            // The answer is the part alone, or a page with it.
            const shown = part.firstElementChild;
            const fresh = shown.id ? page.getElementById(shown.id) : page.body.firstElementChild;
            if (!fresh) {
                throw new Error("another page");
            }
            if (!aiming()) {
                waited = 0;
                dress(shown, fresh);
                become(shown, fresh);
            }
            if (failures) {
                tell("", false);
            }
            failures = 0;
            announce();
        } catch {
            if (document.hidden) {
                return;
            }
            failures += 1;
            tell(box.dataset.failed, true);
        } finally {
            clearTimeout(limit);
            asking = null;
            plan(interval() * Math.min(1 + failures, 6));
        }
    }

    // Makes the children of `old` like those of `fresh`, node by node; rows are matched by their id.
    function become(old, fresh) {
        let at = old.firstChild;
        for (const wanted of [...fresh.childNodes]) {
            const id = wanted.id;
            if (at && id && at.id !== id) {
                const there = [...old.children].find((child) => child.id === id);
                old.insertBefore(there ?? document.importNode(wanted, true), at);
                at = there ? there : at.previousSibling;
            }
            if (!at) {
                old.appendChild(document.importNode(wanted, true));
                continue;
            }
            const next = at.nextSibling;
            if (at.nodeType !== wanted.nodeType || at.nodeName !== wanted.nodeName || (at.id ?? "") !== (id ?? "")) {
                old.replaceChild(document.importNode(wanted, true), at);
            } else if (at.nodeType === Node.ELEMENT_NODE) {
                dress(at, wanted);
                become(at, wanted);
            } else if (at.data !== wanted.data) {
                at.data = wanted.data;
            }
            at = next;
        }
        while (at) {
            const next = at.nextSibling;
            at.remove();
            at = next;
        }
    }

    // What somebody has unfolded stays so.
    const theirs = (element, name) => name === "open" && element.nodeName === "DETAILS";

    function dress(old, fresh) {
        for (const { name, value } of [...fresh.attributes]) {
            if (old.getAttribute(name) !== value && !theirs(old, name)) {
                old.setAttribute(name, value);
            }
        }
        for (const { name } of [...old.attributes]) {
            if (!fresh.hasAttribute(name) && !theirs(old, name)) {
                old.removeAttribute(name);
            }
        }
    }

    document.addEventListener("visibilitychange", () => {
        if (document.hidden) {
            clearTimeout(timer);
            asking?.abort();
        } else if (!over) {
            plan(0);
        }
    });
    plan(interval());
})();
