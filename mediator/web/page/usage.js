// Usage by day, from the daemon's record, and budgets. A section without anything to show is hidden.

import { attribute, count, el, keyed, set, shown } from "./text.js";
import { fill } from "./gpus.js";

const part = (id) => document.getElementById(id);
const hours = (seconds) => seconds / 3600;

// amount writes GPU time by a unit that suits it.
function amount(seconds) {
  if (seconds < 120) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 7200) return (seconds / 60).toFixed(1) + " min";
  return hours(seconds).toFixed(1) + " h";
}

// get returns an answer of the API, or null if it has none of the kind.
async function get(path) {
  try {
    const response = await fetch(path);
    return response.ok ? await response.json() : null;
  } catch {
    return null; // the answer to /page/state says that there is no connection
  }
}

export class Usage {
  plot = null;

  constructor() {
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(part("usage-chart"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  size() { return { width: Math.max(200, part("usage-chart").clientWidth), height: 180 }; }

  async ask() {
    const [usage, vms] = await Promise.all([get("/v1/usage?by=day&from=13d"), get("/v1/vms")]);
    this.days = (usage?.rows ?? []).filter((r) => r.day);
    part("usage").hidden = this.days.length === 0;
    if (this.days.length > 0) {
      set(part("usage-hint"), `GPU time by day of UTC since ${this.days[0].day}: ${amount(usage.total.gpu_seconds)} in all.`);
      this.draw();
      this.showTable();
    }
    this.showBudgets(vms ?? []);
  }

  draw() {
    if (!this.days?.length) return;
    this.plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--muted"), ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const most = Math.max(...this.days.map((d) => d.gpu_seconds));
    const [unit, scale] = most < 120 ? ["s", 1] : most < 7200 ? ["min", 60] : ["h", 3600];
    const n = this.days.length;
    this.plot = new uPlot({
      ...this.size(),
      legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, range: () => [-0.6, Math.max(n, 7) - 0.4] }, y: { range: (u, min, max) => [0, max * 1.1 || 1] } },
      series: [{}, { stroke: color("--accent"), fill: color("--accent"), paths: uPlot.paths.bars({ size: [0.6, 48] }), points: { show: false } }],
      axes: [
        { ...axis, size: 30, grid: { show: false }, splits: () => this.days.map((_, i) => i), values: (u, at) => at.map((i) => (n < 8 || i % 2 === 0 ? this.days[i]?.day.slice(5) ?? "" : "")) },
        { ...axis, grid: { stroke: color("--line"), width: 1 }, size: 60, values: (u, at) => at.map((v) => +v.toFixed(2) + " " + unit) },
      ],
    }, [this.days.map((_, i) => i), this.days.map((d) => d.gpu_seconds / scale)], part("usage-chart"));
  }

  showTable() {
    const table = part("usage-details").querySelector("table");
    const heads = ["Day", "GPU time", "Kernels", "Evictions", "Suspended"];
    keyed(table.tHead, [heads], () => "heads", (h) => el("tr", {}, ...h.map((text) => el("th", { scope: "col", textContent: text }))), () => {});
    keyed(table.tBodies[0], this.days, (d) => d.day,
      () => el("tr", {}, el("th", { scope: "row" }), el("td"), el("td"), el("td"), el("td")),
      (e, d) => [d.day, amount(d.gpu_seconds), count(d.kernels), count(d.evictions), amount(d.suspended_seconds)].forEach((text, i) => set(e.cells[i], text)));
  }

  // showBudgets shows guests' budgets, and owners' once each.
  showBudgets(vms) {
    const all = new Map();
    for (const v of vms) {
      if (v.budget) all.set("guest/" + v.name, { who: v.name, kind: "guest", ...v.budget });
      if (v.owner_budget) all.set("owner/" + v.owner, { who: v.owner, kind: "owner", ...v.owner_budget });
    }
    part("budgets").hidden = all.size === 0;
    keyed(part("budgets").querySelector("ul"), [...all], ([key]) => key,
      () => el("li", {}, el("bdi", { className: "name" }), " ", el("span", { className: "numbers" }),
        el("div", { className: "meter", role: "img" }, el("span", { className: "fill" }), el("span", { className: "mark" })),
        el("span", { className: "sub" })),
      (e, [, b]) => {
        const { soft_nanos: soft = 0, hard_nanos: hard = 0, period, at_hard: atHard } = b.budget;
        const used = b.used_nanos / 1e9;
        const limit = (hard || soft) / 1e9;
        const beyond = hard > 0 && b.used_nanos >= hard ? "bad" : soft > 0 && b.used_nanos >= soft ? "warn" : "good";
        set(e.querySelector("bdi"), shown(b.who));
        set(e.querySelector(".numbers"), `${b.kind} · ${amount(used)} of ${amount(limit)} a ${period}`);
        const meter = e.querySelector(".meter");
        attribute(meter, "aria-label", `used ${Math.round(100 * used / limit)} % of its budget`);
        attribute(meter, "data-state", beyond);
        fill(meter.firstChild, used / limit);
        const mark = meter.lastChild;
        mark.hidden = !(soft > 0 && hard > 0);
        const left = (100 * soft / (hard || 1)).toFixed(1) + "%";
        if (mark.style.left !== left) mark.style.left = left;
        const word = { bad: atHard === "throttle" ? "gets what others leave" : "held", warn: "above its soft limit", good: "within its budget" }[beyond];
        set(e.querySelector(".sub"), `${word}, until ${new Date(b.ends).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}`);
      });
  }
}
