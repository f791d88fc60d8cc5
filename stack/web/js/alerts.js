// Alerts: what fires or waits and what to do about it, what has just ended, what is broken, then
// every rule with its state.

import { get } from "/js/api.js";
import { el, marked } from "/js/dom.js";
import { facts } from "/js/facts.js";
import { actionOf, anchorOf, sectionHref, sections } from "/js/runbook.js";
import { span } from "/js/time.js";
import { format } from "/js/units.js";
import { boardOf, panelOf, seenAt } from "/js/watch.js";

const EVERY = 5000;
const CLASS = { firing: "bad", pending: "warn", inactive: "ok", resolved: "ok" };
const ORDER = { firing: 0, pending: 1, inactive: 2 };
/** Annotations that have a place of their own. */
const PLACED = [
  "summary", "description", "dashboard", "dashboard_url", "runbook", "runbook_url", "panel", "panel_id", "action", "what_now",
];

const seconds = (text) => Date.parse(text) / 1000;
const clock = (text) => new Date(text).toLocaleTimeString("en-GB");
const never = (text) => !text || text.startsWith("0001-");

export class AlertPage {
  constructor(host) {
    this.host = host;
    this.abort = new AbortController();
    this.unfolded = new Set();
    this.wanted = "";
  }

  async open() {
    this.host.title("Alerts");
    this.body = el("div");
    this.filter = el("input.search", { type: "search", placeholder: "Filter by name, label or text", "aria-label": "Filter alerts", oninput: () => this.sift() });
    const [told, book] = await Promise.all([facts(), sections()]);
    [this.list, this.book, this.store] = [told.boards, book, told.mode === "store"];
    this.host.main.replaceChildren(el("div.page", {},
      el("h1", {}, "Alerts"),
      el("p.lead", {}, this.store ? "The generated rules, evaluated here over the stored metrics as Prometheus would."
        : `The rules of ${told.source}.`),
      this.filter, this.body));
    await this.refresh();
    this.anchored();
  }

  async refresh() {
    clearTimeout(this.timer);
    if (!document.hidden) {
      try {
        const { signal } = this.abort;
        const resolved = this.store ? get("/console/api/resolved", {}, signal) : { alerts: [] };
        const [rules, ended] = await Promise.all([get("/api/v1/rules", {}, signal), resolved]);
        this.show(rules.groups, ended.alerts);
      } catch (error) {
        if (this.abort.signal.aborted) return;
        this.body.replaceChildren(el("div.notice", {}, error.message));
      }
    }
    if (!this.abort.signal.aborted) this.timer = setTimeout(() => this.refresh(), EVERY);
  }

  show(groups, resolved) {
    const rules = groups.flatMap((group) => group.rules.map((rule) => ({ ...rule, group })));
    const alerting = rules.filter((rule) => rule.type === "alerting")
      .sort((a, b) => ORDER[a.state] - ORDER[b.state] || a.name.localeCompare(b.name));
    const recording = rules.filter((rule) => rule.type === "recording");
    const broken = rules.filter((rule) => rule.health === "err");
    const active = alerting.flatMap((rule) => rule.alerts.map((alert) => ({ alert, rule })))
      .sort((a, b) => this.weight(a.alert) - this.weight(b.alert));
    const ended = resolved.sort((a, b) => b.resolvedAt.localeCompare(a.resolvedAt));
    this.body.replaceChildren(
      this.counts(alerting, broken),
      el("h2", {}, "Active"),
      active.length
        ? this.table("active", ["State", "Alert", "Value", "Since", "Severity", ""], active.map((one) => this.active(one)))
        : el("p.lead", {}, "Nothing fires or waits."),
      ...(broken.length ? [el("h2", {}, "Rules that fail"),
        this.table("broken", ["Rule", "Error", "Last tried"], broken.map((rule) => this.broken(rule)))] : []),
      ...(ended.length ? [el("h2", {}, "Ended in the last 15 minutes"),
        this.table("resolved", ["State", "Alert", "Was active", "Severity", ""], ended.map((alert) => this.ended(alert)))] : []),
      el("h2", { id: "rules" }, `Alerting rules (${alerting.length})`),
      this.table("alerting", ["State", "Rule", "Severity", "Waits", "Evaluated", ""], alerting.map((rule) => this.rule(rule))),
      el("h2", {}, `Recording rules (${recording.length})`),
      this.fold("recording", "what they record", () =>
        this.table("recording", ["State", "Rule", "Evaluated"], recording.map((rule) => this.record(rule)))));
    this.sift();
  }

  /** Hides the lines that do not hold every word of the filter. */
  sift() {
    const words = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    for (const line of this.body.querySelectorAll("tbody tr")) {
      const text = line.textContent.toLowerCase();
      line.hidden = !words.every((word) => text.includes(word));
    }
  }

  /** Goes to the alert, or the part, that the address names. */
  anchored() {
    const name = decodeURIComponent(location.hash.slice(1));
    if (!name) return;
    const rows = [...this.body.querySelectorAll("tr[data-rule]")];
    const row = rows.find((one) => one.dataset.rule === name) ?? document.getElementById(name);
    for (const one of rows) one.classList.toggle("marked", one.dataset.rule === name);
    row?.scrollIntoView({ block: "center" });
    this.wanted = name;
  }

  /** Firing before pending; what is meant to fire always comes last. */
  weight(alert) {
    return ORDER[alert.state] + (alert.labels.severity === "none" ? 10 : 0);
  }

  counts(alerting, broken) {
    const wanted = alerting.filter((rule) => rule.labels.severity !== "none");
    const count = (state) => wanted.filter((rule) => rule.state === state).length;
    const one = (number, text, kind) => el(`span.badge.${number ? kind : "ok"}`, {}, `${number} ${text}`);
    return el("div.counts", {}, one(count("firing"), "firing", "bad"), one(count("pending"), "pending", "warn"),
      one(count("inactive"), "inactive", "ok"), one(broken.length, "failing to evaluate", "bad"));
  }

  table(name, heads, rows) {
    return el("table.list", { data: { list: name } },
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", {}, head)))), el("tbody", {}, rows));
  }

  line(name, state, ...cells) {
    return el(`tr${name === this.wanted ? ".marked" : ""}`, { data: { state, rule: name } }, ...cells);
  }

  /** A list that is long and seldom read; it stays open over refreshes. */
  fold(name, title, content) {
    const open = this.unfolded.has(name);
    const box = el("details.fold", { open }, el("summary", {}, title), open ? content() : null);
    box.addEventListener("toggle", () => {
      if (box.open === this.unfolded.has(name)) return;
      if (box.open) this.unfolded.add(name);
      else this.unfolded.delete(name);
      box.replaceChildren(box.firstChild, ...(box.open ? [content()] : []));
    });
    return box;
  }

  /** A watchdog has no severity: that it fires is as it should be. */
  badge(state, severity) {
    const kind = severity === "none" && state === "firing" ? "ok" : CLASS[state];
    return el("td", {}, el(`span.badge.${kind}`, {}, state));
  }

  /** Name, annotations and labels of an alert, and what to do about it. */
  told(alert, acts) {
    const { alertname, severity, ...labels } = alert.labels;
    const { summary, description } = alert.annotations;
    const action = acts ? actionOf(alert.annotations, this.book) : null;
    const more = Object.entries(alert.annotations).filter(([name]) => !PLACED.includes(name));
    const where = Object.entries(labels).map(([name, value]) => `${name}=${value}`).join("  ");
    return el("td", {}, el("strong", {}, alertname), el("div.lead", {}, summary ?? ""),
      description ? el("div.lead", {}, description) : null,
      action ? el("div.now", {}, el("b", {}, "What now? "), marked(action)) : null,
      more.map(([name, text]) => el("div.lead", {}, `${name}: ${text}`)), el("div.expr", {}, where));
  }

  links(annotations) {
    const anchor = anchorOf(annotations);
    const uid = boardOf(annotations);
    return el("td.links", {},
      panelOf(annotations, this.list) ? el("a", { href: seenAt(annotations, this.list) }, "panel") : null,
      uid ? el("a", { href: `/d/${encodeURIComponent(uid)}` }, "board") : null,
      anchor ? el("a", { href: sectionHref(anchor) }, "runbook") : null);
  }

  active({ alert, rule }) {
    const age = Date.now() / 1000 - seconds(alert.activeAt);
    const left = rule.duration - age;
    const next = alert.state === "pending" ? (left > 0 ? `fires in ${span(left)} if it stays` : "fires next")
      : alert.keepFiringSince ? `kept firing; gone since ${clock(alert.keepFiringSince)}` : "";
    return this.line(alert.labels.alertname, alert.state, this.badge(alert.state, alert.labels.severity),
      this.told(alert, alert.labels.severity !== "none"),
      el("td.value", { title: alert.value }, format(Number(alert.value), "short")),
      el("td", {}, clock(alert.activeAt), el("div.lead", {}, `for ${span(age)}`), el("div.lead", {}, next)),
      el("td", {}, alert.labels.severity ?? ""), this.links(alert.annotations));
  }

  ended(alert) {
    const length = span(seconds(alert.resolvedAt) - seconds(alert.activeAt));
    return this.line(alert.labels.alertname, "resolved", this.badge("resolved", ""), this.told(alert, false),
      el("td", {}, `${clock(alert.activeAt)} to ${clock(alert.resolvedAt)}`, el("div.lead", {}, `for ${length}`)),
      el("td", {}, alert.labels.severity ?? ""), this.links(alert.annotations));
  }

  rule(rule) {
    const keep = rule.keepFiringFor ? `, then ${span(rule.keepFiringFor)} more` : "";
    const hold = (rule.duration ? `for ${span(rule.duration)}` : "not at all") + keep;
    return this.line(rule.name, rule.state, this.badge(rule.state, rule.labels.severity),
      el("td", {}, el("strong", {}, rule.name), el("div.expr", {}, rule.query)),
      el("td", {}, rule.labels.severity ?? ""), el("td", {}, hold), this.evaluated(rule), this.links(rule.annotations ?? {}));
  }

  record(rule) {
    const health = rule.health === "err" ? "bad" : rule.health === "ok" ? "ok" : "warn";
    return el("tr", {}, el("td", {}, el(`span.badge.${health}`, {}, rule.health)),
      el("td", {}, el("strong", {}, rule.name), el("div.expr", {}, rule.query)), this.evaluated(rule));
  }

  evaluated(rule) {
    if (never(rule.lastEvaluation)) return el("td", {}, "not yet");
    return el("td", {}, clock(rule.lastEvaluation), el("div.lead", {}, `every ${span(rule.group.interval)}`),
      rule.health === "err" ? el("span.badge.bad", {}, "fails") : null);
  }

  broken(rule) {
    return el("tr", {}, el("td", {}, el("strong", {}, rule.name), el("div.expr", {}, rule.group.name)),
      el("td", {}, el("span.badge.bad", {}, rule.lastError ?? "")), el("td", {}, clock(rule.lastEvaluation)));
  }

  close() {
    this.abort.abort();
    clearTimeout(this.timer);
  }
}
