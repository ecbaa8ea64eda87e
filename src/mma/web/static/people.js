/** People: who labels here, how far each is, how far they agree; and for the owner the invitations. */

import { announce, find, h, icon, nameOf, number, percent, plural, printable, show, uuid } from "./dom.js";
import { get, post } from "./api.js";
import { ask } from "./dialogs.js";
import { qrCode } from "./qr.js";
import { by, choose, state } from "./state.js";

const HERE = 20_000; // milliseconds between two signs of life
const isOwner = () => state.project.role !== "annotator";

/** Ask who sits here, until there is a name. It is remembered in this browser. */
export async function askWho(words = "Your name is kept with your labels. You are asked once in this browser.") {
  const field = h("input", { id: "my-name", type: "text", maxlength: 60, autocomplete: "name", required: true, dir: "auto", value: by() });
  let name = null;
  while (!name) {
    name = await ask("Who are you?", (finish) => h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); finish(field.value.trim()); } },
      h("h2", {}, "Who are you?"), h("p", { class: "hint" }, words), h("label", { for: "my-name" }, "Your name"), field,
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Start labeling"))));
  }
  choose("by", name);
}

/** Tell the server who sits here, and warn where another browser has the same name. */
export function stayHere() {
  const browser = localStorage.getItem("mma-browser") ?? uuid();
  localStorage.setItem("mma-browser", browser);
  const note = h("div", { class: "notice", role: "status", hidden: true });
  find("work").before(note);
  const tell = async () => {
    const { twice } = await post("/api/here", { by: by(), browser }).catch(() => ({ twice: false }));
    if (twice === !note.hidden) return;
    note.hidden = !twice;
    show(note, icon("alert"), h("span", {}, "Another browser labels as ", nameOf(by()), " too. Answers of two people under one name cannot be told apart."),
      isOwner() ? h("button", { type: "button", class: "quiet", onclick: () => askWho("Choose a name that nobody else uses here.").then(tell) }, "Change my name") : null);
  };
  setInterval(tell, HERE);
  tell();
}

export class PeopleView {
  title = "People";

  constructor() {
    this.table = h("div", { class: "people-table" });
    this.invited = h("div", {});
    this.link = h("div", { class: "invite-link", hidden: true, "aria-live": "polite" });
    this.field = h("input", { id: "invite-name", type: "text", maxlength: 60, autocomplete: "off", dir: "auto", placeholder: "Name" });
    const form = h("form", { class: "invite-form", onsubmit: (event) => { event.preventDefault(); this.invite(); } },
      h("label", { for: "invite-name" }, "Invite a person to label"), h("div", { class: "invite-row" }, this.field, h("button", { type: "submit", class: "main" }, "Make a link")));
    this.node = h("section", { class: "people-view", "aria-label": "People" },
      h("div", { class: "card" }, h("h2", {}, "Who labels here"), this.table),
      isOwner() ? h("div", { class: "card" }, h("h2", {}, "Invitations"), h("p", { class: "hint" }, "An invited person can label, measure and settle disagreements. Only you can export, change classes and settings."), form, this.link, this.invited) : null);
  }

  open() {
    this.fetch();
  }

  refresh(names) {
    if (names.has("counts")) this.fetch();
  }

  async fetch() {
    const { people } = await get("/api/people").catch(() => ({ people: [] }));
    const most = Math.max(1, ...people.map((each) => each.answers));
    const row = (each) => h("tr", {}, h("th", { scope: "row" }, nameOf(each.name), each.name === by() ? h("span", { class: "soft" }, " (you)") : null),
      h("td", {}, h("meter", { min: 0, max: most, value: each.answers, "aria-label": plural(each.answers, "answer") }), h("span", { class: "figure" }, number(each.answers))),
      h("td", {}, each.shared ? `${percent(each.same / each.shared)} of ${number(each.shared)}` : "–"),
      h("td", {}, each.reliability ? percent(each.reliability) : "–"), h("td", { class: "soft" }, new Date(each.last).toLocaleString([], { dateStyle: "short", timeStyle: "short" })));
    show(this.table, people.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Name", "Answers", "Agreement", "Reliability", "Last answer"].map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {}, people.map(row))) : h("p", { class: "hint" }, "Nobody has answered yet."),
    h("p", { class: "hint" }, "Agreement: how many answers about photos that several people answered are the label in force. Where people differ, the vote is weighed by reliability, estimated from all these photos."));
    if (isOwner()) this.list();
  }

  async list() {
    const { invitations } = await get("/api/invitations").catch(() => ({ invitations: [] }));
    const row = (each) => h("li", { class: each.revoked ? "revoked" : "" }, nameOf(each.name),
      h("span", { class: "soft" }, each.revoked ? "withdrawn" : `invited ${new Date(each.made).toLocaleDateString()}`),
      each.revoked ? null : h("button", { type: "button", class: "quiet", "aria-label": `Withdraw the invitation of ${printable(each.name)}`, onclick: () => this.revoke(each) }, "Withdraw"));
    show(this.invited, invitations.length ? h("ul", { class: "invitations" }, invitations.map(row)) : h("p", { class: "hint" }, "Nobody is invited yet."));
  }

  async invite() {
    const name = this.field.value.trim();
    if (!name) return;
    this.link.hidden = false;
    try {
      const { token } = await post("/api/invite", { do: "make", name, by: by() });
      const address = `${location.origin}/?token=${token}`;
      const alone = ["127.0.0.1", "localhost", "[::1]"].includes(location.hostname);
      const copy = h("button", { type: "button", class: "quiet", onclick: () => navigator.clipboard?.writeText(address).then(() => { copy.textContent = "Copied"; }) }, "Copy the link");
      show(this.link, qrCode(address, `QR code of the link for ${printable(name)}`), h("div", { class: "invite-words" },
        h("p", {}, "The link for ", h("strong", {}, nameOf(name)), ". It is shown once; whoever has it labels under this name."),
        h("code", { class: "address" }, address), navigator.clipboard ? copy : null,
        alone ? h("p", { class: "warn" }, "Only this computer reaches this address. For others stop, and start again with  mma start FOLDER --lan") : null));
      this.field.value = "";
      announce(`Invitation for ${printable(name)} made.`);
    } catch (error) {
      show(this.link, h("p", { class: "warn" }, printable(error.message)));
    }
    this.list();
  }

  async revoke(each) {
    await post("/api/invite", { do: "revoke", id: each.id, by: by() }).catch(() => {});
    this.link.hidden = true;
    announce(`Invitation of ${printable(each.name)} withdrawn.`);
    this.list();
  }

  onKey() {
    return false;
  }
}
