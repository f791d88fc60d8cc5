// Table: the labels and values of instant queries, after their transformations.

import { alpha, byThreshold, color, mapping } from "/js/colors.js";
import { el } from "/js/dom.js";
import { overridden } from "/js/frames.js";
import { linksOf } from "/js/links.js";
import { order, transformed } from "/js/transform.js";
import { format } from "/js/units.js";

/** Lines that are shown; what is left out is said. */
const LINES = 500;

export class Table {
  constructor(panel, context) {
    this.panel = panel;
    this.context = context;
    this.node = el("div.table", { tabIndex: 0 });
    const by = panel.options?.sortBy?.[0];
    this.sort = by ? { name: by.displayName, down: Boolean(by.desc) } : null;
  }

  update(series, view) {
    this.last = [series, view];
    const { fields } = transformed(this.panel, series, view);
    const count = fields[0]?.values.length ?? 0;
    const by = this.sort && fields.find((field) => field.name === this.sort.name);
    const lines = by ? order(by.values, this.sort.down) : [...Array(count).keys()];
    const dressed = fields.map((field) => this.dress(field));
    const scroll = this.node.scrollTop;
    const rest = count - LINES;
    this.node.replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, dressed.map((field) => this.heading(field)))),
      el("tbody", {}, lines.slice(0, LINES).map((line) => el("tr", {}, dressed.map((field) => this.cell(field, line, dressed)))))),
    rest > 0 ? el("p.lead", {}, `and ${rest} more lines`) : "");
    this.node.scrollTop = scroll;
  }

  /** A field with its own part of the configuration. */
  dress(field) {
    const own = overridden(this.panel, { name: field.name, kind: field.kind });
    return { ...field, config: { ...this.panel.fieldConfig?.defaults, ...own }, look: own["custom.cellOptions"]?.type ?? this.panel.fieldConfig?.defaults?.custom?.cellOptions?.type ?? "auto", own };
  }

  heading({ name, kind }) {
    const active = this.sort?.name === name;
    const mark = active ? (this.sort.down ? " ↓" : " ↑") : "";
    const turn = () => {
      this.sort = { name, down: active ? !this.sort.down : kind === "number" };
      this.update(...this.last);
    };
    return el(kind === "number" ? "th.num" : "th", { "aria-sort": active ? (this.sort.down ? "descending" : "ascending") : null },
      el("button", { type: "button", onclick: turn }, name + mark));
  }

  cell(field, line, all) {
    const value = field.values[line];
    if (field.kind === "time") return el("td", {}, new Date(value * 1000).toLocaleTimeString("en-GB"));
    if (field.kind !== "number") return el("td", {}, this.linked(String(value ?? ""), field, line, all));
    const { config, look } = field;
    const mapped = value === null ? undefined : mapping(value, config);
    const shade = value === null ? "" : mapped?.color ?? byThreshold(value, config);
    const text = value === null ? config.noValue && field.own.noValue ? config.noValue : "" : mapped?.text ?? format(value, config.unit, config.decimals);
    const style = look === "color-text" ? { color: shade } : look === "color-background" ? { background: alpha(shade, 0.75), color: color("text") } : { color: mapped?.color ?? "" };
    if (look === "gauge") return el("td.num", {}, this.bar(value, config, shade), text);
    return el("td.num", { style }, this.linked(text, field, line, all));
  }

  bar(value, { min = 0, max = 1 }, shade) {
    const share = Math.min(1, Math.max(0, ((value ?? 0) - min) / (max - min || 1)));
    return el("span.track", {}, el("span.fill", { style: { width: `${share * 100}%`, background: shade } }));
  }

  /** The text as a link where the field has one of its own. */
  linked(text, field, line, all) {
    const labels = Object.fromEntries(all.map((one) => [one.name, one.values[line]]));
    const [link] = linksOf(field.own.links ?? (field.kind === "number" ? [] : this.panel.fieldConfig?.defaults?.links ?? []), { name: text, labels }, this.context, text);
    return link ? el("a", { href: link.href, title: link.title }, text) : text;
  }
}
