/** Nodes for the page. Text stays text: nothing here turns a string into markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Build an element: properties by name, `on...` are listeners, null and false are left out. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Build a drawing in the same way. */
export function draw(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) assign(node, name, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function assign(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") node.addEventListener(name.slice(2), value);
  else node.setAttribute(name, value === true ? "" : String(value));
}

export const find = (id) => document.getElementById(id);

/** Replace what a node shows. */
export function show(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

const UNSAFE = /[\p{Cc}\p{Cs}\p{Co}\p{Cn}\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** Write characters that hide or turn text around as escapes, as the terminal does. */
export function printable(name) {
  return String(name).replace(UNSAFE, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** Words as a sentence begins. */
export const sentence = (words) => printable(words).replace(/^\p{Ll}/u, (letter) => letter.toUpperCase());

/** A name somebody chose, isolated so that its direction of writing does not disturb the text around it. */
export function nameOf(text, className = "name") {
  return h("bdi", { class: className, title: printable(text) }, printable(text));
}

/** Tell a screen reader. */
export function announce(text) {
  const region = find("announce");
  region.textContent = "";
  requestAnimationFrame(() => { region.textContent = text; });
}

const PATHS = {
  check: "M5 12.5l4.5 4.5L19 7.5",
  clock: "M12 7v5l3.5 2M4 12a8 8 0 1 0 16 0a8 8 0 1 0-16 0",
  alert: "M12 9v4.5M12 17v.01M12 3.5L21.5 20h-19z",
  stop: "M9 9l6 6M15 9l-6 6M8.5 3h7L21 8.5v7L15.5 21h-7L3 15.5v-7z",
  gear: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  undo: "M9 7l-4 4l4 4M5 11h9a5 5 0 0 1 0 10h-3",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  later: "M5 5v14l9-7zM18 5v14",
  unsure: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18v.01",
  exclude: "M4 12a8 8 0 1 0 16 0a8 8 0 1 0-16 0M6.5 6.5l11 11",
  note: "M5 5h14v10l-4 4H5zM15 19v-4h4M8 9h8M8 12h5",
  heat: "M12 3c.5 3.5 5 5.5 5 10.5a5 5 0 0 1-10 0c0-2 .8-3.3 2-4.5c.2 1.5.8 2.2 1.5 2.5c0-3 .3-5.5 1.5-8.5z",
  zoom: "M4 10.5a6.5 6.5 0 1 0 13 0a6.5 6.5 0 1 0-13 0M15.5 15.5L20 20M10.5 8v5M8 10.5h5",
};

/** A small line drawing; it says nothing that words beside it do not say. */
export function icon(name) {
  return draw("svg", { viewBox: "0 0 24 24", class: "glyph", "aria-hidden": "true" }, draw("path", { d: PATHS[name] }));
}

/** A number as people of this browser's language write it. */
export const number = (value) => Number(value).toLocaleString();

/** "1 image", "2 images", "2 classes". */
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const percent = (value) => `${Math.round(100 * value)} %`;

/** A random UUID, also where the page came over plain http from another machine. */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** How near a goal is: what was measured, the interval around it, and a mark at the goal. */
export function goalBar({ percent: goal, reached, goal: words }) {
  const part = (name, from, to) => {
    const node = h("span", { class: name });
    Object.assign(node.style, { insetInlineStart: `${from}%`, inlineSize: `${Math.max(to - from, 0)}%` });
    return node;
  };
  const said = reached ? `${percent(reached.value)} of ${goal} %` : "not measured yet";
  return h("div", { class: "goal-bar", role: "img", "aria-label": `${printable(words)}: ${said}` },
    reached ? [part("goal-done", 0, 100 * reached.value), part("goal-band", 100 * reached.low, 100 * reached.high)] : null, part("goal-mark", goal, goal));
}
