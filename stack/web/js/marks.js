// What happened, over all panels of a board: annotations as marks, each kind with a switch.

import { color } from "/js/colors.js";
import { el } from "/js/dom.js";
import { nameOf } from "/js/frames.js";

/** Marks of one kind that are drawn at most; more of them would hide the lines. */
const MOST = 60;

export class Marks {
  /** `changed()` is called when a kind is switched on or off. */
  constructor(board, changed) {
    this.kinds = (board.annotations?.list ?? []).filter((one) => one.expr && one.enable && !one.builtIn);
    this.off = new Set();
    this.problems = new Map();
    this.changed = changed;
  }

  read(params) {
    this.off = new Set(params.getAll("marks-off"));
  }

  address(params) {
    params.delete("marks-off");
    for (const name of this.off) params.append("marks-off", name);
  }

  /** The queries of the kinds that are on. */
  queries(variables, view) {
    return this.kinds.filter((one) => !this.off.has(one.name)).map((kind) => ({
      kind,
      query: { query: variables.replace(kind.expr, view), start: view.start, end: view.end, step: view.step },
    }));
  }

  /** The marks of all answers: `{time, end, title, text, color, kind}`, earliest first. */
  events(asked, answers, view) {
    this.problems = new Map();
    const found = asked.flatMap(({ kind }, index) => {
      const { data, error } = answers[index] ?? {};
      if (error) this.problems.set(kind.name, error);
      const own = (data?.result ?? []).flatMap((series) => stretches(kind, series, view));
      return own.sort((a, b) => a.time - b.time).slice(-MOST);
    });
    return found.sort((a, b) => a.time - b.time);
  }

  /** A switch for each kind. */
  menu() {
    if (this.kinds.length === 0) return null;
    const turn = (name) => {
      if (!this.off.delete(name)) this.off.add(name);
      this.changed();
    };
    const items = this.kinds.map((kind) => el("div.item", {}, el("label", {},
      el("input", { type: "checkbox", checked: !this.off.has(kind.name), onchange: () => turn(kind.name) }),
      el("span.swatch", { style: { background: color(kind.iconColor) } }), el("span", {}, kind.name)),
    this.problems.has(kind.name) ? el("div.problem", {}, this.problems.get(kind.name)) : null));
    const on = this.kinds.length - this.off.size;
    return el("details.choice.marks", {}, el("summary", { title: "Marks in the panels" },
      el("span.name", {}, "marks"), el("span.value", {}, `${on} of ${this.kinds.length}`)), el("div.menu", {}, el("div.items", {}, items)));
  }
}

/** Each stretch of steps in which the query has a value is one mark. */
function stretches(kind, series, view) {
  const out = [];
  const said = (format) => (format ? nameOf(series.metric, format) : "");
  for (const [time] of series.values) {
    const last = out[out.length - 1];
    if (last && time - last.end < view.step * 1.5) {
      last.end = time;
      continue;
    }
    out.push({ time, end: time, kind: kind.name, color: color(kind.iconColor), title: said(kind.titleFormat) || kind.name, text: said(kind.textFormat) });
  }
  // What had begun before the window is no event in it, but it lasts.
  return out.map((one) => ({ ...one, begun: one.time <= view.start }));
}
