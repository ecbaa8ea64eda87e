/** The image, as large as fits: zoom, pan, swipes for two classes, and where the model looks. */

import { h, show } from "./dom.js";
import { get, imageAddress } from "./api.js";
import { HeatLayer } from "./heat.js";

const SCALES = [1, 2.5, 5];
const ENLARGE = 14; // times: beyond this a small photo is only blur
const SWIPE = 70; // pixels
const MARGIN = 16; // pixels

export class Stage {
  scale = 1;
  x = 0;
  y = 0;
  heat = new HeatLayer();

  /** `swiped(-1 or 1)` is called for a swipe to the left or right. */
  constructor({ swiped }) {
    this.swiped = swiped;
    this.frame = h("div", {
      class: "stage", onwheel: (event) => this.wheel(event), ondblclick: () => this.zoom(),
      onpointerdown: (event) => this.grab(event), onpointermove: (event) => this.drag(event),
      onpointerup: (event) => this.release(event), onpointercancel: () => { this.held = null; },
    });
    this.node = this.frame;
    new ResizeObserver(() => this.fit()).observe(this.frame);
  }

  /** Show the picture of an image, decoded already; `alt` says what it is, `ahead` are the images to come. */
  showPicture(picture, alt, image, ahead = []) {
    this.picture = picture;
    this.heat.turnTo(image, ahead);
    picture.alt = alt;
    picture.className = "picture";
    Object.assign(this, { scale: 1, x: 0, y: 0 });
    this.fit();
    show(this.frame, picture, this.heat.canvas, this.heat.words);
  }

  showMessage(...words) {
    this.picture = null;
    this.heat.turnTo(null);
    show(this.frame, h("div", { class: "message" }, ...words));
  }

  /** Say why an image cannot be shown; the server knows. */
  async explain(image) {
    let why = "The photo cannot be shown.";
    try { await get(imageAddress(image, "full")); } catch (error) { why = error.message; }
    this.showMessage(h("p", { class: "big" }, "This photo cannot be shown"), h("p", {}, why), h("p", {}, "Exclude it, or leave it for later."));
  }

  fit() {
    const picture = this.picture;
    if (!picture) return;
    const [clientWidth, clientHeight] = [this.frame.clientWidth - MARGIN, this.frame.clientHeight - MARGIN];
    const enlarge = Math.min(clientWidth / picture.naturalWidth, clientHeight / picture.naturalHeight, ENLARGE);
    for (const { style } of [picture, this.heat.canvas]) {
      style.width = `${Math.floor(picture.naturalWidth * enlarge)}px`;
      style.height = `${Math.floor(picture.naturalHeight * enlarge)}px`;
    }
    this.place();
  }

  place() {
    this.frame.classList.toggle("zoomed", this.scale > 1);
    if (this.scale === 1) Object.assign(this, { x: 0, y: 0 });
    this.move(`translate(${this.x}px, ${this.y}px) scale(${this.scale})`);
  }

  move(transform) {
    for (const { style } of [this.picture, this.heat.canvas]) style.transform = transform;
  }

  /** To the next size, and around to the first. */
  zoom() {
    if (!this.picture) return;
    this.scale = SCALES[(SCALES.indexOf(this.scale) + 1) % SCALES.length] ?? 1;
    this.place();
  }

  wheel(event) {
    if (!this.picture) return;
    event.preventDefault();
    this.scale = Math.min(8, Math.max(1, this.scale * (event.deltaY < 0 ? 1.2 : 1 / 1.2)));
    if (this.scale < 1.05) this.scale = 1;
    this.place();
  }

  grab(event) {
    this.held = { x: event.clientX, y: event.clientY, fromX: this.x, fromY: this.y, touch: event.pointerType !== "mouse" };
    if (this.scale > 1) this.frame.setPointerCapture(event.pointerId);
  }

  drag(event) {
    if (!this.held || !this.picture) return;
    const [dx, dy] = [event.clientX - this.held.x, event.clientY - this.held.y];
    if (this.scale > 1) {
      Object.assign(this, { x: this.held.fromX + dx, y: this.held.fromY + dy });
      this.place();
    } else if (this.held.touch) this.move(`translate(${dx}px, 0) rotate(${dx / 40}deg)`);
  }

  release(event) {
    if (!this.held || !this.picture) return;
    const dx = event.clientX - this.held.x;
    const swiped = this.held.touch && this.scale === 1 && Math.abs(dx) > SWIPE;
    this.held = null;
    this.place();
    if (swiped) this.swiped(Math.sign(dx));
  }
}
