// Entry: reads the address, shows the view that belongs to it, keeps the top bar alive.

import { AlertPage } from "/js/alerts.js";
import { BoardView } from "/js/board.js";
import * as dialogs from "/js/dialog.js";
import { el, icon, svg } from "/js/dom.js";
import { HomePage } from "/js/home.js";
import { help, listen } from "/js/keys.js";
import * as live from "/js/live.js";
import { palette, setGo } from "/js/palette.js";
import { PATHS, RunbookPage } from "/js/runbook.js";
import { strip } from "/js/strip.js";
import { listed } from "/js/facts.js";

const app = document.getElementById("app");
const main = el("main", { id: "main" });
const crumbs = el("span.crumbs");
const root = document.documentElement;
let view = null;

function theme(name) {
  root.dataset.theme = name;
  localStorage.setItem("theme", name);
}

/** The other theme; an address that names one names the new one. */
function turnTheme() {
  theme(root.dataset.theme === "light" ? "dark" : "light");
  const address = new URL(location.href);
  address.searchParams.set("theme", root.dataset.theme);
  history.replaceState(history.state, "", address);
  view?.themed?.();
}

function logo() {
  return svg("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" }, svg("path", {
    d: "M3 21h6l3-10 5 14 4-18 3 14h5", fill: "none", stroke: "var(--accent)",
    "stroke-width": 3, "stroke-linecap": "round", "stroke-linejoin": "round",
  }));
}

function shell() {
  const button = (name, label, act) => el("button.button.plain.square", { type: "button", title: label, "aria-label": label, onclick: act }, icon(name));
  const bar = el("header.bar", {},
    el("a.brand", { href: "/" }, logo(), "Sightline"), crumbs, el("span.spring"), strip(),
    el("nav.pages", { "aria-label": "Pages" }, el("a", { href: "/alerts" }, "Alerts"), el("a", { href: "/runbook" }, "Runbook")),
    button("search", "Search  (/)", palette), button("keys", "Keys  (?)", help), button("sun", "Dark or light  (t)", turnTheme));
  app.replaceChildren(el("a.skip", { href: "#main" }, "Skip to the content"), bar, main);
}

const params = () => new URLSearchParams(location.search);

/** Shows the view of the current address. */
async function route() {
  const [, section, uid] = location.pathname.split("/");
  if (section === "d" && view?.uid === decodeURIComponent(uid ?? "")) {
    view.arrive(params());
    return;
  }
  dialogs.close();
  view?.close();
  view = null;
  main.replaceChildren(el("div.notice", {}, "Loading"));
  const host = { main, go, title };
  if (section === "d" && uid) view = new BoardView(decodeURIComponent(uid), params(), host);
  else if (section === "alerts") view = new AlertPage(host);
  else if (PATHS.includes(location.pathname)) view = new RunbookPage(host);
  else view = new HomePage(host);
  const mine = view;
  try {
    await view.open();
  } catch (error) {
    if (mine === view) main.replaceChildren(el("div.notice", {}, `The console cannot show this: ${error.message}`));
  }
}

/** Goes to an address of the console without loading the page again; `replace` leaves the view
 * and only says where it is. A theme that the address names stays named. */
function go(address, replace = false) {
  const next = new URL(address, location.href);
  const named = params().get("theme");
  if (named && !next.searchParams.has("theme")) next.searchParams.set("theme", named);
  const leaves = next.pathname !== location.pathname;
  if (replace) {
    history.replaceState(null, "", next);
    return;
  }
  if (next.href !== location.href) history.pushState(null, "", next);
  if (leaves) scrollTo(0, 0);
  if (leaves || next.pathname.startsWith("/d/")) route();
  view?.anchored?.();
}

/** Names the view in the bar and in the window's title. */
function title(text) {
  const last = (text || "").replace(/^Sightline \/ /, "");
  document.title = last ? `${last} - Sightline` : "Sightline";
  crumbs.replaceChildren(...(last ? [el("span.crumb", {}, "/ "), el("span.here", {}, last)] : []));
}

/** The next board, or the one before, in the order of the home page. */
async function neighbour(step) {
  const list = await listed();
  const at = list.findIndex((board) => board.uid === view?.uid);
  const next = at < 0 ? (step > 0 ? 0 : list.length - 1) : (at + step + list.length) % list.length;
  if (list[next]) go(view?.neighbour?.(list[next].uid) ?? `/d/${list[next].uid}`);
}

document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.choice[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
  const anchor = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
  if (!anchor || !plain || event.defaultPrevented || anchor.origin !== location.origin) return;
  const runbook = PATHS.includes(anchor.pathname);
  if (anchor.target && !runbook) return;
  if (!runbook && !/^\/($|d\/|alerts$)/.test(anchor.pathname)) return;
  event.preventDefault();
  go(anchor.pathname + anchor.search + anchor.hash);
});
addEventListener("popstate", route);

const asked = params().get("theme");
const preferred = matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
theme(["light", "dark"].includes(asked) ? asked : localStorage.getItem("theme") ?? preferred);
setGo(go);
shell();
listen(() => view, {
  home: () => go("/"), alerts: () => go("/alerts"), runbook: () => go("/runbook"), theme: turnTheme,
  before: () => neighbour(-1), after: () => neighbour(1),
});
route();
live.start();
