"use strict";

// The parts of a reminder: moved by drag or buttons, files checked before they are uploaded, and shown as they will look.
document.addEventListener("DOMContentLoaded", () => {
  const { node, button, changed, words } = window.Crier;
  const form = document.getElementById("reminder_form");
  const account = form?.elements.namedItem("account");
  if (!account) return;
  const facts = JSON.parse(document.getElementById("channel-facts").textContent);
  const MB = 1024 * 1024;
  const said = node("p", "visually-hidden");
  said.setAttribute("aria-live", "polite");
  form.append(said);

  const groups = [...form.querySelectorAll("#messages-group, #reply_parts-group, #follow_up_parts-group")];
  const boxesOf = (group) => [...group.querySelectorAll(".inline-related:not(.empty-form)")];
  const field = (box, name) => box.querySelector(`[name$="-${name}"]`);
  const isRemoved = (box) => field(box, "DELETE")?.checked;
  const channel = () => facts[account.selectedOptions[0]?.dataset.channel];

  // --- their order ----------------------------------------------------------------------------------------
  const order = (box) => Number(field(box, "order")?.value) || 10000;
  const index = (box) => Number(box.id.match(/-(\d+)$/)?.[1]);

  function arrange(group, key) {
    const empty = group.querySelector(".inline-related.empty-form");
    const boxes = boxesOf(group).sort((a, b) => key(a) - key(b));
    for (const box of boxes) empty ? empty.before(box) : group.querySelector("fieldset").append(box);
  }

  function number(group) {
    const boxes = boxesOf(group);
    for (const [i, box] of boxes.entries()) {
      field(box, "order").value = i + 1;
      const label = box.querySelector(".inline_label");
      if (label) label.textContent = boxes.length > 1 ? `${i + 1} of ${boxes.length}` : "";
      box.querySelector("[data-up]").disabled = i === 0;
      box.querySelector("[data-down]").disabled = i === boxes.length - 1;
    }
  }

  function moved(box) {
    const group = box.closest(".inline-group");
    number(group);
    said.textContent = `Now part ${order(box)} of ${boxesOf(group).length}`;
    changed(field(box, "text"));
  }

  function step(box, by, pressed) {
    const boxes = boxesOf(box.closest(".inline-group"));
    const other = boxes[boxes.indexOf(box) + by];
    if (!other) return;
    by < 0 ? other.before(box) : other.after(box);
    moved(box);
    (pressed.disabled ? box.querySelector("[data-up]:not(:disabled), [data-down]:not(:disabled)") : pressed)?.focus();
  }

  // Django renumbers the inputs in the order of the page when one is removed: saved ones must come first then.
  document.addEventListener(
    "click",
    (event) => {
      const group = event.target.closest(".inline-deletelink")?.closest(".inline-group");
      if (group) arrange(group, index);
    },
    true,
  );

  let dragged = null;
  function makeDraggable(box, grip) {
    grip.addEventListener("pointerdown", () => (box.draggable = true));
    box.addEventListener("dragstart", (event) => {
      dragged = box;
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", "");
      box.classList.add("dragged");
    });
    box.addEventListener("dragend", () => {
      box.draggable = false;
      box.classList.remove("dragged");
      dragged = null;
      moved(box);
    });
    box.addEventListener("dragover", (event) => {
      if (!dragged || dragged === box || dragged.parentElement !== box.parentElement) return;
      event.preventDefault();
      const place = box.getBoundingClientRect();
      event.clientY < place.top + place.height / 2 ? box.before(dragged) : box.after(dragged);
    });
  }

  // --- one part -------------------------------------------------------------------------------------------
  function equip(box) {
    const head = box.querySelector("h3");
    if (!head || head.querySelector("[data-up]")) return;
    const grip = node("span", "grip", "⠿");
    grip.title = "Drag to move";
    grip.setAttribute("aria-hidden", "true");
    const up = button("↑", "Move this part up");
    const down = button("↓", "Move this part down");
    up.dataset.up = down.dataset.down = "";
    up.addEventListener("click", () => step(box, -1, up));
    down.addEventListener("click", () => step(box, 1, down));
    const tools = node("span", "part-tools");
    tools.append(up, down);
    head.prepend(grip);
    head.append(tools);
    makeDraggable(box, grip);
    field(box, "order").closest(".form-multiline > div").hidden = true;
    field(box, "upload").addEventListener("change", () => take(box));
    field(box, "kind").addEventListener("change", () => show(box));
    const under = underText(field(box, "text"));
    field(box, "text").closest(".form-row").append(under);
    offer(under.querySelector("[data-inserts]"));
    show(box);
  }

  const ALWAYS = [["name", "{name}"], ["first name", "{first_name|there}"]];
  let fields = [];
  // Placeholders to insert, with the own fields of these recipients.
  function offer(line) {
    const text = field(line.closest(".inline-related"), "text");
    const own = fields.filter((name) => !["name", "first_name"].includes(name)).map((name) => [name.replaceAll("_", " "), `{${name}}`]);
    line.replaceChildren(
      ...[...ALWAYS, ...own].map(([label, placeholder]) => {
        const insert = button(label, `Insert ${placeholder}`);
        insert.addEventListener("click", () => {
          text.setRangeText(placeholder, text.selectionStart, text.selectionEnd, "end");
          text.focus();
          changed(text);
        });
        return insert;
      }),
    );
  }

  document.addEventListener("crier:forecast", (event) => {
    if (String(fields) === String(event.detail.fields)) return;
    fields = event.detail.fields;
    form.querySelectorAll("[data-inserts]").forEach(offer);
  });

  // Placeholders to insert, and how long the text is.
  function underText(text) {
    const line = node("p", "under-text", "Insert:");
    const inserts = node("span", "inserts");
    inserts.dataset.inserts = "";
    line.append(inserts);
    const count = node("span");
    const show = () => (count.textContent = `${text.value.length} character${text.value.length === 1 ? "" : "s"}`);
    text.addEventListener("input", show);
    show();
    line.append(count);
    return line;
  }

  // --- its message template, where the account's provider wants one ------------------------------------------
  let offered = null;
  function showTemplate(box) {
    const select = field(box, "template_key");
    const row = select.closest(".form-row");
    field(box, "template_values").closest(".form-row").hidden = true;
    row.hidden = !offered && !select.value;
    if (!offered) return;
    const kept = select.value;
    const options = offered.choices.map((one) => new Option(one.label, one.key));
    if (kept && !offered.choices.some((one) => one.key === kept)) options.push(new Option(`${kept}, not usable`, kept));
    select.replaceChildren(new Option(offered.none, ""), ...options);
    select.value = kept;
    showSlots(box, row, offered.choices.find((one) => one.key === kept));
  }

  // An input for each of its variables; they are posted as one hidden field.
  function showSlots(box, row, template) {
    const variables = template?.variables || [];
    const shown = JSON.stringify([template?.key, variables, offered.note]);
    const before = row.querySelector(".template-values");
    if (before?.dataset.shown === shown) return;
    before?.remove();
    const place = node("div", "template-values");
    place.dataset.shown = shown;
    if (offered.note) place.append(node("p", "problem", offered.note));
    const hidden = field(box, "template_values");
    const values = JSON.parse(hidden.value || "{}");
    for (const variable of variables) {
      const label = node("label", "", variable.label);
      const input = node("input");
      input.type = "text";
      input.value = values[variable.key] || "";
      input.placeholder = variable.example ? `for example ${variable.example}` : "";
      input.addEventListener("input", () => {
        values[variable.key] = input.value;
        hidden.value = JSON.stringify(values);
      });
      label.append(input);
      place.append(label);
    }
    if (variables.length) place.append(node("p", "help", "Personal words such as {first_name|there} can be used here too."));
    row.append(place);
  }

  const byTemplate = document.getElementById("by-template");
  document.addEventListener("crier:forecast", (event) => {
    offered = event.detail.templates;
    for (const group of groups) boxesOf(group).forEach(showTemplate);
    byTemplate.replaceChildren();
    document.getElementById("within").hidden = !offered?.parts.length;
    if (!offered?.parts.length) return;
    byTemplate.append(node("h3", "", "To people who have not written within 24 hours"));
    if (offered.who) byTemplate.append(node("p", offered.stops ? "problem" : "quiet", offered.who));
    const box = node("div", "preview");
    for (const part of offered.parts) {
      if (part.text) {
        const made = node("div", "bubble");
        made.append(node("p", "quiet", part.way), words(part.text));
        box.append(made);
      }
      if (part.problem) box.append(node("p", "problem", part.problem));
      if (part.note) box.append(node("p", "quiet", part.note));
    }
    byTemplate.append(box);
  });

  // What a part of this kind on this channel has.
  function show(box) {
    const isText = field(box, "kind").value === "text";
    const row = (name) => field(box, name).closest(".form-row");
    row("upload").hidden = isText;
    row("html").hidden = !isText || !channel()?.subject;
    row("text").querySelector("label").textContent = isText ? "Text:" : "Caption:";
    const help = row("text").querySelector(".help");
    if (help) help.hidden = true;
    const limits = row("upload").querySelector(".help div");
    if (limits && channel()) limits.textContent = `${channel().label}: ${channel().files}.`;
    showTemplate(box);
    const kept = field(box, "media");
    if (kept.value && limits) limits.textContent += ` Empty: keeps ${kept.dataset.filename}.`;
  }

  const KINDS = ["image", "video", "audio"];
  function take(box) {
    const input = field(box, "upload");
    const file = input.files[0];
    const row = input.closest(".form-row");
    row.querySelector("[data-too-large]")?.remove();
    if (!file) return;
    const kind = KINDS.find((name) => file.type.startsWith(`${name}/`) && file.type !== "image/svg+xml") || "document";
    const most = (channel() || Object.values(facts)[0]).mb[kind];
    if (file.size > most * MB) {
      const problem = node("p", "problem", `${file.name} has ${(file.size / MB).toFixed(1)} MB; the limit is ${most} MB.`);
      problem.dataset.tooLarge = "";
      problem.setAttribute("role", "alert");
      row.append(problem);
      input.value = "";
      return;
    }
    field(box, "kind").value = kind;
    show(box);
    changed(field(box, "text"));
  }

  function addButtons(group) {
    const more = group.querySelector(".add-row a");
    if (!more || group.querySelector("[data-add]")) return;
    for (const [label, kind] of [["+ Text", "text"], ["+ File", "image"]]) {
      const add = button(label);
      add.dataset.add = kind;
      add.addEventListener("click", () => {
        more.click();
        const box = boxesOf(group).at(-1);
        field(box, "kind").value = kind;
        show(box);
        kind === "text" ? field(box, "text").focus() : field(box, "upload").click();
      });
      more.before(add, " ");
    }
    more.hidden = true;
  }

  // --- as it will look --------------------------------------------------------------------------------------
  const previews = { messages: document.getElementById("preview"), reply_parts: document.getElementById("preview-2") };
  const loaded = new WeakMap();

  function image(src, alt) {
    const img = node("img");
    [img.src, img.alt] = [src, alt];
    return img;
  }

  function picture(file) {
    if (loaded.has(file)) return image(loaded.get(file), file.name);
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      loaded.set(file, reader.result);
      showAll();
    });
    reader.readAsDataURL(file);
    return node("p", "file", file.name);
  }

  function attachment(box) {
    const file = field(box, "upload").files[0];
    const { value: kept, dataset } = field(box, "media");
    const kind = field(box, "kind").value;
    if (file) return kind === "image" ? picture(file) : node("p", `file ${kind}`, file.name);
    if (kept && kind === "image") return image(dataset.url, dataset.filename);
    return node("p", `file ${kind}`, kept ? dataset.filename : "No file yet");
  }

  function bubble(box, i) {
    const made = node("div", "bubble");
    const subject = form.elements.namedItem("subject")?.value;
    if (i === 0 && subject && channel()?.subject) made.append(node("p", "subject", subject));
    if (field(box, "kind").value !== "text") made.append(attachment(box));
    const text = field(box, "text").value;
    if (text.trim()) made.append(words(text, channel()?.subject));
    else if (field(box, "template_key").value) made.append(node("p", "quiet", "The words of the template"));
    return made;
  }

  const hasWords = (box) => field(box, "text").value.trim() || field(box, "template_key").value;
  const says = (box) => !isRemoved(box) && (field(box, "kind").value !== "text" || hasWords(box));

  function showAll() {
    for (const group of groups) {
      const target = previews[group.id.replace("-group", "")];
      const bubbles = boxesOf(group).filter(says).map(bubble);
      if (!target) continue;
      const box = node("div", channel()?.subject ? "preview mail" : "preview");
      box.append(...(bubbles.length ? bubbles : [node("p", "quiet", "Nothing written yet.")]));
      target.replaceChildren(box);
      target.closest("[data-second]")?.toggleAttribute("hidden", !bubbles.length);
    }
  }

  for (const group of groups) {
    if (!group.querySelector('[name$="-order"]')) return; // a read-only page
    arrange(group, order);
    boxesOf(group).forEach(equip);
    number(group);
  }
  // Django's own script adds its link a moment later.
  for (const group of groups) {
    new MutationObserver(() => addButtons(group)).observe(group, { childList: true, subtree: true });
    addButtons(group);
  }
  const soon = window.Crier.later(showAll, 150);
  form.addEventListener("input", soon);
  form.addEventListener("change", () => {
    for (const group of groups) boxesOf(group).forEach(show);
    soon();
  });
  document.addEventListener("formset:added", (event) => {
    equip(event.target);
    number(event.target.closest(".inline-group"));
    soon();
  });
  document.addEventListener("formset:removed", () => {
    // Django numbers the boxes only after this event.
    setTimeout(() => {
      for (const group of groups) {
        arrange(group, order);
        number(group);
      }
      soon();
    });
  });
  showAll();
});
