// Heatmaps of one text, one under another, over the original text, in the library's two colors.
// It imports nothing: the standalone report holds this file as it is, the page imports from it.

// Colors that color-blind people tell apart, for a light and for a dark page.
const THEMES = {
  light: {
    paper: [255, 255, 255],
    support: [33, 102, 172],
    against: [204, 85, 0],
    more: [0, 120, 60],
    less: [190, 30, 45],
  },
  dark: {
    paper: [22, 27, 34],
    support: [92, 160, 225],
    against: [240, 136, 62],
    more: [63, 170, 106],
    less: [240, 98, 104],
  },
};

const HEAT = ["support", "against"];
const DIFFERENCE = ["more", "less"];

const FAINT = 0.05; // smaller differences have no line under them: they would be nearly white
const boards = new WeakMap(); // container -> its board
const RELATIVE = "Shade is strength, relative to the strongest word of each method.";
const UNSURE = "Dotted words: in other contexts the score might have the other sign.";
const SCALED = "Each method is scaled so that its strongest word has 1.";
const LEGENDS = {
  heat: [HEAT, "supports the target", "speaks against it", RELATIVE],
  difference: [DIFFERENCE, "the first method gives more", "it gives less", SCALED],
};

/** Draw a heatmap for each explanation, or redraw those that changed. Options: titles, remarks, unit (word, token), notes. */
export function drawHeatmaps(container, explanations, options = {}) {
  const board = boards.get(container) ?? newBoard(container);
  const unit = options.unit ?? "word";
  const kept = new Map();
  for (const explanation of explanations) {
    const old = board.rows.get(explanation.method);
    const same = old && old.explanation === explanation && old.unit === unit;
    const row = same ? old : newRow(explanation, unit, options.titles?.[explanation.method] ?? explanation.method);
    row.remark.textContent = options.remarks?.[explanation.method] ?? "";
    if (old && !same) takePlace(board, old, row);
    kept.set(explanation.method, row);
  }
  for (const [method, row] of board.rows) if (!kept.has(method)) row.element.remove();
  board.rows = kept;
  let place = board.heading;
  for (const row of kept.values()) {
    if (place.nextSibling !== row.element) place.after(row.element);
    place = row.element;
  }
  board.foot.remove();
  place.after(board.foot);
  drawNotes(board, options.notes ?? true);
  choose(board, board.chosen);
}

/** Draw the notes of each heatmap below it, and notes that several heatmaps share once, at the end. */
function drawNotes(board, showNotes) {
  const rows = [...board.rows.values()];
  const all = rows.flatMap((row) => (showNotes ? (row.explanation.notes ?? []) : []));
  const shared = new Set(all.filter((note, i) => all.indexOf(note) !== i));
  for (const row of rows) {
    for (const note of row.element.querySelectorAll(":scope > .note")) note.remove();
    const own = showNotes ? (row.explanation.notes ?? []).filter((note) => !shared.has(note)) : [];
    if (showNotes && [...row.words.values()].some((word) => !word.special && isUnsure(word))) own.push(UNSURE);
    row.element.append(...own.map((note) => make("p", "note", note)));
  }
  board.foot.replaceChildren(...[...shared].map((note) => make("p", "note", note)));
}

/** What the colors mean. `kind` is "heat" or "difference". */
export function drawLegend(container, kind = "heat") {
  const [sides, first, second, explained] = LEGENDS[kind];
  const parts = [make("span", "sample", first), make("span", "sample", second), make("span", "", explained)];
  paint(parts[0], 1, sides);
  paint(parts[1], -1, sides);
  if (kind === "difference") parts[1].classList.add("less");
  container.classList.add("legend");
  container.replaceChildren(...parts);
}

/** Paper at 0, the full color at -1 and 1. */
export function shade(strength, sides = HEAT, theme = "light") {
  const { paper, [strength >= 0 ? sides[0] : sides[1]]: color } = THEMES[theme];
  const share = Math.min(1, Math.abs(strength));
  return paper.map((part, i) => Math.round(part + (color[i] - part) * share));
}

/** Black or white, whichever can be read better on it (WCAG's relative luminance). */
export function ink(background) {
  const [red, green, blue] = background.map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? [0, 0, 0] : [255, 255, 255];
}

function css(color) {
  return `rgb(${color.join(" ")})`;
}

/** Give an element its shade for both themes; style.css picks one, so that a change of theme needs no redrawing. */
export function paint(element, strength, sides = HEAT) {
  for (const theme of Object.keys(THEMES)) {
    const background = shade(strength, sides, theme);
    element.style.setProperty(`--${theme}-shade`, css(background));
    element.style.setProperty(`--${theme}-ink`, css(ink(background)));
  }
}

/** "+0.312", "−1.2e-5"; without the plus for unsigned methods. */
export function signedNumber(value, signed = true) {
  const size = Math.abs(value);
  const far = size !== 0 && (size < 0.001 || size >= 10000);
  const text = far ? size.toExponential(1) : size >= 999.5 ? size.toFixed(0) : size.toPrecision(3);
  return (value < 0 ? "−" : signed && value > 0 ? "+" : "") + (size === 0 ? "0" : text);
}

export function make(tag, kind, text = "") {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.textContent = text;
  return element;
}

function newBoard(container) {
  const heading = make("p", "readout");
  const board = { heading, foot: make("div", "shared-notes"), rows: new Map(), chosen: null };
  container.classList.add("heatmaps");
  container.replaceChildren(heading);
  // A pointer that lies still while the page scrolls under it takes nothing from the keyboard.
  const point = (index) => index !== board.chosen && choose(board, index);
  const focused = () => (container.contains(document.activeElement) ? indexOf(document.activeElement) : null);
  container.addEventListener("pointermove", (event) => point(indexOf(event.target) ?? focused()));
  container.addEventListener("pointerleave", () => point(focused()));
  container.addEventListener("focusin", (event) => choose(board, indexOf(event.target)));
  container.addEventListener("focusout", () => choose(board, null));
  container.addEventListener("keydown", (event) => moveFocus(board, event));
  boards.set(container, board);
  return board;
}

function indexOf(target) {
  const word = target.closest?.("[data-index]");
  return word ? Number(word.dataset.index) : null;
}

function newRow(explanation, unit, title) {
  const element = make("section", "heatmap");
  element.dataset.method = explanation.method;
  const name = make("header", "heatmap-name");
  const remark = make("span", "remark");
  name.append(make("h3", "", title), remark);
  const { text, words } = unit === "token" ? tokenLine(explanation) : wordLine(explanation);
  text.setAttribute("aria-label", `${title}: words with their scores`);
  const score = make("p", "heatmap-score");
  element.append(name, text, score, ...front(explanation));
  return { element, remark, score, words, explanation, unit };
}

/** The strongest sentences of a long text; style.css puts them before it. */
function front(explanation) {
  if (!explanation.strongest?.length) return [];
  const list = make("ol", "strongest");
  list.setAttribute("aria-label", "the strongest sentences");
  for (const { text, score } of explanation.strongest) {
    const item = make("li", "");
    const sentence = make("span", "", text);
    sentence.dir = "auto";
    item.append(make("b", "", signedNumber(score, explanation.signed)), " ", sentence);
    list.append(item);
  }
  return [list];
}

/** A new row stands where the old one stood, with the focus where it was. */
function takePlace(board, old, row) {
  const focused = old.element.contains(document.activeElement) ? indexOf(document.activeElement) : null;
  old.element.replaceWith(row.element);
  board.rows.set(row.explanation.method, row);
  if (focused !== null) row.words.get(focused)?.element?.focus({ preventScroll: true });
}

function wordLine(explanation) {
  const entries = explanation.words.map((word, index) => ({ ...word, index }));
  return line(explanation, "pieces", (piece) => (piece.word === null ? null : entries[piece.word]));
}

/** A line break that takes a token of its own: it is drawn, but the scale is that of the words. */
export function isBreak(entry) {
  return !entry.text.replace("↵", "").trim();
}

function tokenLine(explanation) {
  const entryOf = (piece) => {
    if (!piece.tokens.length) return null;
    const [first] = piece.tokens;
    const score = piece.tokens.reduce((sum, token) => sum + explanation.scores[token], 0);
    const special = explanation.special[first];
    const errors = explanation.maps?.standard_error;
    const error = errors ? Math.hypot(...piece.tokens.map((token) => errors[token])) : null;
    return { text: piece.text, index: first, score, error, special, rank: explanation.token_ranks[first] };
  };
  return line(explanation, "token_pieces", entryOf);
}

/** The text with its words; what is folded gets its elements when it is opened, so that a long text costs little. */
function line(explanation, unit, entryOf) {
  const text = make("div", "heatmap-text");
  text.dir = "auto";
  text.setAttribute("role", "listbox");
  text.setAttribute("aria-orientation", "horizontal");
  const pieces = explanation[unit];
  const entries = pieces.map(entryOf);
  const plain = entries.filter((entry) => entry && !entry.special && !isBreak(entry));
  const strength = (most, entry) => Math.max(most, Math.abs(entry.score));
  const largest = explanation.difference ? 1 : plain.reduce(strength, 0) || 1;
  const count = new Set(plain.map((entry) => entry.index)).size;
  const words = new Map(entries.filter(Boolean).map((entry) => [entry.index, { element: null, ...entry, count }]));
  const draw = (i) => {
    const entry = entries[i];
    if (!entry) return pieces[i].text;
    const element = wordElement(pieces[i].text, entry, entry.score / largest, explanation);
    element.setAttribute("aria-label", `${entry.text.trim()}, ${spoken(entry, count, explanation)}`);
    words.get(entry.index).element = element;
    return element;
  };
  text.append(...withFolds(explanation, unit).map((part) => (part.label ? foldElement(part, draw) : draw(part.from))));
  const first = text.querySelector("[data-index]");
  if (first) first.tabIndex = 0;
  return { text, words };
}

/** A text's pieces in order, by their places {from, to}; a fold has a label and holds several. */
export function withFolds(explanation, unit) {
  const parts = [];
  const single = (to) => {
    for (let from = parts.at(-1)?.to ?? 0; from < to; from++) parts.push({ from, to: from + 1 });
  };
  for (const fold of explanation.folds ?? []) {
    const [from, to] = fold[unit];
    single(from);
    parts.push({ from, to, label: fold.label });
  }
  single(explanation[unit].length);
  return parts;
}

/** A click, Enter or the space bar puts the words there; the focus goes to the first of them. */
function foldElement({ from, to, label }, draw) {
  const fold = make("span", "fold", ` ${label} `);
  fold.tabIndex = 0;
  fold.setAttribute("role", "option");
  fold.setAttribute("aria-selected", "false");
  fold.setAttribute("aria-label", `${label.replaceAll("…", "").trim()} folded, Enter opens them`);
  const open = () => {
    const inside = Array.from({ length: to - from }, (_, i) => draw(from + i));
    fold.replaceWith(...inside);
    inside.find((part) => part.dataset)?.focus({ preventScroll: true });
  };
  fold.addEventListener("click", open);
  fold.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open();
  });
  return fold;
}

function wordElement(text, entry, strength, explanation) {
  const element = make("span", entry.special ? "special" : "word", text);
  element.dataset.index = entry.index;
  element.dataset.score = entry.score;
  element.tabIndex = -1;
  element.setAttribute("role", "option");
  element.setAttribute("aria-selected", "false");
  if (entry.special && !text.includes("\n")) element.classList.add("added"); // it never stands alone in a line
  if (entry.special) return element;
  paint(element, strength, explanation.difference ? DIFFERENCE : HEAT);
  element.classList.toggle("less", Boolean(explanation.difference) && strength < -FAINT);
  element.classList.toggle("unsure", isUnsure(entry));
  return element;
}

/** A mean over contexts that may as well have the other sign: two standard errors away from it, or fewer. */
function isUnsure(entry) {
  return entry.error != null && Math.abs(entry.score) < 2 * entry.error;
}

/** "+0.312", or "+0.312 ± 0.04" where the score is a mean over contexts. */
function writtenScore(entry, explanation) {
  const score = signedNumber(entry.score, explanation.signed);
  return entry.error == null ? score : `${score} ± ${signedNumber(entry.error, false)}`;
}

function spoken(entry, count, explanation) {
  const rank = entry.rank === null ? "" : `, rank ${entry.rank} of ${count}`;
  return `${entry.special ? "special token, " : ""}score ${writtenScore(entry, explanation)}${rank}`;
}

/** Outline the same word in every heatmap and write its score and rank beside each. */
function choose(board, index) {
  board.chosen = index;
  let name = null;
  for (const row of board.rows.values()) {
    for (const word of row.element.querySelectorAll(".is-chosen")) {
      word.classList.remove("is-chosen");
      word.setAttribute("aria-selected", "false");
    }
    const word = index === null ? undefined : row.words.get(index);
    row.score.replaceChildren();
    if (!word) continue;
    name ??= word.text.trim();
    word.element?.classList.add("is-chosen");
    word.element?.setAttribute("aria-selected", "true");
    const rank = word.special ? "special" : word.rank === null ? "" : `rank ${word.rank} of ${word.count}`;
    row.score.append(make("b", "", writtenScore(word, row.explanation)), make("span", "", rank));
  }
  const hint = board.rows.size ? "Point at a word, or use the arrow keys: its score and rank in every method." : "";
  board.heading.textContent = name === null ? hint : `“${name}”`;
  board.heading.classList.toggle("is-word", name !== null);
}

/** One stop of the Tab key for each heatmap; arrows go from word to word, up and down from method to method. */
function moveFocus(board, event) {
  const rows = [...board.rows.values()];
  const place = rows.findIndex((row) => row.element.contains(event.target));
  const index = indexOf(event.target);
  if (place < 0 || index === null) return;
  const order = [...rows[place].words].filter(([, word]) => word.element).map(([other]) => other);
  const here = order.indexOf(index);
  const destinations = {
    ArrowRight: [place, order[here + 1]],
    ArrowLeft: [place, order[here - 1]],
    Home: [place, order[0]],
    End: [place, order.at(-1)],
    ArrowDown: [place + 1, index],
    ArrowUp: [place - 1, index],
  };
  const [row, wordIndex] = destinations[event.key] ?? [];
  const word = rows[row]?.words.get(wordIndex);
  if (!destinations[event.key]) return;
  event.preventDefault();
  if (!word?.element) return; // beyond the ends, or folded there
  rows[row].element.querySelector('[data-index][tabindex="0"]').tabIndex = -1;
  word.element.tabIndex = 0;
  word.element.focus();
}
