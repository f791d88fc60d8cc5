// The search over everything that has an address: boards, their panels, alerts, pages.

import { board as readBoard } from "/js/api.js";
import { close, dialog } from "/js/dialog.js";
import { el } from "/js/dom.js";
import { listed } from "/js/facts.js";
import { rules, seenAt } from "/js/watch.js";

const MOST = 12;
const PAGES = [
  { kind: "page", text: "Home", href: "/" }, { kind: "page", text: "Alerts", href: "/alerts" },
  { kind: "page", text: "Runbook", href: "/runbook" },
];

let entries = null;
let go = null;

/** Gives the way to go to an address. */
export function setGo(way) {
  go = way;
}

const short = (title) => title.replace(/^Sightline \/ /, "");

/** Boards and alerts at once; panels of all boards as they come. */
async function gather(list, told) {
  const [boards, all] = await Promise.all([listed(), rules()]);
  list.push(...boards.map((one) => ({ kind: "board", text: short(one.title), more: one.description, href: `/d/${one.uid}` })), ...PAGES);
  list.push(...all.map((rule) => ({ kind: "alert", text: rule.name, more: rule.labels?.severity, href: seenAt(rule.annotations ?? {}, boards) ?? `/alerts#${rule.name}` })));
  told();
  const panels = await Promise.all(boards.map(async (one) => {
    const json = await readBoard(one.uid);
    const flat = (json?.panels ?? []).flatMap((panel) => [panel, ...(panel.panels ?? [])]);
    return flat.filter((panel) => panel.type !== "row" && panel.title)
      .map((panel) => ({ kind: "panel", text: panel.title, more: short(one.title), href: `/d/${one.uid}?viewPanel=${panel.id}` }));
  }));
  list.push(...panels.flat());
  told();
}

/** How well an entry fits: each word must be found; less is better, null does not fit. */
function fit({ text, more = "", kind }, words) {
  const name = text.toLowerCase();
  let sum = ["board", "page", "alert", "panel"].indexOf(kind) * 0.1;
  for (const word of words) {
    const at = name.indexOf(word);
    if (at < 0 && !more.toLowerCase().includes(word)) return null;
    sum += at < 0 ? 30 : at === 0 ? 0 : name[at - 1] === " " ? 3 : 10;
  }
  return sum;
}

export function palette() {
  const input = el("input.search", { type: "text", role: "searchbox", placeholder: "Board, panel or alert", "aria-label": "Search", autocomplete: "off" });
  const results = el("ul.results", { role: "listbox" });
  let at = 0;
  let found = [];
  const show = () => {
    const words = input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    found = (entries ?? []).map((one) => [fit(one, words), one]).filter(([score]) => score !== null)
      .sort(([a], [b]) => a - b).slice(0, MOST).map(([, one]) => one);
    at = Math.min(at, Math.max(0, found.length - 1));
    results.replaceChildren(...found.map((one, index) => el("li", { role: "option", "aria-selected": String(index === at) },
      el("a", { href: one.href, tabIndex: -1, onclick: close }, el("span.kind", {}, one.kind), el("span.name", {}, one.text), el("span.more", {}, one.more ?? "")))));
    if (found.length === 0) results.replaceChildren(el("li.none", {}, "nothing of that name"));
  };
  input.addEventListener("input", () => {
    at = 0;
    show();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = Math.min(found.length - 1, Math.max(0, at + (event.key === "ArrowDown" ? 1 : -1)));
      show();
    } else if (event.key === "Enter" && found[at]) {
      event.preventDefault();
      close();
      go(found[at].href);
    }
  });
  if (!entries) {
    entries = [];
    gather(entries, show).catch((error) => {
      entries = null;
      results.replaceChildren(el("li.none", {}, error.message));
    });
  }
  dialog("Search", el("div.palette", {}, input, results));
  show();
  input.focus();
}
