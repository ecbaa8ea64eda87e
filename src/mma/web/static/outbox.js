/** Answers on their way to the server. They are stored in the browser first, so that no key press is lost. */

import { oneTab, post, Refused, Unreachable } from "./api.js";

const WAITING = "waiting";
const REFUSED = "refused";
const FIRST_WAIT = 400; // milliseconds
const LONGEST_WAIT = 10_000;
const TRIES = 3; // failures of the server over one answer, after which the others come first

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function openDatabase(name) {
  const opening = indexedDB.open(name, 1);
  opening.onupgradeneeded = () => {
    opening.result.createObjectStore(WAITING, { autoIncrement: true });
    opening.result.createObjectStore(REFUSED, { autoIncrement: true });
  };
  return done(opening);
}

/** The same as the database, for browsers that refuse to keep one. */
class Memory {
  lists = { [WAITING]: new Map(), [REFUSED]: new Map() };
  place = 0;
  constructor(waiting = []) { for (const { value } of waiting) this.add(WAITING, value); }
  async add(list, value) { this.lists[list].set((this.place += 1), value); }
  async remove(list, key) { this.lists[list].delete(key); }
  async count(list) { return this.lists[list].size; }
  async entries(list) { return [...this.lists[list]].map(([key, value]) => ({ key, value })); }
}

class Disk {
  constructor(name, database) { Object.assign(this, { name, database }); }

  /** Begin a transaction. A browser may close the connection at any time: then it is opened again. */
  async begin(list, mode) {
    try {
      return this.database.transaction(list, mode, { durability: "strict" });
    } catch {
      this.database = await openDatabase(this.name);
      return this.database.transaction(list, mode, { durability: "strict" });
    }
  }

  /** Write and wait until the browser has it on disk. */
  async change(list, act) {
    const transaction = await this.begin(list, "readwrite");
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
      act(transaction.objectStore(list));
    });
  }

  add(list, value) { return this.change(list, (store) => store.add(value)); }
  remove(list, key) { return this.change(list, (store) => store.delete(key)); }
  async count(list) { return done((await this.begin(list, "readonly")).objectStore(list).count()); }

  async entries(list) {
    const store = (await this.begin(list, "readonly")).objectStore(list);
    const [keys, values] = await Promise.all([done(store.getAllKeys()), done(store.getAll())]);
    return keys.map((key, place) => ({ key, value: values[place] }));
  }
}

/** `changed` is called with {waiting, refused, reachable, locked, problem, kept}; `saved` with an answer and the server's reply. */
export class Outbox {
  constructor(project, { changed, saved }) {
    Object.assign(this, { project, changed, saved, coming: new Set(), stored: 0, refused: 0, changes: 0 });
    Object.assign(this, { reachable: true, locked: false, wait: FIRST_WAIT, running: false });
    this.failures = new Map(); // id of an answer -> {times, why}: the server was there and failed
    this.others = new BroadcastChannel(`mma-outbox-${project}`);
    this.others.onmessage = ({ data }) => { this.reachable = data; this.count(); };
  }

  /** Open what earlier visits left, and send it. */
  async open() {
    const name = `mma-outbox-${this.project}`;
    try {
      this.store = new Disk(name, await openDatabase(name));
    } catch {
      this.store = new Memory();
    }
    this.kept = this.store instanceof Disk;
    addEventListener("online", () => this.hurry());
    await this.count();
    this.send();
  }

  /** Take an answer. It counts as waiting from this moment on, before anything is awaited. */
  async add(answer) {
    this.coming.add(answer);
    this.tell();
    try {
      await this.store.add(WAITING, answer);
    } catch {
      await this.useMemory(answer);
    }
    this.coming.delete(answer);
    Object.assign(this, { stored: this.stored + 1, changes: this.changes + 1 });
    this.others.postMessage(this.reachable);
    if (this.failures.size) this.hurry(); // what the server fails on does not hold this one up
    this.send();
  }

  /** The browser's disk is full or gone: go on in memory, and say so. Two answers may come here at once. */
  async useMemory(answer) {
    const before = this.store;
    const waiting = await before.entries(WAITING).catch(() => []);
    if (before instanceof Disk && this.store === before) Object.assign(this, { store: new Memory(waiting), kept: false });
    await this.store.add(WAITING, answer);
    this.tell();
  }

  /** Everything that the server may not know yet, also what is still being written to the browser's disk. */
  async answers() {
    const coming = [...this.coming];
    return [...(await this.store.entries(WAITING)).map(({ value }) => value), ...coming];
  }

  /** What is not saved, with the reason: answers that the server refused, and those it fails on. */
  async problems() {
    const refused = (await this.store.entries(REFUSED)).map(({ value }) => ({ ...value, refused: true }));
    const waiting = (await this.store.entries(WAITING)).map(({ value }) => ({ answer: value, why: this.failures.get(value.id)?.why }));
    return [...refused, ...waiting.filter(({ why }) => why)];
  }

  /** Take refused answers off the list: to send them once more, or for good. */
  async clearRefused({ again }) {
    const { store } = this;
    for (const { key, value } of await store.entries(REFUSED)) {
      if (again) await store.add(WAITING, value.answer);
      await store.remove(REFUSED, key);
    }
    if (again) this.failures.clear();
    this.others.postMessage(this.reachable);
    await this.count();
    this.hurry();
    this.send();
  }

  get waiting() { return this.coming.size + this.stored; }

  /** Say how things stand. */
  tell() {
    const { waiting, refused, reachable, locked, kept } = this;
    const problem = locked || !reachable ? "" : [...this.failures.values()].at(-1)?.why ?? "";
    this.changed({ waiting, refused, reachable, locked, problem, kept });
  }

  /** Count what is stored: other tabs add and send as well. */
  async count() {
    if (!this.store) return;
    let before;
    do {
      before = this.changes;
      const [stored, refused] = [await this.store.count(WAITING), await this.store.count(REFUSED)];
      if (before === this.changes) Object.assign(this, { stored, refused });
    } while (before !== this.changes);
    if (!this.waiting) this.failures.clear(); // another tab has sent them
    this.tell();
  }

  /** Send everything. One tab sends at a time; the server knows each answer by its id. */
  async send() {
    if (this.running) return;
    this.running = true;
    try {
      await oneTab(`mma-outbox-${this.project}`, async () => { while (await this.sendWaiting()); });
    } finally {
      this.running = false;
    }
    if (await this.store.count(WAITING)) this.send();
  }

  /** Send what waits now; false when that is nothing. After a failure everything is looked at again. */
  async sendWaiting() {
    const { store } = this; // another one may take its place meanwhile, with other keys
    let left = await store.entries(WAITING);
    if (!left.length) return false;
    for (let sent = true; sent && left.length;) {
      const entry = this.choose(left);
      sent = await this.sendOne(store, entry);
      left = left.filter((each) => each !== entry);
    }
    return true;
  }

  /** The first one. What the server failed on several times comes after the rest; answers about one image keep their order. */
  choose(left) {
    const before = new Set();
    const free = left.filter(({ value: { images } }) => {
      const first = !images.some((image) => before.has(image));
      for (const image of images) before.add(image);
      return first;
    });
    const tries = ({ value }) => Math.max(0, (this.failures.get(value.id)?.times ?? 0) - TRIES + 1);
    return free.reduce((best, each) => (tries(each) < tries(best) ? each : best));
  }

  async sendOne(store, { key, value }) {
    let sent = true;
    try {
      const reply = await post("/api/answers", value);
      if (reply.saved !== value.id) throw new Unreachable("somebody else answered");
      await store.remove(WAITING, key);
      this.failures.delete(value.id);
      Object.assign(this, { reachable: true, locked: false, wait: FIRST_WAIT });
      this.saved(value, reply);
    } catch (error) {
      if (error instanceof Refused && error.final) await this.setAside(store, key, value, error);
      else {
        await this.pause(value, error);
        sent = false;
      }
    }
    this.others.postMessage(this.reachable);
    await this.count();
    return sent;
  }

  /** An answer that our server refuses with its reason is kept and shown, and lets the others pass. */
  async setAside(store, key, answer, error) {
    await this.store.add(REFUSED, { answer, why: error.message });
    await store.remove(WAITING, key);
    this.failures.delete(answer.id);
  }

  /** Wait before the next try, longer each time. A page without its key, or a server whose disk is full, is not offline. */
  async pause(answer, error) {
    const answered = error instanceof Refused;
    this.locked = answered && [401, 403, 409].includes(error.status);
    this.reachable = answered;
    if (answered && !this.locked) {
      const { times = 0 } = this.failures.get(answer.id) ?? {};
      this.failures.set(answer.id, { times: times + 1, why: error.message });
    }
    this.others.postMessage(this.reachable);
    this.tell();
    await new Promise((resolve) => {
      this.hurry = () => { this.wait = FIRST_WAIT; resolve(); };
      setTimeout(resolve, this.wait * (0.75 + Math.random() / 2));
    });
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }

  /** Try again at once. */
  hurry() {}
}
