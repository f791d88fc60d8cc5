// Stat: one big number per series, with its history behind it where the query gives one.

import { alpha, byThreshold, color, mapping, palette } from "/js/colors.js";
import { el, svg } from "/js/dom.js";
import { overridden, reduce } from "/js/frames.js";
import { linksOf } from "/js/links.js";
import { parts } from "/js/units.js";

/** Colour of a value by the colour mode of its field. */
export function colorOf(value, index, defaults, own = {}) {
  const mapped = mapping(value, { mappings: own.mappings ?? defaults.mappings });
  if (mapped?.color) return mapped.color;
  const chosen = own.color ?? defaults.color;
  if (chosen?.mode === "fixed") return color(chosen.fixedColor);
  if (chosen?.mode === "palette-classic") return palette(index);
  return byThreshold(value, defaults);
}

/** Text of a value: its mapping, or number and unit. */
export function textOf(value, defaults, own = {}) {
  if (value === null) return [defaults.noValue ?? "No data", ""];
  const mapped = mapping(value, { mappings: own.mappings ?? defaults.mappings });
  return mapped ? [mapped.text, ""] : parts(value, own.unit ?? defaults.unit, defaults.decimals);
}

export function draw(panel, series, size, context) {
  const { options = {}, fieldConfig = {} } = panel;
  const defaults = fieldConfig.defaults ?? {};
  const calc = options.reduceOptions?.calcs?.[0];
  const named = options.textMode === "value_and_name" || (options.textMode !== "value" && series.length > 1);
  const { columns, rows } = layout(series.length, size);
  const tile = { width: size.width / columns - 6, height: size.height / rows - 6 };
  const tiles = series.map((one, index) => {
    const value = reduce(one, calc);
    const own = overridden(panel, one);
    const css = colorOf(value ?? 0, index, defaults, own);
    const spark = options.graphMode === "area" && one.values;
    return stat({ name: named ? one.name : null, text: textOf(value, defaults, own), css, spark, tile, options, link: linksOf(defaults.links, one, context, value)[0] });
  });
  return el("div.stats", { style: { gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` } }, tiles);
}

/** Columns and rows that keep tiles near the shape of a stat. */
function layout(count, { width, height }) {
  let best = { columns: 1, rows: count, score: 0 };
  for (let columns = 1; columns <= count; columns += 1) {
    const rows = Math.ceil(count / columns);
    const score = Math.min(width / columns, (height / rows) * 3);
    if (score > best.score) best = { columns, rows, score };
  }
  return best;
}

function stat({ name, text: [number, unit], css, spark, tile, options, link }) {
  const filled = options.colorMode === "background";
  const wide = Boolean(name) && tile.height < 60 && tile.width > 2 * tile.height;
  const length = number.length + unit.length * 0.55;
  const room = wide ? tile.width * 0.6 : tile.width * 0.92;
  const tall = wide ? tile.height * 0.7 : tile.height * (name ? 0.5 : 0.6);
  const size = Math.max(12, Math.min(tall, (room / Math.max(length, 2)) * 1.75, 62));
  const plain = options.colorMode === "none";
  const title = name ? el("div.title", { title: name }, name) : null;
  const value = el("div.number", {
    style: { fontSize: `${size}px`, color: filled || plain ? "" : css },
  }, number, unit ? el("small", {}, unit.trim()) : null);
  const node = el(`${link ? "a" : "div"}.stat${filled ? ".filled" : ""}${wide ? ".wide" : ""}`, {
    href: link?.href, title: link?.title,
    style: filled ? { background: `linear-gradient(120deg, ${css}, ${alpha(css, 0.72)})` } : {},
  });
  if (spark && !wide) {
    node.append(sparkline(spark, filled ? "#ffffff" : css));
    node.style.paddingBottom = `${Math.min(26, tile.height * 0.24)}px`;
  }
  node.append(...[title, value].filter(Boolean));
  return node;
}

function sparkline(history, css) {
  const values = history.slice(Math.max(0, history.findIndex((value) => value !== null)));
  const present = values.filter((value) => value !== null);
  const top = present.reduce((a, b) => Math.max(a, b), -Infinity);
  const bottom = Math.min(0, present.reduce((a, b) => Math.min(a, b), Infinity));
  const span = top - bottom || 1;
  const last = Math.max(1, values.length - 1);
  const points = values.map((value, index) => value === null ? null
    : `${((index / last) * 100).toFixed(2)},${(38 - ((value - bottom) / span) * 34).toFixed(2)}`);
  const runs = runsOf(points);
  const graph = svg("svg", { class: "spark", viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const run of runs) {
    const first = run[0].split(",")[0];
    const end = run[run.length - 1].split(",")[0];
    graph.append(
      svg("path", { d: `M${first},40L${run.join("L")}L${end},40Z`, fill: alpha(css, 0.18) }),
      svg("path", { d: `M${run.join("L")}`, fill: "none", stroke: alpha(css, 0.85), "stroke-width": 1.3, "vector-effect": "non-scaling-stroke" }),
    );
  }
  return graph;
}

function runsOf(points) {
  const runs = [];
  let run = [];
  for (const point of [...points, null]) {
    if (point !== null) run.push(point);
    else if (run.length) {
      runs.push(run);
      run = [];
    }
  }
  return runs;
}
