// The status strip: four facts of now, each a way to more.

import { el } from "/js/dom.js";
import { follow } from "/js/live.js";
import { span } from "/js/time.js";

/** Data this old is late, in seconds; every scraper here is much faster. */
const LATE = 90;

function services({ up, down }) {
  const all = up + down.length;
  if (all === 0) return { kind: "warn", text: "no targets", title: "nothing is scraped" };
  const names = down.map((one) => `${one.job} ${one.instance}`).join("\n");
  return down.length
    ? { kind: "bad", text: `${down.length} of ${all} down`, title: `down:\n${names}` }
    : { kind: "ok", text: `${all} of ${all} up`, title: "every target answers" };
}

function node({ nodes, failing }) {
  if (nodes.length === 0) return { kind: "none", text: "no node exporter", title: "no node is watched" };
  const bad = nodes.filter((one) => !one.fit);
  const why = failing.map((one) => `${one.check}${one.scope ? ` ${one.scope}` : ""} on ${one.node}`).join("\n");
  const whole = nodes.length === 1 ? "node fit" : `${nodes.length} nodes fit`;
  const few = nodes.length === 1 ? "node not fit" : `${bad.length} of ${nodes.length} nodes not fit`;
  return bad.length ? { kind: "bad", text: few, title: why } : { kind: "ok", text: whole, title: why || "every check passes" };
}

function alerts({ active }) {
  const firing = active.filter((one) => one.state === "firing");
  const names = active.map((one) => `${one.state}: ${one.labels.alertname}`).join("\n");
  if (firing.length) {
    const page = firing.some((one) => one.labels.severity === "critical");
    return { kind: page ? "bad" : "warn", text: `${firing.length} firing`, title: names };
  }
  return active.length ? { kind: "warn", text: `${active.length} pending`, title: names }
    : { kind: "ok", text: "no alerts", title: "nothing fires or waits" };
}

function freshness({ age, error }) {
  if (error) return { kind: "bad", text: "no answer", title: error };
  if (age === null) return { kind: "bad", text: "no data", title: "no target has been scraped in the last minutes" };
  return { kind: age > LATE ? "bad" : "ok", text: `data ${span(age)} old`, title: "since the last sample of any target" };
}

const PARTS = [
  ["services", services, "/#places"], ["node", node, "/d/sightline-node"],
  ["alerts", alerts, "/alerts"], ["freshness", freshness, "/alerts#rules"],
];

/** The strip; it follows the state of everything by itself. */
export function strip() {
  const marks = PARTS.map(([name, tell, href]) => [tell, el("a.badge.none", { href, data: { status: name } }, "…")]);
  follow((now) => {
    for (const [tell, mark] of marks) {
      const { kind, text, title } = tell(now);
      mark.className = `badge ${kind}`;
      if (mark.textContent !== text) mark.textContent = text;
      mark.title = title;
    }
  });
  return el("nav.strip", { "aria-label": "Status" }, marks.map(([, mark]) => mark));
}
