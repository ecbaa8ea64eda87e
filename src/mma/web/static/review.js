/** Review: labels that are probably wrong, and the labels so far, class by class, to look through and correct. */

import { h, nameOf, number, printable, show } from "./dom.js";
import { get, imageAddress, post } from "./api.js";
import { by, state } from "./state.js";

const SEARCH = 600_000; // milliseconds
const MISTAKES = "mistakes";

export class ReviewView {
  title = "Review";
  of = null;

  /** `correct(entry)` opens an image in the label view. */
  constructor({ correct }) {
    this.correct = correct;
    this.kinds = h("div", { class: "kinds", role: "group", "aria-label": "Which class" });
    this.tiles = h("ul", { class: "tiles review", "aria-label": "Labeled images" });
    this.words = h("p", { class: "soft" });
    this.node = h("section", { class: "grid-view", "aria-label": "Review labels" },
      h("header", { class: "grid-head" }, h("h2", { class: "grid-title" }, "Labels so far"), this.words, this.kinds), this.tiles);
  }

  open() {
    if (this.of !== MISTAKES && !state.classes.some((each) => each.id === this.of)) this.of = state.classes[0]?.id ?? null;
    this.fetch();
  }

  refresh(names) {
    if (names.has("classes")) this.open();
  }

  async fetch() {
    const of = this.of;
    this.showKinds();
    const { images, words } = await (of === MISTAKES ? this.mistakes() : this.labels(of));
    if (of !== this.of) return;
    show(this.words, words);
    show(this.tiles, images.map((entry) => this.tile(entry)));
  }

  showKinds() {
    const kind = (id, ...words) => h("button", { type: "button", class: "kind", "aria-pressed": String(this.of === id), onclick: () => { this.of = id; this.fetch(); } }, ...words);
    show(this.kinds, kind(MISTAKES, "probably wrong"), state.classes.map((each) =>
      kind(each.id, nameOf(each.name), h("span", { class: "count" }, number(state.counts.per_class[each.id] ?? 0)))));
  }

  async labels(of) {
    const { images, more } = of === null ? { images: [], more: 0 } : await get(`/api/labels?class_id=${of}`).catch(() => ({ images: [], more: 0 }));
    return { images, words: images.length ? `The newest first${more ? `, and ${number(more)} older ones` : ""}. Choose one to correct it.` : "No label of this class yet." };
  }

  /** The search takes a while, and nothing waits for it. */
  async mistakes() {
    show(this.words, "Looking for labels that are probably wrong. This takes a moment.");
    show(this.tiles);
    try {
      const { images, notes } = await post("/api/review", { by: by() }, SEARCH);
      const found = images.length ? "The likeliest mistakes first. Choose one to keep or correct it." : "Nothing looks wrong.";
      return { images, words: [found, ...notes.map(printable)].join(" ") };
    } catch (error) {
      return { images: [], words: printable(error.message) };
    }
  }

  tile(entry) {
    const why = entry.why ? printable(entry.why) : "";
    const words = `${printable(entry.name)}, labeled by ${printable(entry.by)}.${why ? ` ${why}.` : ""} Correct it.`;
    return h("li", { class: "tile" }, h("button", { type: "button", class: "past-tile", title: words, onclick: () => this.correct({ ...entry, review: true }) },
      h("img", { src: imageAddress(entry.images[0], "thumb"), alt: words, loading: "lazy", decoding: "async" }),
      why ? h("span", { class: "reason", "aria-hidden": "true" }, why) : null));
  }

  onKey() { return false; }
}
