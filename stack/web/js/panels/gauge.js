// Gauge: an arc from minimum to maximum with the thresholds as a ring.

import { steps, theme } from "/js/colors.js";
import { el, svg } from "/js/dom.js";
import { overridden, reduce } from "/js/frames.js";
import { colorOf, textOf } from "/js/panels/stat.js";

const FROM = -210;
const TO = 30;

export function draw(panel, series) {
  const defaults = panel.fieldConfig?.defaults ?? {};
  const calc = panel.options?.reduceOptions?.calcs?.[0];
  const many = series.length > 1;
  return el("div.gauges", {}, series.slice(0, 12).map((one, index) => {
    const value = reduce(one, calc);
    const own = overridden(panel, one);
    const drawn = gauge(value, textOf(value, defaults, own), colorOf(value ?? 0, index, defaults, own), defaults);
    return el("figure", {}, drawn, many ? el("figcaption", {}, one.name) : null);
  }));
}

function point(angle, radius) {
  const radians = (angle * Math.PI) / 180;
  return `${(100 + radius * Math.cos(radians)).toFixed(2)},${(96 + radius * Math.sin(radians)).toFixed(2)}`;
}

function arc(from, to, radius, width, stroke) {
  const large = to - from > 180 ? 1 : 0;
  const d = `M${point(from, radius)}A${radius},${radius} 0 ${large} 1 ${point(to, radius)}`;
  return svg("path", { d, fill: "none", stroke, "stroke-width": width });
}

function gauge(value, [number, unit], css, defaults) {
  const min = defaults.min ?? 0;
  const list = steps(defaults);
  const highest = list.reduce((top, step) => Math.max(top, step.value), 0);
  const max = defaults.max ?? Math.max(highest * 1.5, value ?? 0, 1);
  const angle = (at) => FROM + Math.min(1, Math.max(0, (at - min) / (max - min))) * (TO - FROM);
  const node = svg("svg", { viewBox: "0 0 200 152", preserveAspectRatio: "xMidYMid meet" });
  node.append(arc(FROM, TO, 74, 22, theme("grid")));
  if (value !== null && angle(value) - FROM > 0.4) node.append(arc(FROM, angle(value), 74, 22, css));
  list.forEach((step, index) => {
    const from = angle(Math.max(min, step.value));
    const to = index + 1 < list.length ? angle(list[index + 1].value) : TO;
    if (to - from > 0.4) node.append(arc(from, to, 89, 4, step.color));
  });
  const text = svg("text", { x: 100, y: 106, "text-anchor": "middle", fill: css, "font-size": number.length > 6 ? 26 : 34, "font-weight": 500 });
  text.textContent = number;
  if (unit) {
    const small = svg("tspan", { "font-size": 16, dx: 2 });
    small.textContent = unit.trim();
    text.append(small);
  }
  node.append(text);
  return node;
}
