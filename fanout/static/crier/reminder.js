"use strict";

// The reminder's form: fields by channel, senders, schedule, and the forecast while editing.
document.addEventListener("DOMContentLoaded", () => {
  const { node, chip, later, changed, words } = window.Crier;
  const form = document.getElementById("reminder_form");
  const card = document.getElementById("forecast");
  const review = document.getElementById("review");
  if (!form || !card) return;
  const field = (name) => form.elements.namedItem(name);
  const row = (name) => form.querySelector(`.form-row.field-${name}`);
  if (!field("title")) return; // a read-only page

  // --- fields by channel ----------------------------------------------------------------------------------
  const facts = JSON.parse(document.getElementById("channel-facts").textContent);
  const account = field("account");
  const further = field("further");
  const accounts = () => [account.selectedOptions[0], ...further.selectedOptions].filter((one) => one?.value);
  const can = (ability) => accounts().some((one) => facts[one.dataset.channel]?.[ability]);

  function showFields() {
    // Until an account is chosen, every filled-in field stays visible.
    row("subject").hidden = !can("subject") && !field("inmail").checked && !field("subject").value;
    for (const [name, ability] of [["connect", "connects"], ["inmail", "inmails"]]) {
      if (field(name).type === "checkbox") row(name).hidden = !can(ability) && !field(name).checked;
    }
  }

  // --- further senders ------------------------------------------------------------------------------------
  const senders = node("p", "chips");
  const more = node("select");
  more.setAttribute("aria-label", "Add a sender");
  function showSenders() {
    const others = [...further.options].filter((one) => one.value !== account.value);
    senders.replaceChildren(
      ...others.filter((one) => one.selected).map((one) =>
        chip(one.textContent, () => {
          one.selected = false;
          changed(further);
          showSenders();
        }),
      ),
    );
    const free = others.filter((one) => !one.selected);
    more.replaceChildren(new Option("+ Sender", ""), ...free.map((one) => new Option(one.textContent, one.value)));
    more.hidden = !free.length;
    row("further").hidden = !others.length;
  }
  more.addEventListener("change", (event) => {
    event.stopPropagation();
    const one = [...further.options].find((option) => option.value === more.value);
    if (one) one.selected = true;
    changed(further);
    showSenders();
    showFields();
  });
  further.hidden = true;
  further.after(senders, more);

  // --- when -----------------------------------------------------------------------------------------------
  const choice = field("schedule");
  function showSchedule() {
    row("fire_at").hidden = choice.value !== "once";
    row("cron").hidden = choice.value !== "cron";
  }

  const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
  const USUAL = [
    ["* * *", "every day"],
    ["* * 1-5", "every weekday"],
    ["* * 6,0", "every weekend"],
    ...[1, 2, 3, 4, 5, 6, 0].map((day) => [`* * ${day}`, `every ${DAYS[day]}`]),
    ["1 * *", "on day 1 of every month"],
    ["15 * *", "on day 15 of every month"],
    ["", "as written here:"],
  ];
  const cron = field("cron");
  const days = node("select");
  const time = node("input");
  time.type = "time";
  days.setAttribute("aria-label", "On which days");
  time.setAttribute("aria-label", "At what time");
  days.append(...USUAL.map(([value, words]) => new Option(words, value)));

  function readCron() {
    const [, minute, hour, rest] = cron.value.trim().match(/^(\d+)\s+(\d+)\s+(.+)$/) || [];
    const usual = rest && USUAL.some(([value]) => value === rest.replace(/\s+/g, " "));
    days.value = usual ? rest.replace(/\s+/g, " ") : "";
    if (usual) time.value = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
  }

  function writeCron() {
    if (!days.value) return cron.focus();
    const [hour, minute] = (time.value || "09:00").split(":").map(Number);
    cron.value = `${minute} ${hour} ${days.value}`;
    changed(cron);
  }

  for (const part of [days, time]) {
    part.addEventListener("input", (event) => event.stopPropagation());
    part.addEventListener("change", writeCron);
  }
  cron.addEventListener("input", readCron);
  cron.before(days, time);
  choice.addEventListener("change", () => {
    if (choice.value === "cron" && !cron.value) {
      [days.value, time.value] = ["* * 1-5", "09:00"];
      writeCron();
    }
  });

  const hours = node("p", "quiet");
  hours.dataset.window = "";
  row("delivery_window_start_hour").append(hours);

  const passed = node("p", "problem");
  passed.dataset.passed = "";
  passed.setAttribute("aria-live", "polite");
  row("fire_at").append(passed);
  field("fire_at").addEventListener("input", () => row("fire_at").querySelector(".errorlist")?.remove());

  const zone = field("timezone");
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const offered = [...document.querySelectorAll("#zones option")].some((one) => one.value === here);
  if (zone.dataset.guess && offered && !form.querySelector(".errornote")) zone.value = here;

  // --- forecast -------------------------------------------------------------------------------------------
  const place = (name) => document.querySelector(`[data-${name}]`);

  function say(name, text) {
    place(name).textContent = text;
    place(name).hidden = !text;
  }

  function showLanes(lanes) {
    const table = card.querySelector("[data-lanes]");
    const rows = lanes.map((lane) => {
      const made = node("tr");
      const sender = lane.status ? `${lane.sender} (${lane.status})` : lane.sender;
      made.append(node("th", "", sender), ...[lane.ahead, lane.share, lane.done].map((text) => node("td", "", text)));
      made.firstChild.scope = "row";
      made.lastChild.className = lane.fits ? "good" : "warn";
      return made;
    });
    table.tBodies[0].replaceChildren(...rows);
    table.hidden = !rows.length;
  }

  const personal = document.getElementById("examples");
  // How it reads for some recipients, where it differs from one to the next.
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
    made.append(part.text ? words(part.text, can("subject")) : node("p", "quiet", "The file, as above"));
    return made;
  }

  function showWrong(sentences) {
    place("wrong").replaceChildren(...sentences.map((one) => node("li", "problem", one)));
    place("wrong").hidden = !sentences.length;
  }

  // Green only when everything fits; null: that is not known yet.
  function sayForecast(text, fits) {
    const line = card.querySelector("[data-forecast]");
    line.textContent = text;
    line.className = `forecast ${fits === null ? "quiet" : fits ? "good" : "warn"}`;
  }

  function show(answer) {
    showExamples(answer.wording, answer.examples);
    showLanes(answer.lanes);
    sayForecast(answer.forecast, answer.fits);
    say("problem", answer.problem);
    say("words", answer.words);
    say("window", answer.window);
    say("missing", answer.missing);
    say("late", answer.late);
    say("review", answer.review);
    showWrong(answer.wrong);
    // Not twice: the server says it beside the field when it refuses the form.
    say("passed", row("fire_at").querySelector(".errorlist") ? "" : answer.passed);
    say("nothing", answer.nothing);
    say("partial", answer.partial);
    say("unreached", answer.unreached);
    const firings = answer.firings.map(({ text, late }) => node("li", late ? "problem" : "", text));
    card.querySelector("[data-firings]").replaceChildren(...(firings.length ? firings : [node("li", "quiet none", "None")]));
    row("even_if_late").hidden = !answer.late && !field("even_if_late").checked;
    document.dispatchEvent(new CustomEvent("crier:forecast", { detail: answer }));
  }

  let asked = null;
  async function ask() {
    const data = new FormData(form);
    for (const [name, value] of [...data]) {
      if (value instanceof File) data.delete(name);
    }
    asked?.abort();
    asked = new AbortController();
    try {
      const answer = await fetch(card.dataset.url, { method: "POST", body: data, signal: asked.signal });
      if (answer.ok) show(await answer.json());
      else silent();
    } catch (error) {
      if (error.name !== "AbortError") silent();
    }
  }

  function silent() {
    sayForecast("No answer from the server.", false);
    showWrong(["It could not be checked: the server does not answer. It is checked when you save."]);
  }

  // On a small screen the forecast stands where one is about to save.
  const narrow = window.matchMedia("(max-width: 1024px)");
  function settle() {
    narrow.matches ? review.append(card) : document.getElementById("beside").prepend(card);
  }
  narrow.addEventListener("change", settle);

  review.hidden = false;
  settle();
  sayForecast("Working it out …", null);
  showSenders();
  showFields();
  showSchedule();
  readCron();
  row("even_if_late").hidden = !field("even_if_late").checked && !row("even_if_late").classList.contains("errors");
  const soon = later(ask);
  form.addEventListener("input", soon);
  form.addEventListener("change", () => {
    showSenders();
    showFields();
    showSchedule();
    soon();
  });
  document.addEventListener("formset:added", soon);
  document.addEventListener("formset:removed", soon);
  ask();
});

// The state of a test, fetched again whenever its run changes.
document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("test-state");
  if (!box) return;
  const POLL_MS = 5000;
  const live = () => box.querySelector("[data-live]");

  async function fresh() {
    const answer = await fetch(box.dataset.url, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    box.replaceChildren(...page.body.childNodes);
  }

  // The event stream of the page marks the status (crier.js).
  new MutationObserver(() => live() && fresh()).observe(box, { subtree: true, attributeFilter: ["data-status"] });
  if (live()) fresh();
  const timer = setInterval(() => (live() ? document.hidden || fresh() : clearInterval(timer)), POLL_MS);
});
