"use strict";
// Live pages: one event stream per tab, closed while the tab is hidden. Everything works without it, by reloading.
(() => {
  const COUNTS = ["sent", "failed", "unconfirmed", "skipped"];
  const LIVE = ["queued", "running", "waiting"];
  const REFRESH_MS = 20000;
  const TOAST_MS = 12000;
  const bell = document.getElementById("bell");

  // --- confirmations -----------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-confirm]");
    if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
  });

  if (!bell) return;

  // --- progress ----------------------------------------------------------------------------------------
  function showProgress(run) {
    for (const box of document.querySelectorAll(`[data-run="${run.id}"]`)) {
      for (const node of box.querySelectorAll("[data-count]")) {
        node.textContent = run[node.dataset.count];
        node.closest("li")?.classList.toggle("none", !run[node.dataset.count]);
      }
      let x = 0;
      for (const name of COUNTS) {
        const bar = box.querySelector(`[data-bar="${name}"]`);
        const width = run.total ? (run[name] / run.total) * 100 : 0;
        if (bar) { bar.setAttribute("x", x); bar.setAttribute("width", width); }
        x += width;
      }
      box.querySelector("svg")?.setAttribute("aria-label", `${run.sent} of ${run.total} delivered`);
      if (box.dataset.status && box.dataset.status !== run.status) {
        box.dataset.status = run.status;
        refresh();
      }
    }
  }

  // --- fetching a part of the page anew ----------------------------------------------------------------
  const live = document.getElementById("live");
  const list = document.getElementById("live-list");

  // Not while somebody is choosing: their ticks and their focus would be lost.
  function busy(box) {
    const changed = [...box.querySelectorAll("input[type=checkbox]")].some((tick) => tick.checked !== tick.defaultChecked);
    return changed || (box.contains(document.activeElement) && document.activeElement !== document.body);
  }

  let refreshing = false;
  async function refresh() {
    const box = live || list;
    if (refreshing || !box || busy(box)) return;
    refreshing = true;
    try {
      const answer = await fetch(live ? live.dataset.url : window.location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (live) live.replaceChildren(...page.body.childNodes);
      else {
        swap(page, "#result_list");
        swap(page, ".pills");
      }
    } catch { /* the stream tells when the server is back */ } finally { refreshing = false; }
  }
  function swap(page, selector) {
    const fresh = page.querySelector(selector);
    const old = document.querySelector(selector);
    if (fresh && old) old.replaceWith(fresh);
  }

  // --- notifications -----------------------------------------------------------------------------------
  const told = new Set(JSON.parse(sessionStorage.getItem("crier-told") || "[]"));
  let last = Number(bell.dataset.last);

  function remember(id) {
    told.add(id);
    last = Math.max(last, id);
    sessionStorage.setItem("crier-told", JSON.stringify([...told].slice(-300)));
  }
  // Of several tabs only the first to hear of it shows the desktop notification.
  function firstTab(id) {
    const seen = Number(localStorage.getItem("crier-desktop") || 0);
    if (id <= seen) return false;
    localStorage.setItem("crier-desktop", id);
    return true;
  }
  function address(item) {
    const base = bell.dataset.history.replace(/news\/$/, "");
    if (item.run_id) return `${base}fanout/run/${item.run_id}/change/`;
    if (item.account_id) return `${base}accounts/account/${item.account_id}/change/`;
    return `${base}fanout/notification/`;
  }
  function toast(item) {
    const box = document.createElement("div");
    box.className = `toast ${item.level}`;
    const link = document.createElement("a");
    link.href = address(item);
    const title = document.createElement("strong");
    title.textContent = item.title;
    const body = document.createElement("p");
    body.textContent = item.body;
    link.append(title, body);
    box.append(link);
    document.getElementById("toasts").append(box);
    setTimeout(() => box.remove(), TOAST_MS);
  }
  function desktop(item) {
    if (!("Notification" in window) || Notification.permission !== "granted" || !firstTab(item.id)) return;
    const shown = new Notification(item.title, { body: item.body, tag: `crier-${item.id}` });
    shown.onclick = () => { window.focus(); window.location.href = address(item); };
  }
  function news(item) {
    if (told.has(item.id)) return;
    const old = item.id <= Number(bell.dataset.last);
    remember(item.id);
    if (old) return;
    toast(item);
    desktop(item);
    const count = bell.querySelector(".count");
    count.textContent = (Number.parseInt(count.textContent, 10) || 0) + 1;
    count.hidden = false;
    refresh();
  }

  bell.addEventListener("toggle", async () => {
    if (!bell.open) return;
    const box = bell.querySelector(".bell-list");
    const answer = await fetch(bell.dataset.history);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    box.replaceChildren(...page.body.childNodes);
    const ask = box.querySelector("[data-ask-consent]");
    if (ask && "Notification" in window && Notification.permission === "default") {
      ask.hidden = false;
      ask.addEventListener("click", async () => { await Notification.requestPermission(); ask.hidden = true; });
    }
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value;
    await fetch(`${bell.dataset.history}read/`, { method: "POST", headers: { "X-CSRFToken": token || "" } });
    bell.querySelector(".count").hidden = true;
    bell.querySelector(".count").textContent = "0";
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") bell.open = false; });

  // --- the stream --------------------------------------------------------------------------------------
  let source = null;
  function watched() {
    const boxes = [...document.querySelectorAll("[data-run]")];
    const wanted = boxes.filter((box) => live || !box.dataset.status || LIVE.includes(box.dataset.status) || box.dataset.status === "paused");
    return [...new Set(wanted.map((box) => box.dataset.run))].slice(0, 100);
  }
  function open() {
    close();
    const runs = watched().join(",");
    source = new EventSource(`${bell.dataset.stream}?after=${last}&runs=${runs}`);
    source.addEventListener("run", (event) => showProgress(JSON.parse(event.data)));
    source.addEventListener("news", (event) => news(JSON.parse(event.data)));
    source.addEventListener("resync", () => { open(); refresh(); });
  }
  function close() { source?.close(); source = null; }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else { open(); refresh(); }
  });
  window.addEventListener("pagehide", close);
  if (!document.hidden) open();
  // Times, rates and the chart; the counts come by the stream.
  setInterval(() => { if (live && !document.hidden && LIVE.includes(live.querySelector("[data-status]")?.dataset.status)) refresh(); }, REFRESH_MS);
})();
