// The frame of a panel: title, description, links, alerts, and the state of its body
// (`data-state`): waiting; drawn; said (the board's own words for no value); empty ("No data");
// error or unsupported, with the reason. A panel is never blank.

import { el, icon, link, marked } from "/js/dom.js";
import { frames } from "/js/frames.js";
import { span } from "/js/time.js";
import * as tooltip from "/js/tooltip.js";
import { BarChart } from "/js/panels/barchart.js";
import { draw as barGauge } from "/js/panels/bargauge.js";
import { draw as gauge } from "/js/panels/gauge.js";
import { Heatmap } from "/js/panels/heatmap.js";
import { draw as stat } from "/js/panels/stat.js";
import { StateTimeline } from "/js/panels/statetimeline.js";
import { Table } from "/js/panels/table.js";
import { draw as text } from "/js/panels/text.js";
import { TimeSeries } from "/js/panels/timeseries.js";

/** Panels that keep their drawing between refreshes. */
const LASTING = {
  timeseries: TimeSeries, heatmap: Heatmap, "state-timeline": StateTimeline, table: Table,
  barchart: BarChart,
};
/** Panels that are drawn anew each time. */
const DRAWN = { stat, gauge, bargauge: barGauge };

export class Panel {
  /** `context`: see `BoardView.context`. */
  constructor(json, context) {
    this.json = json;
    this.context = context;
    this.view = null;
    this.answered = false;
    this.visible = false;
    this.body = el("div.body");
    this.busy = el("div.busy", { hidden: true });
    this.node = el("section.panel", {
      tabIndex: -1, "aria-label": json.title || json.type,
      data: { panel: json.id, type: json.type, state: "waiting" },
    }, this.busy, this.header(), this.body);
    if (json.type === "text") {
      this.set("drawn", text(this.filled(json)));
    } else if (!LASTING[json.type] && !DRAWN[json.type]) {
      this.message("unsupported", `This console cannot draw panels of type "${json.type}".`);
    } else if (!this.asks()) {
      this.message("error", "This panel asks for nothing", "it has no query");
    } else {
      this.message("waiting", "Loading");
    }
  }

  /** The panel with variables in its words. */
  filled(json) {
    const content = this.context.words(String(json.options?.content ?? ""));
    return { ...json, options: { ...json.options, content } };
  }

  /** Whether there is something to ask for. */
  asks() {
    const known = LASTING[this.json.type] || DRAWN[this.json.type];
    return Boolean(known) && (this.json.targets ?? []).some((target) => target.expr && !target.hide);
  }

  header() {
    const { title, description, links = [], id } = this.json;
    const name = this.context.words(title || "");
    const button = (kind, label, act) => {
      const node = el(`button.tool.${kind}`, { type: "button", "aria-label": label, title: label, onclick: act }, icon(kind));
      return node;
    };
    const info = description ? el("button.info", { type: "button", "aria-label": description }, icon("info")) : null;
    if (info) tooltip.attach(info, () => [el("div", {}, marked(description))]);
    const named = (one) => /^\/alerts#(\w+)$/.exec(this.context.href(one))?.[1];
    this.rules = links.map(named).filter(Boolean).map((name) => ({ rule: { name }, state: "inactive" }));
    const linked = links.filter((one) => !named(one)).map((one) => this.link(one));
    this.bell = el("a.info.bell", { hidden: this.rules.length === 0, href: `/alerts#${this.rules[0]?.rule.name}`, "aria-label": "Alerts" }, icon("bell"));
    tooltip.attach(this.bell, () => this.alertTip());
    this.warning = el("button.info.partial", { type: "button", hidden: true, "aria-label": "A query failed" }, icon("warn"));
    tooltip.attach(this.warning, () => [el("div", {}, this.warned)]);
    return el("header", {}, el("h3", { title: name }, name), info, ...linked, this.bell, this.warning,
      el("span.spring"), button("inspect", "Queries and data  (i)", () => this.context.inspect(this)),
      button("open", "View this panel alone  (v)", () => this.context.open(id)));
  }

  /** A link of the JSON as an icon that says where it leads. */
  link(one) {
    const target = one.targetBlank && /^https?:/.test(one.url) ? "_blank" : null;
    const anchor = link("", this.context.href(one), { className: "info", "aria-label": one.title, target });
    if (anchor instanceof HTMLElement) anchor.append(icon({ doc: "doc", dashboard: "board" }[one.icon] ?? "link"));
    tooltip.attach(anchor, () => [el("div", {}, one.title || one.url)]);
    return anchor;
  }

  /** Takes the alerts that watch this panel, and all that are active. */
  tell(rules, active) {
    const more = this.rules.filter(({ rule }) => !rules.some((known) => known.name === rule.name));
    this.rules = [...rules, ...more.map(({ rule }) => rule)].map((rule) => {
      const own = active.filter((alert) => alert.labels.alertname === rule.name);
      const state = own.some((alert) => alert.state === "firing") ? "firing" : own.length ? "pending" : "inactive";
      return { rule, state };
    });
    this.bell.hidden = this.rules.length === 0;
    const state = ["firing", "pending"].find((one) => this.rules.some((rule) => rule.state === one)) ?? "inactive";
    const loudest = this.rules.find((one) => one.state === state);
    this.bell.dataset.state = state;
    this.node.dataset.alert = state;
    if (!loudest) return;
    this.bell.setAttribute("aria-label", `${loudest.rule.name}: ${state}`);
    this.bell.href = `/alerts#${loudest.rule.name}`;
  }

  alertTip() {
    const kind = { firing: "bad", pending: "warn", inactive: "ok" };
    return [el("div.when", {}, "Alerts that watch this panel"), ...this.rules.map(({ rule, state }) => el("div.rule", {},
      el(`span.badge.${kind[state]}`, {}, state), ` ${rule.name}`, rule.duration ? ` (after ${span(rule.duration)})` : ""))];
  }

  /** The queries of this panel for a window; none for panels without data. */
  queries(view) {
    this.asked = (this.json.targets ?? []).filter((target) => target.expr && !target.hide).map((target) => {
      const query = this.context.replace(target.expr, view);
      return {
        target,
        query: target.instant && !target.range ? { query, time: view.end }
          : { query, start: view.start, end: view.end, step: view.step },
      };
    });
    return this.asked;
  }

  /** Draws answers that belong to the queries of the same window. */
  update(asked, answers, view, events) {
    this.busy.hidden = true;
    this.last = { asked, answers, view, events };
    const failed = answers.findIndex((answer) => answer.error);
    const paired = asked.map(({ target }, index) => ({ target, data: answers[index]?.data }));
    this.warning.hidden = true;
    this.warned = failed < 0 ? "" : `${answers[failed].error}\n${asked[failed].query.query}`;
    try {
      const series = frames(this.json, paired, view);
      if (failed >= 0 && series.length === 0) {
        return this.message("error", "Query failed", answers[failed].error, asked[failed].query.query);
      }
      this.warning.hidden = failed < 0;
      return this.render(series, view, events);
    } catch (error) {
      return this.message("error", "Drawing failed", String(error?.message ?? error));
    }
  }

  /** The same answers again, in the colours of now. */
  redraw() {
    if (this.last) this.update(this.last.asked, this.last.answers, this.last.view, this.last.events);
  }

  render(series, view, events) {
    this.series = series;
    const present = series.filter((one) =>
      one.values ? one.values.some((value) => value !== null) : one.value !== undefined);
    if (present.length === 0) {
      const said = this.json.fieldConfig?.defaults?.noValue;
      return this.message(said ? "said" : "empty", said ?? "No data");
    }
    const Lasting = LASTING[this.json.type];
    if (!Lasting) return this.set("drawn", DRAWN[this.json.type](this.json, present, this.size(), this.context));
    if (!this.view) {
      this.view = new Lasting(this.json, this.context);
      this.set("drawn", this.view.node, false);
    }
    this.node.dataset.state = "drawn";
    return this.view.update(present, view, events);
  }

  size() {
    const { width, height } = this.body.getBoundingClientRect();
    return { width: Math.max(40, width - 16), height: Math.max(20, height - 8) };
  }

  /** Words instead of a drawing; an error has a reason, its query, and a way to try again. */
  message(state, words, detail = null, query = null) {
    const error = state === "error" || state === "unsupported";
    this.set(state, el(error ? "div.message.error" : "div.message", { role: error ? "alert" : null },
      el("div", {}, words), detail ? el("div.detail", {}, detail) : null, query ? el("code.query", {}, query) : null,
      state === "error" ? el("button.button", { type: "button", onclick: () => this.context.again() }, "Try again") : null));
  }

  set(state, node, close = true) {
    if (close) this.closeView();
    this.node.dataset.state = state;
    this.body.replaceChildren(node);
  }

  waiting() {
    this.busy.hidden = false;
  }

  /** On the full screen, and back. */
  full() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.node.requestFullscreen?.().catch(() => {});
  }

  closeView() {
    this.view?.close?.();
    this.view = null;
  }

  close() {
    this.closeView();
    this.node.remove();
  }
}
