// Comparison of two methods (their difference) and of two texts (original and edited).
import { byId, el, fillSelect, isSend, percent } from "./dom.js";
import { drawHeatmaps, drawLegend, isBreak } from "./heatmap.js";
import { titleOf, titles } from "./methods.js";
import { createResults } from "./results.js";
import { drawWaiting } from "./show.js";

export function mountCompare(app) {
  mountDifference(app);
  mountEdited(app);
}

function mountDifference(app) {
  const [first, second] = [byId("first-method"), byId("second-method")];
  drawLegend(byId("difference-legend"), "difference");
  const pick = () => app.store.change({ difference: first.value && second.value ? [first.value, second.value] : null });
  for (const select of [first, second]) select.addEventListener("change", pick);
  const draw = () => {
    const { methods, difference } = app.store.get();
    const shown = methods.filter((name) => app.results.found.has(name));
    const entries = [["", "choose a method"], ...shown.map((name) => [name, titleOf(app, name)])];
    [first, second].forEach((select, i) => fillSelect(select, entries, difference?.[i] ?? select.value));
    const pair = (difference ?? []).map((name) => app.results.found.get(name)?.explanation);
    byId("difference-legend").hidden = !(pair[0] && pair[1]);
    byId("difference").hidden = !(pair[0] && pair[1]);
    if (!(pair[0] && pair[1])) return;
    const between = differenceOf(...pair);
    const title = difference.map((name) => titleOf(app, name)).join(" − ");
    const names = { ...titles(app), [between.method]: title };
    drawHeatmaps(byId("difference"), [between, ...new Set(pair)], { titles: names, notes: false }); // notes are shown above
  };
  app.results.listen(draw);
  app.store.listen((_, changed) => (changed.has("difference") || changed.has("methods")) && draw());
}

/** Scores of the first minus those of the second, each scaled so that its strongest word has 1 or -1. */
export function differenceOf(first, second) {
  const scaled = (explanation) => {
    const plain = explanation.words.filter((word) => !word.special && !isBreak(word));
    const largest = Math.max(0, ...plain.map((word) => Math.abs(word.score))) || 1;
    return explanation.words.map((word) => word.score / largest);
  };
  const [firstScores, secondScores] = [scaled(first), scaled(second)];
  const words = first.words.map((word, i) => ({ ...word, score: firstScores[i] - secondScores[i], rank: null }));
  ranked(words.filter((word) => !word.special && !isBreak(word))).forEach((word, i) => (word.rank = i + 1));
  const unfolded = { strongest: [], folds: [] }; // methods may differ in words that are weak for one of them
  const kind = { method: `${first.method} − ${second.method}`, signed: true, difference: true, notes: [] };
  return { ...first, ...unfolded, ...kind, words };
}

function ranked(words) {
  return words.sort((a, b) => b.score - a.score);
}

/** The edited text is explained for the same target, with the same methods. */
function mountEdited(app) {
  const field = byId("edited");
  const others = createResults(app, (state) => state.edited ?? "", () => targetOf(app));
  byId("edit").addEventListener("click", () => {
    app.store.change({ edited: app.results.text() ?? app.store.get().text });
    field.focus();
  });
  byId("edit-close").addEventListener("click", () => app.store.change({ edited: null }));
  const explainEdited = () => {
    app.store.change({ edited: field.value });
    others.run(true);
  };
  byId("explain-edited").addEventListener("click", explainEdited);
  byId("edited-cancel").addEventListener("click", () => others.cancel());
  field.addEventListener("input", () => app.store.change({ edited: field.value }));
  field.addEventListener("keydown", (event) => isSend(event) && explainEdited());
  const draw = () => drawEdited(app, others);
  others.listen(draw);
  app.store.listen((state, changed) => {
    if (changed.has("edited") && state.edited === null) others.clear();
    else if (others.question() && ["methods", "heads", "mapForAll"].some((part) => changed.has(part))) others.run();
    draw();
  });
  let linked = app.store.get().edited !== null; // whether the edited text came from a link
  app.results.listen((results) => {
    if (linked && results.found.size && !results.pending.size) {
      linked = false;
      others.run();
    }
    draw();
  });
  draw();
}

/** The target of the original's heatmaps, from any method with results: those chosen now may still be running. */
function targetOf(app) {
  const [first] = app.results.found.values();
  const indices = first?.explanation.indices ?? [];
  return indices.length === 1 ? { target: indices[0] } : {};
}

function drawEdited(app, others) {
  const { edited, unit } = app.store.get();
  const field = byId("edited");
  byId("edit").hidden = edited !== null;
  byId("editing").hidden = edited === null;
  if (edited !== null && field.value !== edited) field.value = edited;
  byId("edited-cancel").hidden = !others.pending.size;
  byId("pair").hidden = !others.question();
  const options = { titles: titles(app), unit, notes: false }; // notes are shown above
  if (others.question()) drawHeatmaps(byId("pair-original"), app.results.explanations(), options);
  drawHeatmaps(byId("pair-edited"), others.explanations(), options);
  drawSays(byId("original-says"), app.results.explanations()[0], app.model.asks.position);
  drawSays(byId("edited-says"), others.explanations()[0], app.model.asks.position);
  if (others.question()) drawWaiting(byId("edited-waiting"), app, others);
}

/** Prediction and target; also the token, if the model labels every one, since editing may change it. */
function drawSays(container, explanation, ofToken) {
  container.replaceChildren();
  if (!explanation) return;
  const sure = explanation.probability === null ? "" : ` (${percent(explanation.probability)})`;
  container.append("says ", el("b", { dir: "auto" }, explanation.prediction.trim()), `${sure}; explained: `);
  container.append(el("b", { dir: "auto" }, explanation.target.trim()));
  if (ofToken) container.append(` at token ${explanation.position}, `, el("b", { dir: "auto" }, explanation.tokens[explanation.position]));
}
