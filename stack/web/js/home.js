// Home: is everything well, and which boards are there.

import * as api from "/js/api.js";
import { el } from "/js/dom.js";
import { format } from "/js/units.js";

const EVERY = 5000;

const FACTS = [
  ["Requests", 'sum(rate(sightline_requests_admitted_total[1m]))', "reqps"],
  ["Generated", 'sum(rate(sightline_generation_tokens_total[1m]))', "count:tok/s"],
  ["TTFT p95", 'histogram_quantile(0.95, sum by (le) (rate(sightline_time_to_first_token_seconds_bucket[1m])))', "s"],
];

export class HomePage {
  constructor(host) {
    this.host = host;
    this.abort = new AbortController();
  }

  async open() {
    this.host.title("");
    const first = (board) => (board.uid.endsWith("-overview") ? 0 : 1);
    this.boards = (await api.boards()).sort((a, b) => first(a) - first(b) || a.title.localeCompare(b.title));
    this.facts = el("div.facts");
    this.cards = el("div.cards");
    this.places = el("table.list");
    this.host.main.replaceChildren(el("div.page", {},
      el("h1", {}, "Sightline"),
      el("p.lead", {}, "What the model server does, now and over the last hours."),
      this.facts, el("h2", {}, "Boards"), this.cards, el("h2", {}, "Where things are"), this.places));
    await this.refresh();
  }

  async refresh() {
    clearTimeout(this.timer);
    if (!document.hidden) {
      try {
        await this.load();
      } catch (error) {
        if (this.abort.signal.aborted) return;
        this.facts.replaceChildren(this.fact("Console", `not answering: ${error.message}`));
      }
    }
    if (!this.abort.signal.aborted) this.timer = setTimeout(() => this.refresh(), EVERY);
  }

  async load() {
    const { signal } = this.abort;
    const queries = [...FACTS.map(([, query]) => ({ query })), { query: "sightline_served_model_info" }];
    const [targets, alerts, answers] = await Promise.all([
      api.get("/api/v1/targets", {}, signal), api.get("/api/v1/alerts", {}, signal), api.batch(queries, signal),
    ]);
    const number = (answer) => {
      const text = answer.data?.result?.[0]?.value?.[1];
      return text === undefined || text === "NaN" ? null : Number(text);
    };
    const model = answers[FACTS.length].data?.result?.[0]?.metric?.model_name ?? "none yet";
    const up = targets.activeTargets.filter((target) => target.health === "up").length;
    this.facts.replaceChildren(
      this.fact("Model", model),
      this.fact("Processes up", `${up} of ${targets.activeTargets.length}`),
      ...FACTS.map(([name, , unit], index) => this.fact(name, format(number(answers[index]), unit))));
    this.list(targets.activeTargets);
    this.cards.replaceChildren(...this.boards.map((board) => this.card(board, alerts.alerts)));
  }

  /** Addresses of every process and of this console. */
  list(targets) {
    const row = (name, ...cells) => el("tr", {}, el("td", {}, name), ...cells.map((cell) => el("td", {}, cell)));
    const address = (url) => el("a", { href: url, target: "_blank", rel: "noreferrer" }, url);
    const processes = targets.map((target) => {
      const base = target.scrapeUrl.replace(/\/metrics$/, "");
      const state = el(`span.badge.${target.health === "up" ? "ok" : "bad"}`, {}, target.health);
      // The exporter of a node answers no prompts; it has a verdict.
      const place = target.labels.job === "sightline-node" ? address(`${base}/health`) : el("code", {}, `${base}/v1`);
      return row(target.labels.job, place, address(target.scrapeUrl), state);
    });
    const here = location.origin;
    this.places.replaceChildren(el("tbody", {}, ...processes,
      row("Prometheus API", el("code", {}, `${here}/api/v1`), address(`${here}/api/v1/query?query=up`), ""),
      row("Rules", el("a", { href: "/alerts" }, "alerts and recording rules"), address(`${here}/api/v1/rules`), "")));
  }

  fact(label, text) {
    return el("div.fact", {}, el("div.label", {}, label), el("div.big", { title: text }, text));
  }

  card(board, alerts) {
    const own = alerts.filter((alert) => alert.labels.severity !== "none"
      && (alert.annotations.dashboard === board.uid || (alert.annotations.dashboard_url ?? "").includes(`/d/${board.uid}`)));
    const firing = own.filter((alert) => alert.state === "firing").length;
    const state = firing ? "firing" : own.length ? "pending" : "quiet";
    const text = firing ? `${firing} firing` : own.length ? `${own.length} pending` : "no alerts";
    return el(`a.card.${state}`, { href: `/d/${board.uid}` },
      el("h3", {}, board.title.replace(/^Sightline \/ /, "")), el("p", {}, board.description),
      el("div", {}, el(`span.badge.${firing ? "bad" : own.length ? "warn" : "ok"}`, {}, text)));
  }

  close() {
    this.abort.abort();
    clearTimeout(this.timer);
  }
}
