/** Review: labels that may be wrong, one key each; and the labels so far, class by class, to look through and correct. */

import { announce, h, nameOf, number, plural, printable, sentence, show } from "./dom.js";
import { get, imageAddress, post } from "./api.js";
import { Choices, typing } from "./choices.js";
import { askClass } from "./dialogs.js";
import { load } from "./queue.js";
import { Stage } from "./stage.js";
import { by, classById, newAnswer, secondsSince, state } from "./state.js";

const SEARCH = 600_000; // milliseconds
const MISTAKES = "mistakes";
const DISPUTED = "disputed"; // what people answered differently
const UNNAMED = "unnamed", PARTS = "parts"; // groups that match no class, and classes that look like two
const GROUPS = { [UNNAMED]: "not sure what to call these", [PARTS]: "looks like two" };

const KINDS = { cannot_tell: "can't tell", exclude: "excluded" };

export class ReviewView {
  title = "Review";
  of = MISTAKES;
  entries = [];
  groups = []; // {class_id, others, images} that the search for mistakes found
  at = 0; // which of them the keys are about
  since = 0;

  /** `correct(entry)` opens an image in the label view. */
  constructor({ correct, outbox, history }) {
    Object.assign(this, { correct, outbox, history });
    this.kinds = h("div", { class: "kinds", role: "group", "aria-label": "Which labels" });
    this.tiles = h("ul", { class: "tiles review", "aria-label": "Labeled photos" });
    this.words = h("p", { class: "soft", role: "status" });
    this.stage = new Stage({ swiped: () => {} });
    this.choices = new Choices({ pick: (id) => (this.of in GROUPS ? this.answerGroup(id) : this.answer(id)), create: (name) => this.create(name) });
    this.about = h("div", { class: "said-now" });
    this.judge = h("div", { class: "judge" }, this.about, this.choices.node);
    this.suspect = h("div", { class: "suspect", hidden: true }, this.stage.node, this.judge);
    this.skip = h("div", { class: "grid-actions" });
    this.foot = h("div", { class: "judge", hidden: true }, this.skip);
    this.node = h("section", { class: "grid-view", "aria-label": "Review labels" },
      h("header", { class: "grid-head" }, h("h2", { class: "grid-title" }, "Labels to look at again"), this.words, this.kinds), this.suspect, this.tiles, this.foot);
  }

  /** Whether labels are judged one by one, with keys. */
  judging() {
    return this.of === MISTAKES || this.of === DISPUTED;
  }

  open() {
    if (state.project.role === "annotator") this.of = DISPUTED;
    if (this.merged()) this.of = MISTAKES;
    this.fetch();
  }

  /** React to news. The list stays as it is: somebody works through it, and the search takes a while. */
  refresh(names) {
    if (names.has("classes") && this.merged()) this.open();
    else if (names.has("classes")) {
      this.showKinds();
      this.render();
    } else if (names.has("counts")) this.showCounts();
  }

  /** Whether the class that is looked through is no more. */
  merged() {
    return !this.judging() && !(this.of in GROUPS) && !classById(this.of);
  }

  groupsOf(kind) {
    return this.groups.filter((each) => (each.class_id === null) === (kind === UNNAMED));
  }

  async fetch() {
    const of = this.of;
    this.showKinds();
    if (of in GROUPS) return this.showGroup();
    const { images, words } = await (of === MISTAKES ? this.mistakes() : of === DISPUTED ? this.disputed() : this.labels(of));
    if (of !== this.of) return;
    show(this.words, words);
    Object.assign(this, { entries: images, at: 0 });
    this.render();
  }

  showKinds() {
    const kind = (id, ...words) => h("button", { type: "button", class: "kind", "aria-pressed": String(this.of === id), onclick: () => { this.of = id; this.fetch(); } }, ...words);
    const own = state.project.role === "annotator";
    const grouped = Object.entries(GROUPS).filter(([id]) => this.of === id || this.groupsOf(id).length);
    show(this.kinds, own ? null : kind(MISTAKES, "may be wrong"), kind(DISPUTED, "people disagree"), grouped.map(([id, words]) => kind(id, words)), own ? null : state.classes.map((each) =>
      kind(each.id, nameOf(each.name), h("span", { class: "count", "data-class": each.id }))));
    this.showCounts();
  }

  showCounts() {
    for (const node of this.kinds.querySelectorAll(".count")) node.textContent = number(state.counts.per_class[node.dataset.class] ?? 0);
  }

  async disputed() {
    const { images } = await get("/api/disagreements").catch(() => ({ images: [] }));
    const voice = ([who, kind, klass]) => `${who}: ${kind === "label" ? classById(klass)?.name ?? "?" : KINDS[kind]}`;
    return { images: images.map((each) => ({ ...each, why: each.voices.map(voice).join(", ") })),
      words: images.length ? `${plural(images.length, "photo")} that people answered differently. Press the key of the right class: your answer decides.` : "Nobody disagrees about a photo that you can settle." };
  }

  async labels(of) {
    const { images, more } = await get(`/api/labels?class_id=${of}`).catch(() => ({ images: [], more: 0 }));
    return { images, words: images.length ? `The newest first${more ? `, and ${plural(more, "older one")}` : ""}. Choose one to correct it.` : "No label of this class yet." };
  }

  /** The search takes a while, and nothing waits for it. */
  async mistakes() {
    show(this.words, "Looking for labels that may be wrong. With many photos this takes minutes; labeling goes on.");
    this.entries = [];
    this.render();
    try {
      const { images, notes, groups } = await post("/api/review", { by: by() }, SEARCH);
      this.groups = groups;
      this.showKinds();
      const found = images.length ? `${plural(images.length, "label")}, the likeliest mistakes first. Keep each, or press the key of its class.` : "Nothing looks wrong.";
      return { images, words: [found, ...notes.map(sentence)].join(" ") };
    } catch (error) {
      return { images: [], words: printable(error.message) };
    }
  }

  /** The next group: photos that match no class, or a part of a class that looks like a class of its own. */
  showGroup() {
    const [group] = this.groupsOf(this.of), count = group?.images.length;
    this.entries = group?.images.map(({ image, name }) => ({ images: [image], name })) ?? [];
    const name = group && classById(group.class_id)?.name;
    show(this.words, ...(!group ? ["All of these groups are looked at."] : group.class_id === null
      ? [`These ${number(count)} look alike, and like no class. Press the key of their class, or + for a new one. A click takes one out.`]
      : [nameOf(name), ` looks like two: these ${number(count)} differ from the other ${number(group.others)}. If they are a class of their own, press + and name it. A click takes one out.`]));
    this.out = new Set();
    this.begin = performance.now();
    this.render();
  }

  /** One answer for a group; none (null): it stays as it is. */
  answerGroup(classId) {
    const [group] = this.groupsOf(this.of);
    if (!group) return;
    const images = group.images.map((each) => each.image).filter((image) => !this.out.has(image));
    if (classId !== null && !images.length) return;
    if (classId !== null) {
      const answer = newAnswer({ images, class_id: classId, seconds: secondsSince(this.begin), shown: "review", source: group.class_id === null ? "grid" : "review" });
      this.outbox.add(answer);
      this.history.add(answer);
      announce(`${plural(images.length, "photo")} labeled ${printable(classById(classId)?.name ?? "")}.`);
    }
    this.groups = this.groups.filter((each) => each !== group);
    this.showKinds();
    this.showGroup();
  }

  render() {
    const grouped = this.of in GROUPS;
    this.choices.refresh();
    (grouped ? this.foot : this.judge).append(this.choices.node);
    this.foot.hidden = !grouped || !this.entries.length;
    if (grouped) show(this.skip, h("button", { type: "button", class: "quiet", onclick: () => this.answerGroup(null) }, "Leave them", h("kbd", {}, typing() ? "Alt K" : "K")));
    show(this.tiles, this.entries.map((entry, place) => this.tile(entry, place)));
    this.tiles.classList.toggle("review-strip", this.judging());
    const current = this.judging() ? this.entries[this.at] : null;
    this.suspect.hidden = !current;
    if (current) this.showSuspect(current);
  }

  /** Who said what; the weightier side is in force until somebody decides. */
  voices(entry) {
    return h("ul", { class: "voices" }, entry.voices.map(([who, kind, klass]) => h("li", {}, nameOf(who),
      h("strong", {}, kind === "label" ? nameOf(classById(klass)?.name ?? "?") : KINDS[kind]))));
  }

  async showSuspect(entry) {
    this.since = performance.now();
    const label = classById(entry.class_id)?.name ?? "";
    show(this.about,
      entry.voices ? this.voices(entry) : h("p", {}, "Labeled ", h("strong", {}, nameOf(label)), " by ", nameOf(entry.by), "."),
      h("p", { class: "soft" }, entry.voices ? "File: " : `${sentence(entry.why)}. File: `, nameOf(entry.name)),
      h("button", { type: "button", class: "main keep", onclick: () => this.keep() }, "Keep ", nameOf(label), h("kbd", {}, typing() ? "Alt K" : "K")),
      h("p", { class: "soft" }, "Or give it another class:"));
    this.choices.refresh();
    const item = load({ image: entry.images[0] });
    const ready = await item.ready;
    if (entry !== this.entries[this.at]) return null;
    return ready ? this.stage.showPicture(item.picture, printable(entry.name), entry.images[0], this.entries.slice(this.at + 1).map((each) => each.images[0])) : this.stage.explain(entry.images[0]);
  }

  tile(entry, place) {
    const why = entry.why ? printable(entry.why) : "";
    const words = `${printable(entry.name)}${entry.by ? `, labeled by ${printable(entry.by)}` : ""}.${why ? ` ${why}.` : ""}${entry.how ? ` ${printable(entry.how)}.` : ""} ${this.judging() ? "Look at it." : "Correct it."}`;
    if (this.of in GROUPS) {
      const press = (event) => {
        if (!this.out.delete(entry.images[0])) this.out.add(entry.images[0]);
        event.currentTarget.setAttribute("aria-pressed", String(!this.out.has(entry.images[0])));
      };
      return h("li", { class: "tile" }, h("button", { type: "button", class: "past-tile member", "aria-pressed": "true", title: printable(entry.name), onclick: press },
        h("img", { src: imageAddress(entry.images[0], "thumb"), alt: printable(entry.name), loading: "lazy", decoding: "async" })));
    }
    const choose = () => (this.judging() ? this.move(place - this.at) : this.correct({ ...entry, review: true }));
    return h("li", { class: this.judging() && place === this.at ? "tile at" : "tile" }, h("button", { type: "button", class: "past-tile", title: words, onclick: choose },
      h("img", { src: imageAddress(entry.images[0], "thumb"), alt: words, loading: "lazy", decoding: "async" }),
      why ? h("span", { class: "reason", "aria-hidden": "true" }, why) : null));
  }

  move(steps) {
    this.at = Math.max(0, Math.min(this.entries.length - 1, this.at + steps));
    this.render();
  }

  keep() {
    const entry = this.entries[this.at];
    if (entry) this.answer(entry.class_id);
  }

  /** Keep or correct the label: both are answers. */
  answer(classId) {
    const entry = this.entries[this.at];
    if (!entry || !this.judging()) return;
    const answer = newAnswer({ images: entry.images, class_id: classId, seconds: secondsSince(this.since), shown: "review", supersedes: entry.id, source: "review" });
    this.outbox.add(answer);
    this.history.add({ ...answer, name: entry.name });
    announce(`${classId === entry.class_id ? "Kept" : "Corrected to"} ${printable(classById(classId)?.name ?? "")}.`);
    this.entries = this.entries.filter((each) => each !== entry);
    if (!this.entries.length) show(this.words, "All of them are looked at. The next model learns from your corrections.");
    this.move(0);
  }

  async create(name) {
    const entry = this.entries[this.at], grouped = this.of in GROUPS;
    const made = await askClass(name, grouped ? "Its name. These photos become its labels." : undefined);
    if (made !== null && entry === this.entries[this.at]) grouped ? this.answerGroup(made) : this.answer(made);
  }

  onKey(event) {
    const grouped = this.of in GROUPS;
    if (!(this.judging() || grouped) || !this.entries.length || event.ctrlKey || event.metaKey) return false;
    const steps = !grouped && { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (steps) return this.move(steps), true;
    const free = (key) => event.altKey || (!typing() && !state.classes.some((each) => each.key === key));
    if (event.code === "KeyK" && free("k")) return grouped ? this.answerGroup(null) : this.keep(), true;
    if (event.code === "KeyH" && !grouped && free("h")) return this.stage.heat.toggle(), true;
    return event.altKey ? false : this.choices.onKey(event);
  }
}
