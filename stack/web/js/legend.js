// Legends of time series: a list, or a table with calculations that sorts by any of them.

import { el } from "/js/dom.js";
import { CALC_NAMES, reduce } from "/js/frames.js";
import { format } from "/js/units.js";

export class Legend {
  /** `toggle(name, one)` is called on a click; `one` is true with a modifier key. */
  constructor(panel, toggle) {
    this.options = panel.options?.legend ?? {};
    this.decimals = panel.fieldConfig?.defaults?.decimals;
    this.toggle = toggle;
    this.sort = { by: this.options.sortBy ?? null, down: this.options.sortDesc ?? true };
    this.node = el("div.legend", { hidden: this.options.showLegend === false });
  }

  update(series, hidden) {
    if (this.node.hidden) return;
    this.last = [series, hidden];
    const scroll = this.node.scrollTop;
    const focused = document.activeElement?.dataset?.series;
    const table = this.options.displayMode === "table" && (this.options.calcs ?? []).length > 0;
    const content = table ? this.table(series, hidden) : this.items(series, hidden);
    this.node.replaceChildren(content);
    this.node.scrollTop = scroll;
    if (focused === undefined || !this.hadFocus) return;
    [...this.node.querySelectorAll("button")].find((one) => one.dataset.series === focused)?.focus();
  }

  /** A button with the name of a series: a click shows it alone. */
  name(one, hidden) {
    const button = el("button.series", {
      type: "button", title: one.name, "aria-pressed": String(!hidden.has(one.name)), data: { series: one.name },
      onclick: (event) => this.toggle(one.name, event.ctrlKey || event.metaKey || event.shiftKey),
      onfocus: () => { this.hadFocus = true; }, onblur: () => { this.hadFocus = false; },
    }, el("span.swatch", { style: { background: one.css } }), el("span.label", {}, one.name));
    return button;
  }

  items(series, hidden) {
    return el("ul", {}, series.map((one) => el(hidden.has(one.name) ? "li.off" : "li", {}, this.name(one, hidden))));
  }

  heading(key, text) {
    const active = this.sort.by === key;
    const turn = () => {
      this.sort = { by: key, down: active ? !this.sort.down : key !== "Name" };
      this.update(...this.last);
    };
    const mark = active ? (this.sort.down ? " ↓" : " ↑") : "";
    return el("th", { "aria-sort": active ? (this.sort.down ? "descending" : "ascending") : null },
      el("button", { type: "button", onclick: turn }, text + mark));
  }

  /** Series in the order of the column that was chosen; as they came without one. */
  sorted(rows) {
    const { by, down } = this.sort;
    const at = this.options.calcs.findIndex((calc) => (CALC_NAMES[calc] ?? calc) === by);
    if (at < 0 && by !== "Name") return rows;
    const order = (a, b) => (at < 0 ? a.one.name.localeCompare(b.one.name, undefined, { numeric: true })
      : (a.values[at] ?? -Infinity) - (b.values[at] ?? -Infinity));
    return [...rows].sort((a, b) => order(a, b) * (down ? -1 : 1));
  }

  table(series, hidden) {
    const calcs = this.options.calcs;
    const rows = series.map((one) => ({ one, values: calcs.map((calc) => reduce(one, calc)) }));
    return el("table", {},
      el("thead", {}, el("tr", {}, this.heading("Name", "Name"), calcs.map((calc) => this.heading(CALC_NAMES[calc] ?? calc, CALC_NAMES[calc] ?? calc)))),
      el("tbody", {}, this.sorted(rows).map(({ one, values }) => el(hidden.has(one.name) ? "tr.off" : "tr", {},
        el("td", {}, this.name(one, hidden)),
        values.map((value) => el("td", {}, format(value, one.unit, one.decimals ?? this.decimals)))))));
  }
}
