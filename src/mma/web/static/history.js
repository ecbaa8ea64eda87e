/** The answers of this person, newest first: the strip of the last twenty, undo, and correction. */

import { announce, h, show, nameOf, icon, plural, printable } from "./dom.js";
import { get, imageAddress } from "./api.js";
import { by, classById, newAnswer } from "./state.js";

const STRIP = 20;
const WORDS = { cannot_tell: "can't tell", exclude: "excluded", later: "later", note: "note" };

/** What an answer said, in words. */
export function wordsFor(entry) {
  if (entry.kind === "label") return printable(classById(entry.class_id)?.name ?? "a class");
  return WORDS[entry.kind] ?? entry.kind;
}

export class History {
  entries = []; // {id, images, kind, class_id, name}
  given = 0; // answers of this visit
  more = false; // the server may have older ones
  extending = false;
  node = h("ol", { class: "strip", "aria-label": "Your last answers" });

  /** `correct(entry)` is called when a thumbnail is chosen. */
  constructor({ correct, outbox }) {
    Object.assign(this, { correct, outbox });
  }

  /** What the server has, and before it what still waits here. */
  async open() {
    let given, waiting, answers;
    do {
      given = this.given;
      waiting = await this.outbox.answers(); // before the server is asked: later some may be neither here nor in its reply
      ({ answers } = await get(`/api/recent?by=${encodeURIComponent(by())}`));
    } while (given !== this.given);
    const here = new Map(this.entries.map((each) => [each.id, each])); // they have names and small copies, which waiting ones have not
    this.entries = answers;
    this.more = answers.length >= STRIP;
    const known = new Set(answers.map((each) => each.id));
    for (const answer of waiting.filter((each) => !known.has(each.id))) this.keep({ ...here.get(answer.id), ...answer });
    this.refresh();
  }

  /** Take an answer that was given just now. */
  add(answer) {
    this.given += 1;
    this.keep(answer);
    this.refresh();
    this.extend();
  }

  /** Undo takes an answer away; a correction hides the answer it replaces until it is itself undone; a note replaces nothing. */
  keep(answer) {
    if (answer.kind === "note") return;
    const old = this.entries.find((each) => each.id === answer.supersedes);
    if (answer.kind === "undo" && old?.hides) this.entries.splice(this.entries.indexOf(old) + 1, 0, old.hides);
    if (old) this.entries = this.entries.filter((each) => each !== old);
    if (answer.kind !== "undo") this.entries.unshift({ ...answer, hides: old });
  }

  /** Undo goes back farther than what is in memory: ask for older answers in time. */
  async extend() {
    if (!this.more || this.extending || this.entries.length >= STRIP) return;
    this.extending = true;
    await this.open().catch(() => {});
    this.extending = false;
  }

  /** Take the last answer back, and return it; null when there is none here. */
  undo(source) {
    const last = this.entries[0];
    if (!last) {
      announce(this.more ? "Older answers are on their way. Try again in a moment." : "There is nothing to undo.");
      return null;
    }
    const answer = newAnswer({ images: last.images, kind: "undo", supersedes: last.id, source });
    this.outbox.add(answer);
    this.add(answer);
    announce(`Undone: ${wordsFor(last)}${last.images.length > 1 ? `, ${plural(last.images.length, "photo")}` : ""}.`);
    return last;
  }

  refresh() {
    show(this.node, this.entries.slice(0, STRIP).map((entry) => h("li", {}, this.thumbnail(entry))));
  }

  thumbnail(entry) {
    const words = wordsFor(entry) + (entry.images.length > 1 ? ` (${plural(entry.images.length, "photo")})` : "");
    const alt = `You said ${words}. Correct it.`;
    entry.small?.setAttribute("aria-label", alt);
    return h("button", { type: "button", class: "past", onclick: () => this.correct(entry), title: `${words}: correct` },
      entry.small ?? h("img", { src: imageAddress(entry.images[0], "thumb"), alt, loading: "lazy", decoding: "async" }),
      h("span", { class: "said", "aria-hidden": "true" }, entry.kind === "label" ? nameOf(words) : [icon(iconFor(entry.kind)), words]));
  }
}

/** A small copy of a picture on the screen: it needs no server, so the strip is whole offline, too. */
export function smallCopy(picture) {
  if (!picture?.naturalWidth) return null;
  const [width, height] = [168, 124];
  const canvas = h("canvas", { width, height, role: "img" });
  const scale = Math.max(width / picture.naturalWidth, height / picture.naturalHeight);
  const [w, hh] = [picture.naturalWidth * scale, picture.naturalHeight * scale];
  canvas.getContext("2d").drawImage(picture, (width - w) / 2, (height - hh) / 2, w, hh);
  return canvas;
}

const iconFor = (kind) => ({ cannot_tell: "unsure", exclude: "exclude", later: "later" })[kind] ?? "note";
