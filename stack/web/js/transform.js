// Answers as tables, and the transformations of the JSON that tables and bar charts go through.
// A table is `{fields: [{name, kind, values}]}`; all fields of one are of the same length.

/** One table for each query: time, labels, value. */
export function tables(series, view) {
  const ids = [...new Set(series.map((one) => one.refId))];
  return ids.map((id) => {
    const own = series.filter((one) => one.refId === id);
    const labels = [...new Set(own.flatMap((one) => Object.keys(one.labels)))].filter((name) => name !== "__name__").sort();
    const value = (one) => (one.values ? one.values.findLast((known) => known !== null) ?? null : one.value);
    return {
      fields: [
        { name: "Time", kind: "time", values: own.map(() => view.end) },
        ...labels.map((name) => ({ name, kind: "string", values: own.map((one) => one.labels[name] ?? "") })),
        { name: ids.length > 1 ? `Value #${id}` : "Value", kind: "number", values: own.map(value) },
      ],
    };
  });
}

const find = (table, name) => table.fields.find((field) => field.name === name);
const lengthOf = (table) => table.fields[0]?.values.length ?? 0;

/** A table whose lines are these, by their index in another. */
function taken(table, order) {
  return { fields: table.fields.map((field) => ({ ...field, values: order.map((index) => field.values[index]) })) };
}

/** Lines of all tables together; those whose shared fields are equal become one. */
function merge(list) {
  const names = [...new Set(list.flatMap((table) => table.fields.map((field) => field.name)))];
  const shared = names.filter((name) => list.every((table) => find(table, name)));
  const kinds = new Map(list.flatMap((table) => table.fields.map((field) => [field.name, field.kind])));
  const lines = [];
  const byKey = new Map();
  for (const table of list) {
    for (let index = 0; index < lengthOf(table); index += 1) {
      const line = Object.fromEntries(table.fields.map((field) => [field.name, field.values[index]]));
      const key = JSON.stringify(shared.map((name) => line[name]));
      const free = (byKey.get(key) ?? []).find((known) => table.fields.every(({ name }) => shared.includes(name) || known[name] === undefined));
      if (free) Object.assign(free, line);
      else {
        lines.push(line);
        byKey.set(key, [...(byKey.get(key) ?? []), line]);
      }
    }
  }
  return [{ fields: names.map((name) => ({ name, kind: kinds.get(name), values: lines.map((line) => line[name] ?? null) })) }];
}

function organize(table, { excludeByName = {}, indexByName = {}, renameByName = {} }) {
  const place = (name) => indexByName[name] ?? 1000;
  return {
    fields: table.fields.filter((field) => !excludeByName[field.name])
      .sort((a, b) => place(a.name) - place(b.name))
      .map((field) => ({ ...field, name: renameByName[field.name] || field.name })),
  };
}

const CONVERSIONS = {
  number: (value) => (value === null || value === "" || Number.isNaN(Number(value)) ? null : Number(value)),
  string: (value) => (value === null ? "" : String(value)),
  boolean: (value) => Boolean(value), time: (value) => Number(value),
};

function convert(table, { conversions = [] }) {
  return {
    fields: table.fields.map((field) => {
      const wanted = conversions.find((one) => one.targetField === field.name)?.destinationType;
      if (!wanted || !CONVERSIONS[wanted]) return field;
      return { ...field, kind: wanted, values: field.values.map(CONVERSIONS[wanted]) };
    }),
  };
}

const isNothing = (value) => value === null || value === undefined;

/** Order of two values of a field: numbers by size, names with their numbers. */
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** Indices of the lines of a table in the order of a field; lines without a value come last. */
export function order(values, down) {
  return values.map((_, index) => index).sort((a, b) =>
    Number(isNothing(values[a])) - Number(isNothing(values[b]))
      || compare(values[a], values[b]) * (down ? -1 : 1));
}

function sortBy(table, { sort = [] }) {
  const [{ field: name, desc } = {}] = sort;
  const field = find(table, name);
  return field ? taken(table, order(field.values, desc)) : table;
}

function matrix(table, { columnField, rowField, valueField, emptyValue = "null" }) {
  const [column, row, value] = [columnField, rowField, valueField].map((name) => find(table, name));
  if (!column || !row || !value) return table;
  const [columns, rows] = [column, row].map((field) => [...new Set(field.values)]);
  const empty = { null: null, zero: 0, empty: "", true: true, false: false }[emptyValue] ?? null;
  const cells = new Map(value.values.map((one, index) => [JSON.stringify([row.values[index], column.values[index]]), one]));
  return {
    fields: [
      { name: `${rowField}\\${columnField}`, kind: "string", values: rows },
      ...columns.map((name) => ({ name: String(name), kind: value.kind, values: rows.map((one) => cells.get(JSON.stringify([one, name])) ?? empty) })),
    ],
  };
}

const EACH = { organize, convertFieldType: convert, sortBy, groupingToMatrix: matrix };

/** The one table that the transformations of a panel leave; throws for one that is not known. */
export function transformed(panel, series, view) {
  let list = tables(series, view);
  for (const { id, options = {}, disabled } of panel.transformations ?? []) {
    if (disabled) continue;
    if (id === "merge") list = list.length ? merge(list) : list;
    else if (EACH[id]) list = list.map((table) => EACH[id](table, options));
    else throw new Error(`this console does not know the transformation "${id}"`);
  }
  return list[panel.options?.frameIndex ?? 0] ?? { fields: [] };
}
