// Dialogs over the page: one at a time, closed by Escape, a click outside or their button.

import { el, icon } from "/js/dom.js";

let shown = null;

/** Shows `content` under a title; the focus goes in and comes back when it closes. */
export function dialog(title, ...content) {
  close();
  const box = el("dialog.dialog", { "aria-label": title },
    el("header", {}, el("h2", {}, title),
      el("button.button.plain.square", { type: "button", title: "Close", "aria-label": "Close", onclick: close }, icon("close"))),
    el("div.content", {}, content));
  box.addEventListener("close", () => {
    box.remove();
    if (shown === box) shown = null;
  });
  box.addEventListener("click", (event) => {
    if (event.target === box) close();
  });
  document.body.append(box);
  shown = box;
  box.showModal();
  return box;
}

export function close() {
  shown?.close();
}

/** Whether one is open. */
export function isOpen() {
  return shown !== null;
}
