// What all panels with a time axis share: the uPlot instance, its axes, cursor, zoom and size.

import uPlot from "/vendor/uplot/uPlot.js";
import { theme } from "/js/colors.js";
import { el } from "/js/dom.js";
import { clock } from "/js/time.js";
import { CLOCK_STEPS } from "/js/units.js";
import * as tooltip from "/js/tooltip.js";

const SYNC = "board";
const FONT = '12px Inter, "Helvetica Neue", Helvetica, Arial, sans-serif';

/** Base of panels with a time axis: a subclass gives `options()`, `data()` and `tip(index)`. */
export class Plot {
  constructor(panel, context) {
    this.panel = panel;
    this.context = context;
    this.chart = el("div.chart");
    this.node = this.chart;
    this.plot = null;
    this.shape = "";
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
    const content = this.tip(idx, top);
    if (!content) return tooltip.hide();
    const box = plot.over.getBoundingClientRect();
    tooltip.show(box.left + left, box.top + top, ...content);
  }

  xAxis() {
    return {
      stroke: theme("text-dim"), font: FONT, size: 26, space: 64, gap: 5, incrs: CLOCK_STEPS,
      grid: this.grid(), ticks: { stroke: theme("grid"), width: 1, size: 4 },
      values: (_, ticks) => ticks.map((tick, index) =>
        ticks.length > 1 && ticks[1] - ticks[0] < 60 ? clock(tick) : clock(tick).slice(0, 5)),
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

/** Draws the events of a board (annotations) as dashed lines with a mark at the foot. */
export function drawEvents(plot, events) {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const event of events) {
    const x = Math.round(plot.valToPos(event.time, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = event.color;
    ctx.fillStyle = event.color;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const size = 5 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x - size, bbox.top + bbox.height + size);
    ctx.lineTo(x + size, bbox.top + bbox.height + size);
    ctx.lineTo(x, bbox.top + bbox.height - size / 2);
    ctx.fill();
  }
  ctx.restore();
}
