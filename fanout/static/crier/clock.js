"use strict";

// Times tick: "in 2 s" counts down, and what was to come next is "now" and never past.
(() => {
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  // The guess for people who have not chosen a timezone; the server reads it with the next page.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) {
    const secure = window.location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `timezone=${zone}; path=/; max-age=31536000; SameSite=Lax${secure}`;
  }

  // As `relative` in fanout/templatetags/crier.py.
  function words(seconds) {
    if (seconds > -5 && seconds < 1) return "now";
    const [size, unit] = UNITS.find(([least]) => Math.abs(seconds) >= least) || UNITS[3];
    const amount = `${Math.floor(Math.abs(seconds) / size)} ${unit}`;
    return seconds > 0 ? `in ${amount}` : `${amount} ago`;
  }

  function tick() {
    const now = Date.now();
    for (const node of document.querySelectorAll("time[datetime] [data-away]")) {
      const seconds = Math.round((Date.parse(node.closest("time").dateTime) - now) / 1000);
      const text = words(node.dataset.away === "ahead" ? Math.max(seconds, 0) : seconds);
      if (node.textContent !== text) node.textContent = text;
    }
  }

  setInterval(() => {
    if (!document.hidden) tick();
  }, 1000);
  document.addEventListener("visibilitychange", tick);
})();
