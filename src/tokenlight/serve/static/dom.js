// Making elements. Text only ever enters as text.

/** `attributes`: a function listens to the event of its name (onclick); false and null leave an attribute out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

/** A call that waits until no other has come for `milliseconds`. */
export function later(milliseconds, call) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}

/** Said to screen readers, and never the only place where it stands. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Scroll to an element that lies below what is seen; at once for those who want no motion. */
export function bringIntoView(element) {
  if (element.getBoundingClientRect().top < innerHeight / 2) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  element.scrollIntoView({ behavior: calm ? "instant" : "smooth", block: "start" });
}

/** Ctrl + Enter, or its like on a Mac. */
export function isSend(event) {
  return event.key === "Enter" && (event.ctrlKey || event.metaKey);
}

export function percent(share) {
  const digits = share > 0.999 || share < 0.001 ? 2 : 1;
  return `${(100 * share).toFixed(digits)} %`;
}

/** Options of a select, made anew only where they are others; the chosen one is kept where it still exists. */
export function fillSelect(select, entries, chosen = select.value) {
  const key = JSON.stringify(entries);
  const options = () => entries.map(([value, label]) => el("option", { value }, label));
  if (select.dataset.entries !== key) select.replaceChildren(...options());
  select.dataset.entries = key;
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
}
