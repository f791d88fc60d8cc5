// The runbook: read once, shown as a page, and asked for the first thing to do about an alert.

import { text } from "/js/api.js";
import { el } from "/js/dom.js";
import { follow } from "/js/live.js";
import { markdown } from "/js/markdown.js";

/** The address at which panels and rules name it, as in Grafana; and its own. */
export const PATHS = ["/runbook", "/public/sightline/runbook.md"];

let reading = null;

/** Sections by anchor, and what stands before them; empty where there is no runbook. */
export function sections() {
  reading ??= text("/console/api/runbook").then((whole) => {
    const [intro, ...parts] = whole.split(/^## /m);
    const found = parts.map((part) => {
      const end = part.indexOf("\n");
      return [part.slice(0, end).trim(), part.slice(end).trim()];
    });
    return { intro, found: new Map(found) };
  }).catch(() => {
    reading = null;
    return { intro: "", found: new Map() };
  });
  return reading;
}

/** Anchor of the section that an alert names, whether by anchor or by address. */
export function anchorOf(annotations) {
  return annotations.runbook ?? /#([\w-]+)$/.exec(annotations.runbook_url ?? "")?.[1] ?? null;
}

/** The address of a section. */
export function sectionHref(anchor) {
  return `/runbook#${encodeURIComponent(anchor)}`;
}

/** Sentences from the beginning of a text, until they are long enough to say something. */
function beginning(whole, least = 50) {
  const [first, ...rest] = whole.replace(/\s+/g, " ").trim().split(/(?<=\.) (?=[A-Z`])/);
  let said = first;
  while (said.length < least && rest.length) said += ` ${rest.shift()}`;
  return said;
}

/** The first thing to do about an alert: its own words, else those of its section. */
export function actionOf(annotations, book) {
  const own = annotations.action ?? annotations.what_now;
  if (own) return own;
  const section = book?.found.get(anchorOf(annotations));
  const todo = section && /\*\*What to do\.?\*\*([\s\S]*?)(?:\n\n|$)/.exec(section);
  return todo ? beginning(todo[1]) : null;
}

/** Names of sections in a text as links; what stands in backquotes stays. */
function crossed(words, anchors) {
  const names = anchors.filter((name) => name.includes("-"));
  const pattern = new RegExp(`(?<![\\w#/-])(?:(${names.join("|")})|(see )(${anchors.join("|")}))(?![\\w-])`, "g");
  const link = (whole, name, see, other) => (name ? `[${name}](#${name})` : `${see}[${other}](#${other})`);
  return words.split(/(`[^`]*`)/).map((part) => (part.startsWith("`") ? part : part.replace(pattern, link))).join("");
}

export class RunbookPage {
  constructor(host) {
    this.host = host;
  }

  async open() {
    this.host.title("Runbook");
    const { intro, found } = await sections();
    if (found.size === 0) throw new Error("there is no runbook here");
    this.marks = new Map([...found.keys()].map((anchor) => [anchor, el("span.marks")]));
    const contents = el("nav.contents", { "aria-label": "Sections" },
      [...found.keys()].map((anchor) => el("a", { href: `#${anchor}`, data: { anchor } }, anchor)));
    const body = [...found].map(([anchor, words]) => el("section.entry", { id: anchor, tabIndex: -1 },
      el("h2", {}, el("a", { href: `#${anchor}` }, anchor), this.marks.get(anchor)), markdown(crossed(words, [...found.keys()]))));
    this.host.main.replaceChildren(el("div.book", {}, contents,
      el("div.words", {}, markdown(intro.replace(/^# .*$/m, "# Runbook")), body)));
    this.contents = contents;
    this.end = follow((now) => this.mark(now));
    this.anchored();
  }

  /** Which sections are wanted now. */
  mark({ active }) {
    for (const [anchor, place] of this.marks) {
      const own = active.filter((alert) => anchorOf(alert.annotations) === anchor);
      const names = [...new Set(own.map((alert) => `${alert.labels.alertname} ${alert.state}`))];
      place.replaceChildren(...names.map((name) =>
        el(`a.badge.${name.endsWith("firing") ? "bad" : "warn"}`, { href: `/alerts#${name.split(" ")[0]}` }, name)));
      const link = [...this.contents.children].find((one) => one.dataset.anchor === anchor);
      const firing = names.some((name) => name.endsWith("firing"));
      link.className = firing ? "firing" : names.length ? "pending" : "";
    }
  }

  /** Goes to the section that the address names. */
  anchored() {
    const anchor = decodeURIComponent(location.hash.slice(1));
    for (const link of this.contents.children) {
      link.setAttribute("aria-current", String(link.dataset.anchor === anchor));
    }
    const section = anchor && document.getElementById(anchor);
    if (!section) return;
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  }

  close() {
    this.end?.();
  }
}
