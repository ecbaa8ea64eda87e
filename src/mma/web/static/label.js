/** The view one lives in: one key, one label, next image. */

import { h, show, announce, icon, nameOf, plural, printable } from "./dom.js";
import { Choices, suggestionWords, typing } from "./choices.js";
import { canShowHeat } from "./heat.js";
import { Stage } from "./stage.js";
import { choice, newAnswer, secondsSince, state } from "./state.js";
import { askClass, askNote } from "./dialogs.js";
import { smallCopy, wordsFor } from "./history.js";

const COMMANDS = [
  ["u", "undo", "undo", "Undo"],
  ["l", "later", "later", "Later"],
  ["c", "cannot_tell", "unsure", "Can't tell"],
  ["x", "exclude", "exclude", "Exclude"],
  ["n", "note", "note", "Note"],
  ["z", "zoom", "zoom", "Zoom"],
  ["h", "heat", "heat", "Heat"],
];
const commands = () => COMMANDS.filter(([, name]) => name !== "heat" || canShowHeat());

export class LabelView {
  title = "Label";

  constructor({ queue, outbox, history, paced }) {
    Object.assign(this, { queue, outbox, history, paced, shown: null, making: null });
    this.stage = new Stage({ swiped: (way) => this.swipe(way) });
    this.choices = new Choices({ pick: (id) => this.answer("label", id), create: (name) => this.create(name) });
    this.why = h("p", { class: "why" });
    this.after = h("p", { class: "after", role: "status", hidden: true });
    this.commands = h("div", { class: "commands", role: "group", "aria-label": "Other answers" });
    this.node = h("section", { class: "label-view", "aria-label": "Label photos" },
      this.stage.node, this.why, this.after, this.choices.node, this.commands, this.history.node);
    this.showCommands();
  }

  open() {
    this.queue.fill();
    this.refresh();
  }

  /** React to news: classes may have come, the queue may have filled. */
  refresh(names = new Set(["classes"])) {
    if (names.has("classes") || names.has("choice:suggestions")) {
      this.showCommands();
      this.mark();
      this.choices.refresh();
      this.history.refresh();
    }
    if (this.shown !== this.queue.current || !this.shown) this.showCurrent();
  }

  showCommands() {
    const keys = (letter) => (typing() ? [h("kbd", {}, `Alt ${letter.toUpperCase()}`)] : [h("kbd", {}, letter.toUpperCase())]);
    show(this.commands, commands().map(([letter, name, glyph, words]) =>
      h("button", { type: "button", class: "command", onclick: () => this.command(name), "aria-keyshortcuts": typing() ? `Alt+${letter}` : letter },
        icon(glyph), h("span", {}, words), keys(letter))));
  }

  async showCurrent() {
    const item = this.queue.current;
    if (!item) {
      this.shown = null;
      return this.showNothing();
    }
    const ready = await item.ready;
    if (item !== this.queue.current || item === this.shown) return null;
    this.shown = item;
    item.since = performance.now();
    this.mark();
    this.choices.refresh();
    this.explainWhy(item);
    if (!ready) return this.stage.explain(item.image);
    return this.stage.showPicture(item.picture, this.alt(item), item.image, this.queue.items.slice(1).map((each) => each.image));
  }

  alt(item) {
    const suggested = choice("suggestions") === "shown" && item.suggestion ? `. The model suggests ${suggestionWords(item.suggestion)}` : "";
    return `${printable(item.name)}${suggested}`;
  }

  explainWhy(item) {
    const name = h("span", { class: "file" }, nameOf(item.name));
    const words = item.before ? [h("strong", {}, "Correcting: "), `you said ${wordsFor(item.before)}. `, h("button", { type: "button", class: "link", onclick: () => this.cancel() }, "Leave it")]
      : item.why ? [h("strong", {}, "Why: "), printable(item.why)] : [];
    show(this.why, h("span", { class: "reason" }, words), name);
  }

  /** Suggestions beside the classes, only where the person wants them before answering. */
  mark() {
    const item = this.queue.current;
    const visible = choice("suggestions") === "shown" && item?.suggestion;
    this.choices.marks = new Map(visible ? item.suggestion.slice(0, 3).map(([id, p]) => [id, `${Math.round(100 * p)} %`]) : []);
  }

  showNothing() {
    const waiting = !state.reachable || !state.outbox.reachable;
    const indexing = state.work.some(({ name }) => name === "Looking at photos");
    const [big, small] = waiting ? ["The server does not answer", "Your labels are kept in this browser and sent when it is back. Nothing is lost."]
      : indexing ? ["Looking for photos", "The first ones appear in a moment."]
      : !this.queue.empty ? ["Getting the next photos", ""]
      : ["Nothing left to ask", `${plural(state.counts.labeled, "photo")} labeled. Photos put aside for later come back soon.`];
    this.stage.showMessage(h("p", { class: "big" }, big), h("p", {}, small));
    show(this.why);
  }

  /** Answer what is on the screen. Nothing is awaited: the next image is there already. */
  answer(kind, classId = null) {
    const item = this.shown;
    if (!item || item !== this.queue.current || item === this.making) return;
    this.store(item, kind, classId);
    this.moveOn(item, kind, classId);
  }

  /** Store an answer about an image, which need not be on the screen any more. A note leaves the answer before it in force. */
  store(item, kind, classId, note = null) {
    const replaced = kind === "note" ? null : item.before?.id ?? null;
    const values = { images: [item.image], kind, class_id: classId, note, supersedes: replaced, source: item.before?.review ? "review" : "label" };
    const answer = newAnswer({ ...values, seconds: secondsSince(item.since), shown: this.wasShown(item) });
    this.outbox.add(answer);
    this.history.add({ ...answer, name: item.name, small: smallCopy(item.picture) });
  }

  /** The image is answered: show the next one. */
  moveOn(item, kind, classId) {
    this.paced(kind);
    this.tellAfter(item, kind, classId);
    this.queue.drop([item.image]);
    announce(`${wordsFor({ kind, class_id: classId })}. ${plural(this.queue.items.length, "photo")} ready.`);
    this.showCurrent();
  }

  /** What of the model's opinion the person could see. */
  wasShown(item) {
    const mode = choice("suggestions"), heat = this.stage.heat.shown;
    const suggested = mode === "hidden" || !item.suggestion ? "hidden" : `${mode}: ${item.suggestion.slice(0, 3).map(([id, p]) => `${id}=${p.toFixed(3)}`).join(" ")}`;
    return heat === null ? suggested : `${suggested}; heat map: ${heat}`.slice(0, 200);
  }

  /** After the answer: does the model agree? */
  tellAfter(item, kind, classId) {
    const tell = choice("suggestions") === "after" && item.suggestion && kind === "label";
    this.after.hidden = !tell;
    if (!tell) return;
    const same = item.suggestion[0][0] === classId;
    show(this.after, icon(same ? "check" : "unsure"), h("span", {}, same ? "The model agrees: " : "The model thought otherwise: ", suggestionWords(item.suggestion)));
  }

  command(name) {
    if (name === "undo") this.undo();
    else if (name === "zoom") this.stage.zoom();
    else if (name === "heat") this.stage.heat.toggle();
    else if (name === "note") this.note();
    else this.answer(name);
  }

  /** Take the last answer back and show its image again. */
  undo() {
    const last = this.history.undo("label");
    if (!last) return;
    this.after.hidden = true;
    if (last.images.length === 1) this.queue.push({ image: last.images[0], name: last.name ?? "", why: `you took back "${wordsFor(last)}"` });
    this.showCurrent();
  }

  /** Show an answered image again; the next answer replaces the old one. */
  correct(entry) {
    this.queue.push({ image: entry.images[0], name: entry.name ?? "", why: "", before: entry });
    this.showCurrent();
  }

  cancel() {
    this.queue.take();
    this.showCurrent();
  }

  async note() {
    const item = this.shown;
    if (!item) return;
    const text = await askNote(printable(item.name));
    if (text) this.store(item, "note", null, text);
  }

  /** Make a class, and give it to the image it was made for. Until it is there, keys do not answer that image otherwise. */
  async create(name) {
    const item = this.shown;
    if (this.making) return;
    this.making = item;
    const made = await askClass(name);
    this.making = null;
    if (made === null || !item) return;
    this.store(item, "label", made);
    this.moveOn(item, "label", made);
  }

  swipe(way) {
    if (state.classes.length === 2) this.answer("label", state.classes[way < 0 ? 0 : 1].id);
  }

  onKey(event) {
    const letter = event.code.startsWith("Key") ? event.code.slice(3).toLowerCase() : "";
    if ((event.ctrlKey || event.metaKey) && letter === "z") return this.undo(), true;
    if (event.ctrlKey || event.metaKey) return false;
    if (event.key === "Escape" && this.shown?.before) return this.cancel(), true;
    const chosen = event.altKey || !typing() ? commands().find(([each]) => each === (event.altKey ? letter : event.key.toLowerCase())) : null;
    const taken = !event.altKey && state.classes.some((each) => each.key === event.key.toLowerCase());
    if (chosen && !taken) return this.command(chosen[1]), true;
    return event.altKey ? false : this.choices.onKey(event);
  }
}

