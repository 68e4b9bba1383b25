// The table of guests.

import { attribute, bytes, count, el, keyed, percent, rate, set, shown } from "./text.js";
import { fill } from "./gpus.js";

const words = {
  lost: "Lost", silent: "Not answering", held: "Held back", working: "Working", waiting: "Waiting", idle: "Idle", ready: "Ready", detached: "No VM",
};
const order = Object.keys(words);
const tones = { lost: "bad", silent: "bad", held: "warn", working: "good", waiting: "warn" };

// The columns: their head, how they compare, and whether greater comes first.
const columns = [
  { id: "name", head: "Guest", compare: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) },
  { id: "state", head: "State", compare: (a, b) => order.indexOf(a.state) - order.indexOf(b.state) },
  { id: "share", head: "Share", compare: (a, b) => b.share - a.share },
  { id: "terms", head: "Terms", compare: (a, b) => b.weight - a.weight },
  { id: "kernels", head: "Kernels", compare: (a, b) => b.kernels_per_second - a.kernels_per_second },
  { id: "evictions", head: "Evicted", compare: (a, b) => b.evictions - a.evictions },
  { id: "errors", head: "Errors", compare: (a, b) => b.errors - a.errors },
  { id: "actions", head: "" },
];

export class Guests {
  sort = "name";
  reverse = false;
  filter = "";

  constructor(store, { change, choose, chosen }) {
    Object.assign(this, { store, change, choose, chosen });
    this.table = document.getElementById("guest-table");
    const row = el("tr", { role: "row" });
    for (const c of columns) {
      const head = el("th", { scope: "col", role: "columnheader", className: c.id });
      if (c.compare) head.append(el("button", { type: "button", textContent: c.head, onclick: () => this.sortBy(c.id) }));
      else head.append(el("span", { className: "hidden", textContent: "Actions" }));
      row.append(head);
    }
    this.table.tHead.append(row);
    const find = document.getElementById("filter");
    find.addEventListener("input", () => { this.filter = find.value.toLowerCase(); this.show(); });
  }

  sortBy(id) {
    this.reverse = this.sort === id && !this.reverse;
    this.sort = id;
    this.show();
  }

  show() {
    const state = this.store.state;
    if (state === null) return;
    columns.forEach((c, i) => {
      const head = this.table.tHead.rows[0].cells[i];
      if (c.compare) attribute(head, "aria-sort", this.sort !== c.id ? "none" : this.reverse ? "descending" : "ascending");
    });
    const { compare } = columns.find((c) => c.id === this.sort);
    const list = state.guests.filter((g) => this.matches(g)).sort((a, b) => compare(a, b) || columns[0].compare(a, b));
    if (this.reverse) list.reverse();
    const operator = state.role === "operator";
    this.table.classList.toggle("viewer", !operator);
    keyed(this.table.tBodies[0], list, (g) => g.name, () => this.make(), (row, g) => this.update(row, g, operator, state.gpus.length > 1));
    const none = document.getElementById("no-guests");
    none.hidden = list.length > 0;
    this.table.hidden = list.length === 0;
    set(none, this.filter === "" ? "There are no guests. `vgpuctl create vm` or a domain's definition makes one." : "No guest's name or state has that.");
  }

  matches(g) {
    return this.filter === "" || [g.name, g.domain ?? "", g.owner ?? "", g.gpu, words[g.state], g.reason].some((s) => s.toLowerCase().includes(this.filter));
  }

  make() {
    const cell = (id, ...children) => el("td", { className: id, role: "cell" }, ...children);
    const name = el("button", { type: "button", className: "link" }, el("bdi"));
    return el("tr", { role: "row" },
      el("th", { scope: "row", role: "rowheader", className: "name" }, name, el("span", { className: "sub" }, el("bdi"))),
      cell("state", el("span", { className: "word" }), el("span", { className: "sub" })),
      cell("share",
        el("div", { className: "meter", role: "img" }, el("span", { className: "fill" }), el("span", { className: "mark" })),
        el("span", { className: "numbers" }, el("b"), " ", el("span", { className: "of" }))),
      cell("terms", el("span"), el("span", { className: "sub" })),
      cell("kernels", el("span"), el("span", { className: "sub" })),
      cell("evictions", el("span"), el("span", { className: "sub" })),
      cell("errors", el("span")),
      cell("actions", el("button", { type: "button", className: "quiet", textContent: "Change…" })));
  }

  update(row, g, operator, severalGPUs) {
    const [name, state, share, terms, kernels, evictions, errors, actions] = row.cells;
    set(name.querySelector("button bdi"), shown(g.name));
    attribute(name.firstChild, "aria-pressed", String(this.chosen() === g.name));
    name.firstChild.onclick = () => { this.choose(g); this.show(); };
    const sub = [];
    if (g.domain && g.domain !== g.name) sub.push(shown(g.domain));
    if (g.owner) sub.push("of " + shown(g.owner));
    if (severalGPUs) sub.push(shown(g.gpu));
    set(name.querySelector(".sub bdi"), sub.join(" · "));

    set(state.firstChild, words[g.state] ?? g.state);
    attribute(state.firstChild, "data-state", tones[g.state] ?? "calm");
    set(state.lastChild, shown(g.reason));

    const meter = share.firstChild;
    fill(meter.firstChild, g.share);
    const left = (100 * g.entitled).toFixed(1) + "%";
    if (meter.lastChild.style.left !== left) meter.lastChild.style.left = left;
    meter.lastChild.hidden = g.entitled <= 0;
    attribute(meter, "aria-label", `used ${percent(g.share)}, entitled to ${percent(g.entitled)}`);
    attribute(meter, "data-state", g.state === "held" ? "warn" : "good");
    set(share.querySelector("b"), percent(g.share, 1));
    set(share.querySelector(".of"), "of " + percent(g.entitled, 1));

    set(terms.firstChild, "weight " + String(+g.weight.toPrecision(4)));
    const limits = [];
    if (g.cap > 0) limits.push("cap " + percent(g.cap));
    if (g.guarantee > 0) limits.push("at least " + percent(g.guarantee));
    if (g.priority_ceiling > 0) limits.push("priority " + g.priority_ceiling);
    if (g.latency_nanos > 0) limits.push(`latency ${g.latency_nanos / 1e3} µs`);
    if (g.memory_limit_bytes > 0) limits.push(`${bytes(g.memory_used_bytes)} of ${bytes(g.memory_limit_bytes)}`);
    else if (g.memory_used_bytes > 0) limits.push(bytes(g.memory_used_bytes));
    set(terms.lastChild, limits.join(", "));

    set(kernels.firstChild, rate(g.kernels_per_second) + " /s");
    set(kernels.lastChild, count(g.kernels));
    set(evictions.firstChild, count(g.evictions));
    set(evictions.lastChild, g.evictions_per_second > 0 ? rate(g.evictions_per_second) + " /s" : "");
    set(errors.firstChild, count(g.errors));
    attribute(errors.firstChild, "data-state", g.errors > 0 ? "bad" : "calm");

    const change = actions.firstChild;
    change.hidden = !operator;
    attribute(change, "aria-label", "Change the terms of " + shown(g.name));
    change.onclick = () => this.change(g);
  }
}
