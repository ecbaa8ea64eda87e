/** Many at once: take out the wrong ones, confirm the rest as one answer with one undo. */

import { announce, h, nameOf, number, plural, printable, show } from "./dom.js";
import { imageAddress, post, Refused } from "./api.js";
import { Choices, typing } from "./choices.js";
import { askClass, askPhoto } from "./dialogs.js";
import { by, classById, newAnswer, secondsSince, state } from "./state.js";

const SIZE = 24;

export class GridView {
  title = "Grid";
  items = [];
  inside = new Set(); // the images that will get the label
  at = 0;
  of = undefined; // a class id; null = look-alikes without suggestion
  asked = 0; // how often a group was asked for
  asking = false; // one is on its way
  problem = ""; // why there is none
  alike = true; // whether something shows that they are
  guessed = ""; // the source of guesses that chose them, before there is a model

  constructor({ outbox, history, queue, paced }) {
    Object.assign(this, { outbox, history, queue, paced });
    this.heading = h("h2", { class: "grid-title" });
    this.note = h("p", { class: "soft grid-note" });
    this.kinds = h("div", { class: "kinds", role: "group", "aria-label": "Which photos" });
    this.tiles = h("div", { class: "tiles", role: "listbox", "aria-multiselectable": "true", "aria-label": "Images", tabindex: "0" });
    this.choices = new Choices({ pick: (id) => this.confirm(id), create: (name) => this.create(name) });
    this.actions = h("div", { class: "grid-actions" });
    this.node = h("section", { class: "grid-view", "aria-label": "Label many at once" }, h("header", { class: "grid-head" }, this.heading, this.note, this.kinds), this.tiles, this.actions, this.choices.node);
  }

  open() {
    if (this.of === undefined) this.of = state.classes[0]?.id ?? null;
    this.fetch();
    this.tiles.focus({ preventScroll: true });
  }

  refresh(names) {
    if (names.has("classes")) this.render();
    if (names.has("choice:by")) this.fetch();
    if (names.has("reachable") && state.reachable && this.problem) this.fetch();
    if (!names.has("names") || this.items.length || this.asking) return;
    if (state.names.state === "none" && !state.model) location.hash = "label"; // no group can come yet
    else this.fetch();
  }

  /** Take the group off the screen, so that nobody answers it twice, and show another one. Only the last question counts. */
  async fetch() {
    const asked = (this.asked += 1);
    Object.assign(this, { items: [], inside: new Set(), at: 0, problem: "", asking: true });
    this.render();
    const found = await this.ask();
    if (asked !== this.asked) return;
    Object.assign(this, found, { asking: false, begin: performance.now() });
    this.inside = new Set(this.of === null ? [] : this.items.map((item) => item.image));
    this.render();
    if (this.problem) announce(this.problem);
  }

  /** Return a group without what still waits to be sent; or say why there is none. */
  async ask() {
    try {
      const holding = (await this.outbox.answers()).flatMap((answer) => answer.images);
      return await post("/api/grid", { by: by(), class_id: this.of, n: SIZE, holding: [...new Set(holding)] });
    } catch (error) {
      return { problem: error instanceof Refused ? printable(error.message) : "The server does not answer. A group comes when it is back." };
    }
  }

  render() {
    const name = this.of === null ? null : classById(this.of)?.name;
    const some = this.items.length;
    show(this.heading, ...(name ? [!some ? "Photos that look like " : some === 1 ? "This one looks like " : `These ${number(some)} look like `, h("em", {}, nameOf(name))]
      : [some > 1 && this.alike ? `These ${number(some)} look alike` : some ? `${plural(some, "unlabeled photo")}, not alike` : "Look-alikes"]));
    this.note.textContent = !some || !this.guessed ? "" : this.guessed === "names" ? "Guessed from the name alone; nobody has confirmed it yet. Take out what is wrong."
      : `Guessed by ${printable(this.guessed)}. Take out what is wrong.`;
    this.note.hidden = !this.note.textContent;
    show(this.kinds, [...state.classes.map((each) => [each.id, nameOf(each.name)]), [null, "any look-alikes"]].map(([id, words]) =>
      h("button", { type: "button", class: "kind", "aria-pressed": String(this.of === id), onclick: () => this.turnTo(id) }, words)));
    show(this.tiles, this.items.length ? this.items.map((item, place) => this.tile(item, place)) : h("p", { class: "message" }, this.emptyWords()));
    this.tiles.classList.toggle("proposed", this.of !== null);
    this.nameTiles();
    this.choices.node.hidden = this.of !== null;
    this.choices.refresh();
    this.renderActions(name);
    this.mark();
  }

  /** An empty list is no list box. */
  nameTiles() {
    const some = this.items.length > 0;
    this.tiles.toggleAttribute("data-empty", !some);
    this.tiles.setAttribute("role", some ? "listbox" : "group");
    if (some) this.tiles.setAttribute("aria-multiselectable", "true");
    else this.tiles.removeAttribute("aria-multiselectable");
  }

  emptyWords() {
    if (this.asking) return "Looking for a group.";
    if (this.problem) return this.problem;
    if (this.of !== null && !state.model && ["soon", "ready"].includes(state.names.state)) return "Comparing the names with your photos. The first group comes in a moment. Meanwhile the view Label asks about single photos.";
    if (this.of !== null && !state.model) return "Groups by class come with the first model. Label a few photos first, or choose “any look-alikes”.";
    return "There is no such group now. Choose another one, or label some more photos.";
  }

  renderActions(name) {
    const count = number(this.inside.size);
    show(this.actions,
      !this.items.length ? null : this.of !== null ? h("button", { type: "button", class: "main", onclick: () => this.confirm(this.of) },
        this.inside.size ? `Confirm ${count} as ` : "None of these is ", name ? nameOf(name) : "", h("kbd", {}, "Enter"))
        : h("p", { class: "soft" }, this.inside.size ? `${count} chosen. Press the key of their class.` : "Choose photos with space or a click, then press the key of their class."),
      this.items.length ? h("button", { type: "button", class: "quiet", onclick: () => this.enlarge() }, "Enlarge", h("kbd", {}, "E")) : null,
      h("button", { type: "button", class: "quiet", onclick: () => this.fetch() }, "Another group", h("kbd", {}, "R")),
      h("button", { type: "button", class: "quiet", onclick: () => this.undo() }, "Undo", h("kbd", {}, "U")));
  }

  tile(item, place) {
    return h("div", {
      class: "tile", role: "option", id: `tile-${place}`, "aria-selected": String(this.inside.has(item.image)),
      onclick: () => { this.at = place; this.toggle(); }, ondblclick: () => { this.at = place; this.enlarge(); },
    }, h("img", { src: imageAddress(item.image, "thumb"), alt: printable(item.name), draggable: "false" }), h("span", { class: "tick", "aria-hidden": "true" }));
  }

  /** Show which tile the keys are at and which ones are in, without drawing the images anew. */
  mark() {
    [...this.tiles.querySelectorAll(".tile")].forEach((tile, place) => {
      tile.classList.toggle("at", place === this.at);
      tile.setAttribute("aria-selected", String(this.inside.has(this.items[place].image)));
    });
    if (this.items.length) this.tiles.setAttribute("aria-activedescendant", `tile-${this.at}`);
    else this.tiles.removeAttribute("aria-activedescendant");
  }

  toggle() {
    const item = this.items[this.at];
    if (!item) return;
    const out = this.inside.delete(item.image);
    if (!out) this.inside.add(item.image);
    announce(`${printable(item.name)} ${out ? "out" : "in"}`);
    this.renderActions(this.of === null ? null : classById(this.of)?.name);
    this.mark();
  }

  turnTo(id) {
    this.of = id;
    this.fetch();
    this.tiles.focus({ preventScroll: true });
  }

  chosen() {
    return this.items.map((item) => item.image).filter((image) => this.inside.has(image));
  }

  /** One answer for all images that are in. */
  confirm(classId, images = this.chosen()) {
    const out = this.of !== null && classId === this.of ? this.items.map((item) => item.image).filter((image) => !images.includes(image)) : [];
    if (!(images.length || out.length) || classId === null) return;
    this.store(classId, images, out);
    if (this.guessed && this.of !== null) this.of = this.following();
    this.fetch();
  }

  /** The next class in turn: while names alone choose, every class gets its first labels. */
  following() {
    const place = state.classes.findIndex((each) => each.id === this.of);
    return state.classes[(place + 1) % state.classes.length].id;
  }

  /** `out` was shown as this class, and is not of it: it comes again later, and tells how good the guesses are. */
  store(classId, images, out = []) {
    const shown = this.of === null ? "hidden" : `grid: ${this.of}`;
    const what = images.length ? { images, class_id: classId } : { kind: "later" };
    const answer = newAnswer({ images: [], ...what, out, seconds: secondsSince(this.begin), shown, source: "grid" });
    this.outbox.add(answer);
    if (!images.length) return announce(`None of them is ${printable(classById(classId)?.name ?? "")}.`);
    this.history.add(answer);
    this.queue.drop(images);
    this.paced("label", images.length);
    announce(`${plural(images.length, "photo")} labeled ${printable(classById(classId)?.name ?? "")}.`);
  }

  async create(name) {
    const images = this.chosen(); // another group may be on the screen when the class is made
    const made = await askClass(name);
    if (made !== null) this.confirm(made, images);
  }

  undo() {
    if (this.history.undo("grid")) this.fetch();
  }

  /** Look at one tile large, and give it its right class there: one answer of its own, and it leaves the group. */
  async enlarge() {
    const item = this.items[this.at];
    if (!item) return;
    const picked = await askPhoto(item, "Give it its class here, or close:");
    if (picked === null || !this.items.includes(item)) return;
    this.store(picked, [item.image]);
    this.items = this.items.filter((each) => each !== item);
    this.inside.delete(item.image);
    this.at = Math.max(0, Math.min(this.at, this.items.length - 1));
    if (this.items.length) this.render();
    else this.fetch();
    this.tiles.focus({ preventScroll: true });
  }

  columns() {
    const tiles = [...this.tiles.querySelectorAll(".tile")];
    const top = tiles[0]?.offsetTop;
    return Math.max(1, tiles.filter((tile) => tile.offsetTop === top).length);
  }

  move(by) {
    this.at = Math.max(0, Math.min(this.items.length - 1, this.at + by));
    this.mark();
    document.getElementById(`tile-${this.at}`)?.scrollIntoView({ block: "nearest" });
  }

  onKey(event) {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") return this.undo(), true;
    if (event.ctrlKey || event.metaKey) return false;
    const forward = getComputedStyle(this.tiles).direction === "rtl" ? -1 : 1;
    const moves = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: this.columns(), ArrowUp: -this.columns(), Home: -SIZE, End: SIZE };
    const onButton = document.activeElement?.tagName === "BUTTON";
    if (event.key in moves) return this.move(moves[event.key]), true;
    if (event.key === " " && !onButton) return this.toggle(), true;
    if (event.key === "Enter" && !onButton && this.of !== null) return this.confirm(this.of), true;
    const letter = event.altKey && event.code.startsWith("Key") ? event.code.slice(3).toLowerCase() : event.key.toLowerCase();
    const free = event.altKey || this.of !== null || !(typing() || state.classes.some((each) => each.key === letter));
    if (letter === "u" && free) return this.undo(), true;
    if (letter === "r" && free) return this.fetch(), true;
    if (letter === "e" && free) return this.enlarge(), true;
    return this.of === null && !event.altKey ? this.choices.onKey(event) : false;
  }
}
