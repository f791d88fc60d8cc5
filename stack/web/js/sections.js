// The panels of a board in their rows and places, and which of them are in sight.

import { el, icon } from "/js/dom.js";
import { Panel } from "/js/panel.js";

/** Panels this near to the window are refreshed too. */
const MARGIN = "400px";
/** Below this width panels stand one under another. */
const NARROW = 900;

/** The board as sections: a row and the panels up to the next one. */
function split(panels) {
  const out = [];
  for (const panel of panels) {
    if (panel.type === "row") {
      out.push({ row: panel, panels: [...(panel.panels ?? [])], folded: Boolean(panel.collapsed) });
      continue;
    }
    if (out.length === 0) out.push({ row: null, panels: [], folded: false });
    out[out.length - 1].panels.push(panel);
  }
  return out;
}

export class Sections {
  /** `sighted()` is called when a panel without an answer comes into sight. */
  constructor(json, context, sighted) {
    this.parts = split(json.panels ?? []);
    this.context = context;
    this.sighted = sighted;
    this.panels = [];
    this.folded = new Map();
    this.heads = [];
    this.told = null;
    this.node = el("div.board");
    this.watcher = new IntersectionObserver((seen) => this.seen(seen), { rootMargin: MARGIN });
  }

  /** Draws all panels, or the one with an id alone. */
  draw(alone) {
    this.closePanels();
    this.heads = [];
    if (alone) {
      const found = this.parts.flatMap((part) => part.panels).find((panel) => panel.id === alone);
      const content = found ? this.panel(found).node : el("div.notice", {}, `This board has no panel ${alone}.`);
      this.node.replaceChildren(el("div.single", {}, content));
    } else {
      this.node.replaceChildren(...this.parts.flatMap((part) => this.section(part)));
    }
    if (this.told) this.tell(...this.told);
  }

  section({ row, panels, folded }) {
    const grid = el("div.grid");
    const top = panels.reduce((least, panel) => Math.min(least, panel.gridPos.y), Infinity);
    const fill = () => grid.replaceChildren(...panels.map((json) => this.placed(json, top)));
    if (!row) {
      fill();
      return [grid];
    }
    const closed = this.folded.get(row.id) ?? folded;
    const head = el("button.row", { type: "button", "aria-expanded": String(!closed) },
      el("span.arrow", {}, icon("arrow")), row.title, el("span.count", {}, closed ? `${panels.length} panels` : ""));
    head.addEventListener("click", () => {
      const open = head.getAttribute("aria-expanded") === "true";
      head.setAttribute("aria-expanded", String(!open));
      head.lastChild.textContent = open ? `${panels.length} panels` : "";
      this.folded.set(row.id, open);
      grid.hidden = open;
      if (open) this.closePanels(panels.map((panel) => panel.id));
      else fill();
      if (!open && this.told) this.tell(...this.told);
    });
    this.heads.push(head);
    grid.hidden = closed;
    if (!closed) fill();
    return [head, grid];
  }

  placed(json, top) {
    const { x, y, w, h } = json.gridPos;
    const { node } = this.panel(json);
    if (innerWidth > NARROW) {
      node.style.gridColumn = `${x + 1} / span ${w}`;
      node.style.gridRow = `${y - top + 1} / span ${h}`;
    } else {
      node.style.height = `${h * 38 - 8}px`;
    }
    return node;
  }

  panel(json) {
    const panel = new Panel(json, this.context);
    this.panels.push(panel);
    this.watcher.observe(panel.node);
    return panel;
  }

  closePanels(ids = null) {
    const gone = this.panels.filter((panel) => !ids || ids.includes(panel.json.id));
    for (const panel of gone) {
      this.watcher.unobserve(panel.node);
      panel.close();
    }
    this.panels = this.panels.filter((panel) => !gone.includes(panel));
  }

  /** Panels that come into sight are asked for at once, not at the next refresh. */
  seen(entries) {
    let fresh = false;
    for (const entry of entries) {
      const panel = this.panels.find((known) => known.node === entry.target);
      if (!panel) continue;
      panel.visible = entry.isIntersecting;
      fresh ||= entry.isIntersecting && !panel.answered && panel.asks();
    }
    if (fresh) this.sighted();
  }

  /** Panels to ask for: those near the window; at `first` those in it, which the observer has not
   * told of yet. */
  wanted(first) {
    const inside = ({ node }) => {
      const { top, bottom } = node.getBoundingClientRect();
      return bottom > 0 && top < innerHeight;
    };
    return this.panels.filter((panel) => panel.asks() && (first ? inside(panel) : panel.visible));
  }

  /** The answers belong to another state now. */
  stale() {
    for (const panel of this.panels) panel.answered = false;
  }

  fail(error) {
    for (const panel of this.panels.filter((known) => known.visible && known.asks())) {
      panel.message("error", "No answer from the console", error.message);
      panel.answered = false;
    }
  }

  /** Tells each panel which alerts watch it, and which of these are active. */
  tell(watched, active) {
    this.told = [watched, active];
    for (const panel of this.panels) panel.tell(watched.get(panel.json.id) ?? [], active);
  }

  /** The panel that has the focus, or the one that stands alone. */
  focused() {
    const found = this.panels.find((panel) => panel.node.contains(document.activeElement));
    return found ?? (this.panels.length === 1 ? this.panels[0] : undefined);
  }

  /** Moves the focus to the next panel, or the one before, as they stand on the page. */
  focus(step) {
    const nodes = [...this.node.querySelectorAll(".panel")];
    const at = nodes.indexOf(this.focused()?.node);
    const next = nodes[Math.min(nodes.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  /** Unfolds all rows, or folds them when all are open. */
  foldAll() {
    const folded = this.heads.filter((head) => head.getAttribute("aria-expanded") === "false");
    (folded.length ? folded : this.heads).forEach((head) => head.click());
  }

  close() {
    this.watcher.disconnect();
    this.closePanels();
  }
}
