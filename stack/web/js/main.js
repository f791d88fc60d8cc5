// Entry: reads the address, shows the view that belongs to it, keeps the top bar alive.

import { AlertPage } from "/js/alerts.js";
import { BoardView } from "/js/board.js";
import { el, icon, svg } from "/js/dom.js";
import { get } from "/js/api.js";
import { HomePage } from "/js/home.js";

const ALERTS_EVERY = 5000;

const app = document.getElementById("app");
const main = el("main");
const crumbs = el("span");
const alerts = el("a.badge.ok", { href: "/alerts", "data-link": true }, "…");
let view = null;

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

function turnTheme() {
  theme(document.documentElement.dataset.theme === "light" ? "dark" : "light");
  view?.refresh?.();
}

function logo() {
  return svg("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" }, svg("path", {
    d: "M3 21h6l3-10 5 14 4-18 3 14h5", fill: "none", stroke: "var(--accent)",
    "stroke-width": 3, "stroke-linecap": "round", "stroke-linejoin": "round",
  }));
}

function shell() {
  const bar = el("div.bar", {},
    el("a.brand", { href: "/", "data-link": true }, logo(), "Sightline"), crumbs,
    el("span.spring"), alerts,
    el("button.button.plain", { title: "Dark or light", "aria-label": "Dark or light", onclick: turnTheme }, icon("sun")));
  app.replaceChildren(bar, main);
}

/** Shows the view of the current address. */
async function route() {
  view?.close();
  view = null;
  main.replaceChildren(el("div.notice", {}, "Loading"));
  const [, section, uid] = location.pathname.split("/");
  const params = new URLSearchParams(location.search);
  const host = { main, go, title };
  if (section === "d" && uid) view = new BoardView(decodeURIComponent(uid), params, host);
  else if (section === "alerts") view = new AlertPage(host);
  else view = new HomePage(host);
  const mine = view;
  try {
    await view.open();
  } catch (error) {
    if (mine === view) main.replaceChildren(el("div.notice", {}, `The console cannot show this: ${error.message}`));
  }
}

/** Goes to an address of the console without loading the page again. */
function go(address, replace = false) {
  if (replace) history.replaceState(null, "", address);
  else {
    history.pushState(null, "", address);
    scrollTo(0, 0);
    route();
  }
}

/** Names the view in the bar and in the window's title. */
function title(text) {
  const last = (text || "").replace(/^Sightline \/ /, "");
  document.title = last ? `${last} - Sightline` : "Sightline";
  crumbs.replaceChildren(...(last ? [el("span.crumb", {}, "/ "), el("span.here", {}, last)] : []));
}

async function watchAlerts() {
  if (!document.hidden) {
    try {
      const data = await get("/api/v1/alerts");
      const real = data.alerts.filter((alert) => alert.labels.severity !== "none");
      const firing = real.filter((alert) => alert.state === "firing").length;
      const pending = real.length - firing;
      alerts.className = firing ? "badge bad" : pending ? "badge warn" : "badge ok";
      alerts.textContent = firing ? `${firing} firing` : pending ? `${pending} pending` : "No alerts";
    } catch {
      alerts.className = "badge bad";
      alerts.textContent = "Console is not answering";
    }
  }
  setTimeout(watchAlerts, ALERTS_EVERY);
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
  if (!anchor || !plain || anchor.target || anchor.origin !== location.origin) return;
  if (!/^\/($|d\/|alerts$)/.test(anchor.pathname)) return;
  event.preventDefault();
  go(anchor.pathname + anchor.search);
});
document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.choice[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});
addEventListener("popstate", route);

const asked = new URLSearchParams(location.search).get("theme");
theme(asked ?? localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark"));
shell();
route();
watchAlerts();
