// What every page shows of now: processes, the verdict on nodes, alerts, and how old the data is.
// One poll for all that want to know.

import * as api from "/js/api.js";

const EVERY = 5000;

const QUERIES = {
  up: "count(up == 1)",
  down: "up == 0",
  fit: "sightline_node_healthy",
  failing: "min by (node, check, scope) (sightline_node_health_check) == 0",
  age: "time() - max(timestamp(up))",
};

/** Severities, loudest first. */
const LOUDNESS = ["critical", "warning", "info", "none"];

const watchers = new Set();
let timer = null;
let last = null;

/** Calls `watch(now)` after each poll, and at once where one has been made; returns an end to it. */
export function follow(watch) {
  watchers.add(watch);
  if (last) watch(last);
  return () => watchers.delete(watch);
}

/** What was last read; null before the first answer. */
export function latest() {
  return last;
}

function rows(answer) {
  return answer.data?.result ?? [];
}

const valueOf = (series) => Number(series.value[1]);

/** An alert is real when it is meant to be acted on: a watchdog always fires. */
const isReal = (alert) => alert.labels.severity !== "none";

function byLoudness(a, b) {
  const order = (alert) => (alert.state === "firing" ? 0 : 10) + LOUDNESS.indexOf(alert.labels.severity ?? "none");
  return order(a) - order(b) || a.labels.alertname.localeCompare(b.labels.alertname);
}

async function read() {
  const queries = Object.values(QUERIES).map((query) => ({ query }));
  const [answers, alerts] = await Promise.all([api.batch(queries), api.get("/api/v1/alerts")]);
  const [up, down, fit, failing, age] = answers.map(rows);
  const all = alerts.alerts ?? [];
  return {
    error: null,
    up: up.length ? valueOf(up[0]) : 0,
    down: down.map((one) => one.metric),
    nodes: fit.map((one) => ({ node: one.metric.node ?? one.metric.instance, fit: valueOf(one) === 1 })),
    failing: failing.map((one) => one.metric),
    age: age.length ? valueOf(age[0]) : null,
    alerts: all,
    active: all.filter(isReal).sort(byLoudness),
  };
}

async function poll() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      last = await read();
    } catch (error) {
      last = { ...(last ?? { up: 0, down: [], nodes: [], failing: [], age: null, alerts: [], active: [] }), error: error.message };
    }
    watchers.forEach((watch) => watch(last));
  }
  timer = setTimeout(poll, EVERY);
}

/** Begins to poll. */
export function start() {
  poll();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) poll();
  });
}
