// The heatmaps as one SVG with plain attributes, for downloads; always in light colors.
import { svg } from "./dom.js";
import { ink, isBreak, shade, withFolds } from "./heatmap.js";

const WIDTH = 860;
const NAMES = 170; // width of the methods' names
const SIZE = 15;
const LINE = 26;
const PAD = 24;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const NOT_IN_XML = /[^\t\n\r\u0020-\ufffd]/g; // surrogate pairs are within this range
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/** An SVG element with the explanations of one text. */
export function pictureOf(explanations, titles, unit) {
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `${SIZE}px ${FONT}`;
  const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": FONT, "font-size": SIZE });
  picture.append(svg("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
  let top = PAD + SIZE;
  const [first] = explanations;
  picture.append(svg("text", { x: PAD, y: top, fill: "#57606a" }, headline(first)));
  top += LINE * 1.5;
  for (const explanation of explanations) {
    const title = titles[explanation.method] ?? explanation.method;
    picture.append(svg("text", { x: PAD, y: top, fill: "#57606a", "font-size": 13 }, title));
    const lines = layOut(partsOf(explanation, unit), ruler);
    for (const { part, x, y } of lines) picture.append(...shapes(part, PAD + NAMES + x, top + y * LINE));
    top += ((lines.at(-1)?.y ?? 0) + 1) * LINE + 10;
  }
  const height = top + PAD - LINE;
  const size = { width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}` };
  for (const [name, value] of Object.entries(size)) picture.setAttribute(name, value);
  return picture;
}

function headline(explanation) {
  const sure = explanation.probability === null ? "" : ` (p = ${explanation.probability.toFixed(3)})`;
  const foil = explanation.foil === null ? "" : ` rather than ${explanation.foil.trim()}`;
  return `the model says ${explanation.prediction.trim()}${sure}; explained: ${explanation.target.trim()}${foil}`;
}

/** Pieces of text with their strength; null: not colored. A fold is represented by its label. */
function partsOf(explanation, unit) {
  const byToken = unit === "token";
  const pieces = byToken ? explanation.token_pieces : explanation.pieces;
  const about = withFolds(explanation, byToken ? "token_pieces" : "pieces").map(({ from, label }) => {
    if (label) return { text: ` ${label} `, score: null };
    const piece = pieces[from];
    if (byToken ? !piece.tokens.length : piece.word === null) return { text: piece.text, score: null };
    if (!byToken) return { ...explanation.words[piece.word], text: piece.text };
    const score = piece.tokens.reduce((sum, token) => sum + explanation.scores[token], 0);
    return { text: piece.text, score, special: explanation.special[piece.tokens[0]] };
  });
  const scores = about.filter((part) => part.score !== null && !part.special && !isBreak(part)).map((part) => Math.abs(part.score));
  const largest = Math.max(0, ...scores) || 1;
  const strength = (part) => (part.score === null || part.special ? null : part.score / largest);
  return about.map((part) => ({ ...part, strength: strength(part) }));
}

/** Positions of all parts: x in pixels, y in lines. A part that does not fit begins a new line; a long one is split. */
function layOut(parts, ruler) {
  const room = WIDTH - NAMES - 2 * PAD;
  const placed = [];
  let [x, y] = [0, 0];
  for (const part of parts.flatMap((part) => split(part, room, ruler))) {
    const width = ruler.measureText(part.text).width;
    if (x > 0 && x + width > room) {
      [x, y] = [0, y + 1];
      if (!part.text.trim()) continue;
    }
    placed.push({ part: { ...part, width }, x, y });
    x += width;
  }
  const first = parts.map((part) => part.text).join("").match(/\p{L}/u)?.[0] ?? "";
  if (!RIGHT_TO_LEFT.test(first)) return placed;
  return placed.map((entry) => ({ ...entry, x: room - entry.x - entry.part.width }));
}

function split(part, room, ruler) {
  const text = part.text.replace(/\s/g, " ");
  if (ruler.measureText(text).width <= room) return [{ ...part, text }];
  const chunks = part.score === null ? text.match(/\S+\s*|\s+/g) : [text];
  const most = Math.max(1, Math.floor((room / ruler.measureText(text).width) * text.length * 0.8));
  return chunks.flatMap((chunk) => {
    const letters = [...chunk];
    const count = Math.max(1, Math.ceil(letters.length / most));
    const stretch = (i) => letters.slice(i * most, (i + 1) * most).join("");
    return Array.from({ length: count }, (_, i) => ({ ...part, text: stretch(i) }));
  });
}

function shapes(part, x, y) {
  const attributes = { x, y, "xml:space": "preserve" };
  if (part.special) return [svg("text", { ...attributes, fill: "#8c959f" }, part.text)];
  if (part.strength === null) return [svg("text", { ...attributes, fill: "#1b1f24" }, part.text)];
  const color = shade(part.strength);
  const box = { x, y: y - SIZE - 1, width: part.width, height: SIZE + 7, rx: 3 };
  const fill = (parts) => ({ fill: `rgb(${parts.join(",")})` }); // not every program reads commaless colors
  return [svg("rect", { ...box, ...fill(color) }), svg("text", { ...attributes, ...fill(ink(color)) }, part.text)];
}

/** The SVG as text, without control characters, which are invalid in XML. */
export function svgText(picture) {
  return new XMLSerializer().serializeToString(picture).replace(NOT_IN_XML, "\ufffd");
}

/** The picture as PNG, in twice the size for sharpness. */
export async function pngOf(picture) {
  const url = URL.createObjectURL(new Blob([svgText(picture)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    const scale = Math.min(2, 16000 / image.height); // the limit of browsers
    [canvas.width, canvas.height] = [image.width * scale, image.height * scale];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser could not make a PNG of this."))));
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}
