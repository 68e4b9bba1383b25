// The chart of shares over time: solid lines are what guests used, dashed ones what they were
// entitled to.

import { el, keyed, percent, set, shown, time } from "./text.js";

const most = 8; // as many lines as can be told apart

// windows are how many seconds the chart shows: as few as have room for all points, so that it does
// not stretch the first ones over its width.
const windows = [60, 120, 300, 600, 3600, 4 * 3600, 12 * 3600, 24 * 3600];
const windowOf = (seconds) => windows.find((w) => w >= Math.floor(seconds)) ?? seconds;

const part = (id) => document.getElementById(id);

export class Shares {
  chosen = null; // a guest's name
  span = "fine";
  plot = null;
  drawn = "";

  constructor(store) {
    this.store = store;
    this.box = part("chart");
    part("chart-gpu").addEventListener("change", () => { this.chosen = null; this.show(); });
    for (const r of document.querySelectorAll("input[name=span]")) {
      r.addEventListener("change", () => { this.span = r.value; this.show(); });
    }
    part("chart-table").addEventListener("toggle", () => this.show());
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.drawn = ""; this.show(); });
  }

  // choose shows one guest alone, or all again.
  choose(guest) {
    this.chosen = this.chosen === guest.name ? null : guest.name;
    part("chart-gpu").value = guest.gpu;
    this.show();
  }

  size() {
    return { width: Math.max(200, this.box.clientWidth), height: this.box.clientWidth < 500 ? 200 : 260 };
  }

  // lines returns the tracks to draw: the chosen guest, or those that used most lately.
  lines(history, gpu) {
    const recent = (t) => t.share.slice(-60).reduce((sum, p) => sum + (p ?? 0), 0);
    const all = [...history.tracks.values()].filter((t) => t.kind === "guest" && t.gpu === gpu);
    if (this.chosen !== null) return all.filter((t) => t.name === this.chosen);
    const used = all.map((t) => [recent(t), t]).sort((a, b) => b[0] - a[0] || (a[1].name < b[1].name ? -1 : 1)).slice(0, most);
    return used.map((u) => u[1]).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  show() {
    const { store } = this;
    if (store.state === null) return;
    const select = part("chart-gpu");
    keyed(select, store.state.gpus, (g) => g.name, (g) => el("option", { value: g.name, textContent: shown(g.name) }), () => {});
    const gpu = select.value;
    const history = this.span === "day" && store.day !== null ? store.day : store.fine;
    const lines = this.lines(history, gpu);
    const guests = store.state.guests.filter((g) => g.gpu === gpu).length;
    set(part("chart-hint"), this.chosen !== null
      ? `${shown(this.chosen)} alone: solid is what it used, dashed what it was entitled to. Its name in the table shows all again.`
      : guests > lines.length
        ? `The ${lines.length} of ${guests} guests that used most lately. Solid is used, dashed entitled. A guest's name in the table shows it alone.`
        : "Solid is what a guest used of the GPU's time, dashed what it was entitled to.");
    this.draw(history, lines);
    this.showLegend(lines);
    if (part("chart-table").open) this.showTable(history, lines);
  }

  draw(history, lines) {
    const data = [history.times.map((t) => t / 1000)];
    for (const t of lines) data.push(t.share, t.entitled);
    const shape = JSON.stringify([this.span, lines.map((t) => t.name)]);
    if (this.plot !== null && this.drawn === shape) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.drawn = shape;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const series = [{}];
    lines.forEach((t, i) => {
      const stroke = color(`--series-${i + 1}`);
      series.push({ label: t.name, stroke, width: 2, points: { show: false } });
      series.push({ label: t.name + ", entitled", stroke, width: 1.25, dash: [5, 4], points: { show: false } });
    });
    this.plot = new uPlot({
      ...this.size(), series,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { range: (u, min, max) => [max - windowOf(max - min), max] }, y: { range: (u, min, max) => [0, Math.min(100, Math.max(10, Math.ceil((max ?? 0) * 1.1 / 10) * 10))] } },
      axes: [
        { ...axis, size: 30, values: (u, ticks, axis, space, incr) => ticks.map((t) => time(1000 * t).slice(0, incr < 60 ? 8 : 5)), space: 80, incrs: [10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600] },
        { ...axis, values: (u, ticks) => ticks.map((v) => v + " %"), size: 52 },
      ],
      hooks: { setCursor: [(u) => this.point(u, lines)] },
    }, data, this.box);
  }

  // point shows the values at the cursor in the legend.
  point(plot, lines) {
    const i = plot.cursor.idx;
    this.at = i ?? null;
    this.showLegend(lines);
  }

  showLegend(lines) {
    const last = (points) => {
      if (this.at !== null && this.at !== undefined && points[this.at] !== undefined) return points[this.at];
      return points.at(-1);
    };
    const value = (points) => { const p = last(points); return p === null || p === undefined ? "–" : p.toFixed(1); };
    keyed(part("legend"), lines, (t) => t.name,
      () => el("li", {}, el("span", { className: "swatch" }), el("bdi"), " ", el("span", { className: "numbers" })),
      (e, t) => {
        const colour = `var(--series-${lines.indexOf(t) + 1})`;
        if (e.firstChild.style.backgroundColor !== colour) e.firstChild.style.backgroundColor = colour;
        set(e.querySelector("bdi"), shown(t.name));
        set(e.querySelector(".numbers"), `${value(t.share)} of ${value(t.entitled)} %`);
      });
  }

  // showTable writes means over a minute, or over an hour of a day.
  showTable(history, lines) {
    const table = part("chart-table").querySelector("table");
    keyed(table.tHead, [lines], (l) => l.map((t) => t.name).join("\n"),
      (l) => el("tr", {}, el("th", { scope: "col", textContent: "Until" }),
        ...l.map((t) => el("th", { scope: "col" }, el("bdi", { textContent: shown(t.name) })))), () => {});
    const step = 60;
    const rows = [];
    for (let end = history.times.length; end > 0 && rows.length < 24; end -= step) {
      const start = Math.max(0, end - step);
      const mean = (points) => {
        const known = points.slice(start, end).filter((p) => p !== null);
        return known.length === 0 ? -1 : known.reduce((sum, p) => sum + p, 0) / known.length / 100;
      };
      rows.push({ at: history.times[end - 1], cells: lines.map((t) => `${percent(mean(t.share), 1)} of ${percent(mean(t.entitled), 1)}`) });
    }
    keyed(table.tBodies[0], rows, (r) => String(rows.indexOf(r)) + "/" + r.cells.length,
      (r) => el("tr", {}, el("th", { scope: "row" }), ...r.cells.map(() => el("td"))),
      (e, r) => {
        set(e.cells[0], time(r.at));
        r.cells.forEach((text, i) => set(e.cells[i + 1], text));
      });
  }
}
