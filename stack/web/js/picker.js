// The picker of a variable: chips of what is chosen, and a list with a search box.

import { el } from "/js/dom.js";
import { ALL } from "/js/variables.js";

/** Chips that a picker shows before it counts. */
const CHIPS = 2;
/** Options that a list shows at once; the search finds the others. */
const SHOWN = 200;
/** From so many options on there is a search box. */
const SEARCHED = 6;

const nameOf = (value) => (value === ALL ? "All" : value === "" ? "(empty)" : value);

/** One picker; `changed()` is called when the choice is another one. */
export class Picker {
  constructor(variables, variable, changed) {
    this.variables = variables;
    this.variable = variable;
    this.changed = changed;
    if (variable.type === "textbox") {
      this.node = this.textbox();
      return;
    }
    this.search = el("input.search", {
      type: "search", placeholder: "Search", "aria-label": `Search ${variable.label}`,
      oninput: () => this.fill(), onkeydown: (event) => this.keys(event),
    });
    this.items = el("div.items", { role: "group", "aria-label": variable.label });
    this.summary = el("summary", {});
    this.node = el("details.choice", { data: { variable: variable.name } }, this.summary,
      el("div.menu", { onkeydown: (event) => this.walk(event) }, this.search, this.items));
    this.node.addEventListener("toggle", () => this.opened());
    this.sync();
  }

  textbox() {
    const { variable } = this;
    const input = el("input.text", {
      value: variable.chosen[0] ?? "", "aria-label": variable.label,
      onchange: () => {
        variable.chosen = [input.value];
        this.changed();
      },
    });
    return el("label.choice.box", { data: { variable: variable.name } }, el("span.name", {}, variable.label), input);
  }

  /** Shows what is chosen now. */
  sync() {
    const { variable } = this;
    if (!this.summary) {
      this.node.querySelector("input").value = variable.chosen[0] ?? "";
      return;
    }
    const chosen = variable.chosen.map(nameOf);
    const chips = chosen.slice(0, CHIPS).map((text) => el("span.chip", {}, text));
    const more = chosen.length > CHIPS ? el("span.chip", {}, `+${chosen.length - CHIPS}`) : null;
    const shown = chosen.length ? chips : el("span.chip.none", {}, "none");
    this.summary.title = variable.problem ?? `${variable.label}: ${chosen.join(", ") || "none"}`;
    this.summary.classList.toggle("bad", variable.problem !== null);
    this.summary.replaceChildren(el("span.name", {}, variable.label),
      el("span.value", {}, ...[shown, more].flat().filter(Boolean)));
    if (this.node.open) this.fill();
  }

  opened() {
    if (!this.node.open) return;
    this.search.value = "";
    this.search.hidden = this.variable.options.length < SEARCHED;
    this.fill();
    (this.search.hidden ? this.items.querySelector("input") : this.search)?.focus();
  }

  /** All options, with chosen ones that are no longer among them. */
  options() {
    const { variable } = this;
    const gone = variable.chosen.filter((one) => one !== ALL && !variable.options.includes(one));
    return [...(variable.all ? [ALL] : []), ...gone, ...variable.options];
  }

  fill() {
    const wanted = this.search.value.trim().toLowerCase();
    const found = this.options().filter((one) => nameOf(one).toLowerCase().includes(wanted));
    const focused = document.activeElement?.dataset?.value;
    const rest = found.length - SHOWN;
    this.items.replaceChildren(
      ...(this.variable.problem ? [el("div.problem", {}, this.variable.problem)] : []),
      ...found.slice(0, SHOWN).map((value) => this.item(value)),
      ...(rest > 0 ? [el("div.rest", {}, `${rest} more: search for them`)] : []),
      ...(found.length === 0 ? [el("div.rest", {}, "nothing of that name")] : []));
    if (focused === undefined) return;
    [...this.items.querySelectorAll("input")].find((one) => one.dataset.value === focused)?.focus();
  }

  item(value) {
    const { variable } = this;
    const pick = (alone) => {
      this.variables.choose(variable, value, alone);
      if (!variable.multi) this.node.open = false;
      this.sync();
      this.changed();
    };
    const box = el("input", {
      type: variable.multi ? "checkbox" : "radio", checked: variable.chosen.includes(value),
      data: { value }, onchange: () => pick(false),
    });
    const only = variable.multi && value !== ALL
      ? el("button.only", { type: "button", onclick: () => pick(true) }, "only") : null;
    return el("div.item", {}, el("label", {}, box, el("span", {}, nameOf(value))), only);
  }

  /** Enter in the search box takes the first that is found. */
  keys(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const first = [...this.items.querySelectorAll("input")].find((one) => one.dataset.value !== ALL || !this.search.value);
    first?.click();
  }

  walk(event) {
    if (event.key === "Escape") {
      this.node.open = false;
      this.summary.focus();
      event.stopPropagation();
      return;
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const all = [...this.node.querySelectorAll("input:not([hidden])")];
    const at = all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    all[Math.min(all.length - 1, Math.max(0, at))]?.focus();
  }
}
