// Shows a schedule's next fire times while somebody writes it. Without this file the button below does the same.
"use strict";

(() => {
    const box = document.getElementById("schedule-preview");
    const said = document.getElementById("schedule-preview-said");
    const form = box?.closest("form");
    if (!box || !said || !form) {
        return;
    }
    const names = ["expression", "timezone", "starts_at_0", "starts_at_1", "ends_at_0", "ends_at_1"];
    const fields = names.map((name) => form.elements.namedItem(name)).filter(Boolean);
    let timer = null;
    let asking = null;
    let last = null;

    const question = () => new URLSearchParams(fields.map((field) => [field.name, field.value])).toString();

    async function show() {
        const wanted = question();
        if (wanted === last) {
            return;
        }
        last = wanted;
        asking?.abort();
        asking = new AbortController();
        try {
            const answer = await fetch(`${box.dataset.url}?${wanted}`, {
                credentials: "same-origin", redirect: "manual", signal: asking.signal,
            });
            if (answer.ok) {
                const page = new DOMParser().parseFromString(await answer.text(), "text/html");
                box.replaceChildren(...page.body.childNodes);
                // Read aloud: what is wrong, or the first time; not the whole table at each key.
                said.textContent = box.querySelector(".schedule-problem, td")?.textContent ?? "";
            }
        } catch {
            last = null;  // superseded, or out of reach: the next change asks again
        }
    }

    function soon() {
        clearTimeout(timer);
        timer = setTimeout(show, 400);
    }

    last = fields.length ? question() : null;
    for (const field of fields) {
        field.addEventListener("input", soon);
        field.addEventListener("change", soon);
        field.addEventListener("focus", soon);  // the calendar writes without an event
        field.addEventListener("blur", soon);
    }
    document.getElementById("schedule-preview-button")?.addEventListener("click", (event) => {
        event.preventDefault();
        last = null;
        show();
    });
})();
