// The time of a board: its range, quick or typed, moved, widened; and how often it is read again.

import { el, icon } from "/js/dom.js";
import { RANGES, REFRESHES, moves, nameOfRange, resolve, stamp } from "/js/time.js";

/** `host` gives `range()`, `refresh()`, `setRange(range)`, `setRefresh(seconds)`, `reload()`. */
export class TimePicker {
  constructor(host) {
    this.host = host;
    this.summary = el("summary", { title: "Time range" });
    this.from = el("input.text", { "aria-label": "From", onkeydown: (event) => this.keys(event) });
    this.to = el("input.text", { "aria-label": "To", onkeydown: (event) => this.keys(event) });
    this.problem = el("div.problem", { role: "alert" });
    const quick = el("div.quick", {}, RANGES.map((range) =>
      el("button", { type: "button", data: { range: range.from }, onclick: () => this.take(range) }, range.name)));
    this.quick = quick;
    this.menu = el("details.choice.time", {}, this.summary, el("div.menu", {},
      el("form.typed", { onsubmit: (event) => this.typed(event) },
        el("label", {}, "From", this.from), el("label", {}, "To", this.to), this.problem,
        el("button.button", { type: "submit" }, "Apply"),
        el("p.lead", {}, "now-90m, now-1d/d, 2026-01-31 14:00:00; local time")),
      quick));
    this.menu.addEventListener("toggle", () => this.opened());
    this.menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.menu.open = false;
      this.summary.focus();
      event.stopPropagation();
    });
    this.every = el("select.select", {
      "aria-label": "Refresh", title: "Refresh",
      onchange: () => host.setRefresh(Number(this.every.value)),
    });
    const button = (name, label, act) => el("button.button.square", { type: "button", title: label, "aria-label": label, onclick: act }, icon(name));
    this.node = el("div.when", { role: "group", "aria-label": "Time" },
      button("left", "Earlier", () => this.shift(-0.5)), this.menu, button("right", "Later", () => this.shift(0.5)),
      button("out", "Wider", () => this.widen()), this.every, button("reload", "Read again now", () => host.reload()));
    this.sync();
  }

  sync() {
    const range = this.host.range();
    const name = nameOfRange(range, Date.now() / 1000);
    this.summary.replaceChildren(icon("clock"), el("span.value", {}, name));
    for (const button of this.quick.children) {
      button.setAttribute("aria-pressed", String(button.dataset.range === range.from && range.to === "now"));
    }
    const refresh = this.host.refresh();
    const known = REFRESHES.includes(refresh) ? REFRESHES : [...REFRESHES, refresh].sort((a, b) => a - b);
    const told = (value) => (value === 0 ? "paused" : value < 60 ? `every ${value}s` : `every ${value / 60}m`);
    this.every.replaceChildren(...known.map((value) => el("option", { value, selected: value === refresh }, told(value))));
  }

  opened() {
    if (!this.menu.open) return;
    const range = this.host.range();
    const text = (one) => (/^\d{9,14}$/.test(one) ? stamp(Number(one) / 1000) : one);
    this.from.value = text(range.from);
    this.to.value = text(range.to);
    this.problem.textContent = "";
    this.from.focus();
    this.from.select();
  }

  take(range) {
    this.menu.open = false;
    this.host.setRange({ from: range.from, to: range.to });
  }

  keys(event) {
    if (event.key === "Enter") this.typed(event);
  }

  typed(event) {
    event.preventDefault();
    const typed = { from: this.from.value.trim(), to: this.to.value.trim() || "now" };
    try {
      const [start, end] = resolve(typed, Date.now() / 1000);
      const fixed = { from: String(Math.round(start * 1000)), to: String(Math.round(end * 1000)) };
      this.take(moves(typed) ? typed : fixed);
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }

  /** Start and end now, in seconds. */
  bounds() {
    return resolve(this.host.range(), Date.now() / 1000);
  }

  fixed(from, to) {
    this.host.setRange({ from: String(Math.round(from * 1000)), to: String(Math.round(to * 1000)) });
  }

  /** Moves the range by a share of its length; never beyond now. */
  shift(share) {
    const [from, to] = this.bounds();
    const length = to - from;
    const end = Math.min(to + share * length, Date.now() / 1000);
    this.fixed(end - length, end);
  }

  /** Twice the range around its middle; one that ends now goes on ending now. */
  widen() {
    const range = this.host.range();
    const [from, to] = this.bounds();
    const length = to - from;
    const wider = RANGES.find((known) => to - resolve(known, to)[0] >= 2 * length - 1);
    if (range.to === "now" && wider) this.take(wider);
    else this.fixed(from - length / 2, Math.min(to + length / 2, Date.now() / 1000));
  }

  /** The middle half of the range; of one that ends now, the last half. */
  narrow() {
    const range = this.host.range();
    const [from, to] = this.bounds();
    const length = to - from;
    const shorter = RANGES.filter((known) => to - resolve(known, to)[0] <= length / 2 + 1).pop();
    if (range.to === "now" && shorter) this.take(shorter);
    else if (length > 20) this.fixed(from + length / 4, to - length / 4);
  }

  open() {
    this.menu.open = true;
  }
}
