/** Answers on their way to the server. They are stored in the browser first, so that no key press is lost. */

import { oneTab, post, Refused } from "./api.js";

const WAITING = "waiting";
const REFUSED = "refused";
const FIRST_WAIT = 400; // milliseconds
const LONGEST_WAIT = 10_000;

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
  constructor(waiting = []) { for (const value of waiting) this.add(WAITING, value); }
  async add(list, value) { this.lists[list].set((this.place += 1), value); }
  async first(list) { for (const [key, value] of this.lists[list]) return { key, value }; return null; }
  async remove(list, key) { this.lists[list].delete(key); }
  async count(list) { return this.lists[list].size; }
  async all(list) { return [...this.lists[list].values()]; }
  async clear(list) { this.lists[list].clear(); }
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

  async read(list, ask) { return done(ask((await this.begin(list, "readonly")).objectStore(list))); }
  add(list, value) { return this.change(list, (store) => store.add(value)); }
  remove(list, key) { return this.change(list, (store) => store.delete(key)); }
  clear(list) { return this.change(list, (store) => store.clear()); }
  count(list) { return this.read(list, (store) => store.count()); }
  all(list) { return this.read(list, (store) => store.getAll()); }

  async first(list) {
    const cursor = await this.read(list, (store) => store.openCursor());
    return cursor && { key: cursor.key, value: cursor.value };
  }
}

/** `changed` is called with {waiting, refused, reachable, locked, problem, kept}; `saved` with an answer and the server's reply. */
export class Outbox {
  constructor(project, { changed, saved }) {
    Object.assign(this, { project, changed, saved, coming: new Set(), stored: 0, refused: 0, changes: 0 });
    Object.assign(this, { reachable: true, locked: false, problem: "", wait: FIRST_WAIT, running: false });
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
    this.send();
  }

  /** The browser's disk is full or gone: go on in memory, and say so. Two answers may come here at once. */
  async useMemory(answer) {
    const before = this.store;
    const waiting = await before.all(WAITING).catch(() => []);
    if (before instanceof Disk && this.store === before) Object.assign(this, { store: new Memory(waiting), kept: false });
    await this.store.add(WAITING, answer);
    this.tell();
  }

  /** Everything that the server may not know yet, also what is still being written to the browser's disk. */
  async answers() {
    const coming = [...this.coming];
    return [...await this.store.all(WAITING), ...coming];
  }

  refusals() { return this.store.all(REFUSED); }

  async forgetRefusals() {
    await this.store.clear(REFUSED);
    this.others.postMessage(this.reachable);
    await this.count();
  }

  get waiting() { return this.coming.size + this.stored; }

  /** Say how things stand. */
  tell() {
    const { waiting, refused, reachable, locked, problem, kept } = this;
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
    this.tell();
  }

  /** Send everything in order. One tab sends at a time; the server knows each answer by its id. */
  async send() {
    if (this.running) return;
    this.running = true;
    try {
      await oneTab(`mma-outbox-${this.project}`, async () => { while (await this.sendFirst()); });
    } finally {
      this.running = false;
    }
    if (await this.store.first(WAITING)) this.send();
  }

  async sendFirst() {
    const { store } = this; // another one may take its place meanwhile, with other keys
    const first = await store.first(WAITING);
    if (!first) return false;
    try {
      const reply = await post("/api/answers", first.value);
      await store.remove(WAITING, first.key);
      Object.assign(this, { reachable: true, locked: false, problem: "", wait: FIRST_WAIT });
      this.saved(first.value, reply);
    } catch (error) {
      if (error instanceof Refused && error.final) await this.setAside(store, first, error);
      else await this.pause(error);
    }
    this.others.postMessage(this.reachable);
    await this.count();
    return true;
  }

  /** An answer the server will never take is kept and shown, and lets the others pass. */
  async setAside(store, first, error) {
    await this.store.add(REFUSED, { answer: first.value, why: error.message });
    await store.remove(WAITING, first.key);
  }

  /** Wait before the next try, longer each time. A page without its key, or a server whose disk is full, is not offline. */
  async pause(error) {
    const answered = error instanceof Refused;
    this.locked = answered && [401, 403, 409].includes(error.status);
    this.problem = answered && !this.locked ? error.message : "";
    this.reachable = answered;
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
