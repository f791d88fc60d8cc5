// The one floating box: descriptions, and the values under the cursor.

import { el } from "/js/dom.js";

const box = el("div.tip", { hidden: true, role: "tooltip" });

/** Shows `content` near a point of the window, kept inside it. */
export function show(x, y, ...content) {
  if (!box.isConnected) document.body.append(box);
  box.replaceChildren(...content);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 16 : x + 16;
  const top = Math.min(y + 12, innerHeight - height - 8);
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}

export function hide() {
  box.hidden = true;
}

/** Shows what `content()` makes while the pointer or the focus is on `node`. */
export function attach(node, content) {
  const open = () => {
    const { left, bottom } = node.getBoundingClientRect();
    show(left, bottom - 6, ...content());
  };
  node.addEventListener("mouseenter", open);
  node.addEventListener("focus", open);
  node.addEventListener("mouseleave", hide);
  node.addEventListener("blur", hide);
}

/** A table of named values. */
export function rows(list) {
  return el("table", {}, el("tbody", {}, list.map(({ color, name, text, near }) =>
    el(near ? "tr.near" : "tr", {},
      el("td", {}, color ? el("span.swatch", { style: { background: color } }) : null, name),
      el("td", {}, text)))));
}
