"use strict";

// Whom a reminder goes to: by search with names, by tags with counts, by a list or a file.
document.addEventListener("DOMContentLoaded", () => {
  const { node, chip, later, changed } = window.Crier;
  const form = document.getElementById("reminder_form");
  const paste = form?.elements.namedItem("paste");
  const card = document.getElementById("forecast");
  if (!paste || !card || paste.tagName !== "TEXTAREA") return;

  // --- by search ------------------------------------------------------------------------------------------
  const row = node("div", "form-row field-search");
  const label = node("label", "", "By search:");
  const input = node("input");
  input.type = "search";
  input.id = "people-search";
  input.placeholder = "name, address or tag";
  input.autocomplete = "off";
  label.htmlFor = input.id;
  const results = node("ul", "results");
  results.id = "people-results";
  results.setAttribute("role", "listbox");
  results.setAttribute("aria-label", "Recipients");
  results.hidden = true;
  for (const [name, value] of [["role", "combobox"], ["aria-controls", results.id], ["aria-expanded", "false"], ["aria-autocomplete", "list"]]) {
    input.setAttribute(name, value);
  }
  const chips = node("p", "chips");
  const line = node("div", "flex-container");
  line.append(label, input);
  row.append(line, results, chips);
  form.elements.namedItem("tag").closest(".form-row").before(row);

  // A line of a list for each, as the server reads it.
  function choose(text, shown) {
    const hidden = node("input");
    hidden.type = "hidden";
    hidden.name = "chosen";
    hidden.value = text;
    const made = chip(shown, () => changed(paste));
    made.append(hidden);
    chips.append(made);
  }

  for (const old of [...form.querySelectorAll("input[name=chosen]")]) {
    old.remove();
    choose(old.value, old.value.split(",")[0]);
  }

  let active = -1;
  const options = () => [...results.querySelectorAll("[role=option]:not([aria-disabled])")];

  function point(to) {
    const all = options();
    active = all.length ? (to + all.length) % all.length : -1;
    for (const [i, option] of all.entries()) option.setAttribute("aria-selected", String(i === active));
    input.setAttribute("aria-activedescendant", all[active]?.id || "");
    all[active]?.scrollIntoView({ block: "nearest" });
  }

  function close() {
    results.hidden = true;
    results.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  }

  function take(recipient) {
    const name = recipient.name.replace(/[,;\t\n]/g, " ").trim();
    choose(name ? `${name}, ${recipient.address}` : recipient.address, recipient.name || recipient.address);
    input.value = "";
    close();
    input.focus();
    changed(paste);
  }

  function option(recipient, i) {
    const made = node("li", "", recipient.name || recipient.address);
    made.id = `person-${i}`;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", "false");
    made.append(" ", node("span", "quiet", recipient.address));
    made.addEventListener("mousedown", (event) => event.preventDefault());
    made.addEventListener("click", () => take(recipient));
    return made;
  }

  function noResult() {
    const made = node("li", "quiet", "No match");
    made.setAttribute("role", "option");
    made.setAttribute("aria-disabled", "true");
    return made;
  }

  const search = later(async () => {
    const term = input.value.trim();
    if (term.length < 2) return close();
    const answer = await fetch(`${card.dataset.find}?q=${encodeURIComponent(term)}`);
    if (!answer.ok || term !== input.value.trim()) return;
    const { recipients } = await answer.json();
    const rows = recipients.map(option);
    results.replaceChildren(...(rows.length ? rows : [noResult()]));
    results.hidden = false;
    input.setAttribute("aria-expanded", String(rows.length > 0));
    active = -1;
  }, 250);

  input.addEventListener("input", (event) => {
    event.stopPropagation(); // what is searched for changes nothing in the forecast
    search();
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") point(active + 1);
    else if (event.key === "ArrowUp") point(active - 1);
    else if (event.key === "Escape") close();
    else if (event.key === "Enter") options()[active]?.click();
    else return;
    event.preventDefault();
  });

  // --- by tag ---------------------------------------------------------------------------------------------
  const tag = form.elements.namedItem("tag");
  const SHOWN = 12;
  const tagged = () => tag.value.split(",").map((word) => word.trim()).filter(Boolean);
  const offered = node("p", "chips");

  function toggle(name) {
    const names = tagged();
    tag.value = (names.includes(name) ? names.filter((other) => other !== name) : [...names, name]).join(", ");
    showTags();
    changed(tag);
  }

  function showTags() {
    for (const box of offered.children) box.setAttribute("aria-pressed", String(tagged().includes(box.dataset.tag)));
  }

  for (const proposed of [...document.querySelectorAll("#tags option")].slice(0, SHOWN)) {
    const made = node("button", "chip tag", proposed.value);
    made.type = "button";
    made.dataset.tag = proposed.value;
    made.title = proposed.textContent;
    made.append(" ", node("span", "quiet", proposed.textContent.split(" ")[0]));
    made.addEventListener("click", () => toggle(proposed.value));
    offered.append(made);
  }
  tag.closest(".form-row").append(offered);
  tag.addEventListener("input", showTags);
  showTags();

  // --- by a list or a file ----------------------------------------------------------------------------------
  const problems = node("ul", "lines");
  problems.setAttribute("aria-live", "polite");
  paste.closest(".form-row").append(problems);
  const segment = form.elements.namedItem("segment");
  const members = node("div", "help");
  members.dataset.segment = "";
  members.setAttribute("aria-live", "polite");
  segment?.closest(".form-row").append(members);

  document.addEventListener("crier:forecast", (event) => {
    members.textContent = event.detail.segment;
    const { lines, tags } = event.detail;
    const read = lines.good ? `${lines.good} read${lines.repeated ? `, ${lines.repeated} more than once` : ""}.` : "";
    const rows = lines.problems.map((problem) => node("li", "problem", problem[0].toUpperCase() + problem.slice(1)));
    problems.replaceChildren(...(read ? [node("li", "quiet", read)] : []), ...rows);
    // The server said the same when it refused the form.
    for (const old of paste.closest(".form-row").querySelectorAll(".errorlist li")) {
      if (old.textContent.startsWith("Line ")) old.remove();
    }
    for (const box of offered.children) {
      if (box.dataset.tag in tags) box.querySelector(".quiet").textContent = tags[box.dataset.tag];
    }
  });

  // Into the list above, where every line can be seen and changed.
  const file = form.elements.namedItem("list_file");
  const about = node("p", "about-file");
  about.setAttribute("aria-live", "polite");
  file.closest(".form-row").append(about);
  function tell(text, tone) {
    about.textContent = text;
    about.className = `about-file ${tone}`;
  }

  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    tell("", "");
    if (!chosen) return;
    const data = new FormData();
    data.append("list_file", chosen);
    data.append("csrfmiddlewaretoken", form.elements.namedItem("csrfmiddlewaretoken").value);
    tell(`Reading ${chosen.name} …`, "quiet");
    // Without an answer it stays a file, which is read when the form is saved.
    const later = () => tell(`${chosen.name} is read when you save; the forecast does not count it.`, "quiet");
    let answer;
    try {
      answer = await (await fetch(card.dataset.list, { method: "POST", body: data })).json();
    } catch {
      return later();
    }
    if (file.files[0] !== chosen) return;
    if (answer.problem) return tell(answer.problem, "problem");
    const before = paste.value.trimEnd();
    // A header counts only at the top of the box.
    if (before && answer.header) return later();
    paste.value = [before, answer.text].filter(Boolean).join("\n");
    file.value = "";
    tell(`${chosen.name} is in the list above.`, "quiet");
    changed(paste);
  });

  // Nothing to remove where nothing was saved yet.
  if (!form.elements.namedItem("reminder")) form.querySelector(".field-clear").hidden = true;
});
