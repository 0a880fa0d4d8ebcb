"use strict";

// The pairing page: codes renew themselves, and success shows without a reload.
document.addEventListener("DOMContentLoaded", () => {
  const EVERY_MS = 1000;
  const box = document.getElementById("pairing");
  if (!box) return;

  async function refresh() {
    if (document.hidden || box.contains(document.activeElement)) return;
    try {
      const answer = await fetch(box.dataset.url, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const typed = document.getElementById("phone")?.value;
      box.replaceChildren(...page.body.childNodes);
      if (typed && document.getElementById("phone")) document.getElementById("phone").value = typed;
    } catch {
      // The next one may get through.
    }
  }

  setInterval(refresh, EVERY_MS);
});
