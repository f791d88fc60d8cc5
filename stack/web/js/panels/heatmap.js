// Heatmap of a classic histogram: buckets upwards, time along, counts as colour.

import { color, theme } from "/js/colors.js";
import { el } from "/js/dom.js";
import { timesOf } from "/js/frames.js";
import { Plot, drawEvents } from "/js/panels/plot.js";
import { stamp } from "/js/time.js";
import { rows } from "/js/tooltip.js";
import { format } from "/js/units.js";

const SCHEMES = {
  Oranges: [[255, 237, 213], [253, 141, 60], [166, 54, 3]],
  Blues: [[222, 235, 247], [66, 146, 198], [8, 48, 107]],
  Greens: [[229, 245, 224], [65, 171, 93], [0, 68, 27]],
  Reds: [[254, 224, 210], [239, 59, 44], [103, 0, 13]],
  Spectral: [[94, 79, 162], [254, 224, 139], [158, 1, 66]],
};

export class Heatmap extends Plot {
  constructor(panel, context) {
    super(panel, context);
    this.unit = panel.options?.yAxis?.unit ?? panel.fieldConfig?.defaults?.unit;
  }

  update(series, view, events) {
    this.events = events;
    this.buckets = bucketsOf(series);
    this.trim();
    this.max = this.buckets.reduce((top, bucket) =>
      bucket.counts.reduce((a, b) => Math.max(a, b ?? 0), top), 0);
    const times = timesOf(view);
    const shape = JSON.stringify([this.buckets.map((bucket) => bucket.le), document.documentElement.dataset.theme]);
    this.show(shape, [times, times.map(() => null)], view);
  }

  /** Leaves out the empty buckets at both ends, so that the used ones have room. */
  trim() {
    const used = this.buckets.map((bucket) => bucket.counts.some((count) => count > 0));
    const first = Math.max(0, used.indexOf(true) - 1);
    const last = Math.min(used.length - 1, used.lastIndexOf(true) + 1);
    if (used.includes(true)) this.buckets = this.buckets.slice(first, Math.max(last, first + 3) + 1);
  }

  options() {
    const count = this.buckets.length;
    const every = Math.max(1, Math.ceil(count / 9));
    const splits = () => this.buckets.map((_, index) => index).filter((index) => index % every === 0);
    const { hooks } = this.common();
    return {
      series: [{}, { show: true, stroke: "transparent", paths: () => null, points: { show: false } }],
      axes: [this.xAxis(), this.yAxis((_, ticks) => ticks.map((tick) => this.label(tick)), {
        splits, grid: { show: false },
      })],
      scales: { y: { range: () => [-0.5, count - 0.5] } },
      hooks: { ...hooks, draw: [(plot) => this.cells(plot), (plot) => drawEvents(plot, this.events)] },
    };
  }

  label(index) {
    const le = this.buckets[index]?.le;
    if (le === undefined) return "";
    return le === Infinity ? "more" : format(le, this.unit);
  }

  shade(count) {
    const { scheme, exponent = 0.5, mode, fill, reverse } = this.panel.options?.color ?? {};
    const share = Math.pow(count / this.max, exponent);
    if (mode === "opacity") return { css: color(fill), opacity: share };
    const stops = SCHEMES[scheme] ?? SCHEMES.Oranges;
    const dark = document.documentElement.dataset.theme !== "light";
    // On a dark ground the many are bright, on a light one they are dark, as the eye expects.
    const at = (dark !== Boolean(reverse) ? 1 - share : share) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at));
    const mixed = stops[low].map((part, index) => Math.round(part + (stops[low + 1][index] - part) * (at - low)));
    return { css: `rgb(${mixed.join(",")})`, opacity: 1 };
  }

  cells(plot) {
    const { ctx, bbox } = plot;
    const step = this.window.step;
    const gap = (this.panel.options?.cellGap ?? 1) * devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const every = this.merge(plot);
    this.buckets.forEach((bucket, row) => {
      const top = plot.valToPos(row + 0.5, "y", true);
      const height = plot.valToPos(row - 0.5, "y", true) - top;
      for (let from = 0; from < plot.data[0].length; from += every) {
        const count = sumOf(bucket.counts, from, every);
        if (!count) continue;
        const { css, opacity } = this.shade(Math.min(this.max, count / every));
        const left = plot.valToPos(plot.data[0][from] - step / 2, "x", true);
        const right = plot.valToPos(plot.data[0][from] + (every - 0.5) * step, "x", true);
        ctx.globalAlpha = opacity;
        ctx.fillStyle = css;
        ctx.fillRect(left, top, Math.max(1, right - left - gap), Math.max(1, height - gap));
      }
    });
    ctx.restore();
  }

  /** Steps in one cell: cells narrower than a few pixels cannot be told apart. */
  merge(plot) {
    const pixels = plot.bbox.width / devicePixelRatio / Math.max(1, plot.data[0].length);
    return Math.max(1, Math.ceil(7 / pixels));
  }

  tip(index, top) {
    const row = Math.round(this.plot.posToVal(top, "y"));
    const bucket = this.buckets[row];
    if (!bucket) return null;
    const below = row > 0 ? `${this.label(row - 1)} to ` : "up to ";
    const count = bucket.counts[index] ?? 0;
    return [
      el("div.when", {}, stamp(this.plot.data[0][index])),
      rows([{ color: count ? this.shade(count).css : theme("grid"), name: below + this.label(row), text: format(count, this.panel.options?.cellValues?.unit ?? "short") }]),
    ];
  }
}

function sumOf(counts, from, length) {
  let sum = 0;
  for (let index = from; index < from + length; index += 1) sum += counts[index] ?? 0;
  return sum;
}

/** Cumulative series by `le` as counts of each bucket, lowest first. */
function bucketsOf(series) {
  const sorted = series
    .map((one) => ({ le: one.labels.le === "+Inf" ? Infinity : Number(one.labels.le), values: one.values }))
    .filter((one) => !Number.isNaN(one.le))
    .sort((a, b) => a.le - b.le);
  return sorted.map((one, index) => ({
    le: one.le,
    counts: one.values.map((value, at) => {
      if (value === null) return null;
      const below = index > 0 ? sorted[index - 1].values[at] ?? 0 : 0;
      return Math.max(0, value - below);
    }),
  }));
}
