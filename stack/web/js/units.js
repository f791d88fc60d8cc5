// Numbers with units, as a Grafana user expects to read them.

const SHORT = ["", "K", "Mil", "Bil", "Tri", "Quadr", "Quint"];
const COUNT = ["", "K", "M", "B", "T"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DECIMAL = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Text of a number with `digits` decimals; without them, whole numbers as they are and others to
 * three significant digits. */
export function decimals(value, digits) {
  if (digits !== undefined && digits !== null) return value.toFixed(digits);
  if (Number.isInteger(value)) return String(value);
  const places = 2 - Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(20, Math.max(0, places)));
}

function scaled(value, base, names, digits, separator = " ") {
  let index = 0;
  let rest = value;
  while (Math.abs(rest) >= base && index < names.length - 1) {
    rest /= base;
    index += 1;
  }
  return [decimals(rest, digits), names[index] ? separator + names[index] : ""];
}

const TIMES = [[31536000, "years"], [604800, "weeks"], [86400, "days"], [3600, "hours"], [60, "mins"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

function duration(value, digits) {
  const size = Math.abs(value);
  if (size === 0) return ["0", " s"];
  const [unit, name] = TIMES.find(([limit]) => size >= limit * 0.9999) ?? TIMES[TIMES.length - 1];
  return [decimals(value / unit, digits), ` ${name}`];
}

function short(value, digits) {
  return scaled(value, 1000, SHORT, digits);
}

/** A number of things, as `1.50K req`. */
function count(value, digits, name) {
  const [number, scale] = scaled(value, 1000, COUNT, digits, "");
  return [number, `${scale} ${name}`];
}

const FORMATS = {
  none: (value, digits) => [decimals(value, digits), ""],
  short,
  s: duration,
  ms: (value, digits) => duration(value / 1000, digits),
  bytes: (value, digits) => scaled(value, 1024, BINARY, digits),
  decbytes: (value, digits) => scaled(value, 1000, DECIMAL, digits),
  percent: (value, digits) => [decimals(value, digits), "%"],
  percentunit: (value, digits) => [decimals(value * 100, digits), "%"],
  celsius: (value, digits) => [decimals(value, digits), " °C"],
  bool: (value) => [value ? "True" : "False", ""],
  dateTimeAsIso: (value) => [new Date(value).toISOString().slice(0, 19).replace("T", " "), ""],
};

const RATES = { reqps: "req/s", ops: "ops/s", cps: "c/s", rps: "rd/s", wps: "wr/s" };
const PREFIXES = ["", "k", "M", "G", "T"];
const PHYSICAL = { hertz: "Hz", watt: "W", joule: "J" };
const BYTE_RATES = { Bps: [1000, DECIMAL], binBps: [1024, BINARY] };

/** Number and unit apart, for panels that set the unit smaller. */
export function parts(value, unit, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return ["-", ""];
  if (!Number.isFinite(value)) return [value > 0 ? "∞" : "-∞", ""];
  if (FORMATS[unit]) return FORMATS[unit](value, digits);
  if (RATES[unit]) return count(value, digits, RATES[unit]);
  if (PHYSICAL[unit]) {
    const [number, prefix] = scaled(value, 1000, PREFIXES, digits, "");
    return [number, ` ${prefix}${PHYSICAL[unit]}`];
  }
  if (BYTE_RATES[unit]) {
    const [number, scale] = scaled(value, ...BYTE_RATES[unit], digits);
    return [number, `${scale}/s`];
  }
  const [kind, rest] = split(unit);
  if (kind === "suffix") return [decimals(value, digits), ` ${rest}`];
  if (kind === "prefix") return [rest + decimals(value, digits), ""];
  if (kind === "count") return count(value, digits, rest);
  if (kind === "si") {
    const [number, prefix] = scaled(value, 1000, PREFIXES, digits, "");
    return [number, ` ${prefix}${rest}`];
  }
  return short(value, digits);
}

function split(unit) {
  const at = (unit ?? "").indexOf(":");
  return at < 0 ? ["", ""] : [unit.slice(0, at), unit.slice(at + 1)];
}

/** A number with its unit. */
export function format(value, unit, digits) {
  return parts(value, unit, digits).join("");
}

const BINARY_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);
/** Distances between times that people count in, seconds. */
export const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800];
const LONG_STEPS = [...CLOCK_STEPS, 31536000, 315360000, 3153600000];
const SECOND_STEPS = [...[9, 8, 7, 6, 5, 4, 3, 2, 1].flatMap((power) =>
  [1, 2, 5].map((digit) => Number(`${digit}e-${power}`))), ...LONG_STEPS];

/** Distances between the ticks of an axis that read well in a unit; undefined for tens. */
export function increments(unit) {
  if (unit === "bytes" || unit === "binBps") return BINARY_STEPS;
  return unit === "s" ? SECOND_STEPS : undefined;
}

/** Labels of an axis: all ticks in the scale of the largest, with the decimals they need. */
export function axisLabels(ticks, unit) {
  const texts = ticks.map((tick) => {
    const [number, suffix] = parts(tick, unit);
    return (number.includes(".") ? number.replace(/\.?0+$/, "") : number) + suffix;
  });
  if (new Set(texts).size === texts.length) return texts;
  for (let digits = 1; digits <= 6; digits += 1) {
    const finer = ticks.map((tick) => format(tick, unit, digits));
    if (new Set(finer).size === finer.length) return finer;
  }
  return texts;
}
