// Text and elements. Whatever comes from guests becomes text nodes, never markup.

// shown makes characters visible that would change the order of the text around them, or that
// nobody sees: control characters, marks of direction, and characters without width.
export function shown(name) {
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu,
    (c) => "⟨" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩");
}

// el returns an element with properties, attributes (those with a dash, and role) and children.
export function el(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") e.setAttribute(name, value);
    else e[name] = value;
  }
  e.append(...children);
  return e;
}

// set changes an element's text where it differs: a change costs a layout.
export function set(e, text) {
  if (e.firstChild === null || e.firstChild.nodeType !== Node.TEXT_NODE || e.childNodes.length !== 1) {
    e.textContent = text;
  } else if (e.firstChild.data !== text) {
    e.firstChild.data = text;
  }
}

// attribute changes an attribute where it differs.
export function attribute(e, name, value) {
  if (e.getAttribute(name) !== value) e.setAttribute(name, value);
}

// keyed makes the children of parent be those of items, in their order: make(item) makes a new one
// and update(child, item) brings one up to date. Children that stay in place are not moved, so that
// focus and selection stay too.
export function keyed(parent, items, key, make, update) {
  const have = new Map();
  for (const child of parent.children) have.set(child.dataset.key, child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let child = have.get(k);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = k;
    }
    have.delete(k);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of have.values()) child.remove();
}

// percent writes a ratio, or a dash if it is not known.
export function percent(ratio, digits = 0) {
  return ratio < 0 ? "–" : (100 * ratio).toFixed(digits) + " %";
}

// rate writes a number a second with about two digits.
export function rate(n) {
  if (n === 0) return "0";
  if (n < 0.095) return "<0.1";
  return n < 9.95 ? n.toFixed(1) : count(Math.round(n));
}

const grouped = new Intl.NumberFormat("en", { useGrouping: true });

// count writes a whole number with thin spaces between thousands.
export function count(n) {
  return grouped.format(n).replaceAll(",", "\u202f");
}

// bytes writes a number of bytes in binary units.
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1)) + " " + units[i];
}

// duration writes a number of seconds by its two greatest units.
export function duration(s) {
  if (s < 1e-3) return (1e6 * s).toFixed(0) + " µs";
  if (s < 1) return (1e3 * s).toFixed(s < 0.01 ? 1 : 0) + " ms";
  if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
  const m = Math.floor(s / 60);
  if (m < 60) return m + " min " + Math.floor(s % 60) + " s";
  const h = Math.floor(m / 60);
  return h < 48 ? h + " h " + (m % 60) + " min" : Math.floor(h / 24) + " days " + (h % 24) + " h";
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// time writes the time of day of Unix milliseconds.
export function time(ms) {
  return clock.format(ms);
}
