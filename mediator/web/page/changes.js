// The dialog in which operators change a guest's terms or a GPU's policy. Nothing is sent before
// the operator has seen what will change and confirmed it.

import { el, set, shown } from "./text.js";

const part = (id) => document.getElementById(id);

// The fields of a guest: their name in the API, their name here if it is another, label, unit, and
// how a value is read, written and sent.
const percentField = (name, label, hint) => ({
  name, label, hint, unit: "%", write: (v) => String(+(100 * v).toFixed(4)), read: (t) => number(t, 0, 100) / 100,
});
const guestFields = [
  { name: "weight", label: "Weight", hint: "relative to the other guests' weights", write: String, read: (t) => number(t, 0.001, 1e6) },
  percentField("cap", "Cap", "never more of the GPU's time than this; 0 is no cap"),
  percentField("guarantee", "Guarantee", "at least this much while it has work; 0 is none"),
  {
    name: "kernel_time_limit_nanos", from: "kernel_time_limit_seconds", label: "Kernel time limit", unit: "s", hint: "GPU time after which a kernel is ended; 0 is none",
    write: (v) => String(v), read: (t) => number(t, 0, 86400), send: (v) => (v === 0 ? -1 : Math.round(v * 1e9)),
  },
  {
    name: "memory_limit_bytes", label: "Memory limit", unit: "MiB", hint: "GPU memory that it may use; 0 is no limit",
    write: (v) => String(v / 2 ** 20), read: (t) => Math.round(number(t, 0, 2 ** 30) * 2 ** 20),
  },
  { name: "priority_ceiling", label: "Priority ceiling", hint: "the highest priority of its launches, 0 to 15", write: String, read: (t) => whole(t, 0, 15) },
  {
    name: "latency_nanos", label: "Latency", unit: "µs", hint: "within this time kernels of lower priority should leave the GPU for its own; 0 is the default",
    write: (v) => String(v / 1e3), read: (t) => Math.round(number(t, 0, 1e6) * 1e3),
  },
];

function number(text, least, most) {
  const v = Number(text.trim().replace(",", "."));
  if (text.trim() === "" || !Number.isFinite(v) || v < least || v > most) throw new Error(`“${text}”: want a number from ${least} to ${most}`);
  return v;
}

function whole(text, least, most) {
  const v = number(text, least, most);
  if (!Number.isInteger(v)) throw new Error(`“${text}”: want a whole number`);
  return v;
}

export class Changes {
  constructor(done) {
    this.done = done;
    this.dialog = part("change");
    part("change-cancel").addEventListener("click", () => this.cancel());
    this.dialog.addEventListener("cancel", (e) => { if (this.update) { e.preventDefault(); this.edit(); } });
    this.dialog.querySelector("form").addEventListener("submit", (e) => { e.preventDefault(); this.next(); });
  }

  openGuest(guest) {
    this.open("Terms of " + shown(guest.name), "/v1/vms/" + encodeURIComponent(guest.name), guest, guestFields);
  }

  openGPU(gpu, policies) {
    this.open("Policy of " + shown(gpu.name), "/v1/gpus/" + encodeURIComponent(gpu.name), gpu,
      [{ name: "policy", label: "Policy", hint: "how guests share the GPU, at once", choices: policies, write: String, read: String }]);
  }

  open(title, path, object, fields) {
    Object.assign(this, { path, object, fields });
    set(part("change-title"), title);
    part("change-fields").replaceChildren(...fields.map((f) => {
      const id = "field-" + f.name;
      const input = f.choices
        ? el("select", { id, "aria-describedby": id + "-hint" }, ...f.choices.map((c) => el("option", { value: c, textContent: c })))
        : el("input", { id, type: "text", inputMode: "decimal", autocomplete: "off", "aria-describedby": id + "-hint" });
      input.value = f.write(object[f.from ?? f.name]);
      return el("div", { className: "field" },
        el("label", { htmlFor: id, textContent: f.label + (f.unit ? ", " + f.unit : "") }), input,
        el("p", { id: id + "-hint", className: "hint", textContent: f.hint }));
    }));
    this.edit();
    this.dialog.showModal();
    part("change-fields").querySelector("input, select").focus();
  }

  // edit shows the fields.
  edit() {
    this.update = null;
    part("change-fields").hidden = false;
    part("change-confirm").hidden = true;
    set(part("change-error"), "");
    set(part("change-next"), "Review…");
    set(part("change-cancel"), "Cancel");
  }

  cancel() {
    if (this.update) this.edit();
    else this.dialog.close();
  }

  next() {
    if (this.update) this.send();
    else this.review();
  }

  // review shows what would change.
  review() {
    const update = {};
    const lines = [];
    set(part("change-error"), "");
    for (const f of this.fields) {
      const input = part("field-" + f.name);
      input.removeAttribute("aria-invalid");
      let value;
      try {
        value = f.read(input.value);
      } catch (err) {
        input.setAttribute("aria-invalid", "true");
        input.focus();
        set(part("change-error"), f.label + ": " + err.message);
        return;
      }
      const was = f.write(this.object[f.from ?? f.name]);
      if (f.write(value) === was) continue;
      update[f.name] = f.send ? f.send(value) : value;
      const unit = f.unit ? " " + f.unit : "";
      lines.push(el("li", {}, f.label + ": ", el("s", { textContent: was + unit }), " → ", el("b", { textContent: f.write(value) + unit })));
    }
    if (lines.length === 0) {
      set(part("change-error"), "Nothing differs from what holds now.");
      return;
    }
    this.update = update;
    part("change-confirm").querySelector("ul").replaceChildren(...lines);
    part("change-fields").hidden = true;
    part("change-confirm").hidden = false;
    set(part("change-next"), "Change");
    set(part("change-cancel"), "Back");
    part("change-next").focus();
  }

  async send() {
    const button = part("change-next");
    button.disabled = true;
    try {
      const response = await fetch(this.path, {
        method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify(this.update), signal: AbortSignal.timeout(30000),
      });
      if (!response.ok) {
        const text = await response.text();
        let message = text;
        try { message = JSON.parse(text).error ?? text; } catch { /* the text says it */ }
        throw new Error(message.trim());
      }
      this.dialog.close();
      this.done();
    } catch (err) {
      const message = err.message;
      this.edit();
      set(part("change-error"), "Nothing was changed: " + message);
    } finally {
      button.disabled = false;
    }
  }
}
