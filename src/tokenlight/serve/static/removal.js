// Removes the top words of a method and shows the new prediction.
import { remove, wasCancelled } from "./api.js";
import { byId, debounce, el, fillSelect, percent } from "./dom.js";
import { titleOf } from "./methods.js";
import { same } from "./state.js";

export function mountRemoval(app) {
  const slider = byId("top-k");
  const select = byId("removal-method");
  let lastRequest = null; // whose response is shown
  let running = null;

  const ask = debounce(60, async (removed, words) => {
    const question = app.results.question();
    const now = [question, removed, app.store.get().perturbation];
    if (!question || same(now, lastRequest)) return;
    lastRequest = structuredClone(now);
    running?.abort();
    running = new AbortController();
    byId("removal-error").textContent = "";
    if (!removed.length) return byId("removal-answer").replaceChildren();
    try {
      drawAnswer(await remove(question, removed, app.store.get().perturbation, running.signal), words);
    } catch (error) {
      if (wasCancelled(error)) return;
      byId("removal-answer").replaceChildren(); // it belongs to other words
      byId("removal-error").textContent = error.message;
    }
  });

  const draw = () => {
    const explanation = app.results.found.get(select.value)?.explanation;
    byId("removal").hidden = !explanation;
    if (!explanation) return;
    const isRemovable = (word) => word.rank !== null && !word.tokens.includes(explanation.position); // the predicted position is not removed
    const ranked = explanation.words.map((word, index) => ({ ...word, index })).filter(isRemovable);
    ranked.sort((a, b) => a.rank - b.rank);
    slider.max = ranked.length;
    const top = ranked.slice(0, Number(slider.value));
    byId("top-k-words").textContent = top.length === 1 ? "1 word" : `${top.length} words`;
    drawStruck(byId("struck"), explanation, new Set(top.map((word) => word.index)));
    ask(top.flatMap((word) => word.tokens), top.length);
  };

  slider.addEventListener("input", draw);
  select.addEventListener("change", draw);
  const refresh = () => {
    const shown = app.store.get().methods.filter((name) => app.results.found.has(name));
    fillSelect(select, shown.map((name) => [name, titleOf(app, name)]));
    draw();
  };
  app.results.listen(refresh);
  app.store.listen((_, changed) => (changed.has("perturbation") || changed.has("methods")) && refresh());
}

function drawStruck(container, explanation, removed) {
  const parts = explanation.pieces.map((piece) => {
    if (piece.word === null) return piece.text;
    if (removed.has(piece.word)) return el("del", {}, piece.text);
    return explanation.words[piece.word].special ? el("span", { class: "special added" }, piece.text) : piece.text;
  });
  container.replaceChildren(...parts);
}

function drawAnswer(answer, words) {
  const sure = answer.probability === null ? "" : ` (${percent(answer.probability)})`;
  const line = el("p", {}, `Without ${words === 1 ? "this word" : `these ${words} words`} the model says `);
  line.append(el("b", { dir: "auto" }, answer.prediction.trim()), `${sure}.`);
  const known = typeof answer.target_probability === "number" && typeof answer.before === "number";
  const bars = known ? [barRow("before", answer.before), barRow("after", answer.target_probability)] : [];
  const list = el("ul", { class: "choices", "aria-label": "probability of the target" }, ...bars);
  byId("removal-answer").replaceChildren(line, list);
}

function barRow(name, share) {
  const bar = el("span", { class: "bar" });
  bar.style.setProperty("--share", share);
  return el(
    "li",
    { class: "choice" },
    el("span", { class: "choice-name" }, `target ${name}`),
    el("span", { class: "choice-number" }, percent(share)),
    bar,
  );
}
