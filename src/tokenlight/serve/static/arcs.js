// The attention of one head as arcs between the tokens of a text.
import { el, svg } from "./dom.js";

const FAINTEST = 0.04; // weaker arcs are not drawn
const MOST = 600; // the most arcs that are drawn
const SPOKEN = 8; // arcs in the description for screen readers
const SIZE = 12; // font size in pixels
const GAP = 10;

/** Arcs above lead to earlier tokens, arcs below to later ones; a dot is attention of a token to itself. */
export function drawArcs(container, { tokens, attention }, title) {
  const places = lineUp(tokens);
  const width = places.at(-1).end + GAP;
  const arcs = strongest(attention);
  const reach = (side) => Math.max(0, ...arcs.filter(side).map(({ query, key }) => height(places, query, key)));
  const above = Math.max(12, reach(({ query, key }) => key < query));
  const below = Math.max(12, reach(({ query, key }) => key > query));
  const top = above + 4;
  const size = { width, height: top + SIZE * 2 + below };
  const picture = svg("svg", { ...size, class: "arcs", role: "img", "aria-label": title });
  picture.append(svg("desc", {}, described(arcs, tokens)));
  for (const arc of arcs) picture.append(arcShape(arc, places, top));
  tokens.forEach((token, i) => picture.append(tokenShape(token, i, places[i].middle, top + SIZE * 1.35, picture)));
  container.replaceChildren(picture, el("p", { class: "quiet" }, hint(arcs)));
}

/** The strongest arcs as text, for screen readers. */
function described(arcs, tokens) {
  const words = ({ query, key, weight }) => `${tokens[query]} to ${tokens[key]} ${Math.round(weight * 100)} %`;
  return `The strongest: ${arcs.slice(0, SPOKEN).map(words).join(", ")}`;
}

function hint(arcs) {
  const drawn = arcs.length === MOST ? `The ${MOST} strongest.` : `Attention below ${FAINTEST * 100} % is not drawn.`;
  return `Above: to earlier tokens. Below: to later ones. A dot: to itself. ${drawn}`;
}

function lineUp(tokens) {
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `${SIZE}px system-ui, sans-serif`;
  let end = 0;
  return tokens.map((token) => {
    const start = end + GAP;
    end = start + Math.max(6, ruler.measureText(token).width);
    return { start, end, middle: (start + end) / 2 };
  });
}

function strongest(attention) {
  const arcs = attention.flatMap((row, query) => row.map((weight, key) => ({ query, key, weight })));
  return arcs
    .filter(({ weight }) => weight >= FAINTEST)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, MOST);
}

function height(places, query, key) {
  return Math.min(90, 8 + Math.abs(places[query].middle - places[key].middle) * 0.35);
}

function arcShape({ query, key, weight }, places, top) {
  const label = svg("title", {}, `${(weight * 100).toFixed(0)} %`);
  const common = { opacity: Math.max(0.08, weight), "data-query": query };
  const [from, to] = [places[query].middle, places[key].middle];
  const dot = { ...common, cx: from, cy: top + SIZE * 2 - 1, r: 3, class: "arc-dot" };
  if (query === key) return svg("circle", dot, label);
  const back = key < query;
  const base = back ? top : top + SIZE * 2 - 4;
  const tip = back ? base - height(places, query, key) : base + height(places, query, key);
  const path = `M ${from} ${base} C ${from} ${tip}, ${to} ${tip}, ${to} ${base}`;
  return svg("path", { ...common, d: path, class: "arc", "stroke-width": 0.8 + 2.2 * weight }, label);
}

/** A token; hovering it shows only its arcs. */
function tokenShape(token, index, x, y, picture) {
  const narrow = (on) => () => {
    picture.classList.toggle("is-narrowed", on);
    for (const arc of picture.querySelectorAll("[data-query]")) {
      arc.classList.toggle("is-own", on && arc.dataset.query === String(index));
    }
  };
  return svg("text", { x, y, class: "arc-token", onpointerenter: narrow(true), onpointerleave: narrow(false) }, token);
}
