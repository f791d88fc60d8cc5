// The alerts of a board above its panels: what is wrong, and what to do now.

import { el, marked } from "/js/dom.js";
import { actionOf, anchorOf, sectionHref, sections } from "/js/runbook.js";
import { boardOf, panelOf } from "/js/watch.js";

/** Alerts that are shown in full; the rest is a number. */
const SHOWN = 3;

/** One alert as a line: state, name, summary, what now, ways on. */
export function line(alert, book, links) {
  const { labels, annotations, state } = alert;
  const action = actionOf(annotations, book);
  const anchor = anchorOf(annotations);
  const severity = labels.severity === "critical" ? "bad" : "warn";
  return el("li", { data: { alert: labels.alertname, state } },
    el(`a.badge.${state === "firing" ? severity : "warn"}`, { href: `/alerts#${labels.alertname}` }, state),
    el("div.said", {}, el("strong", {}, labels.alertname), " ", annotations.summary ?? "",
      action ? el("div.now", {}, el("b", {}, "What now? "), marked(action)) : null),
    el("span.links", {}, links, anchor ? el("a", { href: sectionHref(anchor) }, "runbook") : null));
}

export class Banner {
  /** `place(id)` gives the address of a panel of this board. */
  constructor(uid, list, place) {
    this.uid = uid;
    this.list = list;
    this.place = place;
    this.node = el("ul.banner", { hidden: true, "aria-label": "Alerts of this board" });
    this.said = "";
  }

  async update({ active }) {
    const own = active.filter((alert) => alert.state === "firing" && boardOf(alert.annotations) === this.uid);
    const book = own.length ? await sections() : null;
    const said = JSON.stringify(own.map((alert) => [alert.labels, alert.annotations.summary]));
    if (said === this.said) return;
    this.said = said;
    this.node.hidden = own.length === 0;
    const rest = own.length - SHOWN;
    this.node.replaceChildren(...own.slice(0, SHOWN).map((alert) => {
      const id = panelOf(alert.annotations, this.list);
      return line(alert, book, id ? el("a", { href: this.place(id) }, "panel") : null);
    }), ...(rest > 0 ? [el("li", {}, el("a", { href: "/alerts" }, `and ${rest} more`))] : []));
  }
}
