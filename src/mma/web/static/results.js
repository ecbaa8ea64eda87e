/** Results: is it good enough, what to do next, and why. Everything comes from the project's own status. */

import { announce, draw, goalBar, h, nameOf, number, percent, plural, printable, sentence, show } from "./dom.js";
import { get, imageAddress, post } from "./api.js";
import { ask, askPhoto } from "./dialogs.js";
import { by, newAnswer, state } from "./state.js";

const EXPORT = 600_000; // milliseconds

const share = (found) => (found ? `${Math.round(100 * found.value)} %` : "–");
const range = (found) => (found ? `(${Math.round(100 * found.low)}–${Math.round(100 * found.high)})` : "");

/** A button that asks the server for something and says what became of it. It is made once, so that its words outlive news. */
class Action {
  words = h("span", { role: "status", class: "soft" });

  /** `ask(say)` returns what became of it; `again` tells whether it may be asked for at once again. */
  constructor(title, ask, { again }) {
    Object.assign(this, { ask, again });
    this.button = h("button", { type: "button", class: "quiet", onclick: () => this.run() }, title);
  }

  get nodes() { return [this.button, this.words]; }

  say(words, busy) {
    this.words.textContent = words;
    this.button.disabled = busy;
  }

  async run() {
    this.say("", true);
    try {
      this.say(await this.ask((note) => this.say(note, true)), !this.again);
    } catch (error) {
      this.say(printable(error.message), false);
    }
  }
}

/** A training on the pixels themselves, when the person asks for it. */
async function askDeeper() {
  await post("/api/deep", { by: by() });
  return "Asked for. It begins when the worker is free; labeling goes on.";
}

/** The model as files for others; it stays in the project's folder. */
async function askExport(say) {
  say("Exporting, and comparing the file with the model. Labeling goes on.");
  const { folder, agreement } = await post("/api/export", { by: by() }, EXPORT);
  const same = agreement ? ` It agrees with the model on ${plural(agreement.images, "real image")}.` : "";
  return `Exported to ${printable(folder)}.${same}`;
}

/** What is good enough: a share of all photos, or of those of one class. It is made once, so that news do not take what is typed. */
class GoalForm {
  percent = h("input", { type: "text", inputmode: "decimal", class: "goal-percent", "aria-label": "Percent" });
  kind = h("select", { "aria-label": "Of which photos" });
  words = h("span", { role: "status", class: "soft" });

  constructor(changed) {
    this.changed = changed;
    this.node = h("form", { class: "goal-form", onsubmit: (event) => { event.preventDefault(); this.send(); } },
      h("span", {}, "Good enough is"), this.percent, h("span", {}, "%"), this.kind, h("button", { class: "quiet" }, "Set the goal"), this.words);
  }

  /** Show the goal, unless somebody is changing it. */
  show({ verdict, goal_class: of }) {
    if (this.node.contains(document.activeElement)) return;
    this.percent.value = verdict.percent;
    show(this.kind, h("option", { value: "" }, "of all photos right"), state.classes.map((each) => h("option", { value: each.id }, `of ${printable(each.name)} found`)));
    this.kind.value = of ?? "";
  }

  async send() {
    const target = Number(this.percent.value.replace(",", "."));
    try {
      if (!Number.isFinite(target)) throw new Error("Type a number, such as 90.");
      this.changed(await post("/api/goal", { by: by(), target, class_id: this.kind.value === "" ? null : Number(this.kind.value) }));
      this.words.textContent = "Stored.";
    } catch (error) {
      this.words.textContent = sentence(error.message);
    }
  }
}

export class ResultsView {
  title = "Results";
  node = h("section", { class: "answers-view", "aria-label": "Results" });
  deeper = new Action("Train deeper now", askDeeper, { again: false });
  exporter = new Action("Export the model", askExport, { again: true });
  goal = new GoalForm((status) => this.render(status));

  constructor({ measure, outbox, history }) {
    Object.assign(this, { outbox, history });
    this.measure = h("button", { type: "button", class: "quiet", onclick: measure }, "Measure now");
  }

  open() {
    this.follow();
    return this.draw();
  }

  /** React to news, but not to every step of a training: what somebody reads or presses stays where it is. */
  refresh() {
    if (this.training !== training()) this.follow();
    if (this.newest !== newest()) this.draw();
  }

  follow() {
    this.training = training();
    this.deeper.say(this.training ? "It is being trained." : "", this.training);
  }

  async draw() {
    this.newest = newest();
    try {
      this.render(await get("/api/results"));
    } catch (error) {
      show(this.node, h("h2", {}, "Results"), h("p", { class: "soft" }, printable(error.message)));
    }
  }

  render(status) {
    this.goal.show(status);
    const { report, stop } = status;
    show(this.node, h("h2", { class: "unseen" }, "Results"), this.verdictCard(status),
      stop && stop.rule !== "target" ? h("section", { class: "card stop-card" }, h("h3", {}, "It is time to stop"), h("p", {}, sentence(stop.why))) : null,
      report ? h("div", { class: "cards" }, card("What more labels bring", paragraphs(status.next)), this.modelCard(status), helpingCard(status), labelsCard(status)) : null, guessesCard(status),
      report?.curve.length > 1 ? h("section", { class: "card" }, h("h3", {}, "Accuracy over labels"), curve(report.curve, status.band), h("p", { class: "soft" }, status.band.length ? `${CURVE} The lighter part is a forecast.` : CURVE)) : null,
      classCard(status), report?.quality ? confusionCard(report, "the model", (found) => this.showImages(found)) : null,
      status.guesses.filter((each) => each.quality).map((each) => confusionCard({ ...each, judged: [] }, each.name)));
  }

  /** The photos of one cell of the matrix, the surest first. A click opens one, and a class corrects its label. */
  showImages({ label, said, count, images }) {
    const title = label === said ? ["Rightly called ", nameOf(said)] : [nameOf(label), " taken for ", nameOf(said)];
    const shown = images.length < count ? `${number(images.length)} of ${number(count)}, the surest first.` : "The surest first.";
    const classOf = (name) => state.classes.find((each) => each.name === name)?.id ?? null;
    const tile = (found) => {
      const words = found.now === undefined ? `${percent(found.confidence)} sure` : `now ${printable(state.classes.find((each) => each.id === found.now)?.name ?? "")}`;
      const open = async () => {
        const question = `Labeled ${printable(label)}. The model says ${printable(said)}, ${percent(found.confidence)} sure. What is it?`;
        const picked = await askPhoto({ image: found.image, name: `${label}, taken for ${said}` }, question, found.now ?? classOf(label));
        if (picked === null) return;
        this.correct(found.image, picked);
        node.replaceWith(tile({ ...found, now: picked }));
      };
      const node = h("li", { class: "tile" }, h("button", { type: "button", class: "past-tile", onclick: open },
        h("img", { src: imageAddress(found.image, "thumb"), alt: `${printable(label)}, called ${printable(said)}`, loading: "lazy", decoding: "async" }), h("span", { class: "reason" }, words)));
      return node;
    };
    return ask("Photos of a cell", (finish) => [
      h("h2", {}, title), h("p", { class: "soft" }, `${shown} A click opens one; there its label can be corrected, and the next model counts it. These photos measure the model: who looks at its mistakes alone makes it look better than it is, so look at some of its right answers, too.`),
      h("ul", { class: "tiles judged", "aria-label": "Photos" }, images.map(tile)),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: () => finish(null) }, "Close")),
    ]);
  }

  /** A label that is kept or corrected is an answer like any other. */
  correct(image, classId) {
    const answer = newAnswer({ images: [image], class_id: classId, shown: "review", source: "review" });
    this.outbox.add(answer);
    this.history.add(answer);
    announce(`Labeled ${printable(state.classes.find((each) => each.id === classId)?.name ?? "")}.`);
  }

  /** Is it good enough? Against the goal, with the one next thing to do. */
  verdictCard({ verdict, report }) {
    return h("section", { class: `card verdict ${verdict.answer.replace(" ", "-")}` },
      h("p", { class: "headline" }, verdict.headline), goalBar(verdict), h("p", {}, printable(verdict.why)),
      h("div", { class: "next-step" }, h("b", {}, "Next"), h("p", {}, sentence(verdict.next.words)), this.nextButton(verdict.next), this.measure),
      report?.quality?.balanced ? h("p", { class: "soft" }, `With each class counted the same: ${share(report.quality.balanced)} ${range(report.quality.balanced)}.`) : null,
      this.goal.node, verdict.assumed ? h("p", { class: "soft" }, `Nobody has set a goal yet; ${verdict.percent} % is assumed.`) : null);
  }

  nextButton({ button, class_id: id }) {
    const press = { label: ["Label", () => { location.hash = "label"; }], likely: ["Show likely ones", () => { location.hash = `grid/${id}`; }] };
    const [words, act] = press[button] ?? [];
    return words ? h("button", { type: "button", class: "main", onclick: act }, words) : null;
  }

  /** Which model serves, in one sentence with one switch; and what a deeper one takes. */
  modelCard({ report, working, deep_words: deep, use, has_deep: choosable }) {
    const other = report.serving.use === "deep" ? ["live", "Use the quick model"] : ["deep", "Use the deep model"];
    const [wanted, words] = use === "better" ? other : ["better", "Let the answers decide"];
    return card("Model", h("p", {}, `In use: ${printable(report.serving.why)}`),
      choosable ? h("p", {}, h("button", { type: "button", class: "quiet", onclick: async () => this.render(await post("/api/model", { by: by(), use: wanted })) }, words)) : null,
      use !== "better" && use !== report.serving.use ? h("p", { class: "soft" }, "You chose the other one: the next training takes it.") : null,
      working?.state === "failed" ? h("p", { class: "problem" }, printable(working.message)) : null,
      h("p", { class: "deeper" }, this.deeper.nodes, this.exporter.nodes), deep && !this.training ? h("p", { class: "soft" }, printable(deep)) : null);
  }

  onKey() { return false; }
}

/** Whether a deep training runs. */
const training = () => state.work.some((each) => each.name.startsWith("Training deeper"));

/** What the results are about: the labels, and where the newest model is. */
const newest = () => JSON.stringify([state.seq, state.model?.number, state.model?.kind, state.model?.state]);

const card = (title, ...rest) => h("section", { class: "card" }, h("h3", {}, title), ...rest);
const paragraphs = (all) => all.map((words) => h("p", {}, sentence(words)));

/** What second looks at labels showed, where it says something. */
const labelsCard = ({ looks_words: words }) => (words.length ? card("Can the labels be trusted?", paragraphs(words)) : null);

/** How far each source of guesses can be trusted. */
const guessesCard = ({ guesses }) => (guesses.length ? card("Guesses", paragraphs([...guesses.map((each) => each.words), "Guesses are no labels. A model starts from them as far as labels show that this helps."])) : null);

const helpingCard = ({ asking }) => (asking ? card("Is asking helping here?", paragraphs([asking])) : null);

const CURVE = "Every model is judged on the same photos, drawn at random, by models that never saw them.";

/** The learning curve with its intervals, and the forecast as a paler continuation. */
function curve(measured, forecast) {
  const [width, height, left, bottom] = [960, 260, 40, 28];
  const all = [...measured, ...forecast];
  const most = Math.max(...all.map((each) => each.labels));
  const low = Math.max(0, Math.floor(Math.min(...all.map((each) => each.low ?? each.accuracy)) / 10) * 10);
  const x = (labels) => left + (width - left - 8) * labels / most;
  const y = (accuracy) => 8 + (height - bottom - 8) * (100 - accuracy) / (100 - low);
  const place = (labels, accuracy) => `${x(labels).toFixed(1)},${y(accuracy).toFixed(1)}`;
  const line = (of) => of.map((each) => place(each.labels, each.accuracy)).join(" ");
  const band = (of) => [...of.map((each) => place(each.labels, each.high ?? each.accuracy)), ...[...of].reverse().map((each) => place(each.labels, each.low ?? each.accuracy))].join(" ");
  const ahead = forecast.length ? [measured.at(-1), ...forecast] : [];
  const ticks = [low, Math.round((low + 100) / 2), 100];
  const titles = [draw("text", { x: left + 6, y: 20 }, "accuracy, %"), draw("text", { x: width - 8, y: height - bottom - 6, class: "at-end" }, "labels")];
  const last = measured.at(-1);
  return draw("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Accuracy ${last.accuracy.toFixed(0)} % with ${last.labels} labels` },
    ticks.map((value) => [draw("line", { class: "rule", x1: left, x2: width - 8, y1: y(value), y2: y(value) }), draw("text", { x: left - 6, y: y(value) + 4, class: "at-end" }, `${value}`)]),
    [0, 0.5, 1].map((part) => draw("text", { x: x(part * most), y: height - 6, class: part ? "at-end" : "" }, `${Math.round(part * most)}`)),
    titles, draw("polygon", { class: "ahead", points: band(ahead) }), draw("polyline", { class: "ahead", points: line(ahead) }),
    draw("polygon", { class: "behind", points: band(measured) }), draw("polyline", { class: "behind", points: line(measured) }),
    measured.map((each) => draw("circle", { cx: x(each.labels), cy: y(each.accuracy), r: 3 })));
}

/** Each class: its labels, how common it is among photos drawn at random, and how well it is told from the others. */
function classCard({ per_class: counts, report, common }) {
  const quality = new Map((report?.quality?.classes ?? []).map((each) => [each.name, each]));
  const measured = (found) => h("td", { class: "count" }, share(found), " ", h("span", { class: "soft" }, range(found)));
  const rows = Object.entries(counts).map(([name, labels]) => h("tr", {}, h("th", { scope: "row" }, nameOf(name)), h("td", { class: "count" }, number(labels)),
    measured(common[name]), measured(quality.get(name)?.recall), measured(quality.get(name)?.precision)));
  const heads = ["Class", "Labels", "Share of all photos", "Recall", "Precision"];
  return card("Classes", h("p", { class: "soft" }, "Recall: the share of a class's photos that the model finds. Precision: the share of its answers that are right. In brackets: where the true share lies, 95 % sure."), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Classes" }, h("table", { class: "facts" },
    h("thead", {}, h("tr", {}, heads.map((words, place) => h("th", { scope: "col", class: place ? "count" : "" }, words)))), h("tbody", {}, rows))));
}

/** The confusion matrix of a report; `open` shows the photos of a cell. */
function confusionCard({ classes, quality, judged }, source, open) {
  if (!quality.confusion.flat().some((count) => count > 0)) return null;
  const who = printable(source), rows = quality.confusion.map((row, label) => {
    const total = row.reduce((sum, each) => sum + each, 0);
    return h("tr", {}, h("th", { scope: "row" }, nameOf(classes[label])), row.map((count, said) => {
      const images = judged.filter((each) => each.label === classes[label] && each.said === classes[said]);
      return cell({ label: classes[label], said: classes[said], count, images }, count / Math.max(1, total), open);
    }), h("td", { class: "count" }, number(total)));
  });
  return h("section", { class: "card" }, h("h3", {}, source === "the model" ? "Which class is taken for which" : `Guesses by ${who}: which class is taken for which`),
    judged.length ? h("p", { class: "soft" }, "A number opens its photos.") : null,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Which class is taken for which by ${who}` }, h("table", { class: "confusion" },
      h("thead", {}, h("tr", {}, h("td", {}), h("th", { class: "axis", colspan: classes.length, scope: "colgroup" }, source === "the model" ? "The model says" : `Guessed by ${who}`), h("td", {})),
        h("tr", {}, h("th", { class: "axis", scope: "col" }, "People say"), classes.map((name) => h("th", { scope: "col" }, nameOf(name))), h("th", { class: "axis", scope: "col" }, "All"))), h("tbody", {}, rows))));
}

function cell(found, share, open) {
  const words = `${number(found.count)} ${printable(found.label)} taken for ${printable(found.said)}`;
  const inside = found.images.length ? h("button", { type: "button", class: "open-cell", "aria-label": `${words}: show`, onclick: () => open(found) }, number(found.count)) : found.count ? number(found.count) : "·";
  const node = h("td", { class: `cell ${!found.count ? "none" : found.label === found.said ? "right" : "wrong"}` }, inside);
  node.style.setProperty("--share", `${Math.round(100 * share)}%`);
  return node;
}
