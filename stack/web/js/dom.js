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
