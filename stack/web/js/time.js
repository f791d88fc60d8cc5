// Ranges, steps and the clock of a board. All times are Unix seconds.

/** The interval that `$__rate_interval` is built on, in seconds. The store scrapes each second,
 * but the few requests of a demo leave windows of a few seconds mostly empty. */
export const SCRAPE_INTERVAL = 5;

/** Choices of the time picker, seconds. */
export const RANGES = [["5m", 300], ["15m", 900], ["30m", 1800], ["1h", 3600]];

/** Choices of the refresh picker, seconds; 0 is off. */
export const REFRESHES = [["off", 0], ["1s", 1], ["5s", 5], ["10s", 10], ["30s", 30]];

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
const POINTS = 480;

/** The step of a range: a round number of seconds that gives some hundred points. */
export function stepOf(range) {
  return STEPS.find((step) => range / step <= POINTS) ?? STEPS[STEPS.length - 1];
}

const UNITS = { s: 1, m: 60, h: 3600, d: 86400 };

/** Seconds of `5m`, `1h`; null for anything else. */
export function seconds(text) {
  const match = /^(\d+)([smhd])$/.exec(text ?? "");
  return match ? Number(match[1]) * UNITS[match[2]] : null;
}

/** `now-30m` in seconds before now; null for other forms. */
export function relative(text) {
  return seconds(/^now-(\w+)$/.exec(text ?? "")?.[1]);
}

/** A duration for PromQL. */
export function promDuration(value) {
  const whole = Math.max(1, Math.round(value));
  for (const [unit, size] of [["h", 3600], ["m", 60]]) {
    if (whole % size === 0) return `${whole / size}${unit}`;
  }
  return `${whole}s`;
}

/** Start, end and step of the queries of now, aligned to the step. */
export function windowOf(state, now) {
  if (state.absolute) {
    const [from, to] = state.absolute;
    const step = stepOf(to - from);
    return { from, to, step, start: Math.ceil(from / step) * step, end: Math.floor(to / step) * step };
  }
  const step = stepOf(state.range);
  const end = Math.floor(now / step) * step;
  return { from: now - state.range, to: now, step, start: end - Math.floor(state.range / step) * step, end };
}

const pad = (value) => String(value).padStart(2, "0");

/** Clock time, local. */
export function clock(time) {
  const date = new Date(time * 1000);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** Date and clock time, local. */
export function stamp(time) {
  const date = new Date(time * 1000);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(time)}`;
}
