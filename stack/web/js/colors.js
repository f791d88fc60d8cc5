// The colour names of Grafana's JSON, the series palette, and thresholds.

const NAMED = {
  green: ["#b7dbab", "#96d98d", "#73bf69", "#56a64b", "#37872d"],
  yellow: ["#fff899", "#ffee52", "#fade2a", "#f2cc0c", "#e0b400"],
  orange: ["#ffcb7d", "#ffb357", "#ff9830", "#ff780a", "#fa6400"],
  red: ["#ff9aa6", "#ff7383", "#f2495c", "#e02f44", "#c4162a"],
  blue: ["#c0d8ff", "#8ab8ff", "#5794f2", "#3274d9", "#1f60c4"],
  purple: ["#deb6f2", "#ca95e5", "#b877d9", "#a352cc", "#8f3bb8"],
};
const SHADES = ["super-light", "light", "", "semi-dark", "dark"];

const PALETTE = [
  "#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#70dbed",
  "#37872d", "#fade2a", "#447ebc", "#c15c17", "#e5a8e2", "#aea2e0", "#96d98d", "#ffb357",
  "#1f60c4", "#c4162a", "#8f3bb8", "#b7dbab", "#f9ba8f", "#82b5d8", "#e0b400", "#a352cc",
];

/** Value of a theme colour now. */
export function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A colour of the JSON as CSS. */
export function color(name) {
  if (!name) return theme("text");
  if (name === "text") return theme("text-strong");
  if (name === "transparent") return "transparent";
  const match = /^(super-light|light|semi-dark|dark)?-?(\w+)$/.exec(name);
  const shades = match && NAMED[match[2]];
  if (shades) return shades[SHADES.indexOf(match[1] ?? "")];
  return /^(#[0-9a-fA-F]{3,8}|rgba?\([\d\s.,%]+\))$/.test(name) ? name : theme("text");
}

/** Colour of the n-th series. */
export function palette(index) {
  return PALETTE[index % PALETTE.length];
}

/** A colour with another opacity. */
export function alpha(css, opacity) {
  const hex = /^#([0-9a-f]{6})$/i.exec(css);
  if (!hex) return css;
  const value = parseInt(hex[1], 16);
  return `rgba(${value >> 16}, ${(value >> 8) & 255}, ${value & 255}, ${opacity})`;
}

/** The threshold steps with absolute values, lowest first. */
export function steps(defaults) {
  const { mode, steps: list = [] } = defaults.thresholds ?? {};
  const min = defaults.min ?? 0;
  const max = defaults.max ?? 100;
  return list.map((step) => ({
    color: color(step.color),
    value: step.value === null || step.value === undefined ? -Infinity
      : mode === "percentage" ? min + (step.value / 100) * (max - min) : step.value,
  }));
}

/** Colour of a value by thresholds. */
export function byThreshold(value, defaults) {
  const reached = steps(defaults).filter((step) => value >= step.value);
  return reached.length ? reached[reached.length - 1].color : theme("text-strong");
}

/** The mapping of a value, if there is one: text and colour. */
export function mapping(value, defaults) {
  for (const one of defaults.mappings ?? []) {
    const found = one.type === "value" ? one.options?.[String(value)] : undefined;
    if (found) return { text: found.text, color: found.color ? color(found.color) : undefined };
  }
  return undefined;
}
