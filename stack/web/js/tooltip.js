// The one floating box: descriptions, and the values under the cursor.

import { el } from "/js/dom.js";

const box = el("div.tip", { hidden: true, role: "tooltip" });
let pinned = false;

/** Shows `content` near a point of the window, kept inside it. */
export function show(x, y, ...content) {
  if (pinned) return;
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
  if (!pinned) box.hidden = true;
}

/** Lets the box stay with something to click on, until Escape or a click elsewhere. */
export function pin(...content) {
  if (box.hidden) return;
  box.querySelectorAll(".hint").forEach((hint) => hint.remove());
  box.append(...content);
  pinned = true;
  box.classList.add("pinned");
  box.querySelector("a")?.focus();
}

function unpin() {
  pinned = false;
  box.classList.remove("pinned");
  box.hidden = true;
}

document.addEventListener("pointerdown", (event) => {
  if (pinned && !box.contains(event.target)) unpin();
}, true);
document.addEventListener("click", (event) => {
  if (pinned && event.target.closest?.(".tip a")) setTimeout(unpin);
});
document.addEventListener("keydown", (event) => {
  if (!pinned || event.key !== "Escape") return;
  unpin();
  event.stopPropagation();
}, true);

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
