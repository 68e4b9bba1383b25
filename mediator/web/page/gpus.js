// The GPUs' cards.

import { attribute, bytes, count, duration, el, keyed, percent, rate, set, shown } from "./text.js";

export function showGPUs(list, state, changes) {
  keyed(list, state.gpus, (g) => g.name, make, (card, g) => update(card, g, state, changes));
}

function make() {
  return el("li", { className: "card" },
    el("div", { className: "title" },
      el("h3", {}, el("bdi")), el("span", { className: "state" })),
    el("p", { className: "model" }),
    el("div", { className: "meter", role: "img" }, el("span", { className: "fill" })),
    el("p", { className: "busy" }),
    el("dl"),
    el("p", { className: "problem" }),
    el("button", { type: "button", className: "quiet", hidden: true }));
}

function update(card, g, state, changes) {
  set(card.querySelector("bdi"), shown(g.name));
  const word = card.querySelector(".state");
  const kept = g.drained ? "drained" : g.draining ? "draining" : g.cordoned ? "cordoned" : "";
  const [text, tone] = !g.healthy ? ["failed", "bad"] : kept ? [kept, "warn"] : g.busy > 0.02 ? ["busy", "good"] : ["idle", "calm"];
  set(word, text);
  attribute(word, "data-state", tone);
  set(card.querySelector(".model"), shown(g.model) + (g.sms > 0 ? ` · ${g.sms} SMs` : "") + (g.memory_bytes > 0 ? ` · ${bytes(g.memory_bytes)}` : ""));
  const meter = card.querySelector(".meter");
  attribute(meter, "aria-label", `busy ${percent(g.busy)} of the time`);
  fill(meter.firstChild, g.busy);
  set(card.querySelector(".busy"), `busy ${percent(g.busy)} of the last 5 s`);
  const facts = [["Policy", g.policy], ["Guests", String(g.vms)], ["Switches", rate(g.switches_per_second) + " /s"]];
  if (g.evictions > 0) {
    facts.push(["Evictions", count(g.evictions)], ["Left in", duration(g.eviction_p50_seconds)], ["99 % in", duration(g.eviction_p99_seconds)]);
  }
  if (g.memory_used_bytes !== undefined) facts.push(["Memory", bytes(g.memory_used_bytes)]);
  if (g.temperature_celsius !== undefined) facts.push(["Temperature", g.temperature_celsius.toFixed(0) + " °C"]);
  if (g.power_watts !== undefined) facts.push(["Power", g.power_watts.toFixed(0) + (g.power_limit_watts ? " of " + g.power_limit_watts.toFixed(0) : "") + " W"]);
  facts.push(["Measured by", g.source]);
  keyed(card.querySelector("dl"), facts, (f) => f[0],
    (f) => el("div", {}, el("dt", { textContent: f[0] }), el("dd")), (e, f) => set(e.lastChild, shown(f[1])));
  const problem = card.querySelector(".problem");
  problem.hidden = !g.problem;
  set(problem, shown(g.problem ?? ""));
  const button = card.querySelector("button");
  button.hidden = state.role !== "operator";
  set(button, "Change policy…");
  attribute(button, "aria-label", "Change policy of " + shown(g.name));
  button.onclick = () => changes.openGPU(g, state.policies);
}

// fill sets how much of a bar is filled, without a layout.
export function fill(e, ratio) {
  const transform = `scaleX(${Math.max(0, Math.min(1, ratio)).toFixed(3)})`;
  if (e.style.transform !== transform) e.style.transform = transform;
}
