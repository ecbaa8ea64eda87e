/** The side panel: how far, how fast, how good, which classes. */

import { draw, goalBar, h, icon, nameOf, number, percent, plural, printable, show } from "./dom.js";
import { state } from "./state.js";

const MINUTE = 60_000;

/** Labels per minute over the last five minutes of work. */
export class Pace {
  times = [];

  add(count = 1) {
    const now = Date.now();
    this.times.push(...Array(count).fill(now));
    this.times = this.times.filter((time) => now - time < 5 * MINUTE);
  }

  perMinute() {
    const now = Date.now();
    const times = this.times.filter((time) => now - time < 5 * MINUTE);
    if (times.length < 3) return null;
    return times.length / Math.max((now - times[0]) / MINUTE, 1 / 6);
  }
}

function progressPart(pace) {
  const { labeled, left } = state.counts;
  const { goal } = state;
  const rate = pace.perMinute();
  return h("section", { class: "card" },
    h("p", { class: "big-number" }, h("b", {}, number(labeled)), h("span", {}, state.budget ? ` of ${number(state.budget)} labels` : labeled === 1 ? " label" : " labels")),
    goal ? [goalBar(goal), h("p", { class: "soft" }, goalWords(goal))] : null,
    h("p", { class: "soft row" }, h("span", {}, rate ? `${Math.round(rate)} per minute` : `${plural(left, "photo")} left`), asides()));
}

/** How near the goal is, in words. */
function goalWords({ goal, reached, missing }) {
  if (reached) return `Goal: ${printable(goal)}. Now ${percent(reached.value)}.`;
  return missing ? `Goal: ${printable(goal)}. Measured after ${plural(missing, "more random photo")}.` : `Goal: ${printable(goal)}. Not measured yet.`;
}

function asides() {
  const { cannot_tell: unsure, excluded } = state.counts;
  const words = [unsure ? `${number(unsure)} can't tell` : "", excluded ? `${number(excluded)} excluded` : ""].filter(Boolean).join(", ");
  return words ? h("span", {}, words) : null;
}

function bar(share, words) {
  const inner = h("span", { class: "bar-inner" });
  inner.style.inlineSize = `${Math.min(100, 100 * share).toFixed(2)}%`;
  return h("div", { class: "bar-outer", role: "img", "aria-label": words }, inner);
}

function modelPart(measure) {
  const { model } = state;
  if (!model) return h("section", { class: "card" }, h("h2", {}, "Model now"), h("p", { class: "soft" }, firstModelWords()));
  const { accuracy, low, high, source, forecast } = model;
  return h("section", { class: "card" }, h("h2", {}, "Model now"),
    accuracy === null ? h("p", { class: "soft" }, "How good it is: too early to say.") : h("div", {},
      h("p", { class: "big-number" }, h("b", {}, percent(accuracy)), h("span", {}, " right")),
      curve(state.models), curveEnds(state.models),
      h("p", { class: "soft" }, `between ${Math.round(100 * low)} and ${Math.round(100 * high)}, ${printable(source)}`)),
    h("p", {}, h("button", { type: "button", class: "link", onclick: measure }, "Measure now")),
    forecast ? h("p", { class: "soft" }, printable(forecast)) : null,
    h("p", { class: "soft model-state", "data-state": model.state }, icon(model.state === "failed" ? "alert" : model.state === "training" ? "clock" : "check"), h("span", {}, modelWords(model))));
}

const firstModelWords = () => (state.classes.length < 2 ? "It begins when there are two classes." : "The first one comes after a few labels of each class, once the photos are prepared.");

function modelWords({ number: count, kind, state: now, message }) {
  const name = `Model ${count}, ${kind === "deep" ? "deep" : "quick"}`;
  if (now === "failed") return `${name}: training failed. ${printable(message ?? "")} Labeling goes on.`;
  return now === "training" ? `${name}: training${message ? `, ${printable(message)}` : ""}` : `${name}: ready`;
}

const measuredOf = (models) => models.filter((each) => each.accuracy !== null && each.kind !== "deep").slice(-20);

/** What the line begins and ends with. */
function curveEnds(models) {
  const points = measuredOf(models);
  return points.length < 2 ? null : h("p", { class: "soft row", "aria-hidden": "true" }, h("span", {}, `model ${number(points[0].number)}: ${percent(points[0].accuracy)}`), h("span", {}, `now ${percent(points.at(-1).accuracy)}`));
}

/** The estimates of past models as a line, with their intervals as a band. */
function curve(models) {
  const points = measuredOf(models);
  if (points.length < 2) return null;
  const [width, height] = [200, 44];
  const x = (place) => (width - 4) * place / (points.length - 1) + 2;
  const lowest = Math.min(...points.map((each) => each.low ?? each.accuracy));
  const y = (value) => height - 3 - (height - 6) * (value - lowest) / Math.max(1 - lowest, 0.05);
  const line = points.map((each, place) => `${x(place).toFixed(1)},${y(each.accuracy).toFixed(1)}`).join(" ");
  const band = [...points.map((each, place) => [x(place), y(each.high ?? each.accuracy)]), ...points.map((each, place) => [x(place), y(each.low ?? each.accuracy)]).reverse()];
  const words = `from ${percent(points[0].accuracy)} to ${percent(points.at(-1).accuracy)} over ${points.length} models`;
  return draw("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    draw("polygon", { points: band.map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" ") }), draw("polyline", { points: line }));
}

function classPart() {
  const counts = state.counts.per_class;
  const most = Math.max(1, ...Object.values(counts));
  const rows = state.classes.map((each) => {
    const count = counts[each.id] ?? 0;
    return h("li", { class: "class-row" }, nameOf(each.name), bar(count / most, plural(count, "label")), h("span", { class: "count" }, number(count)));
  });
  return h("section", { class: "card" }, h("h2", {}, "Labels per class"), rows.length ? h("ul", { class: "class-rows" }, rows) : h("p", { class: "soft" }, "No classes yet"));
}

/** `measure` is called when the person wants to know now how good the model is. */
export function showPanel(node, pace, measure) {
  show(node, progressPart(pace), modelPart(measure), classPart());
}

/** Bars for what goes on behind the page: indexing, features, training. */
export function showWork(node) {
  node.hidden = state.work.length === 0;
  show(node, state.work.map(({ name, done, total, left }) => {
    const known = total > 0;
    const words = [printable(name), known ? `${number(done)} of ${number(total)}` : "", left ? `${printable(left)} left` : ""].filter(Boolean);
    const meter = h("progress", { "aria-label": printable(name), ...(known ? { max: total, value: done } : {}) });
    return h("p", {}, meter, h("span", {}, words.join(" · ")));
  }));
}
