/** Small windows that ask one thing. While one is open, keys belong to it. */

import { h, icon, nameOf, number, printable } from "./dom.js";
import { post } from "./api.js";
import { applyTheme, by, choice, choose, state, update } from "./state.js";
import { typing } from "./choices.js";

/** Open a dialog; `build(finish)` returns its content, `finish(value)` closes it. Escape means null. */
export function ask(label, build) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const dialog = h("dialog", { "aria-label": label, onclose: () => { dialog.remove(); before?.focus?.(); resolve(dialog.answer ?? null); } });
    const finish = (value) => { dialog.answer = value; dialog.close(); };
    dialog.append(...[build(finish)].flat());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const buttons = (finish, words) => h("div", { class: "buttons" },
  h("button", { type: "button", class: "quiet", onclick: () => finish(null) }, "Cancel"), h("button", { type: "submit", class: "main" }, words));

function form(finish, value, ...content) {
  return h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); finish(value()); } }, ...content);
}

/** Ask for a note on an image; null when there is none. */
export function askNote(name) {
  const text = h("textarea", { id: "note", rows: 4, maxlength: 2000, dir: "auto" });
  return ask("Note", (finish) => form(finish, () => text.value.trim() || null,
    h("h2", {}, "Note"), h("label", { for: "note" }, name ? `About ${name}` : "About this image"), text, buttons(finish, "Keep")));
}

/** Make a class, if need be ask for its name; returns its id or null. */
export async function askClass(name) {
  const wanted = name || (await askName());
  if (!wanted) return null;
  try {
    const { classes, made } = await post("/api/classes", { do: "add", name: wanted, by: by() });
    update({ classes });
    return made;
  } catch (error) {
    await tell("The class was not made", error.message);
    return null;
  }
}

function askName() {
  const field = h("input", { id: "class-name", type: "text", maxlength: 200, autocomplete: "off", dir: "auto" });
  return ask("New class", (finish) => form(finish, () => field.value.trim() || null,
    h("h2", {}, "New class"), h("label", { for: "class-name" }, "Its name. This image becomes its first label."), field, buttons(finish, "Make it")));
}

/** Say something that needs to be read. */
export function tell(title, words) {
  return ask(title, (finish) => form(finish, () => null, h("h2", {}, title), h("p", {}, words),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Good"))));
}

/** Labels the server refused, with the reasons; they stay until the person has read them. */
export async function showRefusals(outbox) {
  const rows = (await outbox.refusals()).map(({ answer, why }) => h("li", {}, h("strong", {}, `${answer.kind}, ${number(answer.images.length)} image(s): `), printable(why)));
  const read = await ask("Refused labels", (finish) => form(finish, () => true, h("h2", {}, "The server refused these"), h("ul", {}, rows),
    h("p", {}, "Label these images again if they still matter."), buttons(finish, "I have read this")));
  if (read) await outbox.forgetRefusals();
}

function choiceOf(name, words, options) {
  const radio = ([value, text]) => h("label", { class: "option" },
    h("input", { type: "radio", name, value, checked: choice(name) === value, onchange: () => { choose(name, value); applyTheme(); } }), h("span", {}, text));
  return h("fieldset", {}, h("legend", {}, words), h("div", { class: "segments" }, options.map(radio)));
}

const KEYS = () => [
  [typing() ? "letters, Enter" : "1 to 0", "label the image with this class"],
  ["+", "new class"],
  [typing() ? "Alt U" : "U", "undo the last answer, as often as you like"],
  [typing() ? "Alt L" : "L", "ask me later"],
  [typing() ? "Alt C" : "C", "can't tell: keep it unlabeled, do not ask again"],
  [typing() ? "Alt X" : "X", "exclude it from the project"],
  [typing() ? "Alt N" : "N", "note"],
  [typing() ? "Alt Z" : "Z", "zoom; drag to move"],
  ["arrows, space, Enter", "grid: walk, take in or out, confirm"],
  ["?", "this window"],
];

/** Settings of this browser, and the keys. */
export function showSettings() {
  const who = h("input", { id: "who", type: "text", maxlength: 60, value: by(), autocomplete: "off", dir: "auto", onchange: () => choose("by", who.value.trim()) });
  return ask("Settings and keys", (finish) => [
    h("div", { class: "dialog-head" }, h("h2", {}, "Settings and keys"), h("button", { type: "button", class: "icon", "aria-label": "Close", onclick: () => finish(null) }, icon("close"))),
    choiceOf("suggestions", "What the model thinks", [["hidden", "Hidden"], ["after", "After my answer"], ["shown", "Shown"]]),
    h("p", { class: "hint" }, "Hidden is best: a suggestion changes what people say. Every label records what was shown."),
    choiceOf("theme", "Colours", [["auto", "As the system"], ["light", "Light"], ["dark", "Dark"]]),
    h("label", { for: "who" }, "Your name, kept with your labels"), who,
    h("h3", {}, "Keys"),
    h("dl", { class: "keys" }, KEYS().map(([key, words]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)))),
    h("p", { class: "hint" }, "Project ", nameOf(state.project.name), "."),
  ]);
}

