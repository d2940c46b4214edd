// Beside an explained answer: where the scores of the chosen part lie, and what else could have stood there.
import { make, paint, signedNumber } from "./heatmap.js";

const OWN = "the answer itself";
const MOST_TOKENS = 6; // of a choice that are listed with their alternatives
const UNFINISHED = "\ufffd"; // how decoders write some of a character's bytes
const STRONGEST = 3; // sentences of the prompt, if it has no documents

/** `shown`: the view, the choice, a score for each token, their sum over tokens, and how to choose something else. */
export function drawPanel(panel, shown) {
  const parts = shown.choice?.side === "prompt" ? supported(shown) : because(shown);
  panel.replaceChildren(...parts.filter(Boolean));
}

/** Why this part of the answer? */
function because({ view, choice, scores, sum, choose }) {
  const { answer } = view;
  const rows = choice ? choice.tokens.map((token) => token - answer.start) : answer.numbers.map((_, i) => i);
  const logs = rows.reduce((all, row) => all + Math.log(answer.probabilities[row]), 0);
  const all = scores.reduce((total, score) => total + score, 0);
  const explained = rows.reduce((total, row) => total + answer.numbers[row], 0);
  const heading = choice ? `“${textOf(view, choice.tokens)}”` : "The whole answer";
  return [
    title(heading, choice && (() => choose(null))),
    make("p", "panel-line", `${count(rows.length, "token")}, ${chance(rows.length, logs)}`),
    make("p", "panel-line", `explained ${plain(explained)}, scores add up to ${plain(all)}`),
    make("h4", "", "Where the scores lie"),
    shareTable(view, scores, sum, choose),
    ...strongestSentences(view, sum, choose),
    ...(choice && rows.length <= MOST_TOKENS ? rows.map((row) => alternatives(view, row)) : []),
  ];
}

/** What did this part of the prompt support? */
function supported({ view, choice, scores, sum, choose }) {
  const { answer } = view;
  const document_ = answer.groups.find((group) => group.is_document && same(group.tokens, choice.tokens));
  const list = make("ol", "panel-list");
  for (const tokens of answer.answer_sentences) {
    const item = make("li", "");
    const score = sum(tokens);
    item.append(link(textOf(view, tokens), () => choose({ side: "answer", tokens })), make("b", "", scoreText(view, score)));
    list.append(item);
  }
  const all = scores.reduce((total, score) => total + score, 0);
  return [
    title(document_ ? document_.name : `“${textOf(view, choice.tokens)}”`, () => choose(null)),
    make("p", "panel-line", `${count(choice.tokens.length, "token")} of the prompt, score ${scoreText(view, all)}`),
    make("h4", "", "What it supported"),
    list,
  ];
}

/** Sums over groups of tokens, and how much of all absolute scores lies there. Nothing is left out. */
function shareTable(view, scores, sum, choose) {
  const { answer } = view;
  const own = answer.numbers.map((_, i) => answer.start + i);
  const groups = [...answer.groups, { name: OWN, tokens: own }];
  const sizes = groups.map(({ tokens }) => tokens.reduce((all, token) => all + Math.abs(scores[token]), 0));
  const total = sizes.reduce((all, size) => all + size, 0) || 1;
  const table = make("table", "panel-shares");
  groups.forEach(({ name, tokens, is_document: isDocument }, i) => {
    const row = table.insertRow();
    const label = row.insertCell();
    label.append(isDocument ? link(name, () => choose({ side: "prompt", tokens })) : name);
    label.className = isDocument ? "" : "panel-quiet";
    row.insertCell().append(bar(sizes[i] / total, sum(tokens)));
    row.insertCell().textContent = scoreText(view, sum(tokens));
    row.insertCell().textContent = `${Math.round((100 * sizes[i]) / total)} %`;
  });
  table.createCaption().textContent = "sum of scores, share of all absolute scores";
  return table;
}

function strongestSentences(view, sum, choose) {
  const { answer } = view;
  if (answer.groups.some((group) => group.is_document) || answer.sentences.length < 2) return [];
  const found = answer.sentences.map((tokens) => ({ tokens, score: sum(tokens) }));
  found.sort((one, other) => Math.abs(other.score) - Math.abs(one.score));
  const list = make("ol", "panel-list");
  for (const { tokens, score } of found.slice(0, STRONGEST)) {
    const item = make("li", "");
    item.append(link(textOf(view, tokens), () => choose({ side: "prompt", tokens })), make("b", "", scoreText(view, score)));
    list.append(item);
  }
  return [make("h4", "", "Strongest sentences of the prompt"), list];
}

/** A token's probability, and the likeliest tokens in its place. */
function alternatives(view, row) {
  const { answer, options } = view;
  const box = make("div", "panel-token");
  const written = textOf(view, [answer.start + row]);
  const heading = make("h4", "", "“");
  heading.append(make("bdi", "", written), `”: ${percent(answer.probabilities[row])} likely; most likely here:`);
  box.append(heading);
  const table = make("table", "panel-shares panel-alternatives");
  for (const { token, index, probability } of answer.alternatives[row]) {
    const line = table.insertRow();
    const name = token.includes(UNFINISHED) ? `${UNFINISHED} part of a character, token ${index}` : visible(token);
    const label = line.insertCell();
    label.append(options.onAlternative ? link(name, () => options.onAlternative(row, index)) : name);
    label.dir = "auto";
    line.classList.toggle("is-written", index === answer.ids[row]);
    line.insertCell().append(bar(probability, 1));
    line.insertCell().textContent = percent(probability);
  }
  box.append(table);
  return box;
}

function title(text, back) {
  const heading = make("h3", "panel-title", text);
  heading.dir = "auto";
  if (!back) return heading;
  const button = link("whole answer", back);
  button.classList.add("panel-back");
  const line = make("div", "panel-head");
  line.append(heading, button);
  return line;
}

function link(text, act) {
  const button = make("button", "panel-link", text);
  button.type = "button";
  button.dir = "auto";
  button.addEventListener("click", act);
  return button;
}

function bar(share, sign) {
  const holder = make("span", "panel-bar");
  const fill = make("span", "sample");
  fill.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  paint(fill, sign < 0 ? -0.8 : 0.8);
  holder.append(fill);
  return holder;
}

/** The text of these tokens, with an ellipsis for gaps; added tokens are left out unless there are no others. */
function textOf(view, tokens) {
  const selected = new Set(tokens);
  const pieces = view.answer.blocks.flatMap((block) => [...block.head, ...block.pieces]);
  const chosen = pieces.filter((piece) => piece.tokens.some((token) => selected.has(token)));
  const plain = chosen.some((piece) => !piece.special) ? chosen.filter((piece) => !piece.special) : chosen;
  let text = "";
  let last = null; // token of what was written
  let gap = ""; // what stands between the last piece with tokens and the next
  for (const piece of pieces) {
    if (plain.includes(piece)) {
      text += (last === null ? "" : piece.tokens[0] === last + 1 ? gap : " … ") + piece.text;
      last = piece.tokens.at(-1);
    }
    gap = piece.tokens.length ? "" : piece.text;
  }
  return visible(text.trim().replaceAll(/\s+/g, " "));
}

function visible(text) {
  return text.replaceAll("\n", "↵") || "␣";
}

function chance(length, logs) {
  return length === 1 ? `probability ${percent(Math.exp(logs))}` : `log-probability ${plain(logs)}`;
}

function percent(share) {
  return share < 0.001 ? `${(100 * share).toPrecision(1)} %` : `${(100 * share).toFixed(1)} %`;
}

function count(length, name) {
  return `${length.toLocaleString("en")} ${name}${length === 1 ? "" : "s"}`;
}

/** The score as text, with a sign for signed methods. */
export function scoreText(view, value) {
  return signedNumber(value, view.answer.signed);
}

function plain(value) {
  return signedNumber(value, false);
}

function same(one, other) {
  return one.length === other.length && one.every((token, i) => token === other[i]);
}
