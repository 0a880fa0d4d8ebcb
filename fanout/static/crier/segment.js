"use strict";

// The segment's form: how many are in it as it stands.
document.addEventListener("DOMContentLoaded", () => {
  const { later } = window.Crier;
  const form = document.getElementById("segment_form");
  const place = document.querySelector("[data-members]");
  const url = document.getElementById("segment-count")?.dataset.url;
  if (!form?.elements.namedItem("tags") || !place || !url) return;

  let asked = null;
  async function ask() {
    asked?.abort();
    asked = new AbortController();
    try {
      const answer = await fetch(url, { method: "POST", body: new FormData(form), signal: asked.signal });
      if (!answer.ok) return;
      const { members, problem } = await answer.json();
      place.textContent = members || problem;
      place.classList.toggle("problem", Boolean(problem));
    } catch (error) {
      if (error.name !== "AbortError") place.textContent = "The number could not be read; it is tried again with your next change.";
    }
  }

  form.addEventListener("input", later(ask));
  form.addEventListener("change", later(ask));
});
