// Bar gauge: one horizontal bar per series.

import { el } from "/js/dom.js";
import { overridden, reduce } from "/js/frames.js";
import { colorOf, textOf } from "/js/panels/stat.js";

/** Numbers inside of names count as numbers: "ratio 2" comes before "ratio 12". */
const byName = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });

export function draw(panel, unordered) {
  const series = [...unordered].sort(byName);
  const defaults = panel.fieldConfig?.defaults ?? {};
  const calc = panel.options?.reduceOptions?.calcs?.[0];
  const values = series.map((one) => reduce(one, calc));
  const min = defaults.min ?? 0;
  const largest = values.reduce((top, value) => Math.max(top, value ?? 0), 0);
  const max = defaults.max ?? (largest || 1);
  return el("div.bars", {}, series.map((one, index) => {
    const value = values[index];
    const own = overridden(panel, one);
    const css = colorOf(value ?? 0, index, defaults, own);
    const share = Math.min(1, Math.max(0, ((value ?? 0) - min) / (max - min || 1)));
    return el("div.item", {},
      el("div.label", { title: one.name }, one.name),
      el("div.track", {}, el("div.fill", { style: { width: `${share * 100}%`, background: css } })),
      el("div.value", { style: { color: css } }, textOf(value, defaults, own).join("")));
  }));
}
