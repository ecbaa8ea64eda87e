/** The first minute: what are the classes? Later the same place renames, merges and gives keys. */

import { announce, h, icon, nameOf, number, plural, printable, show } from "./dom.js";
import { get, imageAddress, post } from "./api.js";
import { keysOf } from "./choices.js";
import { tell } from "./dialogs.js";
import { by, state, update } from "./state.js";

const RETRY = 1_000; // milliseconds until the sheet is asked for again while images are still being found

/** Send a change of the classes; a refusal is shown. */
async function change(what) {
  try {
    const { classes, merged, counts, made } = await post("/api/classes", { ...what, by: by() });
    update({ classes, merged, counts });
    return made ?? true;
  } catch (error) {
    await tell("That did not work", error.message);
    return null;
  }
}

export class SetupView {
  title = "Classes";
  images = [];
  offers = [];
  adding = Promise.resolve(); // kept when all names are sent

  constructor({ begin }) {
    this.begin = begin;
    this.node = h("section", { class: "setup-view", "aria-label": "Classes" });
    this.field = h("input", { id: "new-class", type: "text", maxlength: 100, autocomplete: "off", spellcheck: "false", dir: "auto", placeholder: "for example: cat" });
    this.sheet = h("div", { class: "sheet", role: "group", "aria-label": "Some of the photos" });
    this.made = h("div", { class: "made", onfocusout: () => setTimeout(() => this.renderMade()) });
  }

  async open() {
    this.first = state.classes.length < 2;
    document.body.toggleAttribute("data-first", this.first);
    this.render();
    if (this.first) this.field.focus();
    this.fetch();
  }

  refresh(names) {
    const unused = state.classes.filter((each) => !state.counts.per_class[each.id]).length; // these can be deleted
    if (names.has("classes") || names.has("merged") || names.has("names") || unused !== this.unused) this.renderMade();
    this.unused = unused;
    for (const node of this.made.querySelectorAll(".count[data-class]")) node.textContent = number(state.counts.per_class[node.dataset.class] ?? 0);
  }

  async fetch() {
    const { images, offers } = await get("/api/sheet").catch(() => ({ images: this.images, offers: this.offers }));
    const same = JSON.stringify(offers) === JSON.stringify(this.offers);
    Object.assign(this, { images, offers });
    this.renderSheet();
    if (!same) this.renderMade();
    if (this.node.isConnected && images.length < 24 && (state.work.length || !images.length)) setTimeout(() => this.fetch(), RETRY);
  }

  render() {
    const add = h("form", { class: "add", onsubmit: (event) => { event.preventDefault(); this.add(this.field.value); } },
      h("label", { for: "new-class", class: "question" }, this.first ? "What are the classes?" : "Classes"),
      h("p", { class: "soft" }, this.first ? "Type a name, press Enter, type the next one. Several names make a class clearer: sea, ocean, beach. You can add, rename and merge classes at any time." : "Rename, merge, give keys, delete what no label needs. Labels follow, and every change is kept in the history."),
      h("div", { class: "add-row" }, this.field, h("button", { type: "submit", class: "quiet" }, "Add", h("kbd", {}, "Enter"))));
    show(this.node, h("div", { class: "setup-form" }, add, this.made), this.sheet);
    this.renderMade();
    this.renderSheet();
  }

  renderSheet() {
    show(this.sheet, this.images.length ? this.images.map(({ image, name }) =>
      h("img", { src: imageAddress(image, "thumb"), alt: printable(name), loading: "lazy", decoding: "async" }))
      : h("p", { class: "message" }, "The first photos appear in a moment."));
  }

  renderMade() {
    if (this.made.contains(document.activeElement)) return; // somebody types or chooses there
    const offered = this.first && this.offers.length && !state.classes.length ? this.offerPart() : null;
    const rows = this.first ? h("ul", { class: "chips" }, state.classes.map((each) => h("li", { class: "chip" }, nameOf(each.name), this.deleteButton(each)))) : this.table();
    const enough = state.classes.length >= 2;
    const words = enough ? "Start labeling" : state.classes.length ? "One more class, and you can start" : "";
    const start = this.first && words ? h("button", { type: "button", class: "main start", disabled: !enough, onclick: () => this.begin() }, words) : null;
    show(this.made, offered, start, rows, this.mergedPart(), this.namesPart()); // Start is the next stop of the Tab key; CSS shows it below
  }

  /** Whether the names can give first guesses, in a sentence. */
  namesPart() {
    const { state: how, sentence } = state.names;
    const words = how === "none" ? `No guesses by names: ${sentence}` : how === "ready" && this.first && state.classes.length > 1 ? "The names are compared with your photos: the first groups to confirm are ready." : "";
    return words ? h("p", { class: "soft names-note", role: "status" }, printable(words)) : null;
  }

  offerPart() {
    return h("div", { class: "offers" }, this.offers.map(({ from, names }) => h("div", { class: "offer" },
      h("p", {}, printable(from)), h("p", { class: "chips" }, names.slice(0, 12).map((name) => h("span", { class: "chip" }, nameOf(name))), names.length > 12 ? h("span", { class: "chip" }, `${number(names.length - 12)} more`) : null),
      h("button", { type: "button", class: "quiet", onclick: () => this.addAll(names) }, `Use these ${number(names.length)}`))));
  }

  /** Take a name. The field is free for the next one at once; names are sent one after the other, in their order. */
  add(name) {
    const wanted = name.trim();
    if (!wanted) return;
    this.field.value = "";
    this.field.focus();
    this.adding = this.adding.then(() => this.make(wanted));
  }

  async make(name) {
    if ((await change({ do: "add", name })) !== null) announce(`${printable(name)} added. ${plural(state.classes.length, "class", "classes")}.`);
    else if (!this.field.value) this.field.value = name; // to be mended
  }

  async addAll(names) {
    document.activeElement.blur();
    for (const name of names) if ((await change({ do: "add", name })) === null) return;
  }

  table() {
    this.keys = new Map([...keysOf(state.classes)].map(([key, id]) => [id, key]));
    return h("table", { class: "classes" },
      h("thead", {}, h("tr", {}, ["Key", "Name", "Labels", "Merge into"].map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {}, state.classes.map((each) => this.row(each))));
  }

  row(each) {
    const key = h("input", { class: "key", type: "text", maxlength: 1, value: each.key ?? "", placeholder: this.keys.get(each.id) ?? "", "aria-label": `Key of ${printable(each.name)}`, autocomplete: "off",
      onchange: () => change({ do: "key", id: each.id, key: key.value.trim().toLowerCase() || null }) });
    const name = h("input", { type: "text", maxlength: 100, value: each.name, "aria-label": `Name of ${printable(each.name)}`, autocomplete: "off", dir: "auto",
      onchange: () => change({ do: "rename", id: each.id, name: name.value }).then((fine) => { if (fine === null) name.value = each.name; }) });
    const others = state.classes.filter((other) => other.id !== each.id);
    return h("tr", {}, h("td", {}, key), h("td", {}, name), h("td", { class: "count", "data-class": each.id }, number(state.counts.per_class[each.id] ?? 0)), h("td", {}, h("div", { class: "merge" }, others.length ? this.mergePart(each, others) : null, this.deleteButton(each))));
  }

  /** A class without labels goes with one click: it can be added again. */
  deleteButton(each) {
    if (state.counts.per_class[each.id]) return null;
    return h("button", { type: "button", class: "icon", title: "Delete", "aria-label": `Delete ${printable(each.name)}`, onclick: () => this.remove(each) }, icon("close"));
  }

  async remove(each) {
    document.activeElement.blur();
    if ((await change({ do: "delete", id: each.id })) === null) return;
    announce(`${printable(each.name)} deleted.`);
    if (this.first) this.field.focus();
  }

  /** Arrow keys change a choice by accident, so it takes a button to merge. */
  mergePart(each, others) {
    const into = h("select", { "data-choose": each.id, "aria-label": `Merge ${printable(each.name)} into`, onchange: () => { button.hidden = !into.value; } },
      h("option", { value: "" }, "–"), others.map((other) => h("option", { value: other.id }, printable(other.name))));
    const button = h("button", { type: "button", class: "quiet", hidden: true, "aria-label": `Merge ${printable(each.name)}`, onclick: () => this.merge(each, Number(into.value)) }, "Merge");
    return [into, button];
  }

  /** The classes that count as others, each with the way back. */
  mergedPart() {
    if (!state.merged.length) return null;
    const names = new Map([...state.classes, ...state.merged].map((each) => [each.id, each.name]));
    return h("section", { class: "merged" }, h("h3", {}, "Merged"), h("ul", {}, state.merged.map((each) => h("li", {},
      h("p", {}, nameOf(each.name), h("span", {}, "counts as"), nameOf(names.get(each.into))),
      h("button", { type: "button", class: "quiet", "data-apart": each.id, "aria-label": `Take back: ${printable(each.name)} counts as ${printable(names.get(each.into))}`, onclick: () => this.merge(each, null) }, "Take back")))));
  }

  /** Merge a class into another one, or take that back. The keyboard goes on at what undoes it. */
  async merge(each, into) {
    document.activeElement.blur();
    if ((await change({ do: "merge", id: each.id, into })) === null) return;
    announce(into === null ? `${printable(each.name)} is a class of its own again.` : `${printable(each.name)} is merged.`);
    this.made.querySelector(into === null ? `[data-choose="${each.id}"]` : `[data-apart="${each.id}"]`)?.focus();
  }

  onKey() {
    return false;
  }
}
