// The frame of a panel: title, description, links, and the state of its body (`data-state`):
// waiting; drawn; said (the board's own words for no value); empty ("No data"); error or
// unsupported, with the reason. A panel is never blank.

import { el, icon, link, marked } from "/js/dom.js";
import { frames } from "/js/frames.js";
import * as tooltip from "/js/tooltip.js";
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
};
/** Panels that are drawn anew each time. */
const DRAWN = { stat, gauge, bargauge: barGauge };

export class Panel {
  /** `context` gives `replace(text, view)`, `zoom(from, to)`, `open(id)` and `events`. */
  constructor(json, context) {
    this.json = json;
    this.context = context;
    this.view = null;
    this.answered = false;
    this.visible = false;
    this.body = el("div.body");
    this.busy = el("div.busy", { hidden: true });
    this.node = el("section.panel", { data: { panel: json.id, type: json.type, state: "waiting" } },
      this.busy, this.header(), this.body);
    if (json.type === "text") {
      this.set("drawn", text(json));
    } else if (!LASTING[json.type] && !DRAWN[json.type]) {
      this.message("unsupported", `This console cannot draw panels of type "${json.type}".`);
    } else {
      this.message("waiting", "Loading");
    }
  }

  header() {
    const { title, description, links = [], id } = this.json;
    const open = el("button.open", { title: "View this panel alone", onclick: () => this.context.open(id) }, icon("open"));
    const info = description
      ? el("button.info", { type: "button", "aria-label": description }, icon("info")) : null;
    if (info) tooltip.attach(info, () => [el("div", {}, marked(description))]);
    const linked = links.map((one) => {
      const anchor = link("", this.context.href(one), { className: "info", "aria-label": one.title });
      if (anchor instanceof HTMLElement) anchor.append(icon("link"));
      tooltip.attach(anchor, () => [el("div", {}, one.title || one.url)]);
      return anchor;
    });
    return el("header", {}, el("h3", { title: title || "" }, title || ""), info, ...linked, open);
  }

  /** The queries of this panel for a window; none for panels without data. */
  queries(view) {
    const range = view.end - view.start || view.step;
    const replace = (expr) => this.context.replace(expr, { step: view.step, range });
    return (this.json.targets ?? []).filter((target) => target.expr && !target.hide).map((target) => ({
      target,
      query: target.instant && !target.range
        ? { query: replace(target.expr), time: view.end }
        : { query: replace(target.expr), start: view.start, end: view.end, step: view.step },
    }));
  }

  /** Draws answers that belong to the queries of the same window. */
  update(asked, answers, view, events) {
    this.busy.hidden = true;
    const failed = answers.find((answer) => answer.error);
    if (failed) return this.message("error", "Query failed", failed.error);
    const paired = asked.map(({ target }, index) => ({ target, data: answers[index]?.data }));
    try {
      return this.render(frames(this.json, paired, view), view, events);
    } catch (error) {
      return this.message("error", "Drawing failed", String(error?.message ?? error));
    }
  }

  render(series, view, events) {
    const present = series.filter((one) =>
      one.values ? one.values.some((value) => value !== null) : one.value !== undefined);
    if (present.length === 0) {
      const said = this.json.fieldConfig?.defaults?.noValue;
      return this.message(said ? "said" : "empty", said ?? "No data");
    }
    const Lasting = LASTING[this.json.type];
    if (!Lasting) return this.set("drawn", DRAWN[this.json.type](this.json, present, this.size()));
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

  message(state, text, detail = null) {
    const kind = state === "error" || state === "unsupported" ? "div.message.error" : "div.message";
    this.set(state, el(kind, {}, el("div", {}, text), detail ? el("div.detail", {}, detail) : null));
  }

  set(state, node, close = true) {
    if (close) this.closeView();
    this.node.dataset.state = state;
    this.body.replaceChildren(node);
  }

  waiting() {
    this.busy.hidden = false;
  }

  resize() {
    this.view?.resize?.();
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
