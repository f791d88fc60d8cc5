// A board: toolbar, rows, grid, and the loop that refreshes what is in sight with one batch.

import * as api from "/js/api.js";
import { color } from "/js/colors.js";
import { el, icon } from "/js/dom.js";
import { nameOf } from "/js/frames.js";
import { Panel } from "/js/panel.js";
import { RANGES, REFRESHES, relative, seconds, stamp, windowOf } from "/js/time.js";
import { Variables } from "/js/variables.js";

/** Panels this near to the window are refreshed too. */
const MARGIN = "400px";

/** Variable options are read again this often, in milliseconds. */
const VARIABLES_EVERY = 30000;

export class BoardView {
  constructor(uid, params, host) {
    this.uid = uid;
    this.params = params;
    this.host = host;
    this.panels = [];
    this.abort = new AbortController();
    this.state = { range: 1800, absolute: null, refresh: 5 };
    this.folded = new Map();
  }

  async open() {
    this.json = await api.board(this.uid);
    if (this.abort.signal.aborted) return;
    if (!this.json) throw new Error(`there is no board "${this.uid}"`);
    this.host.title(this.json.title);
    await this.readState();
    this.variables = new Variables(this.json, this.params, () => this.changed());
    await this.loadVariables();
    if (this.abort.signal.aborted) return;
    this.tools = el("div.tools");
    this.body = el("div.board");
    this.watcher = new IntersectionObserver((seen) => this.sighted(seen), { rootMargin: MARGIN });
    this.host.main.replaceChildren(this.tools, this.body);
    this.drawTools();
    this.drawBody();
    await this.refresh();
  }

  /** Range and refresh: of the address, else of the board, shorter where the stack is young. */
  async readState() {
    const from = this.params.get("from");
    const to = this.params.get("to");
    const board = relative(this.json.time?.from) ?? 1800;
    this.state.range = relative(from) ?? (await this.youngRange(board));
    if (from && relative(from) === null && Number(to) > Number(from)) {
      this.state.absolute = [Number(from) / 1000, Number(to) / 1000];
    }
    const asked = seconds(this.params.get("refresh"));
    this.state.refresh = this.params.get("refresh") === "off" ? 0 : asked ?? 5;
  }

  async youngRange(most) {
    try {
      const { startTime } = await api.get("/api/v1/status/runtimeinfo");
      const age = (Date.now() - Date.parse(startTime)) / 1000;
      const filled = RANGES.filter(([, range]) => range <= age * 1.25);
      return Math.min(most, (filled[filled.length - 1] ?? RANGES[0])[1]);
    } catch {
      return most;
    }
  }

  async loadVariables() {
    this.variablesRead = Date.now();
    try {
      await this.variables.load();
      this.problem = null;
    } catch (error) {
      this.problem = error.message;
    }
  }

  context() {
    return {
      replace: (text, view) => this.variables.replace(text, view),
      zoom: (from, to) => this.zoom(from, to),
      open: (id) => this.alone(id),
      href: (one) => this.href(one.url, one.includeVars, one.keepTime),
    };
  }

  drawTools() {
    const { range, absolute, refresh } = this.state;
    const alone = this.params.get("viewPanel");
    const ranges = el("div.segments", { role: "group", "aria-label": "Time range" }, RANGES.map(([name, value]) =>
      el("button", { "aria-pressed": String(!absolute && value === range), onclick: () => this.setRange(value) }, name)));
    const zoomed = absolute ? el("button.button", { onclick: () => this.setRange(range) },
      `${stamp(absolute[0])} to ${stamp(absolute[1]).slice(11)}  ✕`) : null;
    const every = el("select.select", { "aria-label": "Refresh", title: "Refresh", onchange: (event) => this.setRefresh(Number(event.target.value)) },
      REFRESHES.map(([name, value]) => el("option", { value, selected: value === refresh }, name === "off" ? "no refresh" : `every ${name}`)));
    const links = (this.json.links ?? []).filter((one) => one.type === "link").map((one) =>
      el("a.button", { href: this.href(one.url, one.includeVars, one.keepTime), title: one.tooltip || null }, one.title.replace(/^Sightline \/ /, "")));
    this.tools.replaceChildren(
      ...(alone ? [el("button.button", { onclick: () => this.alone(null) }, icon("back"), "Board")] : []),
      ...this.variables.pickers(),
      ...(this.problem ? [el("span.badge.bad", {}, `Variables: ${this.problem}`)] : []),
      el("span.spring"), ...links, ...(zoomed ? [zoomed] : []), ranges, every);
  }

  /** The board as sections: a row and the panels up to the next one. */
  sections() {
    const sections = [];
    for (const panel of this.json.panels ?? []) {
      if (panel.type === "row") {
        sections.push({ row: panel, panels: [...(panel.panels ?? [])], folded: Boolean(panel.collapsed) });
      } else {
        if (sections.length === 0) sections.push({ row: null, panels: [], folded: false });
        sections[sections.length - 1].panels.push(panel);
      }
    }
    return sections;
  }

  drawBody() {
    this.closePanels();
    const alone = Number(this.params.get("viewPanel"));
    if (alone) {
      const found = this.sections().flatMap((section) => section.panels).find((panel) => panel.id === alone);
      const content = found ? this.panel(found).node : el("div.notice", {}, `This board has no panel ${alone}.`);
      this.body.replaceChildren(el("div.single", {}, content));
      return;
    }
    this.body.replaceChildren(...this.sections().flatMap((section) => this.section(section)));
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
    const arrow = el("span.arrow", {}, icon("arrow"));
    const head = el("button.row", { "aria-expanded": String(!closed) }, arrow, row.title,
      el("span.count", {}, closed ? `${panels.length} panels` : ""));
    head.addEventListener("click", () => {
      const open = head.getAttribute("aria-expanded") === "true";
      head.setAttribute("aria-expanded", String(!open));
      head.lastChild.textContent = open ? `${panels.length} panels` : "";
      this.folded.set(row.id, open);
      grid.hidden = open;
      if (open) this.closePanels(panels.map((panel) => panel.id));
      else fill();
    });
    grid.hidden = closed;
    if (!closed) fill();
    return [head, grid];
  }

  placed(json, top) {
    const { x, y, w, h } = json.gridPos;
    const { node } = this.panel(json);
    if (innerWidth > 900) {
      node.style.gridColumn = `${x + 1} / span ${w}`;
      node.style.gridRow = `${y - top + 1} / span ${h}`;
    } else {
      node.style.height = `${h * 38 - 8}px`;
    }
    return node;
  }

  panel(json) {
    const panel = new Panel(json, this.context());
    this.panels.push(panel);
    this.watcher.observe(panel.node);
    return panel;
  }

  closePanels(ids = null) {
    const gone = this.panels.filter((panel) => !ids || ids.includes(panel.json.id));
    for (const panel of gone) {
      this.watcher?.unobserve(panel.node);
      panel.close();
    }
    this.panels = this.panels.filter((panel) => !gone.includes(panel));
  }

  /** Panels that come into sight are asked for at once, not at the next refresh. */
  sighted(entries) {
    let fresh = false;
    for (const entry of entries) {
      const panel = this.panels.find((known) => known.node === entry.target);
      if (!panel) continue;
      panel.visible = entry.isIntersecting;
      fresh ||= entry.isIntersecting && !panel.answered;
    }
    if (fresh) this.refresh();
  }

  /** One exchange for all panels in sight; a refresh that comes during one follows it. */
  async refresh() {
    clearTimeout(this.timer);
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    this.again = false;
    try {
      if (!document.hidden) await this.load();
    } catch (error) {
      if (!this.abort.signal.aborted) this.fail(error);
    }
    this.loading = false;
    if (this.abort.signal.aborted) return;
    const next = this.again ? 0 : this.state.refresh * 1000;
    if (this.again || next > 0) this.timer = setTimeout(() => this.refresh(), next);
  }

  async load() {
    if (Date.now() - this.variablesRead > VARIABLES_EVERY) {
      await this.loadVariables();
      if (!document.querySelector("details.choice[open]")) this.drawTools();
    }
    const view = windowOf(this.state, Date.now() / 1000);
    const panels = this.panels.filter((panel) => panel.visible && (panel.json.targets ?? []).length);
    const asked = panels.map((panel) => panel.queries(view));
    const annotations = this.annotations(view);
    const queries = [...asked.flat().map((one) => one.query), ...annotations.map((one) => one.query)];
    panels.filter((panel) => !panel.answered).forEach((panel) => panel.waiting());
    const answers = await api.batch(queries, this.abort.signal);
    if (this.abort.signal.aborted) return;
    let at = asked.reduce((sum, one) => sum + one.length, 0);
    const events = annotations.flatMap((one) => this.events(one, answers[at++], view));
    at = 0;
    panels.forEach((panel, index) => {
      const own = answers.slice(at, at + asked[index].length);
      at += asked[index].length;
      panel.answered = true;
      panel.update(asked[index], own, view, events);
    });
  }

  fail(error) {
    for (const panel of this.panels.filter((known) => known.visible && known.json.targets)) {
      panel.message("error", "No answer from the console", error.message);
      panel.answered = false;
    }
  }

  annotations(view) {
    const list = (this.json.annotations?.list ?? []).filter((one) => one.expr && one.enable && !one.builtIn);
    return list.map((annotation) => ({
      annotation,
      query: {
        query: this.variables.replace(annotation.expr, { step: view.step, range: view.end - view.start }),
        start: view.start, end: view.end, step: view.step,
      },
    }));
  }

  /** The beginning of each stretch in which an annotation query has a value. */
  events({ annotation }, answer, view) {
    const found = [];
    for (const series of answer?.data?.result ?? []) {
      let last = -Infinity;
      for (const [time] of series.values) {
        if (time - last > view.step * 1.5 && time > view.start) {
          const text = [annotation.titleFormat, annotation.textFormat].filter(Boolean)
            .map((format) => nameOf(series.metric, format)).join(": ");
          found.push({ time, text, color: color(annotation.iconColor) });
        }
        last = time;
      }
    }
    return found;
  }

  setRange(range) {
    this.state.range = range;
    this.state.absolute = null;
    this.moved();
  }

  setRefresh(every) {
    this.state.refresh = every;
    this.moved();
  }

  zoom(from, to) {
    this.state.absolute = [Math.floor(from), Math.ceil(Math.max(to, from + 10))];
    this.moved();
  }

  alone(id) {
    if (id) this.params.set("viewPanel", id);
    else this.params.delete("viewPanel");
    this.drawBody();
    this.moved();
  }

  /** A variable has changed: labels and queries are all different. */
  async changed() {
    await this.loadVariables();
    this.moved();
  }

  moved() {
    this.host.go(this.href(`/d/${this.uid}`, true, true, true), true);
    this.drawTools();
    for (const panel of this.panels) panel.answered = false;
    this.refresh();
  }

  /** An address with the variables and the time of this board. */
  href(url, variables, time, own = false) {
    if (!url.startsWith("/")) return url;
    const [path, query] = url.split("?");
    const params = new URLSearchParams(query);
    if (variables) this.variables.address(params);
    if (time) {
      const { range, absolute, refresh } = this.state;
      params.set("from", absolute ? String(absolute[0] * 1000) : `now-${range}s`);
      params.set("to", absolute ? String(absolute[1] * 1000) : "now");
      params.set("refresh", refresh ? `${refresh}s` : "off");
    }
    const alone = this.params.get("viewPanel");
    if (own && alone) params.set("viewPanel", alone);
    return params.toString() ? `${path}?${params}` : path;
  }

  close() {
    this.abort.abort();
    clearTimeout(this.timer);
    this.watcher?.disconnect();
    this.closePanels();
  }
}
