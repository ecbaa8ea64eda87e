/** What is taken for what: a table whose cells open their images. */

import { h, nameOf, number, printable } from "./dom.js";
import { imageAddress } from "./api.js";
import { ask } from "./dialogs.js";

/** The confusion matrix of a report. */
export function confusionCard({ classes, quality, judged }) {
  if (!quality.confusion.flat().some((count) => count > 0)) return null;
  const rows = quality.confusion.map((row, label) => {
    const total = Math.max(1, row.reduce((sum, each) => sum + each, 0));
    return h("tr", {}, h("th", { scope: "row" }, nameOf(classes[label])), row.map((count, said) => {
      const images = judged.filter((each) => each.label === classes[label] && each.said === classes[said]);
      return cell({ label: classes[label], said: classes[said], count, images, audit: quality.source === "audit" }, count / total);
    }));
  });
  return h("section", { class: "card" }, h("h3", {}, "Which class is taken for which"),
    h("p", { class: "soft" }, "Rows: what people say. Columns: what the model says. A number opens its images."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix" }, h("table", { class: "confusion" },
      h("thead", {}, h("tr", {}, h("td", {}), classes.map((name) => h("th", { scope: "col" }, nameOf(name))))), h("tbody", {}, rows))));
}

function cell(found, share) {
  const words = `${number(found.count)} ${printable(found.label)} taken for ${printable(found.said)}`;
  const inside = found.images.length ? h("button", { type: "button", class: "open-cell", "aria-label": `${words}: show`, onclick: () => showImages(found) }, number(found.count)) : found.count ? number(found.count) : "·";
  const node = h("td", { class: found.label === found.said ? "cell right" : "cell wrong" }, inside);
  node.style.setProperty("--share", `${Math.round(70 * share)}%`);
  return node;
}

/** The images of one cell, the surest first. */
function showImages({ label, said, count, images, audit }) {
  const title = label === said ? ["Rightly called ", nameOf(said)] : [nameOf(label), " taken for ", nameOf(said)];
  const shown = images.length < count ? `${number(images.length)} of ${number(count)}, the surest first.` : "The surest first.";
  const note = audit ? " These labels measure the model and are not corrected here: whoever mends only where it is wrong makes it look better than it is." : "";
  return ask("Images of a cell", (finish) => [
    h("h2", {}, title), h("p", { class: "soft" }, shown + note),
    h("ul", { class: "tiles judged", tabindex: "0", "aria-label": "Images" }, images.map(({ image, confidence }) => h("li", { class: "tile" },
      h("img", { src: imageAddress(image, "thumb"), alt: `${printable(label)}, called ${printable(said)}`, loading: "lazy", decoding: "async" }),
      h("span", { class: "reason" }, `${Math.round(100 * confidence)} % sure`)))),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: () => finish(null) }, "Close")),
  ]);
}
