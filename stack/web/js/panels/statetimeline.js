// State timeline: one bar per series whose colour and text follow its value.

import { theme } from "/js/colors.js";
import { el } from "/js/dom.js";
import { timesOf } from "/js/frames.js";
import { Plot, drawEvents } from "/js/panels/plot.js";
import { colorOf, textOf } from "/js/panels/stat.js";
import { stamp } from "/js/time.js";
import { rows } from "/js/tooltip.js";

export class StateTimeline extends Plot {
  constructor(panel, context) {
    super(panel, context);
    this.defaults = panel.fieldConfig?.defaults ?? {};
    this.legend = el("div.legend");
    this.node = el("div.stack", {}, this.chart, this.legend);
  }

  update(series, view, events) {
    this.events = events;
    this.series = series.map((one) => ({ ...one, values: one.values ?? [] }));
    this.states();
    const times = timesOf(view);
    const shape = JSON.stringify([this.series.map((one) => one.name), document.documentElement.dataset.theme]);
    this.show(shape, [times, times.map(() => null)], view);
  }

  states() {
    if (this.panel.options?.legend?.showLegend === false) return;
    const seen = new Map();
    for (const one of this.series) {
      for (const value of one.values) {
        if (value !== null && !seen.has(value)) seen.set(value, this.state(value));
      }
    }
    const items = [...seen].sort((a, b) => a[0] - b[0]).map(([, state]) =>
      el("li", {}, el("span.swatch", { style: { background: state.css } }), el("span.label", {}, state.text)));
    this.legend.replaceChildren(el("ul", {}, items));
  }

  state(value) {
    return { css: colorOf(value, 0, this.defaults), text: textOf(value, this.defaults).join("") };
  }

  options() {
    const count = this.series.length;
    const { hooks } = this.common();
    const name = (tick) => this.series[count - 1 - tick]?.name ?? "";
    const brief = (text) => (text.length > 26 ? `${text.slice(0, 25)}…` : text);
    return {
      series: [{}, { stroke: "transparent", paths: () => null, points: { show: false } }],
      axes: [this.xAxis(), this.yAxis((_, ticks) => ticks.map((tick) => brief(name(tick))), {
        splits: () => this.series.map((_, index) => index), grid: { show: false },
      })],
      scales: { y: { range: () => [-0.5, count - 0.5] } },
      hooks: { ...hooks, draw: [(plot) => this.bars(plot), (plot) => drawEvents(plot, this.events)] },
    };
  }

  bars(plot) {
    const { ctx, bbox } = plot;
    const share = this.panel.options?.rowHeight ?? 0.9;
    const step = this.window.step;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `500 ${12 * devicePixelRatio}px Inter, Helvetica, Arial, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    this.series.forEach((one, index) => {
      const row = this.series.length - 1 - index;
      const top = plot.valToPos(row + share / 2, "y", true);
      const height = Math.min(plot.valToPos(row - share / 2, "y", true) - top, 54 * devicePixelRatio);
      const middle = plot.valToPos(row, "y", true);
      for (const run of runs(one.values)) {
        const left = plot.valToPos(plot.data[0][run.from], "x", true);
        const right = plot.valToPos(plot.data[0][run.to] + step, "x", true);
        this.bar(ctx, { left, right, top: middle - height / 2, height, middle, value: run.value });
      }
    });
    ctx.restore();
  }

  bar(ctx, { left, right, top, height, middle, value }) {
    const { css, text } = this.state(value);
    ctx.globalAlpha = (this.defaults.custom?.fillOpacity ?? 70) / 100;
    ctx.fillStyle = css;
    ctx.fillRect(left, top, Math.max(1, right - left), height);
    ctx.globalAlpha = 1;
    if (ctx.measureText(text).width + 14 * devicePixelRatio > right - left) return;
    ctx.fillStyle = theme("text-strong");
    ctx.fillText(text, left + 8 * devicePixelRatio, middle);
  }

  tip(index, top) {
    const row = Math.round(this.plot.posToVal(top, "y"));
    const one = this.series[this.series.length - 1 - row];
    const value = one?.values[index];
    if (value === null || value === undefined) return null;
    const { css, text } = this.state(value);
    return [el("div.when", {}, stamp(this.plot.data[0][index])), rows([{ color: css, name: one.name, text }])];
  }
}

/** Stretches of equal values; gaps end a stretch. */
function runs(values) {
  const out = [];
  values.forEach((value, index) => {
    if (value === null) return;
    const last = out[out.length - 1];
    if (last && last.value === value && last.to === index - 1) last.to = index;
    else out.push({ from: index, to: index, value });
  });
  return out;
}
