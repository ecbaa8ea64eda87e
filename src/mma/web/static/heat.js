/** Where the model looks: a layer of colour over a photo, and a sentence. Asked for with H, and kept while it is on. */

import { h, nameOf, printable, show } from "./dom.js";
import { post } from "./api.js";
import { by, state, watch } from "./state.js";

const PATIENCE = 180_000; // milliseconds
const [FOR, AGAINST] = ["255 128 0", "40 96 255"]; // colours
const STRONGEST = 0.75; // opacity

const known = new Map(); // image -> {name, rows} or {why}
watch((names) => { if (names.has("models")) known.clear(); });

/** Get the map of the first image, and those of the others if they come with it. */
async function fetchMaps(images) {
  const { maps } = await post("/api/heat", { by: by(), images }, PATIENCE);
  for (const [image, map] of Object.entries(maps)) known.set(image, map);
}

export const canShowHeat = () => state.project.role !== "annotator";

export class HeatLayer {
  on = false;
  image = null;
  canvas = h("canvas", { class: "heat", "aria-hidden": "true", hidden: true });
  words = h("p", { class: "heat-words", role: "status", hidden: true });

  /** Another photo is on the screen, or none; `ahead` are those to come. */
  turnTo(image, ahead = []) {
    Object.assign(this, { image, ahead });
    this.draw();
  }

  toggle() {
    if (!canShowHeat() || !this.image) return;
    this.on = !this.on;
    this.draw();
  }

  /** The class whose evidence is on the screen, if any. */
  get shown() { return this.on && !this.canvas.hidden ? known.get(this.image)?.name ?? null : null; }

  async draw() {
    const { image } = this;
    this.canvas.hidden = true;
    this.words.hidden = !this.on || !image;
    if (this.words.hidden) return;
    if (!known.has(image)) {
      show(this.words, "Asking the model where it looks. This takes some seconds.");
      try {
        await fetchMaps([image, ...this.ahead.filter((each) => !known.has(each))].slice(0, 9));
      } catch (error) {
        if (image === this.image) show(this.words, printable(error.message));
        return;
      }
      if (image !== this.image || !this.on) return;
    }
    const { name, rows, why } = known.get(image);
    show(this.words, ...(rows ? ["The model sees ", h("strong", {}, nameOf(name)), ": orange places speak for it, blue ones against it."] : [printable(why)]));
    if (rows) this.paint(rows);
  }

  paint(rows) {
    const most = Math.max(1e-9, ...rows.flat().map(Math.abs));
    Object.assign(this.canvas, { width: rows[0].length, height: rows.length, hidden: false });
    const context = this.canvas.getContext("2d");
    rows.forEach((row, y) => row.forEach((value, x) => {
      context.fillStyle = `rgb(${value > 0 ? FOR : AGAINST} / ${(STRONGEST * Math.abs(value) / most).toFixed(3)})`;
      context.fillRect(x, y, 1, 1);
    }));
  }
}
