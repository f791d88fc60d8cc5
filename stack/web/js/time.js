// Ranges, steps and the clock of a board. All times are Unix seconds.

/** Choices of the time picker: name and beginning; all end now. */
export const RANGES = [
  ["5m", "5 minutes"], ["15m", "15 minutes"], ["30m", "30 minutes"], ["1h", "1 hour"],
  ["3h", "3 hours"], ["6h", "6 hours"], ["12h", "12 hours"], ["24h", "24 hours"],
  ["2d", "2 days"], ["7d", "7 days"], ["30d", "30 days"],
].map(([length, name]) => ({ from: `now-${length}`, to: "now", name: `Last ${name}`, length }));

/** Choices of the refresh picker, seconds; 0 is off. */
export const REFRESHES = [0, 1, 2, 5, 10, 30, 60, 300];

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800,
];

/** Points of a query: about one for every two pixels of a panel of half the board. */
export const POINTS = 480;

/** The step of a range: a round number of seconds that gives at most `points`, and no less than
 * `least`, the time between two samples. */
export function stepOf(range, points = POINTS, least = 1) {
  const good = (step) => range / step <= points && step >= Math.min(least, 3600);
  return STEPS.find(good) ?? Math.ceil(range / points / 86400) * 86400;
}

const UNITS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800, M: 2592000, y: 31536000 };

/** Seconds of `5m`, `1h`; null for anything else. */
export function seconds(text) {
  const match = /^(\d+)([smhdwMy])$/.exec(text ?? "");
  return match ? Number(match[1]) * UNITS[match[2]] : null;
}

/** The beginning, or the end, of the day, hour, ... that holds a time, on the local clock. */
function rounded(time, unit, up) {
  const date = new Date(time * 1000);
  date.setMilliseconds(0);
  date.setSeconds(0);
  if (unit !== "m") date.setMinutes(0);
  if ("dwMy".includes(unit)) date.setHours(0);
  if (unit === "w") date.setDate(date.getDate() - ((date.getDay() + 6) % 7));
  if (unit === "M" || unit === "y") date.setDate(1);
  if (unit === "y") date.setMonth(0);
  if (!up) return date.getTime() / 1000;
  if (unit === "m") date.setMinutes(date.getMinutes() + 1);
  if (unit === "h") date.setHours(date.getHours() + 1);
  if (unit === "d" || unit === "w") date.setDate(date.getDate() + (unit === "d" ? 1 : 7));
  if (unit === "M") date.setMonth(date.getMonth() + 1);
  if (unit === "y") date.setFullYear(date.getFullYear() + 1);
  return date.getTime() / 1000;
}

/** A time as Grafana's addresses have it: `now-1h`, `now-1d/d`, Unix milliseconds, or a date with
 * a clock time. `up` rounds `/d` to the end of the day. Null when it is none of these. */
export function parseTime(text, now, up = false) {
  const trimmed = String(text ?? "").trim();
  const relative = /^now(?:\s*([-+])\s*(\d+)([smhdwMy]))?(?:\/([mhdwMy]))?$/.exec(trimmed);
  if (relative) {
    const [, sign, count, unit, to] = relative;
    const away = sign ? Number(`${sign}${count}`) * UNITS[unit] : 0;
    return to ? rounded(now + away, to, up) : now + away;
  }
  if (/^\d{9,14}$/.test(trimmed)) {
    const number = Number(trimmed);
    return number > 1e11 ? number / 1000 : number;
  }
  if (!/^\d{4}-\d{2}-\d{2}/.test(trimmed)) return null;
  const parsed = Date.parse(trimmed.includes("T") ? trimmed : trimmed.replace(" ", "T"));
  return Number.isNaN(parsed) ? null : parsed / 1000;
}

/** Whether a range moves with the clock. */
export function moves({ from, to }) {
  return `${from}${to}`.includes("now");
}

/** A range of texts as seconds; throws words for the picker where it is none. */
export function resolve({ from, to }, now) {
  const [start, end] = [parseTime(from, now), parseTime(to, now, true)];
  const bad = start === null ? from : end === null ? to : null;
  if (bad !== null) throw new Error(`"${bad}" is no time; try now-1h or 2026-01-31 14:00:00`);
  if (!(start < end)) throw new Error("the range ends before it begins");
  return [start, end];
}

/** A range in words. */
export function nameOfRange({ from, to }, now) {
  const known = RANGES.find((range) => range.from === from && range.to === to);
  if (known) return known.name;
  const length = to === "now" ? /^now-(\w+)$/.exec(from)?.[1] : null;
  if (length) return `Last ${length}`;
  if (moves({ from, to })) return `${from} to ${to}`;
  const [start, end] = resolve({ from, to }, now);
  const [first, last] = [stamp(start), stamp(end)];
  const sameDay = first.slice(0, 10) === last.slice(0, 10);
  return `${first} to ${sameDay ? last.slice(11) : last}`;
}

/** A duration for PromQL. */
export function promDuration(value) {
  const whole = Math.max(1, Math.round(value));
  for (const [unit, size] of [["h", 3600], ["m", 60]]) {
    if (whole % size === 0) return `${whole / size}${unit}`;
  }
  return `${whole}s`;
}

/** Start, end and step of the queries of a range, aligned to the step. */
export function windowOf(range, now, points = POINTS, least = 1) {
  const [from, to] = resolve(range, now);
  const step = stepOf(to - from, points, least);
  const start = Math.ceil(from / step) * step;
  // What has not happened yet is not asked for; a range of the future alone asks for one moment.
  const end = Math.max(start, Math.floor(Math.min(to, now) / step) * step);
  return { from, to, step, start, end };
}

const pad = (value) => String(value).padStart(2, "0");

/** Clock time, local. */
export function clock(time) {
  const date = new Date(time * 1000);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** The day of a time, local: month and day. */
export function day(time) {
  const date = new Date(time * 1000);
  return `${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

/** Date and clock time, local. */
export function stamp(time) {
  return `${new Date(time * 1000).getFullYear()}-${day(time)} ${clock(time)}`;
}

/** A length of time in its two largest units. */
export function span(length) {
  const whole = Math.max(0, Math.round(length));
  const parts = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]].map(([unit, size], index, all) =>
    [unit, Math.floor((index ? whole % all[index - 1][1] : whole) / size)]);
  const first = parts.findIndex(([, count]) => count > 0);
  if (first < 0) return "0s";
  return parts.slice(first, first + 2).filter(([, count]) => count > 0)
    .map(([unit, count]) => `${count}${unit}`).join(" ");
}
