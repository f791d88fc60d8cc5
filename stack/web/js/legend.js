// Legends of time series: a list, or a table with calculations.

import { el } from "/js/dom.js";
import { CALC_NAMES, reduce } from "/js/frames.js";
import { format } from "/js/units.js";

export class Legend {
  /** `toggle(name, one)` is called on a click; `one` is true with a modifier key. */
  constructor(panel, toggle) {
    this.options = panel.options?.legend ?? {};
    this.decimals = panel.fieldConfig?.defaults?.decimals;
    this.toggle = toggle;
    this.node = el("div.legend", { hidden: this.options.showLegend === false });
  }

  update(series, hidden) {
    if (this.node.hidden) return;
    const scroll = this.node.scrollTop;
    const table = this.options.displayMode === "table" && (this.options.calcs ?? []).length > 0;
    this.node.replaceChildren(table ? this.table(series, hidden) : this.items(series, hidden));
    this.node.scrollTop = scroll;
  }

  swatch(one) {
    return el("span.swatch", { style: { background: one.css } });
  }

  click(one) {
    return (event) => this.toggle(one.name, event.ctrlKey || event.metaKey || event.shiftKey);
  }

  items(series, hidden) {
    return el("ul", {}, series.map((one) =>
      el(hidden.has(one.name) ? "li.off" : "li", { title: one.name, onclick: this.click(one) },
        this.swatch(one), el("span.label", {}, one.name))));
  }

  table(series, hidden) {
    const calcs = this.options.calcs;
    return el("table", {},
      el("thead", {}, el("tr", {}, el("th", {}, ""), calcs.map((calc) => el("th", {}, CALC_NAMES[calc] ?? calc)))),
      el("tbody", {}, series.map((one) => el(hidden.has(one.name) ? "tr.off" : "tr", {},
        el("td", { title: one.name, onclick: this.click(one) }, this.swatch(one), one.name),
        calcs.map((calc) => el("td", {}, format(reduce(one, calc), one.unit, this.decimals)))))));
  }
}
