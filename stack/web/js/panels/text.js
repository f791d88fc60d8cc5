// Text: the part of Markdown that our boards use, made of elements and never of HTML.

import { el, marked } from "/js/dom.js";

export function draw(panel) {
  const out = el("div.text");
  const blocks = String(panel.options?.content ?? "").split(/\n\s*\n/);
  for (const block of blocks) {
    const lines = block.split("\n").filter((line) => line.trim());
    if (lines.length === 0) continue;
    const heading = /^(#{1,4})\s+(.*)$/.exec(lines[0]);
    if (heading && lines.length === 1) {
      out.append(el(`h${Math.min(4, heading[1].length + 1)}`, {}, marked(heading[2])));
    } else if (lines.every((line) => /^\s*[-*]\s+/.test(line))) {
      out.append(el("ul", {}, lines.map((line) =>
        el("li", {}, marked(line.replace(/^\s*[-*]\s+/, ""))))));
    } else {
      out.append(el("p", {}, marked(lines.join(" "))));
    }
  }
  return out;
}
