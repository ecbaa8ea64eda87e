/** Small windows that ask one thing. While one is open, keys belong to it. */

import { h, icon, nameOf, plural, printable } from "./dom.js";
import { canShowHeat, HeatLayer } from "./heat.js";
import { imageAddress, post } from "./api.js";
import { applyTheme, by, choice, choose, state, update } from "./state.js";
import { keysOf, typing } from "./choices.js";
import { wordsFor } from "./history.js";

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

const head = (finish, title) => h("div", { class: "dialog-head" }, h("h2", {}, title), h("button", { type: "button", class: "icon", "aria-label": "Close", onclick: () => finish(null) }, icon("close")));

/** Show a photo large, with what the model looks at. With `question`, its class is asked for: a click or a key gives its id, else null. */
export async function askPhoto({ image, name }, question = null, now = null) {
  const heat = new HeatLayer(), keys = question ? keysOf(state.classes) : new Map(), key = new Map([...keys].map(([each, id]) => [id, each]));
  heat.turnTo(image);
  const picked = ask(printable(name), (finish) => [
    head(finish, nameOf(name)), h("div", { class: "enlarged" }, h("img", { src: imageAddress(image, "full"), alt: printable(name) }), heat.canvas), heat.words,
    question ? h("p", { class: "soft" }, question) : null,
    question ? h("div", { class: "choices", role: "group", "aria-label": "Its class" }, state.classes.map((each) => h("button", { type: "button", class: "choice", "aria-pressed": String(each.id === now), onclick: () => finish(each.id) },
      key.has(each.id) ? h("kbd", {}, key.get(each.id)) : null, nameOf(each.name)))) : null,
    canShowHeat() ? h("div", { class: "buttons" }, h("button", { type: "button", class: "quiet", onclick: () => heat.toggle() }, icon("heat"), "Heat map", h("kbd", {}, "H"))) : null,
  ].filter(Boolean));
  const dialog = [...document.querySelectorAll("dialog[open]")].at(-1);
  dialog.classList.add("photo");
  dialog.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const id = keys.get(event.key.toLowerCase());
    if (id !== undefined) { dialog.answer = id; dialog.close(); }
    else if (event.key.toLowerCase() === "h") heat.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return picked;
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
    h("h2", {}, "Note"), h("label", { for: "note" }, name ? `About ${name}` : "About this photo"), text, buttons(finish, "Save note")));
}

/** Make a class, if need be ask for its name; returns its id or null. */
export async function askClass(name, words = "Its name. This photo becomes its first label.") {
  const wanted = name || (await askName(words));
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

function askName(words) {
  const field = h("input", { id: "class-name", type: "text", maxlength: 200, autocomplete: "off", dir: "auto" });
  return ask("New class", (finish) => form(finish, () => field.value.trim() || null,
    h("h2", {}, "New class"), h("label", { for: "class-name" }, words), field, buttons(finish, "Add class")));
}

const MEASURED = 30;

/** Offer photos drawn at random in a row, and say before what they will tell. `begin` is called when they are to come. */
export async function askMeasure(begin) {
  try {
    const { left, words } = await post("/api/measure", { by: by(), n: MEASURED, start: false });
    const going = await ask("Measure now", (finish) => form(finish, () => true, h("h2", {}, "Measure now"), h("p", {}, printable(words)),
      h("p", { class: "soft" }, "They come one after the other, without suggestions; the model learns them, too."), buttons(finish, left ? `Ask me about ${plural(Math.min(MEASURED, left), "photo")}` : "Close")));
    if (!going || !left) return;
    await post("/api/measure", { by: by(), n: MEASURED, start: true });
    begin();
  } catch (error) {
    await tell("Nothing was measured", printable(error.message));
  }
}

/** Say something that needs to be read. */
export function tell(title, words) {
  return ask(title, (finish) => form(finish, () => null, h("h2", {}, title), h("p", {}, words),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Close"))));
}

/** Labels that are not saved, with the reasons: refused ones stay until they are sent again or deleted on purpose. */
export async function showUnsaved(outbox) {
  const problems = await outbox.problems();
  const refused = problems.filter((each) => each.refused).length;
  const row = ({ answer, why, refused: no }) => h("li", {}, h("img", { src: imageAddress(answer.images[0], "thumb"), alt: "", loading: "lazy" }),
    h("div", {}, h("p", {}, h("strong", {}, wordsFor(answer)), answer.images.length > 1 ? `, ${plural(answer.images.length, "photo")}` : ""),
      h("p", { class: "soft" }, no ? "Refused: " : "Sent again by itself: ", printable(why))));
  const wanted = await ask("Labels that are not saved", (finish) => form(finish, () => "again",
    h("h2", {}, "Labels that are not saved"), h("p", { class: "hint" }, "They are kept in this browser until the server takes them."), h("ul", { class: "unsaved" }, problems.map(row)),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "quiet", onclick: () => finish(null) }, "Close"),
      refused ? h("button", { type: "button", class: "quiet", onclick: () => finish("delete") }, `Delete ${refused} refused`) : null,
      h("button", { type: "submit", class: "main" }, "Send again"))));
  const sure = wanted !== "delete" || await ask("Delete", (finish) => form(finish, () => true, h("h2", {}, `Delete ${plural(refused, "label")}?`),
    h("p", {}, refused === 1 ? "It was never saved. Label the photo again if it still matters." : "They were never saved. Label the photos again if they still matter."), buttons(finish, "Delete")));
  if (wanted && sure) await outbox.clearRefused({ again: wanted === "again" });
}

function choiceOf(name, words, options) {
  const radio = ([value, text]) => h("label", { class: "option" },
    h("input", { type: "radio", name, value, checked: choice(name) === value, onchange: () => { choose(name, value); applyTheme(); } }), h("span", {}, text));
  return h("fieldset", {}, h("legend", {}, words), h("div", { class: "segments" }, options.map(radio)));
}

const KEYS = () => [
  [typing() ? "letters, Enter" : "1 to 0", "label the photo with this class"],
  ["+", "new class"],
  [typing() ? "Alt U" : "U", "undo the last answer, as often as you like"],
  [typing() ? "Alt L" : "L", "ask me later"],
  [typing() ? "Alt C" : "C", "can't tell: keep it unlabeled, do not ask again"],
  [typing() ? "Alt X" : "X", "exclude it from the project"],
  [typing() ? "Alt N" : "N", "note"],
  [typing() ? "Alt Z" : "Z", "zoom; drag to move"],
  ...(canShowHeat() ? [[typing() ? "Alt H" : "H", "heat map: where the model looks"]] : []),
  ["arrows, space, Enter", "grid: move, add or remove a photo, confirm"],
  ["E", "grid: look at one photo large, and give it its class there"],
  ["?", "this window"],
];

/** Settings of this browser, and the keys. */
export function showSettings() {
  const who = h("input", { id: "who", type: "text", disabled: state.project.role === "annotator", maxlength: 60, value: by(), autocomplete: "off", dir: "auto", onchange: () => choose("by", who.value.trim()) });
  return ask("Settings and keys", (finish) => [
    head(finish, "Settings and keys"),
    choiceOf("suggestions", "What the model thinks", [["hidden", "Hidden"], ["after", "After my answer"], ["shown", "Shown"]]),
    h("p", { class: "hint" }, "Hidden is best: a suggestion changes what people say. Every label records what was shown."),
    choiceOf("theme", "Colours", [["auto", "System"], ["light", "Light"], ["dark", "Dark"]]),
    h("label", { for: "who" }, "Your name, kept with your labels"), who,
    h("h3", {}, "Keys"),
    h("dl", { class: "keys" }, KEYS().map(([key, words]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)))),
    h("p", { class: "hint" }, "Project: ", nameOf(state.project.name)),
  ]);
}

