// Building elements. Text is only ever set as text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `el("div.name", { title: "x", onclick: f }, child, "text", ...)`. */
export function el(spec, props = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  fill(node, props);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** The same for SVG; attributes only. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function fill(node, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style") Object.assign(node.style, value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
}

const ICONS = {
  info: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM8 7v4.4M8 4.5v.2",
  open: "M9.5 2.5h4v4M13 3 8.5 7.5M12.5 9.5v3a1 1 0 0 1-1 1h-8a1 1 0 0 1-1-1v-8a1 1 0 0 1 1-1h3",
  arrow: "M6 3.5 10.5 8 6 12.5",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8 13 13M13 3l-1.2 1.2M4.2 11.8 3 13",
  link: "M6.8 9.2 9.2 6.8M7.5 4.6l1.6-1.6a2.7 2.7 0 0 1 3.9 3.9l-1.6 1.6M8.5 11.4l-1.6 1.6a2.7 2.7 0 0 1-3.9-3.9l1.6-1.6",
  doc: "M4 1.8h5.5L12.5 5v9.2H4zM9.2 2v3.2h3M6 8h4.5M6 11h4.5",
  board: "M2 2.5h5v5H2zM9 2.5h5v3H9zM9 7.5h5v6H9zM2 9.5h5v4H2z",
  left: "M10 3.5 5.5 8 10 12.5",
  right: "M6 3.5 10.5 8 6 12.5",
  out: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.3 10.3 14 14M4.8 7h4.4",
  reload: "M13 8a5 5 0 1 1-1.6-3.7M13 2.2v3h-3",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM8 4.8V8l2.2 1.6",
  bell: "M4.2 11V7.2a3.8 3.8 0 0 1 7.6 0V11l1.2 1.3H3L4.2 11ZM6.8 14h2.4",
  inspect: "M2.5 3.5h11M2.5 6.5h7M2.5 9.5h11M2.5 12.5h7",
  warn: "M8 2.5 14.2 13H1.8L8 2.5ZM8 6.5v3M8 11.2v.2",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.3 10.3 14 14",
  keys: "M1.5 4.5h13v8h-13zM4 7h.1M6.6 7h.1M9.2 7h.1M11.9 7h.1M4.5 10h7",
  close: "M4 4l8 8M12 4l-8 8",
  back: "M9.5 3.5 5 8l4.5 4.5M5.5 8H14",
};

/** A line icon of 16 units; takes the colour of the text. */
export function icon(name) {
  const path = svg("path", {
    d: ICONS[name], fill: "none", stroke: "currentColor",
    "stroke-width": 1.5, "stroke-linecap": "round", "stroke-linejoin": "round",
  });
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

/** Simple marks inside a line: *emphasis*, **strong**, `code`, [text](address). */
export function marked(text) {
  const parts = [];
  const pattern = /\*\*([^*]+)\*\*|\*([^*]+)\*|`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)/g;
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[1]) parts.push(el("strong", {}, match[1]));
    else if (match[2]) parts.push(el("em", {}, match[2]));
    else if (match[3]) parts.push(el("code", {}, match[3]));
    else parts.push(link(match[4], match[5]));
  }
  parts.push(text.slice(from));
  return parts;
}

/** A link; anything but a web address or a path stays text. */
export function link(text, address, props = {}) {
  if (!/^(https?:\/\/|\/(?!\/)|#)/.test(address)) return document.createTextNode(text);
  return el("a", { href: address, ...props }, text);
}
