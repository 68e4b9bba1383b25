// The page asks the daemon once a second while it is looked at, and brings its parts up to date.

import { attribute, duration, el, keyed, set, shown, time } from "./text.js";
import { Store } from "./store.js";
import { showGPUs } from "./gpus.js";
import { Guests } from "./guests.js";
import { Shares } from "./shares.js";
import { Changes } from "./changes.js";
import { Usage } from "./usage.js";

const store = new Store();
const changes = new Changes(() => ask());
const shares = new Shares(store);
const usage = new Usage();
const guests = new Guests(store, {
  change: (guest) => changes.openGuest(guest),
  choose: (guest) => shares.choose(guest),
  chosen: () => shares.chosen,
});

const part = (id) => document.getElementById(id);

// show brings every part up to date.
function show() {
  const s = store.state;
  document.title = (s.healthy ? "" : "⚠ ") + "vgpud on " + s.host;
  set(part("host"), "on " + s.host);
  set(part("about"), (s.healthy ? "Healthy" : "Has problems") + " · up " + duration(s.uptime_seconds) + " · " + s.version +
    (s.role === "operator" ? " · you may change guests" : " · you may look, not change"));
  attribute(part("about"), "data-state", s.healthy ? "good" : "bad");
  part("problems").hidden = s.problems.length === 0;
  keyed(part("problems").querySelector("ul"), s.problems, (p) => p, () => el("li"), (e, p) => set(e, shown(p)));
  showGPUs(part("gpus"), s, changes);
  guests.show();
  shares.show();
}

function showEvents() {
  const newest = store.events.slice(-50).reverse();
  part("no-events").hidden = newest.length > 0;
  keyed(part("events"), newest, (e) => e.id,
    (e) => el("li", { className: e.severity },
      el("time", { dateTime: e.time, textContent: time(Date.parse(e.time)) }), " ",
      el("bdi", { className: "name", textContent: shown(e.vm ?? e.gpu ?? "") }), " ",
      el("span", { className: "message", textContent: shown(e.message) }),
      el("span", { className: "by", textContent: e.by ? " by " + shown(e.by) : "" })), () => {});
}

let asking = false;

// ask gets what is new since the last answer.
async function ask() {
  if (asking) return;
  asking = true;
  try {
    const response = await fetch(`/page/state?after=${store.next}`, { signal: AbortSignal.timeout(10000) });
    if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
    store.accept(await response.json());
    connected();
    show();
  } catch (err) {
    disconnected(err);
  } finally {
    asking = false;
  }
}

// The connection's state is announced when it changes, and only then.
function connected() {
  set(part("connection"), "Live");
  attribute(part("connection"), "data-state", "good");
  document.body.classList.remove("stale");
}

function disconnected(err) {
  set(part("connection"), "No answer from the daemon: " + err.message + ". What is shown is old.");
  attribute(part("connection"), "data-state", "bad");
  document.body.classList.add("stale");
}

async function askDay() {
  try {
    const response = await fetch("/page/day");
    if (!response.ok) return;
    store.acceptDay(await response.json());
    if (store.state !== null) shares.show();
  } catch {
    // the answer to /page/state says that there is no connection
  }
}

async function askEvents() {
  try {
    const response = await fetch("/v1/events?since=" + encodeURIComponent(store.lastEvent));
    if (!response.ok) return;
    store.acceptEvents(await response.json());
    showEvents();
  } catch {
    // the answer to /page/state says that there is no connection
  }
}

function every(milliseconds, f) {
  const run = () => { if (!document.hidden) f(); };
  setInterval(run, milliseconds);
  document.addEventListener("visibilitychange", run);
  f();
}

every(1000, ask);
every(2000, askEvents);
every(60000, askDay);
every(60000, () => usage.ask());
