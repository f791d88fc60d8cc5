// The part of Markdown that boards and the runbook use, made of elements and never of HTML.

import { el, marked } from "/js/dom.js";

const ITEM = /^\s*(?:[-*]|\d+\.)\s+/;

/** Blocks of a text: paragraphs, lists, tables, code between fences, headings. */
function blocks(text) {
  const out = [];
  let block = [];
  let fence = null;
  const end = () => {
    if (block.length) out.push({ lines: block });
    block = [];
  };
  for (const line of text.split("\n")) {
    if (fence) {
      if (/^```/.test(line)) {
        out.push({ code: fence.join("\n") });
        fence = null;
      } else fence.push(line);
    } else if (/^```/.test(line)) {
      end();
      fence = [];
    } else if (line.trim() === "") end();
    else if (/^#{1,4}\s/.test(line)) {
      end();
      out.push({ lines: [line] });
    } else block.push(line);
  }
  if (fence) out.push({ code: fence.join("\n") });
  end();
  return out;
}

function list(lines) {
  const items = [];
  for (const line of lines) {
    if (ITEM.test(line)) items.push(line.replace(ITEM, ""));
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  return el(/^\s*\d/.test(lines[0]) ? "ol" : "ul", {}, items.map((item) => el("li", {}, marked(item))));
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const [head, , ...rest] = lines;
  return el("table.list", {}, el("thead", {}, el("tr", {}, cells(head).map((cell) => el("th", {}, marked(cell))))),
    el("tbody", {}, rest.map((line) => el("tr", {}, cells(line).map((cell) => el("td", {}, marked(cell)))))));
}

/** Elements of a text. `anchors` gives headings of the second level their text as an id. */
export function markdown(text, anchors = false) {
  return blocks(String(text)).map(({ lines, code }) => {
    if (code !== undefined) return el("pre", {}, el("code", {}, code));
    const heading = /^(#{1,4})\s+(.*)$/.exec(lines[0]);
    if (heading && lines.length === 1) {
      const [, marks, title] = heading;
      const id = anchors && marks.length === 2 ? title.trim() : null;
      return el(`h${Math.min(4, marks.length + (anchors ? 0 : 1))}`, { id }, marked(title));
    }
    if (ITEM.test(lines[0])) return list(lines);
    if (lines.length > 2 && /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test(lines[1])) return table(lines);
    return el("p", {}, marked(lines.join(" ")));
  });
}
