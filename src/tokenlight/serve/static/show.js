// The card of heatmaps: results, progress, failures.
import { byId, el } from "./dom.js";
import { drawHeatmaps, drawLegend } from "./heatmap.js";
import { titleOf, titles } from "./methods.js";
import { secondsOf } from "./results.js";

const LONG = 160; // characters of a target

export function mountShow(app) {
  drawLegend(byId("legend"));
  byId("cancel").addEventListener("click", () => app.results.cancel());
  for (const radio of document.querySelectorAll('[name="unit"]')) {
    radio.addEventListener("change", () => app.store.change({ unit: radio.value }));
  }
  app.results.listen(() => show(app));
  app.answers.listen(() => show(app));
  app.store.listen(() => show(app));
  show(app);
}

function show(app) {
  const { results, store } = app;
  const state = store.get();
  const asked = results.question() !== null;
  for (const radio of document.querySelectorAll('[name="unit"]')) radio.checked = radio.value === state.unit;
  byId("empty").hidden = asked || !byId("answer-card").hidden;
  byId("answers").hidden = !asked;
  const remarks = Object.fromEntries(state.methods.map((name) => [name, secondsOf(results, name)]));
  drawHeatmaps(byId("heatmaps"), results.explanations(), { titles: titles(app), remarks, unit: state.unit });
  drawQuestion(results);
  drawWaiting(byId("waiting"), app, results);
  byId("cancel").hidden = !results.pending.size;
  byId("heatmaps-card").setAttribute("aria-busy", String(results.pending.size > 0));
  byId("stale").hidden = !results.stale();
  byId("answers").classList.toggle("is-stale", results.stale());
  byId("heatmaps-card").hidden = Boolean(state.answer) && state.foil === null && state.target === null && isShownAbove(app);
}

/** Whether the only chosen method is shown in the answer card. */
function isShownAbove(app) {
  const [only, ...others] = app.store.get().methods;
  return !others.length && app.answers.found.has(only);
}

/** The question that the heatmaps answer, from the first result. */
function drawQuestion(results) {
  const [first] = results.explanations();
  const title = byId("explained");
  title.replaceChildren();
  if (!first) return;
  title.append("Which words speak for ", el("b", { dir: "auto" }, shortened(first.target.trim())));
  if (first.foil !== null) title.append(" rather than ", el("b", { dir: "auto" }, first.foil.trim()));
  title.append(first.given.length ? ", given what was written before it?" : "?");
}

/** A long answer is truncated; it is shown above in full. */
function shortened(text) {
  return text.length > LONG ? `${text.slice(0, LONG)} …` : text;
}

/** The list of methods that are running, failed, or were canceled. */
export function drawWaiting(list, app, results) {
  const chosen = app.store.get().methods;
  const rows = chosen.flatMap((name) => {
    const title = titleOf(app, name);
    if (results.pending.has(name)) return results.found.has(name) ? [] : [pendingRow(title, results.pending.get(name))];
    if (results.failed.has(name)) return [failedRow(title, results.failed.get(name).error)];
    if (results.found.has(name)) return [];
    return [el("li", { class: "waiting" }, el("b", {}, title), " was not run. Explain runs it.")];
  });
  if (!chosen.length) rows.push(el("li", { class: "waiting" }, "No method is chosen: choose one among the methods."));
  list.replaceChildren(...rows);
}

function pendingRow(title, about) {
  const known = about.total ? { max: about.total, value: about.done } : {};
  const words = about.ahead ? `waits behind ${about.ahead}` : about.total ? `${about.done} of ${about.total}` : "";
  const bar = el("progress", { ...known, "aria-label": `${title} is running` });
  return el("li", { class: "waiting" }, el("b", {}, title), bar, el("span", { class: "quiet" }, words));
}

function failedRow(title, error) {
  return el("li", { class: "failed", role: "alert" }, el("b", {}, title), " ", error);
}
