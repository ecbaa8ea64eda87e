/** All photos: by class, label, person or file name, surest or least sure first; choose some and give them a class. */

import { announce, h, icon, nameOf, number, percent, plural, printable, show } from "./dom.js";
import { imageAddress, post, Refused } from "./api.js";
import { Choices, typing } from "./choices.js";
import { askClass, askPhoto } from "./dialogs.js";
import { MapPane } from "./map.js";
import { by, classById, newAnswer, secondsSince, state } from "./state.js";

const PAGE = 120; // photos asked for at a time
const PAUSE = 250; // milliseconds after the last letter

export class BrowseView {
  title = "Browse";
  items = [];
  total = 0;
  people = [];
  chosen = new Set();
  last = null; // the tile that was clicked last, where a range begins
  like = null;
  asked = 0;

  constructor({ outbox, history, queue, paced }) {
    Object.assign(this, { outbox, history, queue, paced });
    const select = (id, label, options) => h("label", { class: "field" }, h("span", {}, label), h("select", { id, onchange: () => this.fetch() }, options.map(([value, words]) => h("option", { value }, words))));
    this.filters = h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
      select("browse-kind", "Photos", [["all", "All"], ["unlabeled", "Not labeled"], ["labeled", "Labeled"]]),
      select("browse-class", "Class", [["", "Any"]]),
      select("browse-order", "First", [["unsure", "Least sure"], ["sure", "Surest"], ["name", "By file name"]]),
      select("browse-person", "Labeled by", [["", "Anybody"]]),
      h("label", { class: "field" }, h("span", {}, "File name contains"), h("input", { id: "browse-text", type: "search", maxlength: 200, autocomplete: "off", dir: "auto",
        oninput: () => { clearTimeout(this.later); this.later = setTimeout(() => this.fetch(), PAUSE); } })));
    this.words = h("p", { class: "soft", role: "status" });
    this.tiles = h("ul", { class: "tiles browse", "aria-label": "Photos" });
    this.end = h("div", { class: "browse-end", "aria-hidden": "true" });
    this.scroller = h("div", { class: "browse-scroll", tabindex: "0", role: "region", "aria-label": "Photos" }, this.tiles, this.end);
    this.choices = new Choices({ pick: (id) => this.label(id), create: (name) => this.create(name) });
    this.actions = h("div", { class: "grid-actions" });
    this.map = new MapPane({ chosen: (images) => this.choose(images), enlarge: (item) => this.enlarge(item) });
    this.ways = h("div", { class: "kinds", role: "group", "aria-label": "How to show them" });
    this.node = h("section", { class: "grid-view browse-view", "aria-label": "Browse photos" }, h("header", { class: "grid-head" }, h("h2", { class: "grid-title" }, "Browse"), this.ways, this.filters, this.words), this.scroller, this.map.node, this.actions, this.choices.node);
    this.turnTo("tiles");
    new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) this.more(); }, { root: this.scroller, rootMargin: "600px" }).observe(this.end);
  }

  open() {
    this.fillFilters();
    this.fetch();
  }

  /** Show tiles, or the map in the colours of the classes or of the model's doubt. */
  turnTo(way) {
    Object.assign(this, { way });
    this.map.by = way;
    this.map.node.hidden = way === "tiles";
    for (const node of [this.scroller, this.filters]) node.hidden = way !== "tiles";
    show(this.ways, [["tiles", "Tiles"], ["class", "Map by class"], ["doubt", "Map by doubt"]].map(([each, words]) => h("button", { type: "button", class: "kind", "aria-pressed": String(each === way), onclick: () => { this.turnTo(each); this.fetch(); } }, words)));
  }

  refresh(names) {
    if (names.has("classes")) { this.fillFilters(); this.choices.refresh(); }
    if (names.has("reachable") && state.reachable && this.problem) this.fetch();
  }

  field(name) { return this.filters.querySelector(`#browse-${name}`); }

  fillFilters() {
    const fill = (name, first, options) => {
      const field = this.field(name), value = field.value;
      show(field, h("option", { value: "" }, first), options.map(([id, words]) => h("option", { value: id }, printable(words))));
      field.value = [...field.options].some((each) => each.value === value) ? value : "";
    };
    fill("class", "Any", state.classes.map((each) => [each.id, each.name]));
    fill("person", "Anybody", this.people.map((each) => [each, each]));
  }

  wanted(offset) {
    const value = (name) => this.field(name).value;
    return { by: by(), kind: value("kind"), class_id: value("class") === "" ? null : Number(value("class")), person: value("person"), text: value("text"), order: value("order"), like: this.like?.image ?? null, offset, n: PAGE };
  }

  /** Begin anew with the photos that the filters name. */
  async fetch() {
    Object.assign(this, { items: [], total: 0, chosen: new Set(), last: null, problem: "", asked: this.asked + 1, loading: false });
    show(this.tiles);
    this.map.mark([]);
    this.render();
    if (this.way !== "tiles") return this.map.fetch();
    await this.more(true);
    this.scroller.scrollTop = 0;
  }

  async more(first = false) {
    if (this.loading || (!first && this.items.length >= this.total) || !this.node.isConnected) return;
    const { asked } = this;
    this.loading = true;
    try {
      const found = await post("/api/browse", this.wanted(this.items.length));
      if (asked !== this.asked) return;
      const from = this.items.length;
      this.items.push(...found.items);
      Object.assign(this, { total: found.total, hidden: found.hidden, promise: found.promise });
      this.tiles.append(...found.items.map((item, place) => this.tile(item, from + place)));
      if (JSON.stringify(this.people) !== JSON.stringify(found.people)) { this.people = found.people; this.fillFilters(); }
    } catch (error) {
      if (asked !== this.asked) return;
      this.problem = error instanceof Refused ? printable(error.message) : "The server does not answer.";
    } finally {
      if (asked === this.asked) this.loading = false;
    }
    this.render();
  }

  render() {
    const found = this.like ? [plural(this.total, "photo"), ", those most like ", nameOf(this.like.name), " first. ", h("button", { type: "button", class: "link", onclick: () => { this.like = null; this.fetch(); } }, "Show all again")]
      : [plural(this.total, "photo"), "."];
    const hidden = this.hidden ? ` ${plural(this.hidden, "photo")} not shown: kept for measuring until asked about.` : "";
    show(this.words, ...(this.way !== "tiles" ? ["Alike photos lie near each other. Draw around some to choose them; the wheel zooms."] : this.problem ? [this.problem] : this.loading && !this.items.length ? ["Looking."] : [...found, hidden]));
    this.choices.node.hidden = !this.chosen.size;
    const count = this.chosen.size, one = count === 1 ? (this.way === "tiles" ? this.items : this.map.points).find((each) => this.chosen.has(each.image)) : null;
    show(this.actions, h("p", { class: "soft" }, count ? `${number(count)} chosen. Press the key of their class.` : this.total || this.way !== "tiles" ? `Choose photos with a click${this.way === "tiles" ? " (Shift: up to here)" : ""}, then give them a class.` : ""),
      one ? h("button", { type: "button", class: "quiet", onclick: () => { this.like = one; this.turnTo("tiles"); this.fetch(); } }, "More like this") : null,
      one ? h("button", { type: "button", class: "quiet", onclick: () => this.enlarge(one) }, "Enlarge") : null,
      count ? h("button", { type: "button", class: "quiet", onclick: () => this.choose([]) }, "Choose none") : null,
      !count && this.way === "tiles" && this.items.length ? h("button", { type: "button", class: "quiet", title: "The photos listed here, for paper or a PDF", onclick: () => print() }, "Print a contact sheet") : null,
      h("button", { type: "button", class: "quiet", onclick: () => this.undo() }, "Undo", h("kbd", {}, typing() ? "Alt U" : "U")));
  }

  tile(item, place) {
    const label = item.label === null ? null : classById(item.label)?.name;
    const guess = item.guess && classById(item.guess[0]);
    const words = label !== null ? `labeled ${printable(label ?? "")}` : guess ? `${printable(guess.name)} ${percent(item.guess[1])}` : "no answer yet";
    const differs = label !== null && guess && item.guess[0] !== item.label;
    const button = h("button", { type: "button", class: "past-tile", "aria-pressed": "false", "data-image": item.image, title: printable(item.name), onclick: (event) => this.click(place, event.shiftKey), ondblclick: () => this.enlarge(item) },
      h("img", { src: imageAddress(item.image, "thumb"), alt: printable(item.name), loading: "lazy", decoding: "async", draggable: "false" }),
      h("span", { class: "caption" }, label !== null ? icon("check") : null, h("span", {}, label !== null ? nameOf(label ?? "") : words), item.unlike && label === null ? h("span", { class: "differs" }, "unlike anything labeled") : null, differs ? h("span", { class: "differs" }, `model: ${printable(guess.name)} ${percent(item.guess[1])}`) : null), h("span", { class: "on-paper soft" }, printable(item.name)));
    return h("li", { class: "tile" }, button);
  }

  click(place, range) {
    const [from, to] = range && this.last !== null ? [Math.min(this.last, place), Math.max(this.last, place)] : [place, place];
    const images = this.items.slice(from, to + 1).map((each) => each.image);
    const chosen = new Set(this.chosen);
    const add = range || !chosen.has(images[0]);
    for (const image of images) if (add) chosen.add(image); else chosen.delete(image);
    this.last = place;
    this.choose(chosen);
  }

  choose(images) {
    this.chosen = new Set(images);
    if (this.way !== "tiles" && images !== this.map.images) this.map.mark(images);
    for (const node of this.tiles.querySelectorAll("[data-image]")) node.setAttribute("aria-pressed", String(this.chosen.has(node.dataset.image)));
    this.render();
  }

  /** One photo large; its class can be given there. */
  async enlarge(item) {
    const picked = await askPhoto(item, "Give it a class here, or close:", item.label);
    if (picked !== null) this.label(picked, [item.image]);
  }

  /** One answer for the photos that are chosen. What the model says of them was on the screen. */
  label(classId, images = [...this.chosen]) {
    if (!images.length || classId === null) return;
    const answer = newAnswer({ images, class_id: classId, seconds: secondsSince(this.begin ?? performance.now()), shown: "browse", source: "grid" });
    this.outbox.add(answer);
    this.history.add(answer);
    this.queue.drop(images);
    this.paced("label", images.length);
    announce(`${plural(images.length, "photo")} labeled ${printable(classById(classId)?.name ?? "")}.`);
    const changed = new Set(images);
    this.items.forEach((item, place) => {
      if (!changed.has(item.image)) return;
      Object.assign(item, { label: classId, by: by() });
      this.tiles.children[place]?.replaceWith(this.tile(item, place));
    });
    for (const point of this.map.points) if (changed.has(point.image)) point.label = classId;
    this.choose([]);
  }

  async create(name) {
    const images = [...this.chosen];
    if (!images.length) return;
    const made = await askClass(name);
    if (made !== null) this.label(made, images);
  }

  async undo() {
    if (!this.history.undo("grid")) return;
    await this.outbox.settled?.();
    this.fetch();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey) return false;
    if (event.key === "Escape" && this.chosen.size) return this.choose([]), true;
    if (event.altKey ? event.code === "KeyU" : event.key.toLowerCase() === "u" && !typing() && !state.classes.some((each) => each.key === "u")) return this.undo(), true;
    return this.chosen.size && !event.altKey ? this.choices.onKey(event) : false;
  }
}
