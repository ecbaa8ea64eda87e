/** The start of the page: read the state, open the views, hand keys to the one that is open. */

import { find, h, icon, nameOf, show } from "./dom.js";
import { aim, get, Refused } from "./api.js";
import { Outbox } from "./outbox.js";
import { Queue } from "./queue.js";
import { History } from "./history.js";
import { LabelView } from "./label.js";
import { GridView } from "./grid.js";
import { BrowseView } from "./browse.js";
import { TryView } from "./try.js";
import { FindView, RestView } from "./promises.js";
import { SetupView } from "./setup.js";
import { ResultsView } from "./results.js";
import { ReviewView } from "./review.js";
import { askWho, PeopleView, stayHere } from "./people.js";
import { Pace, showPanel, showWork } from "./panel.js";
import { askMeasure, showSettings, showUnsaved } from "./dialogs.js";
import { applyTheme, by, listen, RETRY, showSaved, state, update, watch } from "./state.js";

class Page {
  pace = new Pace();

  async start() {
    applyTheme();
    const news = await this.firstState();
    aim(news.project.id);
    update(news);
    this.outbox = new Outbox(news.project.id, { changed: (outbox) => update({ outbox }), saved: (answer, reply) => this.saved(reply) });
    await this.outbox.open();
    this.build();
    watch((names) => this.react(names));
    listen(news.project.id);
    addEventListener("keydown", (event) => this.onKey(event));
    if (!by()) await askWho();
    stayHere();
    await this.history.open().catch(() => {});
    this.turnTo(location.hash.slice(1) || (state.classes.length < 2 ? "classes" : "label"));
    addEventListener("hashchange", () => this.turnTo(location.hash.slice(1)));
    addEventListener("beforeunload", (event) => { if (this.outbox.waiting) event.preventDefault(); });
    setInterval(() => showPanel(find("panel"), this.pace, () => this.measure()), 10_000);
  }

  /** Wait for the server as long as it takes. */
  async firstState() {
    for (;;) {
      try {
        return await get("/api/state");
      } catch (error) {
        const words = error instanceof Refused ? error.message : "The server does not answer. Trying again.";
        show(find("view"), h("p", { class: "loading" }, words));
        await new Promise((resolve) => setTimeout(resolve, RETRY));
      }
    }
  }

  build() {
    const paced = (kind, count = 1) => { if (kind === "label") this.pace.add(count); };
    const { outbox } = this;
    this.history = new History({ outbox, correct: (entry) => this.correct(entry) });
    this.queue = new Queue(outbox, () => this.views.label.refresh(new Set(["queue"])));
    const shared = { outbox, paced, history: this.history, queue: this.queue };
    this.views = {
      label: new LabelView(shared),
      grid: new GridView(shared),
      browse: new BrowseView(shared),
      find: new FindView(shared),
      rest: new RestView(shared),
      review: new ReviewView({ correct: (entry) => this.correct(entry), outbox, history: this.history }),
      results: new ResultsView({ measure: () => this.measure(), outbox, history: this.history }),
      try: new TryView(),
      classes: new SetupView({ begin: () => { location.hash = ["soon", "ready"].includes(state.names.state) && !state.model ? "grid" : "label"; } }),
    };
    this.views.people = new PeopleView();
    if (state.project.role === "annotator") {
      for (const name of Object.keys(this.views)) if (!["label", "grid", "review", "people"].includes(name)) delete this.views[name];
    }
    document.body.dataset.role = state.project.role;
    document.title = `${state.project.name} – mma`;
    show(find("brand"), h("img", { src: "/static/icon.svg", alt: "" }), nameOf(state.project.name));
    show(find("settings"), icon("gear"));
    find("settings").addEventListener("click", () => showSettings());
    find("saved").addEventListener("click", () => { if (state.outbox.problem || state.outbox.refused) showUnsaved(outbox); });
    showSaved();
    showPanel(find("panel"), this.pace, () => this.measure());
    showWork(find("work"));
  }

  /** Open a view; `grid/3` opens the grid of class 3. */
  turnTo(address) {
    const [name, of] = address.split("/");
    const wanted = name in this.views ? name : "label";
    if (this.current === this.views[wanted]) return;
    this.current = this.views[wanted];
    if (of !== undefined && wanted === "grid") this.current.of = Number(of);
    show(find("tabs"), Object.entries(this.views).map(([key, view]) =>
      h("a", { class: "tab", href: `#${key}`, "aria-current": key === wanted ? "page" : null }, view.title)));
    find("tabs").querySelector("[aria-current]").scrollIntoView({ inline: "center", block: "nearest" });
    show(find("view"), this.current.node);
    document.body.dataset.view = wanted;
    this.current.open();
  }

  /** Photos drawn at random in a row: they come before all others. */
  measure() {
    return askMeasure(() => {
      this.queue.restart();
      location.hash = "label";
    });
  }

  /** One image is corrected alone; of a grid one chooses in the review. */
  correct(entry) {
    if (entry.images.length > 1) {
      this.views.review.of = entry.class_id;
      location.hash = "review";
      return;
    }
    location.hash = "label";
    this.turnTo("label");
    this.views.label.correct(entry);
  }

  saved(reply) {
    this.history?.extend();
    update({ counts: reply.counts, seq: reply.seq, reachable: true });
  }

  react(names) {
    const has = (...each) => each.some((name) => names.has(name));
    if (has("outbox", "reachable")) showSaved();
    if (has("counts", "model", "models", "classes", "budget", "goal")) showPanel(find("panel"), this.pace, () => this.measure());
    if (has("work")) showWork(find("work"));
    if (has("reachable") && state.reachable && this.wasAway) this.back();
    this.wasAway = !state.reachable;
    if (has("counts", "seq", "work")) this.queue.hear();
    if (has("choice:by")) this.changePerson();
    this.current?.refresh(names);
  }

  /** Somebody else sits here: show their answers, and ask them what is theirs to answer. */
  changePerson() {
    this.history.open().catch(() => {});
    this.queue.restart();
  }

  /** The server is back: send what waits, ask for what is missing. */
  back() {
    this.outbox.hurry();
    this.queue.fill();
    this.queue.retryPictures();
  }

  onKey(event) {
    if (event.repeat || event.isComposing || document.querySelector("dialog[open]") || !(event.target instanceof Element)) return;
    if (event.target.matches("input, textarea, select") && !event.altKey) return;
    if (event.key === "?") { showSettings(); event.preventDefault(); return; }
    const onControl = event.target.matches("button, a") && ["Enter", " "].includes(event.key);
    if (!onControl && this.current?.onKey(event) === true) event.preventDefault();
  }
}

new Page().start();
