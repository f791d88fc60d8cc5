// Home: is everything well, what to do where it is not, and which boards are there.

import * as api from "/js/api.js";
import { line } from "/js/banner.js";
import { el } from "/js/dom.js";
import { facts } from "/js/facts.js";
import { follow } from "/js/live.js";
import { sections } from "/js/runbook.js";
import { format } from "/js/units.js";
import { boardOf, seenAt } from "/js/watch.js";

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
    const told = await facts();
    [this.boards, this.store] = [told.boards, told.mode === "store"];
    this.facts = el("div.facts");
    this.banner = el("ul.banner", { hidden: true, "aria-label": "Firing alerts" });
    this.cards = el("div.cards");
    this.places = el("table.list");
    this.host.main.replaceChildren(el("div.page", {},
      el("h1", {}, "Sightline"),
      el("p.lead", {}, this.store ? "What the model server does, now and over the last hours."
        : `What the model servers do, as ${told.source} tells.`),
      told.problem ? el("p.badge.bad", {}, told.problem) : null,
      this.facts, this.banner, el("h2", {}, "Boards"), this.cards,
      el("h2", { id: "places" }, "Where things are"), this.places));
    this.cards.replaceChildren(...this.boards.map((board) => this.card(board, [])));
    this.end = follow((now) => this.tell(now));
    await this.refresh();
    this.anchored();
  }

  anchored() {
    const place = location.hash && document.getElementById(location.hash.slice(1));
    place?.scrollIntoView?.();
  }

  async tell({ active }) {
    const firing = active.filter((alert) => alert.state === "firing");
    const book = firing.length ? await sections() : null;
    this.banner.hidden = firing.length === 0;
    this.banner.replaceChildren(...firing.slice(0, 5).map((alert) => {
      const seen = seenAt(alert.annotations, this.boards);
      return line(alert, book, seen ? el("a", { href: seen }, "panel") : null);
    }));
    this.cards.replaceChildren(...this.boards.map((board) => this.card(board, active)));
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
    const [targets, answers] = await Promise.all([this.targets(signal), api.batch(queries, signal)]);
    const number = (answer) => {
      const text = answer.data?.result?.[0]?.value?.[1];
      return text === undefined || text === "NaN" ? null : Number(text);
    };
    // A Prometheus of another engine knows none of these.
    const known = (index) => this.store || number(answers[index]) !== null;
    const model = answers[FACTS.length].data?.result?.[0]?.metric?.model_name ?? "none yet";
    const up = targets.filter((target) => target.health === "up").length;
    this.facts.replaceChildren(
      ...(this.store || model !== "none yet" ? [this.fact("Model", model)] : []),
      this.fact("Processes up", `${up} of ${targets.length}`),
      ...FACTS.map(([name, , unit], index) => [index, this.fact(name, format(number(answers[index]), unit))])
        .filter(([index]) => known(index)).map(([, fact]) => fact));
    this.list(targets);
  }

  /** Targets as the store scrapes them, or as any Prometheus knows them by `up`. */
  async targets(signal) {
    if (this.store) return (await api.get("/api/v1/targets", {}, signal)).activeTargets;
    const { result } = await api.get("/api/v1/query", { query: "up" }, signal);
    return result.map(({ metric, value }) => ({ labels: metric, health: value[1] === "1" ? "up" : "down", scrapeUrl: null }));
  }

  /** Addresses of every process and of this console. */
  list(targets) {
    const row = (name, ...cells) => el("tr", {}, el("td", {}, name), ...cells.map((cell) => el("td", {}, cell)));
    const address = (url) => el("a", { href: url, target: "_blank", rel: "noreferrer" }, url);
    const processes = targets.map((target) => {
      const state = el(`span.badge.${target.health === "up" ? "ok" : "bad"}`, {}, target.health);
      if (!target.scrapeUrl) return row(target.labels.job ?? "", el("code", {}, target.labels.instance ?? ""), "", state);
      const base = target.scrapeUrl.replace(/\/metrics$/, "");
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

  card(board, active) {
    const own = active.filter((alert) => boardOf(alert.annotations) === board.uid);
    const firing = own.filter((alert) => alert.state === "firing").length;
    const state = firing ? "firing" : own.length ? "pending" : "quiet";
    const text = firing ? `${firing} firing` : own.length ? `${own.length} pending` : "no alerts";
    return el(`a.card.${state}`, { href: `/d/${board.uid}` },
      el("h3", {}, board.title.replace(/^Sightline \/ /, "")), el("p", {}, board.description),
      el("div", {}, el(`span.badge.${firing ? "bad" : own.length ? "warn" : "ok"}`, {}, text)));
  }

  close() {
    this.abort.abort();
    this.end?.();
    clearTimeout(this.timer);
  }
}
