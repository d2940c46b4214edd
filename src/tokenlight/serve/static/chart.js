// A line chart in SVG, with a cross-hair that is moved by pointer and arrow keys.
import { svg } from "./dom.js";

const HEIGHT = 280;
const TOP = 14;
const BOTTOM = 40;
const LEFT = 60;
const LABELS = 128; // width of direct labels
const APART = 14; // minimal distance of direct labels
const NARROW = 520; // below this width there are no direct labels; the table is the legend

/** `lines`: {name, title, style, shares, probabilities}. `onPlace` gets the index of the cross-hair, and whether a key moved it. */
export function drawChart(container, lines, axis, onPlace) {
  const width = Math.max(280, container.clientWidth);
  const right = width < NARROW ? 24 : LABELS;
  const values = lines.flatMap((line) => line.probabilities);
  const most = Math.max(1e-9, ...values);
  const high = most > 0.5 ? 1 : niceTop(most);
  const low = Math.min(0, ...values);
  const furthest = Math.max(1e-9, ...lines.flatMap((line) => line.shares));
  const x = (share) => LEFT + (share / furthest) * (width - LEFT - right);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
  const name = `${axis.vertical} over ${axis.horizontal}: ${lines.map((line) => line.title).join(", ")}`;
  const picture = svg("svg", { width, height: HEIGHT, class: "chart", role: "img", tabindex: 0, "aria-label": name });
  picture.append(...gridLines(low, high, y, width - right), ...marks(furthest, x), ...axisNames(axis, width - right));
  for (const line of lines) picture.append(curve(line, x, y));
  if (right === LABELS) picture.append(...directLabels(lines, x, y));
  picture.append(crossHair(picture, lines, x, y, onPlace));
  container.replaceChildren(picture);
}

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value);
}

function gridLines(low, high, y, end) {
  return [0, 0.25, 0.5, 0.75, 1].flatMap((share) => {
    const value = low + share * (high - low);
    return [
      svg("line", { x1: LEFT, x2: end, y1: y(value), y2: y(value), class: share ? "grid" : "axis" }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, class: "end" }, high === 1 ? value.toFixed(2) : value.toPrecision(2)),
    ];
  });
}

function marks(furthest, x) {
  return [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const share = part * furthest;
    return svg("text", { x: x(share), y: HEIGHT - BOTTOM + 16, class: "mid" }, `${Math.round(share * 100)} %`);
  });
}

function axisNames(axis, end) {
  const middle = (TOP + HEIGHT - BOTTOM) / 2;
  return [
    svg("text", { x: (LEFT + end) / 2, y: HEIGHT - 6, class: "mid" }, axis.horizontal),
    svg("text", { transform: `translate(11 ${middle}) rotate(-90)`, class: "mid" }, axis.vertical),
  ];
}

function curve(line, x, y) {
  const points = line.shares.map((share, i) => `${x(share).toFixed(1)},${y(line.probabilities[i]).toFixed(1)}`);
  return svg("polyline", { points: points.join(" "), class: `curve ${line.style}`, "data-curve": line.name });
}

/** Labels at the right end of each line, moved apart if they would overlap. */
function directLabels(lines, x, y) {
  const labels = lines
    .map((line) => ({ line, x: x(line.shares.at(-1)) + 8, y: y(line.probabilities.at(-1)) + 4 }))
    .sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i += 1) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + APART);
  const over = (labels.at(-1)?.y ?? 0) - (HEIGHT - BOTTOM + 4);
  if (over > 0) {
    labels.at(-1).y -= over;
    for (let i = labels.length - 2; i >= 0; i -= 1) labels[i].y = Math.min(labels[i].y, labels[i + 1].y - APART);
  }
  return labels.map(({ line, ...position }) => svg("text", { ...position, class: `direct ${line.style}` }, line.title));
}

function crossHair(picture, lines, x, y, onPlace) {
  const group = svg("g", { class: "cross", visibility: "hidden" });
  const { shares } = lines[0];
  let index = 0;
  const move = (to, byKey = false) => {
    index = Math.max(0, Math.min(shares.length - 1, to));
    const at = x(shares[index]);
    const dot = (line) => ({ cx: at, cy: y(line.probabilities[index]), r: 3.5, class: `dot ${line.style}` });
    const dots = lines.map((line) => svg("circle", dot(line)));
    group.setAttribute("visibility", "visible");
    group.replaceChildren(svg("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM, class: "axis" }), ...dots);
    onPlace(index, byKey);
  };
  const leave = () => {
    group.setAttribute("visibility", "hidden");
    onPlace(null);
  };
  picture.addEventListener("pointermove", (event) => {
    const pointed = event.clientX - picture.getBoundingClientRect().left;
    const nearest = shares.map((share, i) => [Math.abs(x(share) - pointed), i]).sort((a, b) => a[0] - b[0]);
    move(nearest[0][1]);
  });
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("focus", () => move(index));
  picture.addEventListener("blur", leave);
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    move(index + step, true);
  });
  return group;
}
