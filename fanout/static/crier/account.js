"use strict";

// Providers and presets fill the form as it stands, instead of reloading the page and losing the typed values.
(() => {
  // Ask for the password only once the last confirmation is too old.
  for (const box of document.querySelectorAll("input[data-asked-from]")) {
    const wait = new Date(box.dataset.askedFrom) - Date.now();
    const row = box.closest(".box");
    if (wait <= 0 || row.classList.contains("errors")) continue;
    row.hidden = true;
    setTimeout(() => { row.hidden = false; }, wait);
  }

  function fill(name, value) {
    const boxes = document.getElementsByName(name);
    if (Array.isArray(value) || boxes[0]?.type === "checkbox") {
      const chosen = (value || []).map(String);
      for (const box of boxes) box.checked = chosen.includes(box.value);
    } else if (boxes[0]) {
      boxes[0].value = value ?? "";
    }
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-start]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    for (const [name, value] of Object.entries(JSON.parse(link.dataset.start))) fill(name, value);
    for (const other of link.parentElement.querySelectorAll("a[data-start]")) {
      other.classList.toggle("primary", other === link);
      if (other === link) other.setAttribute("aria-current", "true");
      else other.removeAttribute("aria-current");
    }
    link.parentElement.querySelector("[role=status]").textContent = link.dataset.hint || "Filled in: save to apply it.";
  });
})();
