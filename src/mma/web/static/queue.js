/** The images to come: the current one and the next eight, decoded before they are needed. */

import { imageAddress, oneTab, post } from "./api.js";
import { by, state } from "./state.js";
import { uuid } from "./dom.js";

const AHEAD = 8;
const RETRY = 2_000; // milliseconds
const SLOW = 30_000; // milliseconds until an empty queue is looked at again without news: what others hold runs out
const STALE = 120_000; // milliseconds after which another tab no longer counts
const tab = uuid();

/** Start loading and decoding; `item.picture` is ready to be shown when `item.ready` is kept with true. */
export function load(item) {
  const picture = new Image();
  picture.decoding = "async";
  picture.draggable = false;
  picture.src = imageAddress(item.image, "full");
  item.picture = picture;
  item.ready = picture.decode().then(() => true, () => false);
  return item;
}

/** Images that other tabs of this browser have on their screens. */
function heldElsewhere() {
  const found = [];
  for (const key of Object.keys(localStorage).filter((each) => each.startsWith("mma-tab-") && each !== `mma-tab-${tab}`)) {
    const { at, images } = JSON.parse(localStorage.getItem(key));
    if (Date.now() - at < STALE) found.push(...images);
    else localStorage.removeItem(key);
  }
  return found;
}

addEventListener("pagehide", () => localStorage.removeItem(`mma-tab-${tab}`));

export class Queue {
  items = [];
  filling = false;
  empty = false; // the server has nothing more to ask now
  heard = false; // there were news since the server was asked
  asked = 0; // when that was
  timer = null;

  /** `changed` is called when there is something new to show. */
  constructor(outbox, changed) {
    Object.assign(this, { outbox, changed });
    setInterval(() => this.remember(), STALE / 4);
    document.addEventListener("visibilitychange", () => this.hear());
  }

  get current() { return this.items[0] ?? null; }

  /** Take the current image away. */
  take() {
    this.items.shift();
    this.fill();
  }

  /** Show this image now; the others move back. */
  push(item) {
    this.items = [load(item), ...this.items.filter((each) => each.image !== item.image)];
    this.remember();
  }

  /** Begin anew, for another person: the images here are leased to the one before. */
  restart() {
    Object.assign(this, { items: [], empty: false });
    this.fill();
    this.changed();
  }

  /** There are news. Where nothing was left to ask, there may be something now. */
  hear() {
    this.heard = true;
    if (this.empty) this.lookAgain(this.asked + RETRY - Date.now());
  }

  lookAgain(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { if (this.empty && !document.hidden) this.fill(); }, wait);
  }

  /** Forget images that were answered. */
  drop(images) {
    this.items = this.items.filter((each) => !images.includes(each.image));
    this.fill();
  }

  remember() {
    const images = this.items.map((each) => each.image);
    localStorage.setItem(`mma-tab-${tab}`, JSON.stringify({ at: Date.now(), images }));
  }

  async fill() {
    this.remember();
    if (this.filling || this.items.length > AHEAD) return;
    this.filling = true;
    try {
      await oneTab(`mma-next-${state.project.id}`, () => this.fetch()); // two tabs that ask at once could get the same images
    } catch {
      setTimeout(() => this.fill(), RETRY);
    } finally {
      this.filling = false;
    }
    this.retryPictures();
  }

  async fetch() {
    Object.assign(this, { heard: false, asked: Date.now() });
    const who = by();
    const before = this.items.map((each) => each.image); // one of these may be answered while we look at what waits
    const waiting = (await this.outbox.answers()).flatMap((answer) => answer.images);
    const mine = this.items.map((each) => each.image);
    const holding = [...new Set([...before, ...mine, ...waiting, ...heldElsewhere()])];
    const { items } = await post("/api/next", { by: who, n: AHEAD + 1 - mine.length, holding });
    if (who !== by()) return this.fetch();
    const known = new Set([...holding, ...this.items.map((each) => each.image)]);
    const fresh = items.filter((item) => !known.has(item.image));
    this.items.push(...fresh.map(load));
    this.empty = this.items.length === 0;
    if (this.empty) this.lookAgain(this.heard ? RETRY : SLOW);
    this.remember();
    return this.changed();
  }

  /** A picture that failed while the server was away is asked for again, and shown if it is the current one. */
  async retryPictures() {
    for (const item of [...this.items]) {
      const failed = item.picture.complete && item.picture.naturalWidth === 0 && !(await item.ready);
      if (failed && this.items.includes(item)) this.items[this.items.indexOf(item)] = load({ ...item });
    }
    this.changed();
  }
}
