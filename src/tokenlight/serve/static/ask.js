// The input: text, prediction, target and foil.
import { predict, wasCancelled } from "./api.js";
import { answerOf, promptOf } from "./conversation.js";
import { byId, debounce, el, isSend, percent } from "./dom.js";
import { same } from "./state.js";

const MAX_CHOICES = 10;
const NOTHING_PICKED = { target: null, foil: null, target_span: null, foil_span: null };

/** The fields that all requests have in common. */
export function questionOf(state, model, text = state.text) {
  const [target, foil] = [state.target?.span ?? null, state.foil?.span ?? null];
  return {
    ...(model.writes ? { ...promptOf(state, model, text), ...answerOf(state) } : { text }),
    second: model.form.second && state.second ? state.second : null,
    target: target ? null : state.target,
    foil: foil ? null : state.foil,
    position: state.position,
    target_span: target,
    foil_span: foil,
  };
}

/** Fill the input column; returns a function that requests a new prediction. */
export function mountAsk(app) {
  const { model, store } = app;
  const fields = { text: byId("text"), second: byId("second") };
  for (const [name, field] of Object.entries(fields)) {
    const about = model.form[name];
    byId(`${name}-field`).hidden = !about;
    if (!about) continue;
    byId(`${name}-label`).textContent = about.label;
    field.placeholder = about.placeholder ?? "";
    field.addEventListener("input", () => store.change({ ...forget(app), [name]: field.value }));
    field.addEventListener("keydown", (event) => {
      if (isSend(event)) app.send();
    });
  }
  byId("examples").replaceChildren(...model.form.examples.map((example) => exampleButton(app, example)));
  byId("examples-title").hidden = !model.form.examples.length;
  byId("explain").addEventListener("click", () => app.explainNow());

  mountOthers(app);
  const ask = createPredicting(app);
  const soon = debounce(250, ask);
  store.listen((state, changed) => {
    for (const [name, field] of Object.entries(fields)) if (field.value !== state[name]) field.value = state[name];
    const outdated = ["text", "second", "system", "turns", "passages"].some((part) => changed.has(part));
    if (outdated) byId("prediction-card").classList.add("is-old");
    if (outdated) soon();
    else if (changed.has("position") || changed.has("part") || changed.has("answer")) ask();
    else if (changed.has("target") || changed.has("foil")) drawChoices(app);
  });
  for (const [name, field] of Object.entries(fields)) field.value = store.get()[name];
  return ask;
}

/** Fields for tokens and answers that are not among the likeliest. */
function mountOthers(app) {
  byId("others").hidden = Boolean(app.model.labels);
  const fields = { target: byId("other-target"), foil: byId("other-foil") };
  for (const [part, field] of Object.entries(fields)) {
    field.addEventListener("change", () => app.store.change({ [part]: field.value || null }));
  }
  app.store.listen((state) => {
    for (const [part, field] of Object.entries(fields)) {
      field.value = typeof state[part] === "string" ? state[part] : "";
    }
  });
}

/** Reset target, foil and position, unless the labels are the same for every text. */
function forget(app) {
  if (app.model.asks.same_labels) return {};
  return { target: null, foil: null, position: null };
}

function exampleButton(app, example) {
  const others = [example.second, example.passages && `${example.passages.length} passages`].filter(Boolean);
  const label = [example.text, ...others].join(" · ");
  const choose = () => {
    const { text, second = "", passages = [] } = example;
    app.store.change({ ...forget(app), text, second, passages, system: null, turns: [], edited: null });
    if (passages.length) byId("write").click();
    else app.explainNow();
  };
  const attributes = { type: "button", class: "example", dir: "auto", title: label, onclick: choose };
  return el("li", {}, el("button", attributes, label));
}

/** Request the prediction of the typed text; a new request cancels the last one. */
function createPredicting(app) {
  let running = null;
  return async () => {
    running?.abort();
    const state = app.store.get();
    if (isElsewhere(state) || !state.text.trim() || (app.model.form.second_required && !state.second.trim())) {
      app.prediction = null;
      return drawPrediction(app, "");
    }
    running = new AbortController();
    try {
      const question = { ...questionOf(state, app.model), ...NOTHING_PICKED };
      app.prediction = await predict(question, running.signal);
      drawPrediction(app, "");
    } catch (error) {
      if (wasCancelled(error)) return;
      app.prediction = null;
      drawPrediction(app, error.message);
    }
  };
}

function drawPrediction(app, problem) {
  const prediction = app.prediction;
  byId("prediction-card").hidden = (!prediction && !problem) || isElsewhere(app.store.get());
  byId("prediction-card").classList.remove("is-old");
  byId("prediction-error").textContent = problem;
  byId("says").replaceChildren();
  const cut = prediction?.truncated ?? 0;
  byId("truncated").textContent = cut ? `The text is too long for the model: ${cut} tokens were cut off.` : "";
  if (prediction) {
    const sure = prediction.probability === null ? "" : ` (${percent(prediction.probability)})`;
    const intro = app.store.get().answer ? "The likeliest here is " : "The model says ";
    byId("says").append(intro, el("b", { dir: "auto" }, prediction.prediction.trim() || JSON.stringify(prediction.prediction)), `${sure}.`);
  }
  drawPositions(app);
  drawChoices(app);
}

/** Whether choices are shown in the answer card: for an answer, unless a single token is selected. */
function isElsewhere({ answer, part }) {
  return Boolean(answer) && (!part || part[1] - part[0] > 1);
}

const drawn = new WeakMap(); // container: its content as JSON

/** Draw only if the content changed: a button that is replaced during a click loses the click. */
function redraw(container, facts, draw) {
  const content = JSON.stringify(facts);
  if (drawn.get(container) === content) return;
  drawn.set(container, content);
  container.replaceChildren(...draw());
}

/** Buttons for the token that is labeled or filled in, if there are several candidates. */
function drawPositions(app) {
  const prediction = app.prediction;
  redraw(byId("positions"), [prediction?.tokens, prediction?.words, prediction?.position], () => positionButtons(app, prediction));
}

function positionButtons(app, prediction) {
  const { asks } = app.model;
  if (!prediction || prediction.position === null || !asks.position) return [];
  const same = (token) => asks.any_position || token === prediction.tokens[prediction.position];
  const indices = [...prediction.tokens.keys()].filter((i) => same(prediction.tokens[i]) && !specialAt(prediction, i, asks));
  if (indices.length < 2) return [];
  const buttons = indices.map((i) => {
    const pick = () => app.store.change({ position: i, target: null, foil: null });
    const attributes = { type: "button", class: "chip", "aria-pressed": String(i === prediction.position), onclick: pick };
    return el("button", attributes, prediction.tokens[i]);
  });
  return [el("p", { class: "quiet" }, "Of which token?"), ...buttons];
}

function specialAt(prediction, token, asks) {
  return asks.any_position && prediction.words.some((word) => word.special && word.tokens.includes(token));
}

function drawChoices(app) {
  const choices = (app.prediction?.choices ?? []).slice(0, MAX_CHOICES);
  const { target, foil } = app.store.get();
  redraw(byId("choices"), [choices, target, foil], () => choices.map((choice) => choiceRow(app, choice)));
  byId("why").replaceChildren(...why(app, choices));
}

/** "Why positive rather than negative?" */
function why(app, choices) {
  const { target, foil } = app.store.get();
  if (!choices.length) return [];
  const unlisted = (picked) => (typeof picked === "string" ? picked : "the picked one");
  const name = (picked) => choices.find((choice) => same(pickOf(choice), picked))?.name ?? unlisted(picked);
  const written = writtenAt(app);
  const first = target !== null || written !== null ? name(target ?? written) : app.prediction.prediction;
  const parts = ["Why ", el("b", { dir: "auto" }, first.trim())];
  if (foil !== null) parts.push(" rather than ", el("b", { dir: "auto" }, name(foil).trim()));
  return [...parts, target === null && written === null ? "? (the prediction)" : "?"];
}

/** The id of the explained token of the answer; null without one. */
function writtenAt(app) {
  const { answer, part } = app.store.get();
  return (part && (answer?.ids ?? app.answers.explanations()[0]?.ids)?.[part[0]]) ?? null;
}

/** A choice in the form in which the state stores a target or a foil. */
function pickOf(choice) {
  return choice.span ? { span: choice.span } : (choice.index ?? choice.name);
}

function choiceRow(app, choice) {
  const state = app.store.get();
  const bar = el("span", { class: "bar" });
  const share = choice.probability ?? null;
  bar.style.setProperty("--share", share ?? 0);
  const number = share === null ? Number(choice.value).toPrecision(3) : percent(share);
  const name = choice.name.trim() || JSON.stringify(choice.name);
  return el(
    "li",
    { class: "choice" },
    el("span", { class: "choice-name", dir: "auto", title: choice.name }, name),
    el("span", { class: "choice-number" }, number),
    bar,
    pickButton(app, "target", choice, state),
    pickButton(app, "foil", choice, state),
  );
}

function pickButton(app, part, choice, state) {
  const other = part === "target" ? "foil" : "target";
  const value = pickOf(choice);
  const pressed = same(state[part], value);
  const pick = () => {
    const changes = { [part]: pressed ? null : value };
    if (!pressed && same(state[other], value)) changes[other] = null; // target and foil must differ
    app.store.change(changes);
    const again = byId("choices").querySelector(`[data-pick="${part}"][data-choice="${CSS.escape(choice.name)}"]`);
    again?.focus();
  };
  const label = part === "target" ? `explain ${choice.name.trim()}` : `rather than ${choice.name.trim()}`;
  const attributes = { "aria-label": label, "aria-pressed": String(pressed), "data-pick": part, "data-choice": choice.name };
  return el("button", { type: "button", class: "pick", onclick: pick, ...attributes }, part);
}
