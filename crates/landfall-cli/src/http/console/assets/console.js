// Live updates, keyboard, copying. Every page works without this file.
"use strict";

(() => {
  const body = document.body;
  // A lost stream: no event for this long. A page that nothing changed is fetched again after `PERIOD`, for its ages.
  const LOST = 12000;
  const PERIOD = 12000;
  const RETRY = 3000;
  let rendered = Date.now();
  let heard = Date.now();
  let asked = Date.now();
  let failed = false;
  let unreadable = false;
  let fetching = false;
  let again = false;

  // Replaces the parts that changed by those of a fresh copy of the page.
  async function refresh() {
    if (fetching) { again = true; return; }
    fetching = true;
    asked = Date.now();
    try {
      const signal = AbortSignal.timeout(10000);
      const headers = { accept: "text/html" };
      const response = await fetch(location.href, { headers, redirect: "error", signal });
      failed = !response.ok;
      if (failed) return;
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
        if (other && other.innerHTML !== part.innerHTML) replace(part, other);
      }
      // What a page shows while the daemon cannot read its database is not all fresh.
      if (!unreadable) rendered = Date.now();
    } catch { failed = true; } finally {
      fetching = false;
      if (again) { again = false; setTimeout(refresh, 250); }
    }
  }

  // The focus and the current row stay where they were, or go if what had them is gone.
  function replace(part, other) {
    const active = part.contains(document.activeElement) ? document.activeElement : null;
    if (active?.matches("input, textarea, select")) return;
    const is = (one) => (two) => one && one.tagName === two.tagName && one.value === two.value
      && one.getAttribute("href") === two.getAttribute("href");
    const row = part.contains(current()) ? current().querySelector("[data-open]") : null;
    part.replaceChildren(...document.adoptNode(other).childNodes);
    [...part.querySelectorAll("[data-open]")].find(is(row))?.closest("[data-row]").classList.add("current");
    [...part.querySelectorAll("a, button, summary, [tabindex]")].find(is(active))?.focus({ preventScroll: true });
  }

  // One stream while the page is visible: browsers allow about six connections to a host, for all their tabs.
  let events = null;
  let reopening = 0;
  let delay = 1000;

  function open() {
    clearTimeout(reopening);
    if (events || document.hidden) return;
    events = new EventSource("/console/events");
    const on = (name, change) => events.addEventListener(name, () => { heard = Date.now(); change(); });
    on("ready", () => { delay = 1000; unreadable = false; refresh(); });
    on("beat", () => { unreadable = false; });
    on("change", () => { unreadable = false; refresh(); });
    on("stale", () => {
      const known = unreadable;
      unreadable = true;
      if (!known) refresh();
    });
    // The browser reconnects after a lost connection, but gives up after a refusal.
    events.addEventListener("error", () => {
      if (events?.readyState !== EventSource.CLOSED) return;
      events = null;
      reopening = setTimeout(open, delay * (0.5 + Math.random() / 2));
      delay = Math.min(delay * 2, 30000);
    });
  }

  function close() {
    clearTimeout(reopening);
    events?.close();
    events = null;
  }

  function listen() {
    if (!document.querySelector("[data-live]")) return;
    open();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { close(); return; }
      heard = Date.now();
      delay = 1000;
      open();
    });
    addEventListener("pagehide", close);
    addEventListener("pageshow", (event) => { if (event.persisted) { heard = Date.now(); open(); } });
    setInterval(watch, 1000);
  }

  function watch() {
    if (document.hidden) return;
    if (Date.now() - asked > (failed ? RETRY : PERIOD)) refresh();
    const lost = Date.now() - heard > LOST;
    const notice = document.querySelector(".stale");
    notice.hidden = !(lost || failed || unreadable);
    const age = `${Math.round((Date.now() - rendered) / 1000)} s`;
    const text = (unreadable ? notice.dataset.unreadable : notice.dataset.text).replace("{}", age);
    if (!notice.hidden && notice.textContent !== text) notice.textContent = text;
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
