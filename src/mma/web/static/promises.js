/** Two promises: the rest labels itself (both heaps), and all photos of one class are found. */

import { announce, h, nameOf, number, percent, plural, printable, show } from "./dom.js";
import { post, Refused } from "./api.js";
import { BrowseView } from "./browse.js";
import { askPhoto } from "./dialogs.js";
import { GridView } from "./grid.js";
import { by, classById, secondsSince, state } from "./state.js";

const ERRORS = [["0.01", "1 %"], ["0.02", "2 %"], ["0.05", "5 %"], ["0.1", "10 %"]];
const GOAL = 0.95;
const NO_MODEL = "There is no model yet. Label some photos of two classes first.";
const LOW = 0.1; // a share that says nothing
const SURE = 0.5; // likely photos that are proposed

/** What the model answers alone, and what it leaves to people: two heaps of photos to look at, correct and label. */
export class RestView extends BrowseView {
  title = "The rest";
  heap = "mine";
  promise = null;

  constructor(shared) {
    super(shared);
    this.node.setAttribute("aria-label", "The rest labels itself");
    this.node.querySelector(".grid-title").textContent = "The rest labels itself";
    for (const each of [this.ways, ...["kind", "person"].map((name) => this.field(name).parentElement)]) each.hidden = true;
    this.error = h("select", { id: "rest-error", onchange: () => this.fetch() }, ERRORS.map(([value, words]) => h("option", { value, selected: value === "0.02" }, words)));
    this.filters.prepend(h("label", { class: "field" }, h("span", {}, "At most wrong"), this.error));
    this.said = h("p", { class: "promise", role: "status" });
    this.heaps = h("div", { class: "kinds", role: "group", "aria-label": "Which heap" });
    this.filters.before(this.said, this.heaps);
  }

  async fetch() {
    if (state.models.length) return super.fetch();
    this.problem = NO_MODEL;
    this.render();
  }

  wanted(offset) {
    return { ...super.wanted(offset), max_error: Number(this.error.value), heap: this.heap };
  }

  render() {
    super.render();
    if (!this.said) return;
    show(this.said, this.promise ? this.promise.words : "");
    this.said.classList.toggle("kept", Boolean(this.promise?.made));
    const heaps = [["mine", "Answered alone", this.promise?.mine], ["yours", "Yours", this.promise?.yours]];
    show(this.heaps, heaps.map(([heap, words, count]) => h("button", { type: "button", class: "kind", "aria-pressed": String(this.heap === heap), onclick: () => { this.heap = heap; this.fetch(); } },
      words, " ", h("span", { class: "count" }, this.promise ? number(count) : ""))));
  }
}

/** A search for one class: look at likely photos, then at some drawn at random, until enough are certainly found. */
export class FindView extends GridView {
  title = "Find all";

  constructor(shared) {
    super(shared);
    this.node.setAttribute("aria-label", "Find all photos of one class");
    this.far = h("div", { class: "far", role: "status" });
    this.why = h("p", { class: "soft" });
    this.kinds.after(this.far, this.why);
  }

  async fetch(answer = {}) {
    const asked = (this.asked += 1);
    Object.assign(this, { items: [], inside: new Set(), at: 0, problem: "", asking: true });
    this.render();
    let found;
    try {
      found = this.of === null || !state.models.length ? { problem: NO_MODEL } : await post("/api/find", { by: by(), class_id: this.of, ...answer });
    } catch (error) {
      found = { problem: error instanceof Refused ? printable(error.message) : "The server does not answer. The search goes on when it is back.", search: null };
    }
    if (asked !== this.asked) return;
    Object.assign(this, { asking: false, begin: performance.now(), problem: found.problem ?? "", search: found.problem ? null : found, items: found.items ?? [] });
    this.inside = new Set(this.items.filter((item) => !found.at_random && item.likely >= SURE).map((item) => item.image));
    this.render();
    announce(this.problem || found.words);
  }

  render() {
    if (!this.far) return;
    const name = this.of === null ? "" : classById(this.of)?.name ?? "", { search } = this;
    show(this.heading, "Find all ", h("em", {}, nameOf(name)));
    show(this.kinds, state.classes.map((each) => h("button", { type: "button", class: "kind", "aria-pressed": String(this.of === each.id), onclick: () => this.turnTo(each.id) }, nameOf(each.name))));
    show(this.far, ...(search ? [h("div", {}, h("b", {}, number(search.found)), h("span", {}, "found")), h("div", {}, h("b", {}, number(search.looked)), h("span", {}, "looked at")),
      h("div", { class: search.done ? "kept" : "" }, h("b", {}, search.promise < LOW ? "No promise yet" : `${Math.floor(100 * search.promise)} %`),
        h("span", {}, search.promise < LOW ? `until photos were drawn at random; the goal is ${100 * GOAL} %` : search.done ? "of them at least (90 % sure): you may stop" : `of them at least (90 % sure); the goal is ${100 * GOAL} %`),
        h("meter", { min: 0, max: 1, low: GOAL, high: GOAL, optimum: 1, value: search.promise, "aria-label": `At least ${percent(search.promise)} found` }))] : []));
    show(this.why, search ? `${search.why}${search.kept ? ` ${plural(search.kept, "photo")} kept for measuring ${search.kept === 1 ? "is" : "are"} not searched.` : ""}` : "");
    show(this.tiles, this.items.length ? this.items.map((item, place) => this.tile(item, place)) : h("p", { class: "message" }, this.problem || (this.asking ? "Looking." : "Every photo was looked at.")));
    this.nameTiles();
    this.choices.node.hidden = true;
    this.renderActions(name);
    this.mark();
  }

  renderActions(name) {
    const { size } = this.inside, others = this.items.length - size;
    const words = !size ? [`None of these ${number(others)}`] : [`${number(size)} ${size === 1 ? "is" : "are"} `, nameOf(name), others ? `, ${number(others)} ${others === 1 ? "is" : "are"} not` : ""];
    show(this.actions, ...(!this.items.length ? [] : [
      h("button", { type: "button", class: "main", onclick: () => this.confirm() }, h("span", { class: "name" }, words), h("kbd", {}, "Enter")),
      h("button", { type: "button", class: "quiet", onclick: () => this.enlarge() }, "Enlarge", h("kbd", {}, "E")),
      h("p", { class: "soft" }, "A click or space marks a photo of the class.")]));
  }

  confirm() {
    if (!this.items.length || this.asking) return;
    const yes = this.chosen();
    this.queue.drop(yes);
    this.paced("label", yes.length);
    this.fetch({ batch: this.search.batch, yes, id: crypto.randomUUID(), seconds: secondsSince(this.begin) });
  }

  undo() {}

  enlarge() {
    return this.items[this.at] && askPhoto(this.items[this.at]);
  }
}
