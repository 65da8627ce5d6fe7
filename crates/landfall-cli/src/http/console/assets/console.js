// Live updates, keyboard, copying. Every page works without this file.
"use strict";

(() => {
  const body = document.body;
  let rendered = Date.now();
  let heard = Date.now();
  let fetching = false;
  let again = false;

  // Replaces the parts that changed by those of a fresh copy of the page.
  async function refresh() {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
      if (!response.ok) return;
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
        if (!other || other.innerHTML === part.innerHTML) continue;
        if (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) continue;
        const row = rows().indexOf(current());
        part.replaceChildren(...document.adoptNode(other).childNodes);
        if (row >= 0) mark(row);
      }
      rendered = Date.now();
    } catch { /* The notice below tells how old the page is. */ } finally {
      fetching = false;
      if (again) { again = false; setTimeout(refresh, 250); }
    }
  }

  function listen() {
    if (!document.querySelector("[data-live]")) return;
    const events = new EventSource("/console/events");
    const alive = () => { heard = Date.now(); };
    events.addEventListener("ready", () => { alive(); refresh(); });
    events.addEventListener("beat", alive);
    events.addEventListener("change", () => { alive(); refresh(); });
    const notice = document.querySelector(".stale");
    setInterval(() => {
      const lost = Date.now() - heard > 12000;
      notice.hidden = !lost;
      const text = notice.dataset.text.replace("{}", `${Math.round((Date.now() - rendered) / 1000)} s`);
      if (lost && notice.textContent !== text) notice.textContent = text;
      if (events.readyState === EventSource.CLOSED && lost) { heard = Date.now() - 12001; }
    }, 1000);
  }

  const rows = () => [...document.querySelectorAll("[data-row]")];
  const current = () => document.querySelector("[data-row].current");

  function mark(index) {
    const all = rows();
    if (!all.length) return;
    const row = all[Math.max(0, Math.min(index, all.length - 1))];
    current()?.classList.remove("current");
    row.classList.add("current");
    row.scrollIntoView({ block: "nearest" });
    row.querySelector("[data-open]")?.focus({ preventScroll: true });
  }

  let wentTo = 0;
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.matches("input:not([type=checkbox]), textarea, select");
    if (event.key === "Escape" && field) { event.target.blur(); return; }
    if (field) return;
    const went = Date.now() - wentTo < 1500;
    wentTo = 0;
    const link = went && document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); return; }
    const actions = {
      "/": () => document.querySelector("[data-search], [role=search] input")?.focus(),
      "j": () => mark(rows().indexOf(current()) + 1),
      "k": () => mark(rows().indexOf(current()) - 1),
      "x": () => current()?.querySelector("[data-select]")?.click(),
      "r": () => redrive(),
      "g": () => { wentTo = Date.now(); },
      "?": () => { location.href = "/console/help"; },
    };
    const action = actions[event.key];
    if (action) { event.preventDefault(); action(); }
  }

  // The selected rows, else the current one, else what matches.
  function redrive() {
    const form = document.querySelector("form[action='/console/rehearse']");
    if (form?.querySelector(":checked")) { form.requestSubmit(); return; }
    const box = form && current()?.querySelector("[data-select]");
    if (box) { box.click(); form.requestSubmit(); return; }
    (current()?.querySelector("[data-redrive]") ?? document.querySelector("[data-primary], [data-redrive]"))?.focus();
  }

  function copying() {
    for (const command of document.querySelectorAll("code.command")) {
      if (!navigator.clipboard) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "plain";
      button.textContent = command.dataset.copy;
      button.addEventListener("click", () => navigator.clipboard.writeText(command.textContent));
      command.after(" ", button);
    }
  }

  for (const back of document.querySelectorAll("[data-back]")) {
    back.addEventListener("click", (event) => { event.preventDefault(); history.back(); });
  }
  document.addEventListener("keydown", key);
  body.dataset.ready = "yes";
  copying();
  listen();
})();
