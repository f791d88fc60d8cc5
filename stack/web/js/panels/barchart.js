// Bar chart: bars for the values of a field at one moment, side by side or on top of each other.

import { byThreshold, color, palette, theme } from "/js/colors.js";
import { el, svg } from "/js/dom.js";
import { overridden } from "/js/frames.js";
import { Legend } from "/js/legend.js";
import * as tooltip from "/js/tooltip.js";
import { transformed } from "/js/transform.js";
import { format } from "/js/units.js";

const FONT = 11;
const SPACE = { left: 8, right: 10, top: 14, bottom: 22 };

export class BarChart {
  constructor(panel, context) {
    this.panel = panel;
    this.context = context;
    this.options = panel.options ?? {};
    this.defaults = panel.fieldConfig?.defaults ?? {};
    this.hidden = new Set();
    this.chart = el("div.chart.bars-chart");
    this.legend = new Legend(panel, (name, one) => this.toggle(name, one));
    const right = this.options.legend?.placement === "right";
    this.node = el(right ? "div.beside" : "div.stack", {}, this.chart, this.legend.node);
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.chart);
  }

  update(series, view) {
    this.last = [series, view];
    const { fields } = transformed(this.panel, series, view);
    const texts = fields.filter((field) => field.kind === "string");
    const along = fields.find((field) => field.name === this.options.xField) ?? texts[0]
      ?? { name: "", values: (fields[0]?.values ?? []).map(() => "") };
    const mode = this.defaults.color?.mode;
    const bars = fields.filter((field) => field.kind === "number" && field !== along).map((field, index) => {
      const own = overridden(this.panel, { name: field.name, kind: field.kind });
      const fixed = own.color ?? (mode === "fixed" ? this.defaults.color : null);
      return {
        name: field.name, values: field.values, unit: own.unit ?? this.defaults.unit, labels: {},
        css: fixed?.fixedColor ? color(fixed.fixedColor) : palette(index), judged: !fixed && mode === "thresholds",
      };
    });
    this.places = along.values.map(String);
    this.all = bars;
    this.legend.update(bars, this.hidden);
    this.draw();
  }

  toggle(name, one) {
    const names = this.all.map((known) => known.name);
    if (one) {
      if (!this.hidden.delete(name)) this.hidden.add(name);
    } else if (!this.hidden.has(name) && this.hidden.size === names.length - 1) this.hidden.clear();
    else this.hidden = new Set(names.filter((known) => known !== name));
    this.update(...this.last);
  }

  /** For each place the pieces `{bar, from, to, value}`, and the least and largest end of all. */
  pieces() {
    const shown = this.all.filter((bar) => !this.hidden.has(bar.name));
    const mode = this.options.stacking ?? "none";
    const places = this.places.map((_, at) => {
      const whole = shown.reduce((sum, bar) => sum + Math.abs(bar.values[at] ?? 0), 0) || 1;
      let top = 0;
      return shown.map((bar) => {
        const value = bar.values[at];
        if (mode === "none" || value === null) return { bar, from: 0, to: value ?? 0, value };
        const height = mode === "percent" ? value / whole : value;
        const from = top;
        top += height;
        return { bar, from, to: top, value };
      });
    });
    const ends = places.flat().map((piece) => piece.to);
    const limit = (given, found) => (given === undefined ? found : given);
    const most = mode === "percent" ? 1 : limit(this.defaults.max, ends.reduce((a, b) => Math.max(a, b), 0));
    const least = limit(this.defaults.min, Math.min(0, ends.reduce((a, b) => Math.min(a, b), 0)));
    return { places, least, most: most > least ? most : least + 1, stacked: mode !== "none", unit: mode === "percent" ? "percentunit" : this.defaults.unit };
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.chart;
    if (!this.all || width < 40 || height < 30) return;
    const made = this.pieces();
    const lying = this.options.orientation === "horizontal" || (this.options.orientation === "auto" && width < height);
    const root = svg("svg", { width, height, role: "img", "aria-label": this.panel.title ?? "" });
    (lying ? this.lying : this.standing).call(this, root, made, { width, height });
    this.chart.replaceChildren(root);
  }

  text(root, x, y, words, extra = {}) {
    const node = svg("text", { x, y, fill: theme("text-dim"), "font-size": FONT, ...extra });
    node.textContent = words;
    root.append(node);
  }

  brief(name, room) {
    const most = Math.max(3, Math.min(this.options.xTickLabelMaxLength || 99, Math.floor(room / (FONT * 0.58))));
    return name.length > most ? `${name.slice(0, most - 1)}…` : name;
  }

  /** Round values for the axis. */
  ticks({ least, most }, count) {
    const rough = (most - least) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= rough) ?? power * 10;
    const out = [];
    for (let at = Math.ceil(least / step) * step; at <= most + step * 1e-6; at += step) out.push(Number(at.toPrecision(12)));
    return out;
  }

  fill(piece) {
    return piece.bar.judged ? byThreshold(piece.value ?? 0, this.defaults) : piece.bar.css;
  }

  bar(root, piece, place, box) {
    const { x, y, width, height } = box;
    const rect = svg("rect", {
      x: x.toFixed(1), y: y.toFixed(1), width: Math.max(0.5, width).toFixed(1), height: Math.max(0.5, height).toFixed(1),
      rx: Math.min(width, height) * (this.options.barRadius ?? 0), fill: this.fill(piece),
      "fill-opacity": (this.defaults.custom?.fillOpacity ?? 80) / 100, stroke: this.fill(piece), "stroke-width": this.defaults.custom?.lineWidth ?? 0,
    });
    tooltip.attach(rect, () => [el("div.when", {}, this.places[place]), tooltip.rows(this.all.filter((bar) => !this.hidden.has(bar.name)).map((bar) => ({
      color: bar.css, name: bar.name, text: format(bar.values[place], bar.unit, this.defaults.decimals), near: bar === piece.bar,
    })))]);
    root.append(rect);
  }

  /** Boxes of the bars at one place along the axis: their offset and breadth in its room. */
  share(pieces, stacked, room) {
    const group = room * (this.options.groupWidth ?? 0.7);
    const each = stacked ? group : group / Math.max(1, pieces.length);
    const breadth = each * (stacked ? 1 : this.options.barWidth ?? 0.97);
    return pieces.map((_, index) => ({ at: (room - group) / 2 + (stacked ? 0 : index * each) + (each - breadth) / 2, breadth }));
  }

  standing(root, made, { width, height }) {
    const ticks = this.ticks(made, Math.max(2, Math.floor(height / 48)));
    const labels = ticks.map((tick) => format(tick, made.unit));
    const left = SPACE.left + Math.max(...labels.map((text) => text.length)) * FONT * 0.58;
    const [inner, tall] = [width - left - SPACE.right, height - SPACE.top - SPACE.bottom];
    const y = (value) => SPACE.top + tall * (1 - (Math.min(made.most, Math.max(made.least, value)) - made.least) / (made.most - made.least));
    ticks.forEach((tick, index) => {
      root.append(svg("line", { x1: left, x2: width - SPACE.right, y1: y(tick), y2: y(tick), stroke: theme("grid") }));
      this.text(root, left - 5, y(tick) + 4, labels[index], { "text-anchor": "end" });
    });
    const room = inner / Math.max(1, made.places.length);
    const skip = Math.max(1, Math.ceil(28 / room));
    made.places.forEach((pieces, place) => {
      const x = left + place * room;
      const boxes = this.share(pieces, made.stacked, room);
      pieces.forEach((piece, index) => {
        if (piece.value === null) return;
        const [high, low] = [y(Math.max(piece.from, piece.to)), y(Math.min(piece.from, piece.to))];
        this.bar(root, piece, place, { x: x + boxes[index].at, y: high, width: boxes[index].breadth, height: low - high });
        const words = format(piece.value, piece.bar.unit, this.defaults.decimals);
        const fits = words.length * FONT * 0.58 < boxes[index].breadth;
        if (this.options.showValue !== "never" && !made.stacked && (fits || this.options.showValue === "always")) {
          this.text(root, x + boxes[index].at + boxes[index].breadth / 2, high - 3, words, { "text-anchor": "middle", fill: theme("text") });
        }
      });
      if (place % skip === 0) this.text(root, x + room / 2, height - 7, this.brief(this.places[place], room * skip), { "text-anchor": "middle" });
    });
  }

  lying(root, made, { width, height }) {
    const longest = this.places.reduce((most, name) => Math.max(most, name.length), 0);
    const left = SPACE.left + 8 + Math.min(width * 0.36, longest * FONT * 0.62);
    const [inner, tall] = [width - left - SPACE.right - 46, height - SPACE.bottom - 4];
    const x = (value) => left + inner * ((Math.min(made.most, Math.max(made.least, value)) - made.least) / (made.most - made.least));
    for (const tick of this.ticks(made, Math.max(2, Math.floor(inner / 90)))) {
      root.append(svg("line", { x1: x(tick), x2: x(tick), y1: 4, y2: tall, stroke: theme("grid") }));
      this.text(root, x(tick), height - 7, format(tick, made.unit), { "text-anchor": "middle" });
    }
    const room = tall / Math.max(1, made.places.length);
    const skip = Math.max(1, Math.ceil(12 / room));
    made.places.forEach((pieces, place) => {
      const y = 4 + place * room;
      const boxes = this.share(pieces, made.stacked, room);
      pieces.forEach((piece, index) => {
        if (piece.value === null) return;
        const [from, to] = [x(Math.min(piece.from, piece.to)), x(Math.max(piece.from, piece.to))];
        this.bar(root, piece, place, { x: from, y: y + boxes[index].at, width: to - from, height: boxes[index].breadth });
        if (this.options.showValue !== "never" && !made.stacked && boxes[index].breadth >= FONT) {
          this.text(root, to + 4, y + boxes[index].at + boxes[index].breadth / 2 + 4, format(piece.value, piece.bar.unit, this.defaults.decimals), { fill: theme("text") });
        }
      });
      if (place % skip === 0) this.text(root, left - 6, y + room / 2 + 4, this.brief(this.places[place], left - 8), { "text-anchor": "end" });
    });
  }

  close() {
    this.watcher.disconnect();
    tooltip.hide();
  }
}
