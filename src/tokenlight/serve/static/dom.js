// Creation of DOM elements. Strings are always inserted as text, never as HTML.

/** Create an element. Attributes: a function is a listener (onclick); false and null are left out. */
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

/** Debounce: run `call` once no further call was made for `milliseconds`. */
export function debounce(milliseconds, call) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}

/** Announce a text to screen readers; the page also shows it. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Scroll to an element below the visible area; without animation if reduced motion is preferred. */
export function bringIntoView(element) {
  if (element.getBoundingClientRect().top < innerHeight / 2) return;
  const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  element.scrollIntoView({ behavior: reduced ? "instant" : "smooth", block: "start" });
}

/** Whether a key event is Ctrl + Enter, or Cmd + Enter on a Mac. */
export function isSend(event) {
  return event.key === "Enter" && (event.ctrlKey || event.metaKey);
}

export function percent(share) {
  const digits = share > 0.999 || share < 0.001 ? 2 : 1;
  return `${(100 * share).toFixed(digits)} %`;
}

/** Set the options of a select, only if they changed; the chosen option is kept if it still exists. */
export function fillSelect(select, entries, chosen = select.value) {
  const key = JSON.stringify(entries);
  const options = () => entries.map(([value, label]) => el("option", { value }, label));
  if (select.dataset.entries !== key) select.replaceChildren(...options());
  select.dataset.entries = key;
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
}
