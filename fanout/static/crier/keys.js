"use strict";

// Keys for the whole site, menus, filters on a phone, and what Django's own scripts leave without a name for screen readers.
(() => {
  const keys = document.getElementById("keys");
  const ELSEWHERE = "input, textarea, select, [contenteditable], dialog[open]";

  function search() {
    const box = document.getElementById("searchbar");
    if (box) {
      box.focus();
      box.select();
    } else {
      window.location.href = keys.dataset.search;
    }
  }

  document.addEventListener("keydown", (event) => {
    if (!keys || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(ELSEWHERE)) return;
    if (event.key === "/") {
      event.preventDefault();
      search();
    } else if (event.key === "?") {
      event.preventDefault();
      keys.showModal();
    }
  });

  if (window.location.hash === "#searchbar") document.getElementById("searchbar")?.focus();

  // Further filters stand open on a wide page and are a closed menu on a phone.
  const narrow = window.matchMedia("(max-width: 767px)");
  const fold = () => document.querySelectorAll("details.more").forEach((one) => (one.open = !narrow.matches || "chosen" in one.dataset));
  fold();
  narrow.addEventListener("change", fold);

  // One menu at a time, and none after a click elsewhere or Escape.
  const menus = () => document.querySelectorAll("details.filter[open], details.menu[open]");
  document.addEventListener("click", (event) => {
    for (const one of menus()) if (!one.contains(event.target)) one.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const one of menus()) {
      one.open = false;
      one.querySelector("summary").focus();
    }
  });

  window.addEventListener("load", () => {
    for (const hint of document.querySelectorAll(".help-tooltip[aria-label]")) hint.setAttribute("role", "img");
    for (const header of document.querySelectorAll("th.original:empty")) {
      const name = document.createElement("span");
      name.className = "visually-hidden";
      name.textContent = "Entry";
      header.append(name);
    }
  });
})();
