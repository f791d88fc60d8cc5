// Text: Markdown, made of elements and never of HTML.

import { el } from "/js/dom.js";
import { markdown } from "/js/markdown.js";

export function draw(panel) {
  return el("div.text", { tabIndex: 0 }, markdown(panel.options?.content ?? ""));
}
