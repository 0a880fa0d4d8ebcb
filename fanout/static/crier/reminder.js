"use strict";
// The reminder's form: preview of the parts, forecast while editing, recipients by search.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("reminder_form");
  const outlook = document.getElementById("outlook");
  const preview = document.getElementById("preview");
  if (!form || !outlook) return;
  const WAIT_MS = 400;

  function later(work) {
    let timer;
    return () => { clearTimeout(timer); timer = setTimeout(work, WAIT_MS); };
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
    return [...form.querySelectorAll(".inline-related[id^=messages-]:not(.empty-form)")].filter((box) => {
      const gone = box.querySelector("input[name$=-DELETE]");
      return !(gone && gone.checked);
    }).sort((a, b) => order(a) - order(b));
  }
  function order(box) { return Number(box.querySelector("input[name$=-order]")?.value) || 10000; }
  const pictures = new Map([...preview.querySelectorAll("img")].map((img) => [img.src.match(/\/(\d+)\/$/)?.[1], img]));

  function bubble(box, first) {
    const made = node("div", "bubble");
    const subject = form.elements.namedItem("subject")?.value;
    if (first && subject) made.append(node("p", "subject", subject));
    const file = box.querySelector("input[type=file]")?.files?.[0];
    const kept = pictures.get(box.querySelector("input[name$=-media]")?.value);
    const kind = box.querySelector("select[name$=-kind]").value;
    if (kind !== "text" && !file && kept) made.append(kept.cloneNode());
    if (kind !== "text" && file) made.append(node("p", "file", file.name));
    const words = node("p");
    for (const [i, line] of (box.querySelector("textarea[name$=-text]")?.value || "").split("\n").entries()) {
      if (i) words.append(document.createElement("br"));
      words.append(line);
    }
    made.append(words);
    return made;
  }
  function showPreview() {
    const box = node("div", "preview");
    box.append(...parts().map((part, i) => bubble(part, i === 0)));
    preview.replaceChildren(box);
  }

  // --- forecast -----------------------------------------------------------------------------------------
  async function showOutlook() {
    const data = new FormData(form);
    for (const [name, value] of [...data]) if (value instanceof File) data.delete(name);
    const answer = await fetch(outlook.dataset.url, { method: "POST", body: data });
    if (!answer.ok) return;
    const found = await answer.json();
    const line = outlook.querySelector("[data-forecast]");
    line.textContent = found.forecast;
    line.className = `forecast ${found.fits ? "good" : "warn"}`;
    outlook.querySelector("[data-problem]").textContent = found.problem;
    outlook.querySelector("[data-words]").textContent = found.words;
    outlook.querySelector("[data-firings]").replaceChildren(...found.firings.map((text) => node("li", "", text)));
  }
  const soon = later(() => { showPreview(); showOutlook(); });

  // --- recipients by search -----------------------------------------------------------------------------
  function addSearch() {
    const paste = form.elements.namedItem("paste");
    if (!paste) return;
    const label = node("label", "", "Search recipients ");
    const input = node("input");
    input.type = "search";
    input.placeholder = "name, address or tag";
    label.append(input);
    const found = node("ul", "found");
    input.addEventListener("input", later(async () => {
      const answer = await fetch(`${outlook.dataset.find}?q=${encodeURIComponent(input.value)}`);
      if (answer.ok) found.replaceChildren(...(await answer.json()).found.map((one) => result(one, paste)));
    }));
    paste.closest(".form-row").append(label, found);
  }
  function result(one, paste) {
    const row = node("li");
    const button = node("button", "act", "Add");
    button.type = "button";
    button.addEventListener("click", () => {
      paste.value = `${paste.value.trimEnd()}\n${one.address}`.trimStart();
      row.remove();
      soon();
    });
    row.append(button, ` ${one.name} `, node("span", "quiet", one.address));
    return row;
  }

  addSearch();
  showSchedule();
  form.addEventListener("input", soon);
  form.addEventListener("change", () => { showSchedule(); soon(); });
  document.addEventListener("formset:added", soon);
  document.addEventListener("formset:removed", soon);
  // A new part usually is a text; the first preview comes from the server.
  if (!preview.querySelector(".bubble")) showPreview();
  showOutlook();
});
