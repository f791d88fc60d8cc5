// A board: toolbar, rows, grid, and the loop that refreshes what is in sight with one batch.

import * as api from "/js/api.js";
import { Banner } from "/js/banner.js";
import { el, icon } from "/js/dom.js";
import { facts } from "/js/facts.js";
import { inspect } from "/js/inspect.js";
import { follow, latest } from "/js/live.js";
import { Marks } from "/js/marks.js";
import { Picker } from "/js/picker.js";
import { Sections } from "/js/sections.js";
import { POINTS, RANGES, moves, resolve, seconds, windowOf } from "/js/time.js";
import { TimePicker } from "/js/timepicker.js";
import { Variables } from "/js/variables.js";
import { watched } from "/js/watch.js";

/** Variable options are read again this often, in milliseconds. */
const VARIABLES_EVERY = 30000;
/** A panel that stands alone is wide: more points than one of many. */
const POINTS_ALONE = 1000;
const REFRESH = 5;

/** Seconds of the last half hour for which there is data of any target. */
const FILLED = "max(count_over_time(up[30m:15s])) * 15";

export class BoardView {
  constructor(uid, params, host) {
    this.uid = uid;
    this.params = params;
    this.host = host;
    this.abort = new AbortController();
    this.list = [];
    this.keys = this.actions();
  }

  async open() {
    const young = this.params.has("from") ? null : this.filled();
    const told = await facts(this.uid);
    if (this.abort.signal.aborted) return;
    const json = told.board;
    if (!json) throw new Error(`there is no board "${this.uid}"`);
    this.json = json;
    this.list = told.boards;
    this.interval = told.scrape_interval;
    this.sourceProblem = told.problem;
    this.host.title(json.title);
    this.preset = await this.presetRange(young);
    this.variables = new Variables(json, this.params, told.rate_interval);
    this.marks = new Marks(json, () => this.moved());
    this.readState();
    const loaded = this.loadVariables();
    if (!this.variables.ready()) await loaded;
    if (this.abort.signal.aborted) return;
    this.draw();
    await this.refresh();
    this.follow();
  }

  /** Everything around the panels, then the panels. */
  draw() {
    this.pickers = this.variables.list.filter((one) => !one.hidden)
      .map((one) => new Picker(this.variables, one, () => this.moved()));
    this.time = new TimePicker({
      range: () => this.range, refresh: () => this.every,
      setRange: (range) => this.setRange(range), setRefresh: (every) => this.setRefresh(every),
      reload: () => this.refresh(true),
    });
    this.tools = el("div.tools", { role: "toolbar", "aria-label": "Variables and time" });
    this.banner = new Banner(this.uid, this.list, (id) => this.panelHref(id));
    this.sections = new Sections(this.json, this.context(), () => this.refresh());
    this.links = el("nav.boards", { "aria-label": "Boards" });
    this.host.main.replaceChildren(this.tools, this.links, this.banner.node, this.sections.node);
    this.drawTools();
    this.sections.draw(this.alone());
  }

  /** What is told by others than the queries of panels, once these are answered. */
  async follow() {
    this.unfollow = follow((now) => this.tell(now));
    this.watched = await watched(this.uid);
    if (!this.abort.signal.aborted && latest()) this.tell(latest());
  }

  tell(now) {
    this.banner.update(now);
    if (this.watched) this.sections.tell(this.watched, now.active);
  }

  /** How much of the last half hour has data: a stack that has just begun shows a short range. */
  async filled() {
    try {
      const [answer] = await api.batch([{ query: FILLED }], this.abort.signal);
      const value = Number(answer.data?.result?.[0]?.value?.[1]);
      return Number.isFinite(value) ? value : null;
    } catch {
      return null;
    }
  }

  async presetRange(young) {
    const own = { from: this.json.time?.from ?? "now-30m", to: this.json.time?.to ?? "now" };
    const age = await young;
    const length = /^now-(\w+)$/.exec(own.from)?.[1];
    if (age === null || age >= 1500 || own.to !== "now" || !length) return own;
    const filled = RANGES.filter((range) => seconds(range.length) <= Math.min(age * 1.25, seconds(length)));
    return { from: (filled[filled.length - 1] ?? RANGES[0]).from, to: "now" };
  }

  /** Range, refresh and marks: of the address, else of the board. */
  readState() {
    const from = this.params.get("from");
    this.range = from ? { from, to: this.params.get("to") ?? "now" } : this.preset;
    this.problem = null;
    try {
      resolve(this.range, Date.now() / 1000);
    } catch (error) {
      this.problem = `Range: ${error.message}`;
      this.range = this.preset;
    }
    const refresh = this.params.get("refresh");
    this.every = refresh === "off" || refresh === "" ? 0 : seconds(refresh) ?? Math.max(REFRESH, this.interval);
    this.marks.read(this.params);
  }

  alone() {
    return Number(/\d+/.exec(this.params.get("viewPanel") ?? "")?.[0] ?? 0);
  }

  async loadVariables() {
    this.variablesRead = Date.now();
    await this.variables.load(this.abort.signal);
    this.pickers?.forEach((picker) => picker.sync());
  }

  context() {
    return {
      replace: (text, view, more) => this.variables.replace(text, view, more),
      words: (text) => this.variables.words(text),
      zoom: (from, to) => this.zoom(from, to),
      open: (id) => this.host.go(this.panelHref(this.alone() === id ? null : id)),
      inspect: (panel) => inspect(panel),
      again: () => this.refresh(true),
      href: (one) => this.href(one.url, one.includeVars, one.keepTime),
      link: (url, more) => this.dataLink(url, more),
    };
  }

  drawTools() {
    const links = (this.json.links ?? []).filter((one) => one.type === "link").map((one) => {
      const href = this.href(one.url, one.includeVars, one.keepTime);
      const text = one.title.replace(/^Sightline \/ /, "");
      return el("a", { href, title: one.tooltip || null, target: one.targetBlank ? "_blank" : null, rel: "noreferrer" }, text);
    });
    const problems = [this.problem, this.sourceProblem, ...this.variables.unknown].filter(Boolean);
    const focused = document.activeElement;
    this.tools.replaceChildren(
      ...(this.alone() ? [el("a.button", { href: this.panelHref(null) }, icon("back"), "Board")] : []),
      ...this.pickers.map((picker) => picker.node), ...[this.marks.menu()].filter(Boolean),
      ...problems.map((text) => el("span.badge.bad", {}, text)),
      el("span.spring"), this.time.node);
    // What is put in its place again has lost the focus.
    if (this.tools.contains(focused)) focused.focus();
    this.links.replaceChildren(...links);
    this.links.hidden = links.length === 0;
  }

  /** One exchange for all panels in sight; a refresh that comes during one follows it, unless
   * something has changed: then what is on its way is not wanted any more. */
  async refresh(changed = false) {
    clearTimeout(this.timer);
    if (this.loading) {
      this.again = true;
      if (changed) this.loading.abort();
      return;
    }
    this.again = false;
    this.loading = new AbortController();
    this.abort.signal.addEventListener("abort", () => this.loading?.abort(), { once: true });
    try {
      if (!document.hidden) await this.load(this.loading.signal);
    } catch (error) {
      if (!this.loading.signal.aborted) this.sections.fail(error);
    }
    this.loading = null;
    if (this.abort.signal.aborted) return;
    const next = this.again ? 0 : this.every * 1000;
    if (this.again || (next > 0 && moves(this.range))) this.timer = setTimeout(() => this.refresh(), next);
  }

  async load(signal) {
    if (Date.now() - this.variablesRead > VARIABLES_EVERY) this.loadVariables();
    const points = this.alone() ? POINTS_ALONE : POINTS;
    const view = windowOf(this.range, Date.now() / 1000, points, this.interval);
    const first = !this.painted;
    const panels = this.sections.wanted(first);
    const asked = panels.map((panel) => panel.queries(view));
    const marks = this.marks.queries(this.variables, view);
    const queries = [...asked.flat().map((one) => one.query), ...marks.map((one) => one.query)];
    panels.filter((panel) => !panel.answered).forEach((panel) => panel.waiting());
    if (first) performance.mark("panels-asked");
    const answers = await api.batch(queries, signal);
    if (signal.aborted) return;
    if (first) performance.mark("panels-answered");
    let at = asked.reduce((sum, one) => sum + one.length, 0);
    const events = this.marks.events(marks, answers.slice(at), view);
    at = 0;
    panels.forEach((panel, index) => {
      const own = answers.slice(at, at + asked[index].length);
      at += asked[index].length;
      panel.answered = true;
      panel.update(asked[index], own, view, events);
    });
    if (!first) return;
    this.painted = true;
    performance.mark("panels-drawn", { detail: panels.length });
    this.again ||= this.sections.wanted(false).length > panels.length;
  }

  setRange({ from, to }) {
    const params = this.own();
    params.set("from", from);
    params.set("to", to);
    this.host.go(`/d/${this.uid}?${params}`);
  }

  setRefresh(every) {
    this.every = every;
    this.host.go(`/d/${this.uid}?${this.own()}`, true);
    this.params.set("refresh", every ? `${every}s` : "off");
    this.time.sync();
    this.refresh();
  }

  zoom(from, to) {
    const end = Math.max(to, from + 10);
    this.setRange({ from: String(Math.floor(from) * 1000), to: String(Math.ceil(end) * 1000) });
  }

  /** A variable or a kind of marks has changed: the address says so, and is arrived at. */
  moved() {
    this.host.go(`/d/${this.uid}?${this.own()}`);
  }

  /** Another state of this board, by its address. */
  arrive(params) {
    const before = this.alone();
    this.params = params;
    if (!this.variables) return;
    this.readState();
    this.variables.read(params);
    this.variablesRead = 0;
    this.pickers.forEach((picker) => picker.sync());
    this.time.sync();
    this.drawTools();
    if (before !== this.alone()) this.sections.draw(this.alone());
    this.sections.stale();
    this.refresh(true);
  }

  /** The parameters of this board as it is now. */
  own() {
    const params = new URLSearchParams();
    this.variables.address(params);
    params.set("from", this.range.from);
    params.set("to", this.range.to);
    params.set("refresh", this.every ? `${this.every}s` : "off");
    this.marks.address(params);
    if (this.alone()) params.set("viewPanel", String(this.alone()));
    return params;
  }

  panelHref(id) {
    const params = this.own();
    if (id) params.set("viewPanel", String(id));
    else params.delete("viewPanel");
    return `/d/${this.uid}?${params}`;
  }

  /** An address with the variables and the time of this board. */
  href(url, variables, time) {
    const filled = this.dataLink(url, {});
    if (!filled.startsWith("/")) return filled;
    // Grafana's list of rules has another address than the one here.
    const rule = /^\/alerting\/list\?search=rule:(\w+)$/.exec(filled);
    if (rule) return `/alerts#${rule[1]}`;
    const [whole, anchor] = filled.split("#");
    const [path, query] = whole.split("?");
    const params = new URLSearchParams(query);
    if (variables) this.variables.address(params);
    if (time) {
      params.set("from", this.range.from);
      params.set("to", this.range.to);
      params.set("refresh", this.every ? `${this.every}s` : "off");
    }
    const text = params.toString();
    return `${path}${text ? `?${text}` : ""}${anchor ? `#${anchor}` : ""}`;
  }

  /** An address of a data link: `more` are the names of the series and of the value. */
  dataLink(url, more) {
    const { from, to } = this.range;
    const whole = new URLSearchParams();
    this.variables.address(whole);
    return this.variables.replace(url, {}, {
      __url_time_range: `from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`,
      __all_variables: whole.toString(), ...more,
    });
  }

  neighbour(uid) {
    return this.href(`/d/${uid}`, true, true);
  }

  /** The theme has changed: colours of canvases are drawn in. */
  themed() {
    this.sections?.panels.forEach((panel) => panel.redraw());
  }

  actions() {
    const panel = () => this.sections?.focused();
    const on = (act) => () => (panel() ? act(panel()) : false);
    return {
      reload: () => this.refresh(true),
      pause: () => this.setRefresh(this.every ? 0 : Math.max(REFRESH, this.interval)),
      earlier: () => this.time.shift(-0.5), later: () => this.time.shift(0.5),
      wider: () => this.time.widen(), narrower: () => this.time.narrow(),
      live: () => this.setRange(this.preset), range: () => this.time.open(),
      nextPanel: () => this.sections.focus(1), previousPanel: () => this.sections.focus(-1),
      view: on((one) => this.context().open(one.json.id)),
      full: on((one) => one.full()), inspect: on((one) => inspect(one)),
      fold: () => this.sections.foldAll(),
      leave: () => (this.alone() ? this.host.go(this.panelHref(null)) : false),
    };
  }

  close() {
    this.abort.abort();
    this.unfollow?.();
    clearTimeout(this.timer);
    this.sections?.close();
  }
}
