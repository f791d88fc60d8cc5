// Table: the labels and the value of an instant query, with the "organize" transformation.

import { el } from "/js/dom.js";
import { mapping } from "/js/colors.js";
import { format } from "/js/units.js";

export class Table {
  constructor(panel) {
    this.panel = panel;
    this.node = el("div.table");
    const by = panel.options?.sortBy?.[0];
    this.sort = by ? { name: by.displayName, down: by.desc } : null;
  }

  update(series, view) {
    this.last = [series, view];
    const columns = this.columns(series);
    const rows = series.map((one) => this.row(one, view));
    if (this.sort) {
      const column = columns.find((known) => known.title === this.sort.name);
      if (column) rows.sort((a, b) => compare(a[column.key], b[column.key]) * (this.sort.down ? -1 : 1));
    }
    const scroll = this.node.scrollTop;
    this.node.replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, columns.map((column) => this.heading(column)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((column) => this.cell(row[column.key])))))));
    this.node.scrollTop = scroll;
  }

  row(one, view) {
    const value = one.values ? one.values.findLast((known) => known !== null) : one.value;
    const { __name__: metric, ...labels } = one.labels;
    return { Time: new Date(view.end * 1000).toLocaleTimeString(), ...labels, Value: value };
  }

  columns(series) {
    const names = new Set();
    for (const one of series) Object.keys(one.labels).forEach((name) => names.add(name));
    names.delete("__name__");
    const organize = (this.panel.transformations ?? []).find((one) => one.id === "organize")?.options ?? {};
    const { excludeByName = {}, indexByName = {}, renameByName = {} } = organize;
    const place = (name) => indexByName[name] ?? 1000;
    return ["Time", ...[...names].sort(), "Value"]
      .filter((name) => !excludeByName[name])
      .sort((a, b) => place(a) - place(b))
      .map((name) => ({ key: name, title: renameByName[name] || name }));
  }

  heading({ title }) {
    const active = this.sort?.name === title;
    const mark = active ? (this.sort.down ? " ↓" : " ↑") : "";
    const turn = () => {
      this.sort = { name: title, down: active ? !this.sort.down : false };
      this.update(...this.last);
    };
    return el("th", { onclick: turn }, title + mark);
  }

  cell(value) {
    if (typeof value !== "number") return el("td", {}, value ?? "");
    const defaults = this.panel.fieldConfig?.defaults ?? {};
    const mapped = mapping(value, defaults);
    return el("td.num", { style: { color: mapped?.color ?? "" } },
      mapped?.text ?? format(value, defaults.unit, defaults.decimals));
  }
}

function compare(a, b) {
  const [x, y] = [Number(a), Number(b)];
  if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
  return String(a ?? "").localeCompare(String(b ?? ""), undefined, { numeric: true });
}
