// Behind a panel: its queries as they were sent, and what they answered, as a table and as CSV.

import { dialog } from "/js/dialog.js";
import { el } from "/js/dom.js";
import { reduce } from "/js/frames.js";
import { stamp } from "/js/time.js";
import { format } from "/js/units.js";

/** Rows of the table that are shown; the CSV has all. */
const ROWS = 200;

const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);

/** All series over time, one column each; instant values as one row. */
function csv(series, view) {
  const over = series.filter((one) => one.values);
  const lines = [["time", ...series.map((one) => one.name)].map(quoted).join(",")];
  if (over.length === 0) {
    lines.push([new Date(view.end * 1000).toISOString(), ...series.map((one) => String(one.value))].join(","));
    return lines.join("\n");
  }
  const count = over[0].values.length;
  for (let index = 0; index < count; index += 1) {
    const time = new Date((view.start + index * view.step) * 1000).toISOString();
    lines.push([time, ...series.map((one) => String((one.values ? one.values[index] : one.value) ?? ""))].join(","));
  }
  return lines.join("\n");
}

function table(series, unit, decimals) {
  const show = (one, calc) => format(reduce(one, calc), unit, decimals);
  return el("table.list", {},
    el("thead", {}, el("tr", {}, ["Series", "Last", "Min", "Max", "Mean"].map((head) => el("th", {}, head)))),
    el("tbody", {}, series.slice(0, ROWS).map((one) => el("tr", {}, el("td", {}, one.name,
      el("div.expr", {}, Object.entries(one.labels).map(([name, value]) => `${name}=${value}`).join("  "))),
    ["lastNotNull", "min", "max", "mean"].map((calc) => el("td.value", {}, show(one, calc)))))));
}

export function inspect(panel) {
  const { json, last, series = [] } = panel;
  if (!last) {
    dialog(json.title || "Panel", el("p", {}, "This panel has no queries."));
    return;
  }
  const { asked, answers, view } = last;
  const defaults = json.fieldConfig?.defaults ?? {};
  const copy = (text) => async (event) => {
    await navigator.clipboard?.writeText(text);
    event.target.textContent = "Copied";
  };
  const file = () => {
    const url = URL.createObjectURL(new Blob([csv(series, view)], { type: "text/csv" }));
    el("a", { href: url, download: `${(json.title || "panel").replace(/\W+/g, "-")}.csv` }).click();
    URL.revokeObjectURL(url);
  };
  const queries = asked.map(({ target, query }, index) => {
    const { data, error } = answers[index] ?? {};
    const told = error ?? `${data?.result?.length ?? 0} series`;
    return el("div.asked", {}, el("div.lead", {}, `${target.refId}: ${query.step ? `every ${query.step}s` : "now"}; `,
      el(error ? "span.wrong" : "span", {}, told)),
    el("pre", {}, el("code", {}, query.query)),
    el("button.button", { type: "button", onclick: copy(query.query) }, "Copy"));
  });
  const rest = series.length - ROWS;
  dialog(json.title || "Panel", json.description ? el("p.lead", {}, json.description) : null,
    el("p.lead", {}, `${stamp(view.from)} to ${stamp(view.to)}`), el("h3", {}, "Queries"), ...queries,
    el("h3", {}, "Data"), table(series, defaults.unit, defaults.decimals),
    rest > 0 ? el("p.lead", {}, `and ${rest} more series; the file has all`) : null,
    el("button.button", { type: "button", onclick: file }, "Save as CSV"));
}
