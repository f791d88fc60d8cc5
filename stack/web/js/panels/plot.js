// What all panels with a time axis share: the uPlot instance, its axes, cursor, zoom and size.

import uPlot from "/vendor/uplot/uPlot.js";
import { theme } from "/js/colors.js";
import { el } from "/js/dom.js";
import { clock, day, span, stamp } from "/js/time.js";
import { CLOCK_STEPS } from "/js/units.js";
import * as tooltip from "/js/tooltip.js";

const SYNC = "board";
const FONT = '12px Inter, "Helvetica Neue", Helvetica, Arial, sans-serif';

/** A mark is under the pointer within so many pixels. */
const NEAR = 7;

/** Base of panels with a time axis: a subclass gives `options()` and `tip(index, top)`, and
 * `links(index)` where its series have such. */
export class Plot {
  constructor(panel, context) {
    this.panel = panel;
    this.context = context;
    this.chart = el("div.chart");
    this.node = this.chart;
    this.plot = null;
    this.shape = "";
    this.events = [];
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.chart);
  }

  /** Redraws with new data; makes a new plot only when the shape (series, axes) has changed. */
  show(shape, data, view) {
    this.window = view;
    if (this.plot && shape === this.shape) {
      this.plot.setData(data, false);
      this.plot.setScale("x", { min: view.from, max: view.to });
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    const { clientWidth: width, clientHeight: height } = this.chart;
    const options = { width: Math.max(width, 60), height: Math.max(height, 40), ...this.common(), ...this.options() };
    options.scales = { x: { time: true, range: () => [this.window.from, this.window.to] }, ...options.scales };
    this.plot = new uPlot(options, data, this.chart);
    this.plot.over.addEventListener("click", () => this.pin());
  }

  common() {
    return {
      legend: { show: false },
      padding: [8, 20, 0, 0],
      cursor: {
        sync: { key: SYNC, setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 6, width: 1 },
        y: false,
      },
      hooks: {
        setSelect: [(plot) => this.zoom(plot)],
        setCursor: [(plot) => this.point(plot)],
      },
    };
  }

  zoom(plot) {
    const { left, width } = plot.select;
    if (width < 6) return;
    const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.context.zoom(from, to);
  }

  /** The tooltip belongs to the plot under the pointer; others only show the shared cursor. */
  point(plot) {
    const over = plot.over.matches(":hover");
    const { left, top, idx } = plot.cursor;
    if (!over || left < 0 || idx === null || idx === undefined) {
      if (this.pointed) tooltip.hide();
      this.pointed = false;
      return;
    }
    this.pointed = true;
    const content = [...(this.tip(idx, top) ?? []), ...this.notes(left)];
    if (content.length === 0) return tooltip.hide();
    if (this.links?.(idx, top).length) content.push(el("div.note.hint", {}, "click for links"));
    const box = plot.over.getBoundingClientRect();
    tooltip.show(box.left + left, box.top + top, ...content);
  }

  /** A click lets the tooltip stay, with the links of the nearest series. */
  pin() {
    const { idx, top } = this.plot.cursor;
    if (idx === null || idx === undefined) return;
    const links = this.links?.(idx, top) ?? [];
    if (links.length === 0) return;
    tooltip.pin(...links.map(({ title, href, blank }) => el("div.note", {},
      el("a", { href, target: blank ? "_blank" : null, rel: "noreferrer" }, title))));
  }

  /** The marks under the pointer, in words. */
  notes(left) {
    return this.events.filter((event) => {
      const [from, to] = [event.begun ? event.end : event.time, event.end].map((time) => this.plot.valToPos(time, "x"));
      return left > Math.min(from, to) - NEAR && left < to + NEAR;
    }).slice(0, 8).map((event) => el("div.note", {}, el("div", { style: { color: event.color } }, event.title),
      event.text ? el("div", {}, event.text) : null,
      el("div.when", {}, stamp(event.time), event.end > event.time ? `, for ${span(event.end - event.time)}` : "")));
  }

  xAxis() {
    return {
      stroke: theme("text-dim"), font: FONT, size: 26, space: 64, gap: 5, incrs: CLOCK_STEPS,
      grid: this.grid(), ticks: { stroke: theme("grid"), width: 1, size: 4 },
      values: (_, ticks) => labels(ticks),
    };
  }

  grid() {
    return { stroke: theme("grid"), width: 1 };
  }

  yAxis(values, extra = {}) {
    const size = (plot, texts) => {
      if (!texts?.length) return 40;
      plot.ctx.save();
      plot.ctx.font = FONT;
      const widest = Math.max(...texts.map((text) => plot.ctx.measureText(text).width));
      plot.ctx.restore();
      return Math.ceil(widest) + 14;
    };
    return {
      stroke: theme("text-dim"), font: FONT, size, space: 34, gap: 6, values,
      grid: this.grid(), ticks: { show: false }, ...extra,
    };
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.chart;
    if (!this.plot || width < 20 || height < 20) return;
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  close() {
    this.watcher.disconnect();
    this.plot?.destroy();
    this.plot = null;
    tooltip.hide();
  }
}

/** Times along the axis: with the day where one begins, days alone where no clock is needed. */
function labels(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  return ticks.map((tick, index) => {
    if (step >= 86400) return day(tick);
    const text = step < 60 ? clock(tick) : clock(tick).slice(0, 5);
    const turned = index > 0 && day(tick) !== day(ticks[index - 1]);
    return turned && step >= 60 ? `${day(tick)} ${text}` : text;
  });
}

/** Draws the marks of a board: a dashed line where one begins, a bar at the foot while it lasts. */
export function drawEvents(plot, events) {
  const { ctx, bbox } = plot;
  const foot = bbox.top + bbox.height;
  const right = bbox.left + bbox.width;
  const ratio = devicePixelRatio;
  ctx.save();
  for (const event of events) {
    const from = Math.round(plot.valToPos(event.time, "x", true));
    const to = Math.min(right, Math.round(plot.valToPos(event.end, "x", true)));
    ctx.strokeStyle = event.color;
    ctx.fillStyle = event.color;
    if (to > from && to > bbox.left) {
      ctx.globalAlpha = 0.55;
      ctx.fillRect(Math.max(bbox.left, from), foot, to - Math.max(bbox.left, from), 3 * ratio);
      ctx.globalAlpha = 1;
    }
    if (event.begun || from < bbox.left || from > right) continue;
    ctx.setLineDash([4 * ratio, 4 * ratio]);
    ctx.lineWidth = ratio;
    ctx.beginPath();
    ctx.moveTo(from, bbox.top);
    ctx.lineTo(from, foot);
    ctx.stroke();
    const size = 5 * ratio;
    ctx.beginPath();
    ctx.moveTo(from - size, foot + size);
    ctx.lineTo(from + size, foot + size);
    ctx.lineTo(from, foot - size / 2);
    ctx.fill();
  }
  ctx.restore();
}
