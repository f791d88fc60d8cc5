// The keyboard: one table of what keys do, which is also what `?` shows.

import { close, dialog, isOpen } from "/js/dialog.js";
import { el } from "/js/dom.js";
import { palette } from "/js/palette.js";

/** Keys, words, and a name of what they do: of the view where it has such, else of the page. */
const KEYS = [
  ["Everywhere", [
    ["?", "these keys", "help"], ["/", "search boards, panels and alerts", "search"],
    ["g h", "home", "home"], ["g a", "alerts", "alerts"], ["g r", "runbook", "runbook"],
    ["[", "board before", "before"], ["]", "next board", "after"], ["t", "dark or light", "theme"],
  ]],
  ["Time of a board", [
    ["r", "read again now", "reload"], ["p", "pause or go on", "pause"],
    ["ArrowLeft", "earlier", "earlier"], ["ArrowRight", "later", "later"],
    ["-", "wider", "wider"], ["+", "narrower", "narrower"], ["n", "until now again", "live"],
    ["c", "choose a range", "range"],
  ]],
  ["Panels of a board", [
    ["j", "next panel", "nextPanel"], ["k", "panel before", "previousPanel"],
    ["v", "the panel alone, and back", "view"], ["f", "the panel on the full screen", "full"],
    ["i", "queries and data of the panel", "inspect"], ["x", "fold or unfold all rows", "fold"],
    ["Escape", "back to the board", "leave"],
  ]],
];

const SHOWN = { ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

let prefix = null;

/** Shows all keys. */
export function help() {
  const part = ([title, keys]) => el("section", {}, el("h3", {}, title), el("dl", {}, keys.map(([key, words]) =>
    el("div", {}, el("dt", {}, key.split(" ").map((one) => el("kbd", {}, SHOWN[one] ?? one))), el("dd", {}, words)))));
  dialog("Keys", el("div.keys", {}, KEYS.map(part)));
}

function typing(target) {
  return target instanceof Element && target.matches("input, select, textarea");
}

/** Makes keys work: `view()` gives the view of now, `page` the actions that every page has. */
export function listen(view, page) {
  const known = new Map(KEYS.flatMap(([, keys]) => keys.map(([key, , action]) => [key, action])));
  const actions = { ...page, help, search: palette };
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      palette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isOpen()) {
      if (event.key === "?" && !typing(event.target)) close();
      return;
    }
    if (typing(event.target)) return;
    const key = prefix ? `${prefix} ${event.key}` : event.key === "=" ? "+" : event.key;
    prefix = !prefix && event.key === "g" ? "g" : null;
    const action = known.get(key);
    const act = action && (view()?.keys?.[action] ?? actions[action]);
    if (!act) return;
    if (act() !== false) event.preventDefault();
  });
}
