// What the daemon said last, and the histories. Points are ten-thousandths of the GPU's time.

const capacity = 600; // of the daemon's fine history

export class Store {
  state = null;
  fine = { times: [], tracks: new Map() };
  day = null;
  next = 0; // the sequence number of the next fine point
  events = []; // of the API, the oldest first

  // accept takes an answer of /page/state.
  accept(state) {
    const h = state.history;
    if (h.first !== this.next) this.fine = { times: [], tracks: new Map() }; // a gap, or another daemon
    append(this.fine, h);
    this.next = h.next;
    for (const list of ["gpus", "guests", "problems", "unconfined"]) state[list] ??= [];
    this.state = state;
  }

  // lastEvent returns the id of the newest event.
  get lastEvent() { return this.events.at(-1)?.id ?? ""; }

  // acceptEvents takes an answer of /v1/events, which is all of them after another daemon's start.
  acceptEvents(events) {
    const known = new Set(this.events.map((e) => e.id));
    if (events.some((e) => known.has(e.id))) this.events = [];
    this.events.push(...events);
    this.events.splice(0, Math.max(0, this.events.length - 200));
  }

  // acceptDay takes an answer of /page/day.
  acceptDay(span) {
    this.day = { times: [], tracks: new Map() };
    append(this.day, span);
  }
}

// append adds a span's points to a history.
function append(history, span) {
  const before = history.times.length;
  history.times.push(...span.times);
  const seen = new Set();
  for (const t of span.tracks) {
    const key = t.kind + "/" + t.gpu + "/" + t.name;
    seen.add(key);
    let track = history.tracks.get(key);
    if (track === undefined) {
      track = { kind: t.kind, gpu: t.gpu, name: t.name, share: [], entitled: [], held: [] };
      for (const s of ["share", "entitled", "held"]) track[s] = new Array(before).fill(null);
      history.tracks.set(key, track);
    }
    for (const s of ["share", "entitled", "held"]) {
      const points = t[s] ?? new Array(span.times.length).fill(-1);
      for (const p of points) track[s].push(p < 0 ? null : p / 100);
    }
  }
  for (const [key, track] of history.tracks) {
    if (!seen.has(key)) for (const s of ["share", "entitled", "held"]) track[s].push(...new Array(span.times.length).fill(null));
  }
  const limit = Math.max(capacity, span.times.length);
  const extra = history.times.length - limit;
  if (extra <= 0) return;
  history.times.splice(0, extra);
  for (const [key, track] of history.tracks) {
    for (const s of ["share", "entitled", "held"]) track[s].splice(0, extra);
    if (track.share.every((p) => p === null)) history.tracks.delete(key);
  }
}
