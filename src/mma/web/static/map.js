/** The photos in two dimensions: those that look alike lie near each other. Draw around some to choose them. */

import { h, nameOf, number, percent, plural, printable, show } from "./dom.js";
import { get, imageAddress } from "./api.js";
import { classById, state } from "./state.js";

const PALETTE = ["#4269d0", "#e8871e", "#3aa76d", "#d6455d", "#8a63d2", "#13a0b5", "#b2861c", "#d65fa8", "#7a8797", "#8c6b4f"];
const NEAR = 14; // pixels to the point under the mouse
const EDGE = 18; // pixels around all points
const AGAIN = 3_000; // milliseconds until a map that is being drawn is asked for again
const CLICK = 5; // pixels: a shorter way is a click

const colourOf = (place) => PALETTE[place] ?? `hsl(${(place * 137.5) % 360} 55% 52%)`;
const DOUBT = [[59, 116, 217], [158, 150, 160], [224, 80, 20]]; // sure, between, unsure
function doubtColour(sure) {
  const way = 2 * Math.min(1, 2 * (1 - sure)), from = Math.min(1, Math.floor(way));
  return `rgb(${DOUBT[from].map((value, at) => Math.round(value + (way - from) * (DOUBT[from + 1][at] - value))).join(" ")})`;
}

/** Whether a point lies inside a line drawn around an area. */
export function inside(x, y, line) {
  let found = false;
  line.forEach(([ax, ay], at) => {
    const [bx, by] = line[(at + line.length - 1) % line.length];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) found = !found;
  });
  return found;
}

export class MapPane {
  points = []; // {image, name, x, y, label, guess, sure}
  by = "class";
  zoom = { scale: 1, x: 0, y: 0 };
  line = [];

  /** `chosen(images)` hears what was drawn around; `enlarge(item)` shows one. */
  constructor({ chosen, enlarge }) {
    Object.assign(this, { chosen, enlarge, images: new Set() });
    this.canvas = h("canvas", { class: "map-canvas", role: "img", onwheel: (event) => this.wheel(event), ondblclick: (event) => this.open(event),
      onpointerdown: (event) => this.grab(event), onpointermove: (event) => this.move(event), onpointerup: (event) => this.release(event), onpointerleave: () => { this.tip.hidden = true; } });
    this.tip = h("div", { class: "map-tip", hidden: true });
    this.words = h("p", { class: "message", role: "status" });
    this.legend = h("ul", { class: "map-legend", "aria-label": "Colours" });
    this.node = h("div", { class: "map", hidden: true }, this.canvas, this.tip, this.words, this.legend);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  async fetch() {
    clearTimeout(this.later);
    const { points, drawing, ready, problem } = await get("/api/map").catch(() => ({ points: [], problem: "The server does not answer." }));
    this.points = points.map(([image, name, x, y, label, guess, sure]) => ({ image, name, x, y, label, guess, sure }));
    const wait = drawing ? "The map is being drawn. This takes a minute or two; labeling goes on." : ready ? "" : "The map comes when all photos are prepared and there is a first model.";
    show(this.words, this.points.length && !problem ? "" : problem ? printable(problem) : wait);
    this.words.hidden = !this.words.textContent;
    this.draw();
    if ((drawing || !ready) && this.node.isConnected && !this.node.hidden) this.later = setTimeout(() => this.fetch(), AGAIN);
  }

  classOf(point) { return point.label >= 0 ? point.label : point.guess; }

  colour(point, places) {
    if (this.by === "doubt") return point.label >= 0 ? "#8d95a3" : point.guess < 0 ? "#8d95a3" : doubtColour(point.sure);
    return colourOf(places.get(this.classOf(point)) ?? 8);
  }

  /** Where a point is on the screen. */
  at(point) {
    const [width, height] = [this.canvas.clientWidth - 2 * EDGE, this.canvas.clientHeight - 2 * EDGE];
    const { scale, x, y } = this.zoom;
    return [EDGE + (point.x - x) * scale * width, EDGE + (point.y - y) * scale * height];
  }

  draw() {
    const { canvas } = this, sharp = devicePixelRatio || 1;
    if (!canvas.clientWidth) return;
    Object.assign(canvas, { width: canvas.clientWidth * sharp, height: canvas.clientHeight * sharp });
    const context = canvas.getContext("2d"), places = new Map(state.classes.map((each, place) => [each.id, place]));
    const ink = getComputedStyle(canvas).color, size = Math.min(4, Math.max(1.5, Math.sqrt(canvas.clientWidth * canvas.clientHeight / Math.max(1, this.points.length)) / 5));
    context.scale(sharp, sharp);
    for (const layer of [false, true]) {
      for (const point of this.points) {
        if (point.label >= 0 !== layer) continue;
        const [x, y] = this.at(point), radius = layer ? size + 1.5 : size;
        context.globalAlpha = layer || this.images.has(point.image) ? 1 : 0.6;
        context.fillStyle = this.colour(point, places);
        context.beginPath();
        context.arc(x, y, radius, 0, 7);
        context.fill();
        if (layer || this.images.has(point.image)) {
          Object.assign(context, { strokeStyle: ink, lineWidth: this.images.has(point.image) ? 2.5 : 1 });
          context.stroke();
        }
      }
    }
    context.globalAlpha = 1;
    if (this.line.length > 1) {
      Object.assign(context, { strokeStyle: ink, lineWidth: 1.5 });
      context.setLineDash([6, 4]);
      context.beginPath();
      this.line.forEach(([x, y]) => context.lineTo(x, y));
      context.closePath();
      context.stroke();
    }
    canvas.setAttribute("aria-label", `Map of ${plural(this.points.length, "photo")}, ${plural(this.images.size, "photo")} chosen. Tiles show the same photos for the keyboard.`);
    const entry = (colour, words, count) => h("li", {}, h("span", { class: "dot", "data-colour": colour }), words, h("span", { class: "count" }, number(count)));
    const count = (id) => this.points.filter((point) => this.classOf(point) === id).length;
    show(this.legend, this.by === "class" ? state.classes.map((each, place) => entry(colourOf(place), nameOf(each.name), count(each.id)))
      : [[0.98, "sure", (p) => p.sure >= 0.8], [0.7, "less sure", (p) => p.sure >= 0.6 && p.sure < 0.8], [0.5, "unsure", (p) => p.sure < 0.6]].map(([sure, words, test]) => entry(doubtColour(sure), words, this.points.filter((p) => p.label < 0 && p.guess >= 0 && test(p)).length)));
    for (const dot of this.legend.querySelectorAll(".dot")) dot.style.background = dot.dataset.colour;
  }

  nearest(event) {
    let [best, far] = [null, NEAR];
    for (const point of this.points) {
      const [x, y] = this.at(point), distance = Math.hypot(x - event.offsetX, y - event.offsetY);
      if (distance < far) [best, far] = [point, distance];
    }
    return best;
  }

  grab(event) {
    this.line = [[event.offsetX, event.offsetY]];
    this.canvas.setPointerCapture(event.pointerId);
    this.tip.hidden = true;
  }

  move(event) {
    if (this.line.length) {
      this.line.push([event.offsetX, event.offsetY]);
      return this.draw();
    }
    const point = this.nearest(event);
    this.tip.hidden = !point;
    if (!point || this.tip.dataset.image === point.image) return null;
    this.tip.dataset.image = point.image;
    const id = this.classOf(point), name = classById(id)?.name;
    show(this.tip, h("img", { src: imageAddress(point.image, "thumb"), alt: "" }), h("span", {}, point.label >= 0 ? "labeled " : "", name === undefined ? "no answer yet" : nameOf(name), point.label < 0 && point.guess >= 0 ? ` ${percent(point.sure)}` : ""));
    const [x, y] = this.at(point);
    Object.assign(this.tip.style, { insetInlineStart: `${Math.min(x + 12, this.canvas.clientWidth - 150)}px`, insetBlockStart: `${Math.min(y + 12, this.canvas.clientHeight - 150)}px` });
    return null;
  }

  /** Choose what lies inside the line, or the point that was clicked; with Shift besides what is chosen. */
  release(event) {
    const line = this.line;
    this.line = [];
    const long = line.length > 2 && line.some(([x, y]) => Math.hypot(x - line[0][0], y - line[0][1]) > CLICK);
    const one = long ? null : this.nearest(event);
    const found = long ? this.points.filter((point) => inside(...this.at(point), line)) : one ? [one] : [];
    this.mark(new Set([...(event.shiftKey ? this.images : []), ...found.map((point) => point.image)]));
    this.chosen(this.images);
  }

  mark(images) {
    this.images = new Set(images);
    this.draw();
  }

  open(event) {
    const point = this.nearest(event);
    if (point) this.enlarge(point);
    else { this.zoom = { scale: 1, x: 0, y: 0 }; this.draw(); }
  }

  wheel(event) {
    event.preventDefault();
    const [width, height] = [this.canvas.clientWidth - 2 * EDGE, this.canvas.clientHeight - 2 * EDGE];
    const { scale, x, y } = this.zoom, next = Math.min(40, Math.max(1, scale * (event.deltaY < 0 ? 1.25 : 0.8)));
    const [px, py] = [(event.offsetX - EDGE) / width, (event.offsetY - EDGE) / height];
    this.zoom = next === 1 ? { scale: 1, x: 0, y: 0 } : { scale: next, x: x + px / scale - px / next, y: y + py / scale - py / next };
    this.draw();
  }
}
