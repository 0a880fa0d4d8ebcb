"use strict";

// Keys for the whole site, filters on a phone, and what Django's own scripts leave without a name for screen readers.
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

  // On a phone the filters stand above the list, each closed, with what is chosen beside its name.
  function fold(filters) {
    filters.classList.add("folded");
    for (const one of filters.querySelectorAll("details")) {
      const chosen = one.querySelector("li.selected:not(:first-child)");
      one.open = false;
      if (chosen) one.querySelector("summary").append(`: ${chosen.textContent.trim()}`);
    }
  }

  window.addEventListener("load", () => {
    const filters = document.getElementById("changelist-filter");
    if (filters && window.matchMedia("(max-width: 767px)").matches) fold(filters);
    for (const hint of document.querySelectorAll(".help-tooltip[aria-label]")) hint.setAttribute("role", "img");
    for (const header of document.querySelectorAll("th.original:empty")) {
      const name = document.createElement("span");
      name.className = "visually-hidden";
      name.textContent = "Entry";
      header.append(name);
    }
  });
})();
