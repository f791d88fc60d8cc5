// Alerts: what fires or waits, what has just ended, what is broken, then every rule with its state.

import { get } from "/js/api.js";
import { el, link } from "/js/dom.js";
import { format } from "/js/units.js";

const EVERY = 5000;
const CLASS = { firing: "bad", pending: "warn", inactive: "ok", resolved: "ok" };
const ORDER = { firing: 0, pending: 1, inactive: 2 };
/** The runbook, at the same address as in Grafana. */
const RUNBOOK = "/public/sightline/runbook.md";
/** Annotations that have a place of their own. */
const PLACED = ["summary", "description", "dashboard", "runbook", "panel"];

const seconds = (text) => Date.parse(text) / 1000;
const clock = (text) => new Date(text).toLocaleTimeString("en-GB");
const never = (text) => text.startsWith("0001-");

/** A length of time in its two largest units. */
export function span(length) {
  const whole = Math.max(0, Math.round(length));
  const parts = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]
    .map(([unit, size], index, all) => [unit, Math.floor((index ? whole % all[index - 1][1] : whole) / size)]);
  const first = parts.findIndex(([, count]) => count > 0);
  if (first < 0) return "0s";
  return parts.slice(first, first + 2).filter(([, count]) => count > 0)
    .map(([unit, count]) => `${count}${unit}`).join(" ");
}

export class AlertPage {
  constructor(host) {
    this.host = host;
    this.abort = new AbortController();
    this.unfolded = new Set();
  }

  async open() {
    this.host.title("Alerts");
    this.body = el("div");
    this.host.main.replaceChildren(el("div.page", {},
      el("h1", {}, "Alerts"),
      el("p.lead", {}, "The generated rules, evaluated here over the stored metrics as Prometheus would."),
      this.body));
    await this.refresh();
  }

  async refresh() {
    clearTimeout(this.timer);
    if (!document.hidden) {
      try {
        const { signal } = this.abort;
        const [rules, resolved] = await Promise.all([
          get("/api/v1/rules", {}, signal), get("/console/api/resolved", {}, signal),
        ]);
        this.show(rules.groups, resolved.alerts);
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
      el("h2", {}, `Alerting rules (${alerting.length})`),
      this.table("alerting", ["State", "Rule", "Severity", "Waits", "Evaluated"], alerting.map((rule) => this.rule(rule))),
      el("h2", {}, `Recording rules (${recording.length})`),
      this.fold("recording", "what they record", () =>
        this.table("recording", ["State", "Rule", "Evaluated"], recording.map((rule) => this.record(rule)))));
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

  /** Name, annotations and labels of an alert. */
  told(alert) {
    const { alertname, severity, ...labels } = alert.labels;
    const { summary, description } = alert.annotations;
    const more = Object.entries(alert.annotations).filter(([name]) => !PLACED.includes(name));
    const where = Object.entries(labels).map(([name, value]) => `${name}=${value}`).join("  ");
    return el("td", {}, el("strong", {}, alertname), el("div.lead", {}, summary ?? ""),
      description ? el("div.lead", {}, description) : null,
      more.map(([name, text]) => el("div.lead", {}, `${name}: ${text}`)), el("div.expr", {}, where));
  }

  links({ dashboard, runbook }) {
    return el("td.links", {},
      dashboard ? link("board", `/d/${encodeURIComponent(dashboard)}`) : "",
      runbook ? link("runbook", `${RUNBOOK}#${encodeURIComponent(runbook)}`) : "");
  }

  active({ alert, rule }) {
    const age = Date.now() / 1000 - seconds(alert.activeAt);
    const left = rule.duration - age;
    const next = alert.state === "pending" ? (left > 0 ? `fires in ${span(left)} if it stays` : "fires next")
      : alert.keepFiringSince ? `kept firing; gone since ${clock(alert.keepFiringSince)}` : "";
    return el("tr", { data: { state: alert.state } }, this.badge(alert.state, alert.labels.severity), this.told(alert),
      el("td.value", { title: alert.value }, format(Number(alert.value), "short")),
      el("td", {}, clock(alert.activeAt), el("div.lead", {}, `for ${span(age)}`), el("div.lead", {}, next)),
      el("td", {}, alert.labels.severity ?? ""), this.links(alert.annotations));
  }

  ended(alert) {
    const length = span(seconds(alert.resolvedAt) - seconds(alert.activeAt));
    return el("tr", { data: { state: "resolved" } }, this.badge("resolved", ""), this.told(alert),
      el("td", {}, `${clock(alert.activeAt)} to ${clock(alert.resolvedAt)}`, el("div.lead", {}, `for ${length}`)),
      el("td", {}, alert.labels.severity ?? ""), this.links(alert.annotations));
  }

  rule(rule) {
    const keep = rule.keepFiringFor ? `, then ${span(rule.keepFiringFor)} more` : "";
    const hold = (rule.duration ? `for ${span(rule.duration)}` : "not at all") + keep;
    return el("tr", { data: { state: rule.state } }, this.badge(rule.state, rule.labels.severity),
      el("td", {}, el("strong", {}, rule.name), el("div.expr", {}, rule.query)),
      el("td", {}, rule.labels.severity ?? ""), el("td", {}, hold), this.evaluated(rule));
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
