// Which alerts watch which panel, and where an alert is to be seen.

import { get } from "/js/api.js";
import { listed } from "/js/facts.js";

let ruling = null;
let ruledAt = 0;

/** Rules change with the program only, their state is read from the alerts. */
const RULES_EVERY = 60000;

/** Board of an alert: its uid, or null. */
export function boardOf({ dashboard, dashboard_url: url = "" }) {
  return dashboard ?? /\/d\/([\w-]+)/.exec(url)?.[1] ?? null;
}

/** Id of the panel that an alert names, by the slugs of the board; null where it names none. */
export function panelOf(annotations, list) {
  const { panel, panel_id: given, dashboard_url: url = "" } = annotations;
  if (given) return Number(given);
  const linked = /[?&]viewPanel=(?:panel-)?(\d+)/.exec(url);
  if (linked) return Number(linked[1]);
  const board = list?.find((one) => one.uid === boardOf(annotations));
  return board?.panels?.[panel] ?? null;
}

/** The address at which an alert is seen: its panel alone, else its board; null without. */
export function seenAt(annotations, list) {
  const uid = boardOf(annotations);
  if (!uid) return null;
  const id = panelOf(annotations, list);
  return `/d/${encodeURIComponent(uid)}${id ? `?viewPanel=${id}` : ""}`;
}

/** The alerting rules; an empty list where the rules cannot be read. */
export function rules() {
  if (Date.now() - ruledAt > RULES_EVERY) {
    ruledAt = Date.now();
    ruling = get("/api/v1/rules", { type: "alert" })
      .then(({ groups = [] }) => groups.flatMap((group) => group.rules.filter((rule) => rule.type === "alerting")))
      .catch(() => []);
  }
  return ruling;
}

/** Rules of a board by the id of their panel. */
export async function watched(uid) {
  const [list, all] = await Promise.all([listed(), rules()]);
  const found = new Map();
  for (const rule of all.filter((one) => boardOf(one.annotations ?? {}) === uid)) {
    const id = panelOf(rule.annotations, list);
    if (id !== null) found.set(id, [...(found.get(id) ?? []), rule]);
  }
  return found;
}
