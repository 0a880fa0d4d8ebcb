"use strict";

// The reminder's form: preview of the parts, forecast while editing, recipients by search.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("reminder_form");
  const card = document.getElementById("forecast");
  const preview = document.getElementById("preview");
  if (!form || !card) return;
  const WAIT_MS = 400;

  function later(work) {
    let timer;
    return () => {
      clearTimeout(timer);
      timer = setTimeout(work, WAIT_MS);
    };
  }

  function node(tag, name, text) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text) made.textContent = text;
    return made;
  }

  // --- once or repeated ---------------------------------------------------------------------------------
  const choice = form.elements.namedItem("schedule");
  function showSchedule() {
    if (!choice) return;
    form.querySelector(".field-fire_at").hidden = choice.value !== "once";
    form.querySelector(".field-cron").hidden = choice.value !== "cron";
  }

  // --- preview ------------------------------------------------------------------------------------------
  function parts() {
    const boxes = [...form.querySelectorAll(".inline-related[id^=messages-]:not(.empty-form)")];
    const kept = boxes.filter((box) => !box.querySelector("input[name$=-DELETE]")?.checked);
    return kept.sort((a, b) => order(a) - order(b));
  }

  function order(box) {
    return Number(box.querySelector("input[name$=-order]")?.value) || 10000;
  }

  // By the number of the file, which ends its address.
  const pictures = new Map();
  for (const img of preview.querySelectorAll("img")) {
    pictures.set(img.src.match(/\/(\d+)\/$/)?.[1], img);
  }

  function bubble(box, first) {
    const made = node("div", "bubble");
    const subject = form.elements.namedItem("subject")?.value;
    if (first && subject) made.append(node("p", "subject", subject));
    const file = box.querySelector("input[type=file]")?.files?.[0];
    const kept = pictures.get(box.querySelector("input[name$=-media]")?.value);
    const kind = box.querySelector("select[name$=-kind]").value;
    if (kind !== "text" && !file && kept) made.append(kept.cloneNode());
    if (kind !== "text" && file) made.append(node("p", "file", file.name));
    made.append(paragraph(box.querySelector("textarea[name$=-text]")?.value || ""));
    return made;
  }

  function paragraph(text) {
    const made = node("p");
    for (const [i, line] of text.split("\n").entries()) {
      if (i) made.append(document.createElement("br"));
      made.append(line);
    }
    return made;
  }

  function showPreview() {
    const box = node("div", "preview");
    box.append(...parts().map((part, i) => bubble(part, i === 0)));
    preview.replaceChildren(box);
  }

  // How it reads for some recipients, where it differs from one to the next.
  const personal = document.getElementById("examples");
  function showExamples(wording, examples) {
    const boxes = examples.map((example) => {
      const box = node("div", "preview example");
      box.append(node("h3", "", `To ${example.to}`), ...example.parts.map(exampleBubble));
      return box;
    });
    if (wording) boxes.unshift(node("p", "problem", wording));
    personal.replaceChildren(...boxes);
  }

  function exampleBubble(part, i) {
    const made = node("div", "bubble");
    if (i === 0 && part.subject) made.append(node("p", "subject", part.subject));
    made.append(paragraph(part.text || ""));
    return made;
  }

  // --- forecast -----------------------------------------------------------------------------------------
  async function showForecast() {
    const data = new FormData(form);
    for (const [name, value] of [...data]) {
      if (value instanceof File) data.delete(name);
    }
    const answer = await fetch(card.dataset.url, { method: "POST", body: data });
    if (!answer.ok) return;
    const { forecast, fits, problem, words, firings, wording, examples } = await answer.json();
    showExamples(wording, examples);
    const line = card.querySelector("[data-forecast]");
    line.textContent = forecast;
    line.className = `forecast ${fits ? "good" : "warn"}`;
    card.querySelector("[data-problem]").textContent = problem;
    card.querySelector("[data-words]").textContent = words;
    card.querySelector("[data-firings]").replaceChildren(...firings.map((text) => node("li", "", text)));
  }

  const soon = later(() => {
    showPreview();
    showForecast();
  });

  // --- recipients by search -----------------------------------------------------------------------------
  function addSearch() {
    const paste = form.elements.namedItem("paste");
    if (!paste) return;
    const label = node("label", "", "Search recipients ");
    const input = node("input");
    input.type = "search";
    input.placeholder = "name, address or tag";
    label.append(input);
    const results = node("ul", "results");
    const search = async () => {
      const answer = await fetch(`${card.dataset.find}?q=${encodeURIComponent(input.value)}`);
      if (!answer.ok) return;
      const { recipients } = await answer.json();
      results.replaceChildren(...recipients.map((recipient) => result(recipient, paste)));
    };
    input.addEventListener("input", later(search));
    paste.closest(".form-row").append(label, results);
  }

  function result(recipient, paste) {
    const row = node("li");
    const button = node("button", "act", "Add");
    button.type = "button";
    button.addEventListener("click", () => {
      paste.value = `${paste.value.trimEnd()}\n${recipient.address}`.trimStart();
      row.remove();
      soon();
    });
    row.append(button, ` ${recipient.name} `, node("span", "quiet", recipient.address));
    return row;
  }

  addSearch();
  showSchedule();
  form.addEventListener("input", soon);
  form.addEventListener("change", () => {
    showSchedule();
    soon();
  });
  document.addEventListener("formset:added", soon);
  document.addEventListener("formset:removed", soon);
  // A new part usually is a text; the first preview comes from the server.
  if (!preview.querySelector(".bubble")) showPreview();
  showForecast();
});
