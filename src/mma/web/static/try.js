/** Try the model on a new picture, and take model and labels away. */

import { announce, h, nameOf, percent, printable, show } from "./dom.js";
import { post } from "./api.js";
import { by, state } from "./state.js";

const PATIENCE = 180_000, EXPORT = 600_000; // milliseconds
const SIDE = 640; // pixels of what is sent
const MOST = 240_000; // letters of it

export class TryView {
  title = "Try it";

  constructor() {
    this.file = h("input", { type: "file", accept: "image/*", id: "try-file", class: "unseen", onchange: () => { if (this.file.files[0]) this.take(this.file.files[0]); this.file.value = ""; } });
    this.canvas = h("canvas", { class: "tried", role: "img", "aria-label": "The picture you chose", hidden: true });
    this.drop = h("label", { class: "drop", for: "try-file", ondragover: (event) => event.preventDefault(), ondrop: (event) => { event.preventDefault(); const [file] = event.dataTransfer.files; if (file) this.take(file); } },
      h("span", { class: "big" }, "Drop a picture here"), h("span", { class: "soft" }, "or choose one, or take a photo. It is not kept."));
    this.answer = h("div", { class: "try-answer", role: "status" });
    this.exported = h("p", { class: "soft", role: "status" });
    this.exporter = h("button", { type: "button", class: "quiet", onclick: () => this.export() }, "Export the model");
    this.node = h("section", { class: "answers-view try-view", "aria-label": "Try the model" }, h("h2", {}, "Try it"),
      h("div", { class: "cards" }, h("div", { class: "card" }, this.file, this.drop, this.canvas, this.answer),
        h("div", { class: "card" }, h("h3", {}, "Take it with you"),
          h("p", {}, "Export writes the model in use as ONNX and safetensors, with a model card. Download sends it and the labels as one zip file."),
          h("div", { class: "deeper" }, this.exporter, h("a", { class: "button quiet", href: "/api/download", download: "" }, "Download")), this.exported)));
  }

  open() { this.refresh(); }

  refresh() {
    const ready = state.models.length > 0;
    this.exporter.disabled = !ready || this.exporting;
    if (!ready && !this.busy) show(this.answer, h("p", { class: "soft" }, "There is no model yet. Label some photos first."));
    else if (!this.busy && !this.said) show(this.answer);
  }

  /** Draw the picture small and send that: a photo of a phone would be too long. */
  async take(file) {
    if (this.busy) return;
    this.busy = true;
    try {
      const bitmap = await createImageBitmap(file).catch(() => { throw new Error("This browser cannot read the picture. Try a JPEG."); });
      const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
      Object.assign(this.canvas, { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)), hidden: false });
      const context = this.canvas.getContext("2d");
      context.fillStyle = "#fff";
      context.fillRect(0, 0, this.canvas.width, this.canvas.height);
      context.drawImage(bitmap, 0, 0, this.canvas.width, this.canvas.height);
      show(this.answer, h("p", { class: "soft" }, "Asking the model. This takes some seconds."));
      let picture = "";
      for (const quality of [0.92, 0.8, 0.6, 0.4]) {
        picture = this.canvas.toDataURL("image/jpeg", quality).split(",")[1];
        if (picture.length <= MOST) break;
      }
      const { answers, more } = await post("/api/try", { by: by(), picture }, PATIENCE);
      this.said = true;
      const [[best, sure]] = answers;
      show(this.answer, h("p", { class: "try-best" }, nameOf(best), h("b", {}, percent(sure))),
        more?.unlike ? h("p", { class: "problem" }, "Unlike anything labeled: do not rely on this answer.") : null,
        h("dl", { class: "bars" }, answers.map(([name, p]) => h("div", {}, h("dt", {}, nameOf(name)), h("dd", {}, h("meter", { min: 0, max: 1, value: p, "aria-label": `${printable(name)} ${percent(p)}` }), h("span", {}, percent(p)))))));
      announce(`${printable(best)}, ${percent(sure)}.`);
    } catch (error) {
      this.said = true;
      show(this.answer, h("p", { class: "problem" }, printable(error.message)));
    } finally {
      this.busy = false;
    }
  }

  async export() {
    this.exporting = this.exporter.disabled = true;
    show(this.exported, "Exporting. This takes a while, and labeling goes on.");
    try {
      const { files } = await post("/api/export", { by: by() }, EXPORT);
      show(this.exported, `Exported: ${Object.values(files ?? []).map(printable).join(", ")}. Download it now.`);
    } catch (error) {
      show(this.exported, printable(error.message));
    }
    this.exporting = this.exporter.disabled = false;
  }

  onKey() { return false; }
}
