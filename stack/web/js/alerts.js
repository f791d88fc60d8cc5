// Alerts: what fires or waits, then every rule with its state.

import { get } from "/js/api.js";
import { el, link } from "/js/dom.js";

const EVERY = 5000;
const CLASS = { firing: "bad", pending: "warn", inactive: "ok" };
const ORDER = { firing: 0, pending: 1, inactive: 2 };

export class AlertPage {
  constructor(host) {
    this.host = host;
    this.abort = new AbortController();
  }

  async open() {
    this.host.title("Alerts");
    this.body = el("div");
    this.host.main.replaceChildren(el("div.page", {},
      el("h1", {}, "Alerts"),
      el("p.lead", {}, "The generated rules, evaluated here every few seconds."), this.body));
    await this.refresh();
  }

  async refresh() {
    clearTimeout(this.timer);
    if (!document.hidden) {
      try {
        const data = await get("/api/v1/rules", {}, this.abort.signal);
        this.show(data.groups);
      } catch (error) {
        if (this.abort.signal.aborted) return;
        this.body.replaceChildren(el("div.notice", {}, error.message));
      }
    }
    if (!this.abort.signal.aborted) this.timer = setTimeout(() => this.refresh(), EVERY);
  }

  show(groups) {
    const rules = groups.flatMap((group) => group.rules);
    const alerting = rules.filter((rule) => rule.type === "alerting")
      .sort((a, b) => ORDER[a.state] - ORDER[b.state] || a.name.localeCompare(b.name));
    const broken = rules.filter((rule) => rule.health === "err");
    const active = alerting.flatMap((rule) => rule.alerts)
      .sort((a, b) => Number(a.labels.severity === "none") - Number(b.labels.severity === "none"));
    this.body.replaceChildren(
      el("h2", {}, "Active"),
      active.length ? this.table(active.map((alert) => this.active(alert))) : el("p.lead", {}, "Nothing fires or waits."),
      ...(broken.length ? [el("h2", {}, "Rules that fail"), this.table(broken.map((rule) => this.broken(rule)))] : []),
      el("h2", {}, `Rules (${alerting.length})`),
      this.table(alerting.map((rule) => this.rule(rule))));
  }

  table(rows) {
    return el("table.list", {}, el("tbody", {}, rows));
  }

  /** A watchdog has no severity: that it fires is as it should be. */
  badge(state, severity) {
    const kind = severity === "none" && state === "firing" ? "ok" : CLASS[state];
    return el("td", {}, el(`span.badge.${kind}`, {}, state));
  }

  active(alert) {
    const { alertname, severity, ...labels } = alert.labels;
    const { summary, dashboard } = alert.annotations;
    const where = Object.entries(labels).map(([name, value]) => `${name}=${value}`).join("  ");
    return el("tr", {}, this.badge(alert.state, severity),
      el("td", {}, el("strong", {}, alertname), el("div.lead", {}, summary ?? ""), el("div.expr", {}, where)),
      el("td", {}, severity ?? ""), el("td", {}, alert.activeAt.slice(11, 19)),
      el("td", {}, dashboard ? link("board", `/d/${encodeURIComponent(dashboard)}`) : ""));
  }

  rule(rule) {
    const hold = rule.duration ? `for ${rule.duration} s` : "at once";
    return el("tr", {}, this.badge(rule.state, rule.labels.severity),
      el("td", {}, el("strong", {}, rule.name), el("div.expr", {}, rule.query)),
      el("td", {}, rule.labels.severity ?? ""), el("td", {}, hold));
  }

  broken(rule) {
    return el("tr", {}, el("td", {}, el("strong", {}, rule.name)), el("td", {}, rule.lastError ?? ""));
  }

  close() {
    this.abort.abort();
    clearTimeout(this.timer);
  }
}
