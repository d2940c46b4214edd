// An explained answer: the conversation, lit by what made the model write the chosen part of the answer.
// With heatmap.js and answer_panel.js it is all that a standalone file needs; the page imports it.
import { make, paint } from "./heatmap.js";
import { drawPanel, scoreText } from "./answer_panel.js";

const LEVELS = 200; // number of distinct shades: an element is redrawn only if its shade changes
const FEW = 4; // tokens; more that are chosen have a line under them instead of a frame around each word
const HINT =
  "Choose a word of the answer: what made the model write it lights up. Shift adds a stretch, Ctrl one word, " +
  "a double click the sentence, Escape goes back to the whole answer. " +
  "Choose a word or a passage of the prompt: what it supported lights up.";

/**
 * Draw what Python's `drawable_answer` gives. A choice is {side: "answer" or "prompt", tokens}, or null: the whole answer.
 * Options: onChoose(choice); onAlternative(place, index), which makes the alternatives of a token buttons.
 * Gives {choose(choice), choice()}.
 */
export function drawAnswer(container, answer, options = {}) {
  const width = answer.start + answer.numbers.length;
  const view = { answer, options, width, rows: unpack(answer.matrix), unit: "word", chosen: null, pointed: null };
  view.prompt = make("div", "answer-prompt");
  view.panel = make("aside", "answer-panel");
  view.panel.setAttribute("aria-live", "polite");
  view.talk = make("div", "answer-talk");
  view.container = container;
  container.classList.add("answer-view");
  container.replaceChildren(toolbar(view), view.talk, view.panel);
  drawBlocks(view);
  listen(view);
  show(view);
  return { choose: (choice) => chooseTokens(view, choice), choice: () => view.chosen };
}

/** Rows of single precision, one behind the other. */
function unpack(text) {
  const written = atob(text);
  const bytes = new DataView(new ArrayBuffer(written.length));
  for (let i = 0; i < written.length; i++) bytes.setUint8(i, written.charCodeAt(i));
  return Float32Array.from({ length: written.length / 4 }, (_, i) => bytes.getFloat32(4 * i, true));
}

/** A score for each token: what it gave to the chosen part of the answer, or what it took from the chosen prompt. */
export function scoresOf({ rows, width, answer }, choice) {
  const scores = new Float64Array(width);
  const count = answer.numbers.length;
  if (choice?.side === "prompt") {
    for (let row = 0; row < count; row++)
      for (const token of choice.tokens) scores[answer.start + row] += rows[row * width + token];
    return scores;
  }
  const answerRows = choice ? choice.tokens.map((token) => token - answer.start) : Array.from({ length: count }, (_, i) => i);
  for (const row of answerRows) for (let token = 0; token < width; token++) scores[token] += rows[row * width + token];
  return scores;
}

// The conversation

function toolbar(view) {
  const bar = make("div", "answer-bar");
  const signs = view.answer.signed ? [[1, "made the model write it"], [-1, "spoke against it"]] : [[1, "counts"]];
  for (const [strength, text] of signs) {
    const sample = make("span", "sample", text);
    paint(sample, strength);
    bar.append(sample);
  }
  bar.append(make("span", "", "Shade is strength, relative to the strongest word of the prompt."));
  const label = make("label", "answer-unit", "sub-words");
  const box = make("input", "");
  box.type = "checkbox";
  box.addEventListener("change", () => {
    view.unit = box.checked ? "token" : "word";
    drawBlocks(view);
    show(view);
  });
  label.prepend(box);
  const help = make("p", "answer-hint", HINT);
  bar.append(label, help);
  return bar;
}

function drawBlocks(view) {
  view.units = []; // words or tokens, those in folds too
  view.ofToken = new Array(view.width); // the unit of each
  view.folds = [];
  view.chips = []; // buttons with the score of several tokens: documents and template
  view.begins = new Map(view.answer.groups.map((group, i) => [group.is_document ? group.tokens[0] : -1 - i, group]));
  const own = view.answer.blocks.length - 1;
  const blocks = view.answer.blocks.map((block, i) => drawBlock(view, block, i === own ? "answer" : "prompt"));
  view.prompt.replaceChildren(...blocks.slice(0, own));
  view.talk.replaceChildren(view.prompt, blocks[own]);
  view.handles = view.talk.querySelectorAll(".answer-sentence");
  for (const side of [view.prompt, blocks[own]]) {
    const first = side.querySelector("[data-unit]");
    if (first) first.tabIndex = 0;
  }
}

function drawBlock(view, block, side) {
  const element = make("section", `turn turn-${side}`);
  element.dataset.role = block.role;
  const head = make("header", "turn-head");
  head.append(make("span", "turn-role", block.role));
  if (block.head.length) head.append(templateChip(view, block.head));
  const text = make("div", "turn-text");
  text.dir = "auto";
  text.setAttribute("role", "listbox");
  text.setAttribute("aria-multiselectable", "true");
  text.setAttribute("aria-label", side === "answer" ? "the answer" : `${block.role}, what the model read`);
  const units = unitsOf(view, block.pieces, side);
  let place = 0;
  for (const [from, to, label] of block.folds) {
    for (; place < units.length && units[place].place < from; place++) text.append(...drawUnit(view, units[place]));
    const inside = [];
    for (; place < units.length && units[place].place < to; place++) inside.push(units[place]);
    text.append(foldOf(view, inside, label));
  }
  for (; place < units.length; place++) text.append(...drawUnit(view, units[place]));
  element.append(head, text);
  return element;
}

/** Words, or sub-words, in order; what stands between them has no tokens. */
function unitsOf(view, pieces, side) {
  const units = [];
  pieces.forEach((piece, place) => {
    const last = units.at(-1);
    if (view.unit === "word" && piece.tokens.length && last?.tokens.length && last.word === piece.word) {
      last.text += piece.text;
      last.tokens = [...last.tokens, ...piece.tokens];
    } else {
      units.push({ ...piece, place, side, element: null, level: 0 });
    }
  });
  for (const unit of units) {
    if (!unit.tokens.length) continue;
    unit.number = view.units.push(unit) - 1;
    for (const token of unit.tokens) view.ofToken[token] = unit;
  }
  return units;
}

function drawUnit(view, unit) {
  if (!unit.tokens.length) return [unit.text];
  const before = [];
  const document_ = view.begins.get(unit.tokens[0]);
  if (document_) before.push(documentChip(view, document_));
  const sentence = view.answer.answer_sentences.findIndex((tokens) => tokens[0] === unit.tokens[0]);
  if (sentence >= 0 && view.answer.answer_sentences.length > 1) before.push(sentenceHandle(view, sentence));
  const kind = unit.special ? "special" : unit.newline ? "word is-break" : "word";
  const element = make("span", kind, unit.newline ? "↵" : unit.text);
  element.dataset.unit = unit.number;
  element.tabIndex = -1;
  element.setAttribute("role", "option");
  element.setAttribute("aria-selected", "false");
  unit.element = element;
  unit.level = null;
  return [...before, element, ...(unit.newline ? [unit.text] : [])];
}

/** A button in front of a sentence of the answer. */
function sentenceHandle(view, sentence) {
  const handle = button("answer-sentence", String(sentence + 1), () =>
    chooseTokens(view, { side: "answer", tokens: view.answer.answer_sentences[sentence] }),
  );
  handle.setAttribute("aria-label", `sentence ${sentence + 1} of the answer`);
  handle.title = `sentence ${sentence + 1}: click to choose it`;
  return handle;
}

/** A button before a document of the prompt, with the document's score. */
function documentChip(view, document_) {
  const chip = button("answer-document", "", () => chooseTokens(view, { side: "prompt", tokens: document_.tokens }));
  chip.title = "what of the answer did it support?";
  const score = make("b", "");
  chip.append(make("span", "", document_.name), score);
  view.chips.push({ element: chip, score, tokens: document_.tokens });
  return chip;
}

/** The template's tokens before a message, collapsed by default. */
function templateChip(view, pieces) {
  const units = unitsOf(view, pieces, "prompt");
  const holder = make("span", "turn-template");
  const tokens = pieces.flatMap((piece) => piece.tokens);
  const inside = make("span", "turn-template-text");
  inside.append(...units.flatMap((unit) => drawUnit(view, unit)));
  inside.hidden = tokens.length > 2;
  if (inside.hidden) {
    const chip = button("answer-document", "", () => {
      inside.hidden = !inside.hidden;
      chip.setAttribute("aria-expanded", String(!inside.hidden));
    });
    chip.setAttribute("aria-expanded", "false");
    const score = make("b", "");
    chip.append(make("span", "", `${tokens.length} template tokens`), score);
    view.chips.push({ element: chip, score, tokens });
    holder.append(chip);
  }
  holder.append(inside);
  return holder;
}

/** A stretch of a long prompt: its elements are made when it is opened. Sources that begin in it are named before it. */
function foldOf(view, units, label) {
  const fold = button("fold", ` ${label} `, () => {
    const inside = units.flatMap((unit) => drawUnit(view, unit));
    view.folds = view.folds.filter((other) => other.element !== fold);
    fold.replaceWith(...inside);
    show(view);
    inside.find((part) => part.dataset?.unit)?.focus({ preventScroll: true });
  });
  view.folds.push({ element: fold, units: units.filter((unit) => unit.tokens.length) });
  return fold;
}

function button(kind, text, act) {
  const element = make("button", kind, text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

// Choosing

function listen(view) {
  const { talk } = view;
  talk.addEventListener("pointerover", (event) => point(view, unitAt(view, event.target)));
  talk.addEventListener("pointerleave", () => point(view, null));
  talk.addEventListener("focusin", (event) => point(view, unitAt(view, event.target)));
  talk.addEventListener("focusout", () => point(view, null));
  talk.addEventListener("click", (event) => pick(view, unitAt(view, event.target), event));
  talk.addEventListener("dblclick", (event) => pickSentence(view, unitAt(view, event.target)));
  view.container.addEventListener("keydown", (event) => press(view, event));
}

function unitAt(view, target) {
  const element = target.closest?.("[data-unit]");
  return element ? view.units[Number(element.dataset.unit)] : null;
}

/** A word under the pointer: of the answer it is shown as if it were chosen; of the prompt its score is said. */
function point(view, unit) {
  if (unit === view.pointed) return;
  view.pointed = unit;
  cancelAnimationFrame(view.frame);
  view.frame = requestAnimationFrame(() => show(view));
}

/** Click: this one alone, or none. With Shift: everything from the last one to here. With Ctrl: this one, too. */
function pick(view, unit, { shiftKey, ctrlKey, metaKey }) {
  if (!unit) return;
  const side = unit.side;
  const before = view.chosen?.side === side ? view.chosen.tokens : [];
  const has = unit.tokens.every((token) => before.includes(token));
  let tokens = has && before.length === unit.tokens.length ? [] : unit.tokens;
  if (shiftKey && before.length) {
    const [from, to] = [view.anchor ?? unit, unit].sort((one, other) => one.tokens[0] - other.tokens[0]);
    tokens = Array.from({ length: to.tokens.at(-1) - from.tokens[0] + 1 }, (_, i) => from.tokens[0] + i);
  } else if (ctrlKey || metaKey) {
    tokens = has ? before.filter((token) => !unit.tokens.includes(token)) : [...before, ...unit.tokens];
  }
  if (!shiftKey) view.anchor = unit;
  getSelection()?.removeAllRanges();
  chooseTokens(view, tokens.length ? { side, tokens } : null);
}

function pickSentence(view, unit) {
  if (!unit) return;
  const all = unit.side === "answer" ? view.answer.answer_sentences : view.answer.sentences;
  const tokens = all.find((some) => some.includes(unit.tokens[0]));
  getSelection()?.removeAllRanges();
  if (tokens) chooseTokens(view, { side: unit.side, tokens });
}

function chooseTokens(view, choice) {
  view.chosen = choice && { side: choice.side, tokens: [...new Set(choice.tokens)].sort((a, b) => a - b) };
  view.pointed = null;
  show(view);
  view.options.onChoose?.(view.chosen);
}

/** What was chosen elsewhere: its fold opens, and it scrolls into view. */
function chooseAndShow(view, choice) {
  const unit = choice && view.ofToken[choice.tokens[0]];
  view.folds.find((fold) => fold.units.includes(unit))?.element.click();
  unit?.element?.scrollIntoView({ block: "nearest" });
  chooseTokens(view, choice);
}

/** Arrows go from word to word, Enter and the space bar choose, s the sentence, Escape the whole answer. */
function press(view, event) {
  const unit = unitAt(view, event.target);
  if (event.key === "Escape" && view.chosen) return chooseTokens(view, null);
  if (!unit || event.altKey) return;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  if (event.key === "Enter" || event.key === " ") pick(view, unit, event);
  else if (event.key === "s") pickSentence(view, unit);
  else if (event.key in steps) moveTo(view, unit, steps[event.key]);
  else return;
  event.preventDefault();
}

function moveTo(view, unit, step) {
  const open = view.units.filter((other) => other.side === unit.side && other.element?.offsetParent);
  const next = open[Math.max(0, Math.min(open.length - 1, open.indexOf(unit) + step))];
  unit.element.tabIndex = -1;
  next.element.tabIndex = 0;
  next.element.focus();
}

// Showing

function show(view) {
  const preview = view.pointed?.side === "answer" && !view.chosen ? { side: "answer", tokens: view.pointed.tokens } : null;
  const choice = preview ?? view.chosen;
  const scores = scoresOf(view, choice);
  const sum = (tokens) => tokens.reduce((all, token) => all + scores[token], 0);
  const chosen = new Set(choice?.tokens);
  for (const unit of view.units) unit.score = sum(unit.tokens);
  const backwards = choice?.side === "prompt";
  const largest = strongest(view.units, backwards ? "answer" : "prompt") || strongest(view.units, "answer");
  for (const unit of view.units) if (unit.element) light(unit, unit.score / (largest || 1), chosen);
  view.talk.classList.toggle("is-stretch", chosen.size > FEW);
  for (const fold of view.folds) {
    const most = fold.units.reduce((one, unit) => (Math.abs(unit.score) > Math.abs(one) ? unit.score : one), 0);
    paint(fold.element, most / (largest || 1));
    fold.element.title = `scores ${scoreText(view, sum(fold.units.flatMap((unit) => unit.tokens)))}; click to open`;
  }
  for (const chip of view.chips) chip.score.textContent = backwards ? "" : ` ${scoreText(view, sum(chip.tokens))}`;
  tell(view, view.pointed);
  drawPanel(view.panel, { view, choice, scores, sum, choose: (other) => chooseAndShow(view, other) });
}

/** The scale: words of the prompt have the same shade as in other views; stronger ones of the answer have the full one. */
function strongest(units, side) {
  const plain = units.filter((unit) => unit.side === side && !unit.special && !unit.newline);
  return plain.reduce((most, unit) => Math.max(most, Math.abs(unit.score)), 0);
}

function light(unit, strength, chosen) {
  const level = unit.special ? 0 : Math.round(Math.max(-1, Math.min(1, strength)) * LEVELS);
  if (level !== unit.level && !unit.special) paint(unit.element, level / LEVELS);
  unit.level = level;
  const is = unit.tokens.some((token) => chosen.has(token));
  if (is === unit.element.classList.contains("is-chosen")) return;
  unit.element.classList.toggle("is-chosen", is);
  unit.element.setAttribute("aria-selected", String(is));
}

/** The score of a word, where the pointer is. */
function tell(view, unit) {
  if (!unit?.element) return;
  const kind = unit.special ? "template or special token, " : unit.newline ? "line break, " : "";
  const said = `${kind}score ${scoreText(view, unit.score)}`;
  unit.element.title = said;
  unit.element.setAttribute("aria-label", `${unit.newline ? "" : unit.text.trim()}, ${said}`);
}
