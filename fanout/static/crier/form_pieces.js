"use strict";

// What the scripts of a form share.
window.Crier = (() => {
  function node(tag, name, text) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text) made.textContent = text;
    return made;
  }

  function button(label, title) {
    const made = node("button", "act small", label);
    made.type = "button";
    if (title) {
      made.title = title;
      made.setAttribute("aria-label", title);
    }
    return made;
  }

  // A name with a button that takes it away.
  function chip(text, onRemove) {
    const made = node("span", "chip", text);
    const remove = button("✕", `Take out ${text}`);
    remove.addEventListener("click", () => {
      made.remove();
      onRemove();
    });
    made.append(remove);
    return made;
  }

  function later(work, wait = 400) {
    let timer;
    return () => {
      clearTimeout(timer);
      timer = setTimeout(work, wait);
    };
  }

  function changed(element) {
    element.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // WhatsApp's *bold*, _italic_ and ~struck~.
  const MARKS = { "*": "strong", _: "em", "~": "s" };
  const MARKED = /(^|[\s(])([*_~])(\S(?:[^\n]*?\S)?)\2(?=$|[\s).,!?:;])/m;
  function formatted(text, into) {
    let rest = text;
    for (let hit = rest.match(MARKED); hit; hit = rest.match(MARKED)) {
      into.append(rest.slice(0, hit.index) + hit[1]);
      const made = node(MARKS[hit[2]]);
      formatted(hit[3], made);
      into.append(made);
      rest = rest.slice(hit.index + hit[0].length);
    }
    into.append(rest);
  }

  // A message's text as its channel shows it; a mail has no marks.
  function words(text, plain) {
    const made = node("p", "words");
    plain ? made.append(text) : formatted(text, made);
    return made;
  }

  return { node, button, chip, later, changed, words };
})();
