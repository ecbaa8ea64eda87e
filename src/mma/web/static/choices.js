/** The classes to choose from: a key each up to ten, with more one types the first letters. */

import { h, show, nameOf, icon, printable } from "./dom.js";
import { state } from "./state.js";

export const FEW = 10;
const DIGITS = [..."1234567890"];

export const typing = () => state.classes.length > FEW;

/** Which key stands for which class: the chosen ones first, then free digits in order. */
export function keysOf(classes) {
  const keys = new Map();
  for (const each of classes) if (each.key && usable(each.key, classes)) keys.set(each.key, each.id);
  const free = DIGITS.filter((digit) => !keys.has(digit));
  const chosen = new Set(keys.values());
  for (const each of classes.filter((one) => !chosen.has(one.id)).slice(0, free.length)) keys.set(free.shift(), each.id);
  return keys;
}

/** Letters are for typing where there are many classes. */
const usable = (key, classes) => classes.length <= FEW || !/\p{L}/u.test(key);

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLocaleLowerCase();

/** The classes that fit what was typed: those that begin with it, then words that do, then the rest. */
export function matches(classes, typed) {
  const wanted = plain(typed.trim());
  const rank = (name) => {
    if (plain(name).startsWith(wanted)) return 0;
    if (plain(name).split(/[\s_-]+/).some((word) => word.startsWith(wanted))) return 1;
    return plain(name).includes(wanted) ? 2 : 3;
  };
  return classes.map((each) => [rank(each.name), each]).filter(([r]) => r < 3).sort((a, b) => a[0] - b[0]).map(([, each]) => each);
}

/** `pick(class id)` takes a class, `create(name)` makes one. */
export class Choices {
  highlighted = 0;
  marks = new Map(); // class id -> words beside its name

  constructor({ pick, create }) {
    Object.assign(this, { pick, create });
    this.field = h("input", {
      class: "type-class", type: "text", role: "combobox", "aria-label": "Type the first letters of a class", autocomplete: "off",
      "aria-expanded": "true", "aria-controls": "choices", placeholder: "Type the first letters, then Enter", spellcheck: "false",
      oninput: () => { this.highlighted = 0; this.refresh(); }, onkeydown: (event) => this.inField(event), maxlength: 200,
    });
    this.list = h("div", { class: "choices", id: "choices" });
    this.node = h("div", { class: "choose" }, this.field, this.list);
    this.refresh();
  }

  refresh() {
    const many = typing();
    const key = new Map([...keysOf(state.classes)].map(([k, id]) => [id, k]));
    this.field.hidden = !many;
    this.list.classList.toggle("many", many);
    this.list.setAttribute("role", many ? "listbox" : "group");
    this.list.setAttribute("aria-label", "Classes");
    this.found = many ? matches(state.classes, this.field.value) : state.classes;
    this.highlighted = Math.max(0, Math.min(this.highlighted, this.found.length - 1));
    const buttons = this.found.map((each, place) => this.button(each, key.get(each.id), many && place === this.highlighted, many));
    show(this.list, buttons, many && this.found.length > 0 ? null : this.newButton(many));
    this.field.setAttribute("aria-activedescendant", many && this.found.length ? `class-${this.found[this.highlighted].id}` : "");
    if (many) this.list.querySelector(".highlighted")?.scrollIntoView({ block: "nearest" });
  }

  button(each, key, highlighted, many) {
    const mark = this.marks.get(each.id);
    return h("button", {
      type: "button", class: highlighted ? "choice highlighted" : "choice", id: `class-${each.id}`, onclick: () => this.take(each.id),
      ...(many ? { role: "option", "aria-selected": String(Boolean(highlighted)), tabindex: "-1" } : {}),
      "aria-keyshortcuts": key ?? null,
    }, key ? h("kbd", {}, key) : null, nameOf(each.name), mark ? h("span", { class: "mark" }, mark) : null);
  }

  newButton(many) {
    const typed = this.field.value.trim();
    if (many && !typed) return null;
    const words = many ? ["new class ", nameOf(typed)] : ["new class"];
    return h("button", { type: "button", class: "choice new", onclick: () => this.make(typed), ...(many ? { role: "option", "aria-selected": "true" } : { "aria-keyshortcuts": "+" }) },
      many ? icon("plus") : h("kbd", {}, "+"), h("span", {}, words));
  }

  take(id) {
    this.clear();
    this.pick(id);
  }

  /** Hand a typed name on; the field is free for the next one. */
  make(name) {
    this.clear();
    this.create(name);
  }

  clear() {
    this.field.value = "";
    this.highlighted = 0;
    if (typing()) this.refresh();
  }

  /** Keys while the field has the focus. */
  inField(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.highlighted += event.key === "ArrowDown" ? 1 : -1;
      this.refresh();
    } else if (event.key === "Enter" && !event.repeat && !event.isComposing) {
      if (this.found.length) this.take(this.found[this.highlighted].id);
      else if (this.field.value.trim()) this.make(this.field.value.trim());
    } else if (event.key === "Escape") {
      this.field.value = "";
      this.refresh();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Keys anywhere else on the page; returns whether this was one of ours. */
  onKey(event) {
    if (event.key === "+") return this.make(""), true;
    const id = keysOf(state.classes).get(event.key.toLowerCase());
    const inWord = typing() && this.field.value;
    if (id !== undefined && !inWord) return this.take(id), true;
    if (typing() && /^[\p{L}\p{N}]$/u.test(event.key)) {
      this.field.focus(); // the letter itself arrives there
      return "typed";
    }
    return false;
  }
}

/** Words for a suggestion: "stop 93 %". */
export function suggestionWords(suggestion, limit = 2) {
  const name = (id) => printable(state.classes.find((each) => each.id === id)?.name ?? "another class");
  return suggestion.slice(0, limit).map(([id, p]) => `${name(id)} ${Math.round(100 * p)} %`).join(", ");
}
