// The variables of a board: their values, their pickers, and putting both into queries.

import { get } from "/js/api.js";
import { el } from "/js/dom.js";
import { SCRAPE_INTERVAL, promDuration } from "/js/time.js";

const ALL = "$__all";

/** A value as a literal inside a regular expression that stands in a PromQL string. */
function escapeRegex(value) {
  return value.replace(/[\\^$.*+?()[\]{}|]/g, "\\\\$&").replace(/"/g, '\\"');
}

/** The variables of one board. */
export class Variables {
  constructor(board, params, changed) {
    this.changed = changed;
    this.list = (board.templating?.list ?? [])
      .filter((variable) => variable.type === "query" || variable.type === "custom")
      .map((variable) => ({
        name: variable.name,
        label: variable.label || variable.name,
        query: typeof variable.query === "string" ? variable.query : variable.query?.query ?? "",
        type: variable.type,
        multi: Boolean(variable.multi),
        all: Boolean(variable.includeAll),
        allValue: variable.allValue || ".*",
        hidden: variable.hide === 2,
        options: [],
        chosen: params.getAll(`var-${variable.name}`),
      }));
    for (const variable of this.list) {
      if (variable.chosen.length === 0) variable.chosen = variable.all ? [ALL] : [];
    }
  }

  /** Reads the options; the first error is thrown once all have been tried. */
  async load() {
    let failure = null;
    for (const variable of this.list) {
      try {
        variable.options = await this.options(variable);
      } catch (error) {
        failure ??= error;
      }
      if (variable.chosen.length === 0 && variable.options.length) {
        variable.chosen = [variable.options[0]];
      }
    }
    if (failure) throw failure;
  }

  async options(variable) {
    if (variable.type === "custom") return variable.query.split(",").map((text) => text.trim());
    const match = /^label_values\((?:(.*),\s*)?(\w+)\)$/s.exec(variable.query.trim());
    if (!match) return [];
    const path = `/api/v1/label/${match[2]}/values`;
    const params = match[1] ? { "match[]": this.replace(match[1], {}) } : {};
    return get(path, params);
  }

  /** The value of a variable as it stands in a query. */
  value(variable) {
    if (variable.chosen.includes(ALL)) return variable.allValue;
    if (!variable.multi) return variable.chosen[0] ?? "";
    const escaped = variable.chosen.map(escapeRegex);
    return escaped.length === 1 ? escaped[0] : `(${escaped.join("|")})`;
  }

  /** Text with all variables replaced; `view` gives step and range in seconds. */
  replace(text, view) {
    const built = this.builtIn(view);
    return text.replace(/\$\{(\w+)(?::\w+)?\}|\[\[(\w+)\]\]|\$(\w+)/g, (whole, a, b, c) => {
      const name = a ?? b ?? c;
      if (name in built) return built[name];
      const variable = this.list.find((known) => known.name === name);
      return variable ? this.value(variable) : whole;
    });
  }

  builtIn({ step, range }) {
    if (!step) return {};
    const rate = Math.max(step + SCRAPE_INTERVAL, 4 * SCRAPE_INTERVAL);
    return {
      __interval: promDuration(step),
      __interval_ms: String(step * 1000),
      __rate_interval: promDuration(rate),
      __range: promDuration(range),
      __range_s: String(Math.round(range)),
      __range_ms: String(Math.round(range * 1000)),
    };
  }

  /** Writes the chosen values into the parameters of an address. */
  address(params) {
    for (const variable of this.list) {
      params.delete(`var-${variable.name}`);
      if (variable.chosen.includes(ALL)) continue;
      for (const value of variable.chosen) params.append(`var-${variable.name}`, value);
    }
  }

  /** The pickers, freshly made. */
  pickers() {
    return this.list.filter((variable) => !variable.hidden).map((variable) => this.picker(variable));
  }

  picker(variable) {
    const names = { [ALL]: "All" };
    const choices = variable.all ? [ALL, ...variable.options] : variable.options;
    const shown = variable.chosen.map((value) => names[value] ?? value).join(" + ") || "none";
    const menu = el("div.menu", {}, choices.map((value) => el("label", {},
      el("input", {
        type: variable.multi ? "checkbox" : "radio",
        checked: variable.chosen.includes(value),
        onchange: () => this.choose(variable, value),
      }),
      names[value] ?? value)));
    const summary = el("summary", { title: shown },
      el("span.name", {}, variable.label), el("span.value", {}, shown));
    return el("details.choice", { data: { variable: variable.name } }, summary, menu);
  }

  choose(variable, value) {
    if (!variable.multi || value === ALL) {
      variable.chosen = [value];
    } else {
      const others = variable.chosen.filter((known) => known !== ALL && known !== value);
      const added = variable.chosen.includes(value) ? others : [...others, value];
      variable.chosen = added.length ? added : variable.all ? [ALL] : [value];
    }
    this.changed();
  }
}
