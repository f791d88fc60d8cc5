// The variables of a board: their options, their values, and putting them into texts.

import { get } from "/js/api.js";
import { promDuration } from "/js/time.js";

export const ALL = "$__all";

/** A value as a literal inside a regular expression. */
function escapeRegex(value) {
  return value.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

/** The same where that stands in a PromQL string. */
function escapeQuoted(value) {
  return escapeRegex(value).replace(/\\/g, "\\\\").replace(/"/g, '\\"');
}

const KINDS = ["query", "custom", "textbox", "constant", "interval"];

/** Value and text of an option of a custom variable: `value` or `text : value`. */
function custom(text) {
  const at = text.indexOf(" : ");
  return at < 0 ? text.trim() : text.slice(at + 3).trim();
}

/** The variables of one board. */
export class Variables {
  /** `params` are the parameters of the address; `interval` is the one in seconds
   * that `$__rate_interval` is built on. */
  constructor(board, params, interval) {
    this.interval = interval;
    const all = board.templating?.list ?? [];
    this.sources = all.filter((one) => one.type === "datasource").map((one) => one.name);
    this.unknown = all.filter((one) => one.type !== "datasource" && !KINDS.includes(one.type))
      .map((one) => `${one.name}: variables of type "${one.type}" are not known here`);
    this.list = all.filter((one) => KINDS.includes(one.type)).map((one) => ({
      name: one.name,
      label: one.label || one.name,
      query: typeof one.query === "string" ? one.query : one.query?.query ?? "",
      regex: one.regex ?? "",
      type: one.type,
      multi: Boolean(one.multi),
      all: Boolean(one.includeAll),
      allValue: one.allValue || ".*",
      hidden: one.hide === 2 || one.type === "constant",
      preset: one.current?.value,
      options: [],
      chosen: [],
      problem: null,
    }));
    this.read(params);
  }

  /** Takes the values that an address names; others begin with All or with what the board says. */
  read(params) {
    for (const variable of this.list) {
      const named = params.getAll(`var-${variable.name}`).map((one) => (one === "All" ? ALL : one));
      if (named.length) variable.chosen = variable.all || !named.includes(ALL) ? named : [];
      else if (variable.all) variable.chosen = [ALL];
      else if (variable.type === "textbox" || variable.type === "constant") {
        variable.chosen = [variable.query];
      } else variable.chosen = [variable.preset ?? []].flat().filter((one) => one !== ALL);
    }
  }

  /** Whether queries can be made before the options are read. */
  ready() {
    return this.list.every((variable) => variable.chosen.length > 0);
  }

  /** Reads the options of all variables at once where none waits for the first of another. */
  async load(signal) {
    if (this.ready()) await Promise.all(this.list.map((one) => this.loadOne(one, signal)));
    else for (const one of this.list) await this.loadOne(one, signal);
  }

  async loadOne(variable, signal) {
    try {
      variable.options = await this.options(variable, signal);
      variable.problem = null;
    } catch (error) {
      if (signal?.aborted) return;
      variable.problem = error.message;
    }
    if (variable.chosen.length === 0 && variable.options.length) {
      variable.chosen = [variable.options[0]];
    }
  }

  async options(variable, signal) {
    if (variable.type === "textbox" || variable.type === "constant") return [];
    if (variable.type !== "query") return variable.query.split(",").map(custom).filter(Boolean);
    const query = variable.query.trim();
    const match = /^label_values\((?:(.*),\s*)?(\w+)\)$/s.exec(query);
    if (!match) throw new Error(`only label_values(...) is known here, not "${query}"`);
    const path = `/api/v1/label/${match[2]}/values`;
    const values = await get(path, match[1] ? { "match[]": this.replace(match[1], {}) } : {}, signal);
    const pattern = /^\/(.*)\/$/s.exec(variable.regex)?.[1] ?? variable.regex;
    if (!pattern) return values;
    const wanted = new RegExp(pattern);
    return values.flatMap((value) => {
      const found = wanted.exec(value);
      return found ? [found[1] ?? value] : [];
    });
  }

  /** The value of a variable as it stands in a query, or in one of Grafana's formats. */
  value(variable, form = null) {
    const whole = variable.chosen.includes(ALL);
    if (form === "queryparam") {
      const values = whole ? [ALL] : variable.chosen;
      return values.map((one) => `var-${variable.name}=${encodeURIComponent(one)}`).join("&");
    }
    if (whole && form === "text") return "All";
    if (whole) {
      return ["csv", "pipe"].includes(form) ? variable.options.join(form === "pipe" ? "|" : ",")
        : variable.allValue;
    }
    if (form === "csv" || form === "text") return variable.chosen.join(form === "csv" ? "," : " + ");
    if (form === "pipe") return variable.chosen.join("|");
    if (form === "percentencode") return encodeURIComponent(variable.chosen.join(","));
    if (form === "raw" || (!variable.multi && form !== "regex")) return variable.chosen[0] ?? "";
    const escaped = variable.chosen.map(form === "regex" ? escapeRegex : escapeQuoted);
    return escaped.length === 1 ? escaped[0] : `(${escaped.join("|")})`;
  }

  /** Text with all variables replaced. `view` gives step, start and end in seconds, where there
   * are such; `more` further names, as data links have them. */
  replace(text, view = {}, more = {}) {
    const known = { ...this.builtIn(view), ...more };
    const pattern = /\$\{([\w.]+)(?:\["([^"]+)"\])?(?::(\w+))?\}|\[\[(\w+)\]\]|\$(\w+)/g;
    return text.replace(pattern, (whole, a, field, form, b, c) => {
      const name = field === undefined ? a ?? b ?? c : `${a}.${field}`;
      if (name in known) return known[name];
      const variable = this.list.find((one) => one.name === name);
      if (variable) return this.value(variable, form ?? null);
      return this.sources.includes(name) ? "prometheus" : whole;
    });
  }

  /** Text for people: values as they are chosen, not as a query has them. */
  words(text) {
    const names = Object.fromEntries(this.list.map((one) => [one.name, this.value(one, "text")]));
    return this.replace(text, {}, names);
  }

  builtIn({ step, start, end }) {
    if (!step) return {};
    const range = end - start || step;
    const rate = Math.max(step + this.interval, 4 * this.interval);
    return {
      __interval: promDuration(step),
      __interval_ms: String(step * 1000),
      __rate_interval: promDuration(rate),
      __range: promDuration(range),
      __range_s: String(Math.round(range)),
      __range_ms: String(Math.round(range * 1000)),
      __from: String(start * 1000),
      __to: String(end * 1000),
    };
  }

  /** Writes the chosen values into the parameters of an address. */
  address(params) {
    for (const variable of this.list.filter((one) => one.type !== "constant")) {
      params.delete(`var-${variable.name}`);
      if (variable.chosen.includes(ALL)) continue;
      for (const value of variable.chosen) params.append(`var-${variable.name}`, value);
    }
  }

  /** Chooses `value`, beside others where that is possible; `alone` leaves it alone. */
  choose(variable, value, alone = false) {
    if (!variable.multi || value === ALL || alone) {
      variable.chosen = [value];
      return;
    }
    const others = variable.chosen.filter((known) => known !== ALL && known !== value);
    const added = variable.chosen.includes(value) ? others : [...others, value];
    variable.chosen = added.length ? added : variable.all ? [ALL] : [value];
  }
}
