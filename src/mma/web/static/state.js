/** What the page knows, and who wants to hear of changes. */

import { h, show, find, icon, plural, uuid } from "./dom.js";
import { oneTab } from "./api.js";

export const RETRY = 1_500; // milliseconds until the server is asked again

export const state = {
  project: { id: "", name: "", by: "" },
  classes: [], // {id, name, key}
  merged: [], // {id, name, into}
  counts: { labeled: 0, cannot_tell: 0, excluded: 0, left: 0, per_class: {} },
  budget: null,
  goal: null, // {goal, percent, reached, assumed}
  models: [],
  model: null,
  work: [],
  seq: 0,
  outbox: { waiting: 0, refused: 0, reachable: true, locked: false, problem: "", kept: true },
  reachable: true,
};

const watchers = new Set();

/** Call `watcher` with the changed names after each change; returns a function that ends this. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** Change what the page knows. Watchers hear only of what is different: a button that is drawn anew under a pressed mouse loses the click. */
export function update(change) {
  const differs = (name) => JSON.stringify(state[name]) !== JSON.stringify(change[name]);
  const names = new Set(Object.keys(change).filter(differs));
  Object.assign(state, change);
  if (names.size) for (const watcher of [...watchers]) watcher(names);
}

/** Choices of this browser. */
const CHOICES = { suggestions: "hidden", theme: "auto", by: "" };

export function choice(name) {
  return localStorage.getItem(`mma-${name}`) ?? CHOICES[name];
}

export function choose(name, value) {
  localStorage.setItem(`mma-${name}`, value);
  update({ [`choice:${name}`]: value });
}

/** Another tab has changed who answers. */
addEventListener("storage", ({ key }) => { if (key === "mma-by") update({ "choice:by": choice("by") }); });

/** Who answers: a name of this browser, else the one the server proposes. */
export const by = () => (state.project.role === "annotator" ? state.project.by : choice("by") || state.project.by);

/** An answer as it is stored and sent. */
export const newAnswer = (values) => ({ id: uuid(), kind: "label", class_id: null, by: by(), seconds: null, shown: null, note: null, supersedes: null, source: "label", ...values });

/** Seconds since a moment of this page. */
export const secondsSince = (moment) => Math.round(performance.now() - moment) / 1000;

export const classById = (id) => state.classes.find((each) => each.id === id);

/** Light, dark, or as the system has it. */
export function applyTheme() {
  const theme = choice("theme");
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** The state of saving, in words and in shape. */
export function savedState() {
  const { waiting, refused, reachable, locked, problem, kept } = state.outbox;
  const labels = `${plural(waiting, "label")} waiting`;
  if (locked) return { shape: "stop", kind: "bad", words: `Locked: open the address in the terminal, ${labels}` };
  if (refused) return { shape: "stop", kind: "bad", words: `${plural(refused, "label")} refused` };
  if (problem) return { shape: "stop", kind: "bad", words: `The server cannot save, ${labels}` };
  if (!reachable || !state.reachable) return { shape: "alert", kind: "warn", words: waiting ? `Offline, ${labels}` : "Offline" };
  if (waiting) return { shape: "clock", kind: "warn", words: kept ? labels : `${labels}, keep this page open` };
  return { shape: "check", kind: "good", words: "All saved" };
}

export function showSaved() {
  const { shape, kind, words } = savedState();
  const node = find("saved");
  if (node.dataset.words === words) return;
  Object.assign(node.dataset, { words, kind });
  const more = state.outbox.refused || state.outbox.problem;
  show(node, icon(shape), more ? h("button", { type: "button", class: "link" }, words) : h("span", {}, words));
}

/** Hear news from the server, as server-sent events. One tab listens for all: a browser has few connections to a server. */
export function listen(project) {
  const channel = new BroadcastChannel(`mma-feed-${project}`);
  channel.onmessage = (event) => update(event.data);
  const lead = () => new Promise(() => connect((news) => { update(news); channel.postMessage(news); }));
  oneTab(`mma-feed-${project}`, lead);
}

function connect(tell) {
  const source = new EventSource("/api/events");
  source.onopen = () => tell({ reachable: true });
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    if (news.project === state.project.id) tell({ ...news, project: state.project, reachable: true });
  };
  source.onerror = () => {
    tell({ reachable: false });
    source.close();
    setTimeout(() => connect(tell), RETRY);
  };
}
