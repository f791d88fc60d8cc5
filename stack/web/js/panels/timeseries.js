// Time series: lines, areas, bars or points over time, stacked or not, with legend and thresholds.

import uPlot from "/vendor/uplot/uPlot.js";
import { alpha, byThreshold, color, palette, steps, theme } from "/js/colors.js";
import { el } from "/js/dom.js";
import { overridden, reduce, timesOf } from "/js/frames.js";
import { Legend } from "/js/legend.js";
import { linksOf } from "/js/links.js";
import { Plot, drawEvents } from "/js/panels/plot.js";
import { stamp } from "/js/time.js";
import { rows } from "/js/tooltip.js";
import { axisLabels, format, increments } from "/js/units.js";

export class TimeSeries extends Plot {
  constructor(panel, context) {
    super(panel, context);
    this.defaults = panel.fieldConfig?.defaults ?? {};
    this.custom = this.defaults.custom ?? {};
    this.hidden = new Set();
    this.legend = new Legend(panel, (name, alone) => this.toggle(name, alone));
    const right = panel.options?.legend?.placement === "right";
    this.node = el(right ? "div.beside" : "div.stack", {}, this.chart, this.legend.node);
  }

  update(series, view, events) {
    this.events = events;
    this.last = [series, view, events];
    this.series = series.map((one, index) => this.dress(one, index));
    this.legend.update(this.series.filter((one) => !one.hide.legend), this.hidden);
    const shown = this.series.filter((one) => !this.hidden.has(one.name) && !one.hide.viz);
    this.shown = shown;
    const data = [timesOf(view), ...this.stack(shown)];
    const shape = JSON.stringify([shown.map((one) => [one.name, one.css, one.axis, one.style]), document.documentElement.dataset.theme]);
    this.show(shape, data, view);
  }

  dress(one, index) {
    const own = overridden(this.panel, one);
    const fixed = own.color ?? (this.defaults.color?.mode === "fixed" ? this.defaults.color : null);
    const values = one.values ?? [];
    const hide = own["custom.hideFrom"] ?? this.custom.hideFrom ?? {};
    const turned = (own["custom.transform"] ?? this.custom.transform) === "negative-Y";
    return {
      ...one,
      values: turned ? values.map((value) => (value === null ? null : -value)) : values,
      hide, decimals: own.decimals ?? this.defaults.decimals,
      style: own["custom.drawStyle"] ?? this.custom.drawStyle, width: own["custom.lineWidth"] ?? this.custom.lineWidth ?? 1,
      css: fixed?.fixedColor ? color(fixed.fixedColor) : this.ownColor(one, index),
      unit: own.unit ?? this.defaults.unit,
      axis: own["custom.axisPlacement"] === "right" ? "right" : "y",
      dash: own["custom.lineStyle"]?.fill === "dash" ? own["custom.lineStyle"].dash ?? [8, 6] : null,
      fill: own["custom.fillOpacity"] ?? this.custom.fillOpacity ?? 0,
    };
  }

  /** By the order of the series, or by thresholds where the panel says so. */
  ownColor(one, index) {
    return this.defaults.color?.mode === "thresholds" ? byThreshold(reduce(one) ?? 0, this.defaults) : palette(index);
  }

  stacking() {
    const mode = this.custom.stacking?.mode;
    return mode && mode !== "none" ? mode : null;
  }

  /** Values as drawn: sums of all series below where they are stacked. */
  stack(series) {
    const mode = this.stacking();
    if (!mode) return series.map((one) => one.values);
    const count = series[0]?.values.length ?? 0;
    const total = new Array(count).fill(0);
    for (const one of series) one.values.forEach((value, index) => { total[index] += value ?? 0; });
    const sum = new Array(count).fill(0);
    return series.map((one) => one.values.map((value, index) => {
      if (value === null && total[index] === 0) return null;
      sum[index] += mode === "percent" ? (value ?? 0) / (total[index] || 1) : value ?? 0;
      return sum[index];
    }));
  }

  options() {
    const stacked = Boolean(this.stacking());
    const series = this.shown.map((one) => this.line(one, stacked));
    const bands = stacked ? this.shown.slice(1).map((one, index) => ({
      series: [index + 2, index + 1], fill: alpha(one.css, one.fill / 100),
    })) : [];
    const right = this.shown.some((one) => one.axis === "right");
    const labels = (unit) => (_, ticks) => axisLabels(ticks, unit);
    const rightUnit = this.shown.find((one) => one.axis === "right")?.unit;
    const ticks = (unit) => {
      if (this.custom.scaleDistribution?.type === "log") return { grid: { ...this.grid(), filter: powers } };
      const incrs = increments(unit);
      return incrs ? { incrs } : {};
    };
    const axes = [this.xAxis(), this.yAxis(labels(this.unit()), ticks(this.unit()))];
    if (right) {
      const extra = { scale: "right", side: 1, grid: { show: false }, ...ticks(rightUnit) };
      axes.push(this.yAxis(labels(rightUnit), extra));
    }
    return { series: [{}, ...series], bands, axes, scales: { y: this.scale("y"), right: this.scale("right") }, hooks: this.hooks() };
  }

  unit() {
    return this.stacking() === "percent" ? "percentunit" : this.defaults.unit;
  }

  hooks() {
    const { hooks } = this.common();
    const background = (plot) => this.drawThresholds(plot);
    return { ...hooks, drawClear: [background], draw: [(plot) => drawEvents(plot, this.events)] };
  }

  line(one, stacked) {
    const { lineInterpolation, showPoints, spanNulls } = this.custom;
    const drawStyle = one.style;
    const paths = drawStyle === "bars" ? uPlot.paths.bars({ size: [0.8, 40] })
      : drawStyle === "points" ? uPlot.paths.points()
        : lineInterpolation === "stepAfter" ? uPlot.paths.stepped({ align: 1 })
          : lineInterpolation === "smooth" ? uPlot.paths.spline() : uPlot.paths.linear();
    const first = !stacked || one === this.shown[0];
    return {
      label: one.name, scale: one.axis, stroke: one.css, width: one.width, paths, spanGaps: Boolean(spanNulls),
      dash: one.dash ?? undefined,
      fill: one.fill > 0 && first ? alpha(one.css, one.fill / 100) : undefined,
      points: { show: showPoints === "always" ? true : (_, index, from, to) => lonely(one.values, from, to), size: 4, fill: one.css },
    };
  }

  scale(name) {
    const { min = this.custom.axisSoftMin, max } = this.defaults;
    const soft = this.custom.axisSoftMax ?? -Infinity;
    const distribution = this.custom.scaleDistribution ?? {};
    const log = distribution.type === "log";
    return {
      distr: log ? 3 : 1,
      log: distribution.log ?? 10,
      range: (_, low, high) => {
        if (low === null || low === undefined) return log ? [1, 10] : [0, 1];
        if (log) return uPlot.rangeLog(low, high, distribution.log ?? 10, true);
        const floor = name === "y" && min !== undefined ? Math.min(min, low) : Math.min(low, low >= 0 ? 0 : low);
        const [a, b] = uPlot.rangeNum(floor, Math.max(high, soft, floor + 1e-9), 0.08, true);
        const top = name === "y" && max !== undefined ? Math.max(max, high) : high === floor ? floor + 1 : b;
        return [min !== undefined || floor === 0 ? floor : a, top];
      },
    };
  }

  drawThresholds(plot) {
    const mode = this.custom.thresholdsStyle?.mode ?? "off";
    if (mode === "off") return;
    const { ctx, bbox } = plot;
    const list = steps(this.defaults);
    const y = (value) => Math.min(bbox.top + bbox.height, Math.max(bbox.top, plot.valToPos(value, "y", true)));
    ctx.save();
    list.forEach((step, index) => {
      if (mode.includes("area")) {
        const low = Number.isFinite(step.value) ? y(step.value) : bbox.top + bbox.height;
        const high = index + 1 < list.length ? y(list[index + 1].value) : bbox.top;
        ctx.fillStyle = alpha(step.color, 0.1);
        ctx.fillRect(bbox.left, high, bbox.width, low - high);
      }
      const at = Number.isFinite(step.value) ? plot.valToPos(step.value, "y", true) : -1;
      if (mode === "area" || at < bbox.top || at > bbox.top + bbox.height) return;
      ctx.strokeStyle = step.color;
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.setLineDash(mode.startsWith("dashed") ? [8 * devicePixelRatio, 6 * devicePixelRatio] : []);
      ctx.beginPath();
      ctx.moveTo(bbox.left, at);
      ctx.lineTo(bbox.left + bbox.width, at);
      ctx.stroke();
    });
    ctx.restore();
  }

  tip(index, top) {
    if (this.panel.options?.tooltip?.mode === "none") return null;
    const time = this.plot.data[0][index];
    let list = this.shown.map((one, place) => ({
      color: one.css, name: one.name, value: one.values[index], labels: one.labels, decimals: one.decimals,
      far: Math.abs((this.plot.valToPos(this.plot.data[place + 1][index] ?? NaN, one.axis) ?? NaN) - top),
      unit: one.unit,
    })).filter((one) => one.value !== null && one.value !== undefined);
    if (list.length === 0) return [el("div.when", {}, stamp(time))];
    const nearest = list.reduce((best, one) => (one.far < best.far ? one : best));
    this.nearest = nearest;
    if (this.panel.options?.tooltip?.mode === "single") list = [nearest];
    const { sort } = this.panel.options?.tooltip ?? {};
    if (sort === "desc" || sort === "asc") list.sort((a, b) => (sort === "desc" ? b.value - a.value : a.value - b.value));
    const rest = list.length - 24;
    return [
      el("div.when", {}, stamp(time)),
      rows(list.slice(0, 24).map((one) => ({ ...one, text: format(one.value, one.unit, one.decimals), near: one === nearest }))),
      ...(rest > 0 ? [el("div.when", {}, `and ${rest} more`)] : []),
    ];
  }

  /** Data links of the series nearest to the pointer. */
  links(index) {
    const list = this.defaults.links ?? [];
    if (list.length === 0 || !this.nearest) return [];
    return linksOf(list, this.nearest, this.context, this.nearest.value, this.plot.data[0][index]);
  }

  /** A click shows a series alone, or all again; with a modifier it hides or shows just that one. */
  toggle(name, one) {
    const names = this.series.map((known) => known.name);
    if (one) {
      if (!this.hidden.delete(name)) this.hidden.add(name);
    } else if (!this.hidden.has(name) && this.hidden.size === names.length - 1) {
      this.hidden.clear();
    } else {
      this.hidden = new Set(names.filter((known) => known !== name));
    }
    this.update(...this.last);
  }
}

/** Grid lines of a logarithmic axis: the powers of ten only. */
function powers(_, splits) {
  return splits.map((split) => (Math.abs(Math.log10(split) % 1) < 1e-9 ? split : null));
}

/** Indices of values that have no neighbour: a line alone would not show them. */
function lonely(values, from, to) {
  for (let index = from; index <= to; index += 1) {
    const alone = values[index] !== null && (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null;
    if (alone) return true;
  }
  return false;
}
