"use strict";

// Live pages: one event stream per tab, closed while the tab is hidden. Without scripts the pages work by reloading.
(() => {
  const COUNTS = ["sent", "failed", "unconfirmed", "skipped"];
  const LIVE = ["queued", "running", "waiting"];
  const REFRESH_MS = 20000;
  // After a delivery what depends on it is fetched soon, but not again before so long, nor while the server is busy:
  // the time of so many fetches must pass.
  const SOON_MS = 1500;
  const APART_MS = 10000;
  const APART_FETCHES = 20;
  const TOAST_MS = 12000;
  const MOST_TOASTS = 4;
  const MOST_WATCHED = 100;
  // Until a stream that the server refused is tried again; up to twice as long, so that tabs do not all come at once.
  const REFUSED_MS = 30000;
  const bell = document.getElementById("bell");

  // --- addresses to copy -------------------------------------------------------------------------------
  document.addEventListener("focusin", (event) => {
    if (event.target.matches("[data-select]")) event.target.select();
  });

  // --- confirmations -----------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-confirm]");
    if (!button) return;
    if (!window.confirm(button.dataset.confirm)) event.preventDefault();
    else if (button.form) sayConfirmed(button.form);
  });

  // Or the server would ask; only this once, since the form may stay.
  function sayConfirmed(form) {
    const yes = Object.assign(document.createElement("input"), { type: "hidden", name: "confirmed", value: "yes" });
    form.append(yes);
    setTimeout(() => yes.remove());
  }

  // --- forms that were refused -------------------------------------------------------------------------
  // After Django's own script, which focuses the first field.
  window.addEventListener("load", () => {
    const lists = [...document.querySelectorAll("#content form .errorlist")];
    const first = lists.find((list) => list.closest("details") || list.offsetParent);
    if (!first) return;
    first.closest("details")?.setAttribute("open", "");
    const row = first.closest(".form-row, .fieldBox, .import-field, p, div");
    const input = first.matches(".nonfield") ? null : row?.querySelector("[aria-invalid=true]");
    if (!input?.offsetParent) first.tabIndex = -1;
    (input?.offsetParent ? input : first).focus();
  });

  if (!bell) return;

  // --- progress ----------------------------------------------------------------------------------------
  function showProgress(run) {
    run.left = (run.pending + run.sending).toLocaleString("en");
    for (const box of document.querySelectorAll(`[data-run="${run.id}"]`)) {
      for (const node of box.querySelectorAll("[data-count]")) {
        node.textContent = run[node.dataset.count].toLocaleString("en");
        node.closest("li")?.classList.toggle("none", !run[node.dataset.count]);
      }
      let x = 0;
      for (const name of COUNTS) {
        const bar = box.querySelector(`[data-bar="${name}"]`);
        const width = run.total ? (run[name] / run.total) * 100 : 0;
        bar?.setAttribute("x", x);
        bar?.setAttribute("width", width);
        x += width;
      }
      box.querySelector("svg[role=img]")?.setAttribute("aria-label", `${run.sent.toLocaleString("en")} of ${run.total.toLocaleString("en")} sent`);
      if (box.dataset.status && box.dataset.status !== run.status) {
        box.dataset.status = run.status;
        refresh();
      }
    }
    refreshSoon();
  }

  // --- fetching a part of the page again ----------------------------------------------------------------
  const live = document.getElementById("live");
  const overview = document.getElementById("live-overview");
  const list = document.getElementById("live-list") || overview;

  // Not while the person is choosing or typing: the input would be lost.
  function busy(box) {
    const ticks = [...box.querySelectorAll("input[type=checkbox]")];
    const changed = ticks.some((tick) => tick.checked !== tick.defaultChecked);
    const typing = box.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    return changed || typing;
  }

  // What was opened stays open, and the keyboard stays where it was: on the link or button of the same words.
  function keep(box) {
    const leadsTo = (node) => node.getAttribute("href") || node.getAttribute("formaction");
    const name = (node) => [node.tagName, leadsTo(node), node.textContent].join();
    const summaries = (part) => [...part.querySelectorAll("details > summary")];
    const opened = new Map(summaries(box).map((summary) => [name(summary), summary.parentElement.open]));
    const focused = box.contains(document.activeElement) ? name(document.activeElement) : null;
    return (fresh) => {
      for (const summary of summaries(fresh)) {
        summary.parentElement.open = opened.get(name(summary)) ?? summary.parentElement.open;
      }
      if (!focused || fresh.contains(document.activeElement)) return;
      const places = [...fresh.querySelectorAll("a, button, summary")];
      places.find((node) => name(node) === focused)?.focus({ preventScroll: true });
    };
  }

  let soon = null;
  let notBefore = 0;
  function refreshSoon() {
    if (soon || !list && !live) return;
    soon = setTimeout(
      () => {
        soon = null;
        if (!document.hidden) refresh();
      },
      Math.max(SOON_MS, notBefore - Date.now()),
    );
  }

  // A list whose rows belong to no single run, such as the accounts: the stream has nothing to say about them.
  const every = Number(document.getElementById("live-list")?.dataset.every || 0);
  if (every) setInterval(refreshSoon, every * 1000);

  let refreshing = false;
  async function refresh() {
    const box = live || document.getElementById(list?.id);
    if (refreshing || !box || busy(box)) return;
    refreshing = true;
    const began = Date.now();
    try {
      const answer = await fetch(live ? live.dataset.url : window.location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (busy(box)) return; // meanwhile
      const restore = keep(box);
      if (live) {
        live.replaceChildren(...page.body.childNodes);
      } else {
        swapRows(page);
        swap(page, ".pills");
        swap(page, "#live-overview");
      }
      restore(document.getElementById(box.id));
      if (source && watched().join(",") !== watching) open();
    } catch {
      // The stream tells when the server is back.
    } finally {
      refreshing = false;
      notBefore = Date.now() + Math.max(APART_MS, (Date.now() - began) * APART_FETCHES);
    }
  }

  function swap(page, selector) {
    const fresh = page.querySelector(selector);
    const old = document.querySelector(selector);
    if (fresh && old) old.replaceWith(fresh);
  }

  // The ticks stay, and so does the admin's own script that counts them, as long as the rows are the same.
  function swapRows(page) {
    const fresh = page.getElementById("result_list");
    const old = document.getElementById("result_list");
    if (!fresh || !old) return;
    const boxes = (table) => [...table.querySelectorAll("tbody input.action-select")];
    const ids = (table) => boxes(table).map((box) => box.value).join();
    if (ids(fresh) && ids(fresh) === ids(old)) {
      const cells = (table) => [...table.querySelectorAll("tbody tr > :not(.action-checkbox)")];
      const news = cells(fresh);
      cells(old).forEach((cell, n) => cell.replaceWith(news[n]));
      return;
    }
    old.replaceWith(fresh);
    const counter = document.querySelector(".action-counter");
    if (!counter || !boxes(fresh).length) return;
    counter.dataset.actionsIcnt = page.querySelector(".action-counter").dataset.actionsIcnt;
    window.Actions(document.querySelectorAll("tr input.action-select"));
  }

  // --- notifications -----------------------------------------------------------------------------------
  const shown = new Set(JSON.parse(sessionStorage.getItem("crier-shown") || "[]"));
  let last = Number(bell.dataset.last);

  function remember(id) {
    shown.add(id);
    last = Math.max(last, id);
    sessionStorage.setItem("crier-shown", JSON.stringify([...shown].slice(-300)));
  }

  // Of several tabs only the first to get it shows the desktop notification.
  function firstTab(id) {
    const seen = Number(localStorage.getItem("crier-desktop") || 0);
    if (id <= seen) return false;
    localStorage.setItem("crier-desktop", id);
    return true;
  }

  function toast(notification) {
    const box = document.createElement("div");
    box.className = `toast ${notification.level}`;
    const link = document.createElement("a");
    link.href = notification.url;
    link.dataset.notification = notification.id;
    const title = document.createElement("strong");
    title.textContent = notification.title;
    const body = document.createElement("p");
    body.textContent = notification.body;
    link.append(title, body);
    const close = document.createElement("button");
    close.type = "button";
    close.className = "close";
    close.setAttribute("aria-label", "Close");
    close.textContent = "×";
    close.addEventListener("click", () => box.remove());
    box.append(link, close);
    const toasts = document.getElementById("toasts");
    toasts.append(box);
    while (toasts.children.length > MOST_TOASTS) toasts.firstElementChild.remove();
    // A message that needs attention stays until it is closed.
    if (notification.level === "info") setTimeout(() => box.remove(), TOAST_MS);
    else offerButtons(box, notification.id);
  }

  // The server knows what the run's state allows, and whether this person may do it.
  async function offerButtons(box, id) {
    try {
      const answer = await fetch(bell.dataset.buttons.replace("/0/", `/${id}/`));
      if (!answer.ok || answer.redirected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      box.append(...page.body.children);
    } catch {
      // The toast still links to the run.
    }
  }

  function showOnDesktop(notification) {
    if (!("Notification" in window) || Notification.permission !== "granted") return;
    if (!firstTab(notification.id)) return;
    const popup = new Notification(notification.title, { body: notification.body, tag: `crier-${notification.id}` });
    popup.onclick = () => {
      window.focus();
      window.location.href = notification.url;
    };
  }

  function showNotification(notification) {
    if (shown.has(notification.id)) return;
    const old = notification.id <= Number(bell.dataset.last);
    remember(notification.id);
    if (old) return;
    toast(notification);
    showOnDesktop(notification);
    const count = bell.querySelector(".count");
    count.textContent = (Number.parseInt(count.textContent, 10) || 0) + 1;
    count.hidden = false;
    refresh();
  }

  // --- the bell ----------------------------------------------------------------------------------------
  function offerDesktop(ask) {
    if (!ask || !("Notification" in window) || Notification.permission !== "default") return;
    ask.hidden = false;
    ask.addEventListener("click", async () => {
      await Notification.requestPermission();
      ask.hidden = true;
    });
  }

  function showUnread(state) {
    const count = bell.querySelector(".count");
    count.hidden = !state.unread;
    count.textContent = state.shown;
  }

  // In the navigation.
  function showReplies(state) {
    const count = document.querySelector("[data-replies]");
    if (!count) return;
    count.hidden = !state.shown;
    count.textContent = state.shown;
    if (state.shown) count.setAttribute("aria-label", `${state.shown} not handled`);
    else count.removeAttribute("aria-label");
  }

  // One notification, or all of them. `keepalive`: the click that reads one also leaves the page.
  async function markRead(id) {
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value;
    const answer = await fetch(bell.dataset.read, {
      method: "POST",
      headers: { "X-CSRFToken": token || "" },
      body: new URLSearchParams(id ? { id } : {}),
      keepalive: true,
    });
    if (answer.ok) showUnread(await answer.json());
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-notification]");
    if (!link) return;
    sessionStorage.setItem("crier-clicked", link.dataset.notification);
    markRead(link.dataset.notification).catch(() => {});
  });

  // The server may have made this page before it heard of the click that led here: then its count is one too high.
  const clicked = sessionStorage.getItem("crier-clicked");
  sessionStorage.removeItem("crier-clicked");
  if (clicked) markRead(clicked).catch(() => {});

  async function readAll() {
    await markRead();
    for (const item of bell.querySelectorAll(".unread")) item.classList.remove("unread");
  }

  bell.addEventListener("toggle", async () => {
    if (!bell.open) return;
    const answer = await fetch(bell.dataset.history);
    if (!answer.ok) return;
    const box = bell.querySelector(".bell-list");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    box.replaceChildren(...page.body.childNodes);
    offerDesktop(box.querySelector("[data-ask-consent]"));
    box.querySelector("[data-read-all]")?.addEventListener("click", readAll);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") bell.open = false;
  });

  // --- the stream --------------------------------------------------------------------------------------
  let source = null;
  let watching = "";
  let again = null;

  // A finished run in a list does not change; on its own page it may be retried.
  function mayChange(box) {
    const status = box.dataset.status;
    return live || !status || status === "paused" || LIVE.includes(status);
  }

  function watched() {
    const boxes = [...document.querySelectorAll("[data-run]")].filter(mayChange);
    return [...new Set(boxes.map((box) => box.dataset.run))].slice(0, MOST_WATCHED);
  }

  function open() {
    close();
    watching = watched().join(",");
    source = new EventSource(`${bell.dataset.stream}?after=${last}&runs=${watching}`);
    source.addEventListener("run", (event) => showProgress(JSON.parse(event.data)));
    source.addEventListener("notification", (event) => showNotification(JSON.parse(event.data)));
    source.addEventListener("replies", (event) => showReplies(JSON.parse(event.data)));
    source.addEventListener("resync", openAndRefresh);
    source.addEventListener("full", openLater);
    // The browser repeats what broke off by itself, but not what was answered with an error.
    source.addEventListener("error", (event) => event.target.readyState === EventSource.CLOSED && openLater());
  }

  function openLater() {
    close();
    again = setTimeout(openAndRefresh, REFUSED_MS * (1 + Math.random()));
  }

  function openAndRefresh() {
    open();
    refresh();
  }

  function close() {
    clearTimeout(again);
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : openAndRefresh()));
  window.addEventListener("pagehide", close);
  if (!document.hidden) open();
  // Times, rates and the chart; the counts come by the stream.
  setInterval(() => {
    const going = [...document.querySelectorAll("[data-status]")].some((box) => LIVE.includes(box.dataset.status));
    if (!document.hidden && Date.now() >= notBefore && (overview || going)) refresh();
  }, REFRESH_MS);
})();
