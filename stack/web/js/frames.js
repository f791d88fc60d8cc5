// Answers of the query API as aligned series with names.

/** Name of a series by the legend format of its query. */
export function nameOf(labels, format) {
  if (format && format !== "__auto") {
    const text = format.replace(/\{\{\s*([\w.]+)\s*\}\}/g, (_, name) => labels[name] ?? "");
    return text.replace(/\s+/g, " ").trim() || "value";
  }
  const { __name__: metric = "", ...rest } = labels;
  const pairs = Object.entries(rest).map(([name, value]) => `${name}="${value}"`);
  if (pairs.length === 0) return metric || "value";
  return `${metric}{${pairs.join(", ")}}`;
}

/** The times of a window, in seconds. */
export function timesOf({ start, end, step }) {
  const times = [];
  for (let time = start; time <= end + 1e-6; time += step) times.push(time);
  return times;
}

function parse(text) {
  if (text === "+Inf") return Infinity;
  if (text === "-Inf") return -Infinity;
  return Number(text);
}

/** Values at each step of the window; null where the series has none. */
function aligned(points, view, count) {
  const values = new Array(count).fill(null);
  for (const [time, text] of points) {
    const value = parse(text);
    const index = Math.round((time - view.start) / view.step);
    if (index >= 0 && index < count && Number.isFinite(value)) values[index] = value;
  }
  return values;
}

/** All series of a panel: `{name, labels, refId, target, values | value}`. */
export function frames(panel, answers, view) {
  const count = Math.floor((view.end - view.start) / view.step + 1.000001);
  const out = [];
  for (const { target, data } of answers) {
    if (!data) continue;
    if (data.resultType === "matrix") {
      for (const series of data.result) {
        const values = aligned(series.values, view, count);
        out.push(frame(target, series.metric, { values }));
      }
    } else if (data.resultType === "vector") {
      for (const series of data.result) {
        out.push(frame(target, series.metric, { value: parse(series.value[1]) }));
      }
    } else if (data.resultType === "scalar") {
      out.push(frame(target, {}, { value: parse(data.result[1]) }));
    }
  }
  return out;
}

function frame(target, labels, rest) {
  return { name: nameOf(labels, target.legendFormat), labels, refId: target.refId, target, ...rest };
}

const CALCS = {
  lastNotNull: (values) => values.findLast((value) => value !== null) ?? null,
  last: (values) => values[values.length - 1] ?? null,
  mean: (values) => over(values, (present) => sum(present) / present.length),
  max: (values) => over(values, (present) => present.reduce((a, b) => Math.max(a, b))),
  min: (values) => over(values, (present) => present.reduce((a, b) => Math.min(a, b))),
  sum: (values) => over(values, sum),
  count: (values) => values.filter((value) => value !== null).length,
  range: (values) => over(values, (present) => Math.max(...present) - Math.min(...present)),
  first: (values) => values[0] ?? null,
  firstNotNull: (values) => values.find((value) => value !== null) ?? null,
  delta: (values) => over(values, (present) => present.reduce((total, value, index) =>
    total + Math.max(0, index ? value - present[index - 1] : 0), 0)),
};

const sum = (values) => values.reduce((a, b) => a + b, 0);

function over(values, apply) {
  const present = values.filter((value) => value !== null);
  return present.length ? apply(present) : null;
}

/** Headings of the calculations. */
export const CALC_NAMES = {
  lastNotNull: "Last *", last: "Last", mean: "Mean", max: "Max", min: "Min", sum: "Total",
  count: "Count", range: "Range", first: "First", firstNotNull: "First *", delta: "Delta",
};

/** A series as one number. */
export function reduce(series, calc = "lastNotNull") {
  if (series.values) return (CALCS[calc] ?? CALCS.lastNotNull)(series.values);
  return Number.isNaN(series.value) ? null : series.value ?? null;
}

/** The overrides of a field that match a series, as a flat object. */
export function overridden(panel, series) {
  const out = {};
  for (const { matcher, properties } of panel.fieldConfig?.overrides ?? []) {
    if (!matches(matcher, series)) continue;
    for (const { id, value } of properties) out[id] = value;
  }
  return out;
}

function matches(matcher, series) {
  if (matcher.id === "byName") return matcher.options === series.name;
  if (matcher.id === "byFrameRefID") return matcher.options === series.refId;
  if (matcher.id === "byType") return matcher.options === (series.kind ?? "number");
  if (matcher.id !== "byRegexp") return false;
  const inner = /^\/(.*)\/[a-z]*$/s.exec(matcher.options);
  try {
    return new RegExp(inner ? inner[1] : matcher.options).test(series.name);
  } catch {
    return false;
  }
}
