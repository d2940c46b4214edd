// The question: the text, what the model says about it, and what is to be explained.
import { predict, wasCancelled } from "./api.js";
import { answerOf, promptOf } from "./conversation.js";
import { byId, el, isSend, later, percent } from "./dom.js";
import { same } from "./state.js";

const SHOWN = 10; // choices
const NOTHING_PICKED = { target: null, foil: null, target_span: null, foil_span: null };

/** The common part of every request. */
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

/** Fill the input column. `explainNow` runs what is chosen. Gives a call that predicts again at once. */
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
  const soon = later(250, ask);
  store.listen((state, changed) => {
    for (const [name, field] of Object.entries(fields)) if (field.value !== state[name]) field.value = state[name];
    const old = ["text", "second", "system", "turns", "passages"].some((part) => changed.has(part));
    if (old) byId("prediction-card").classList.add("is-old");
    if (old) soon();
    else if (changed.has("position") || changed.has("part") || changed.has("answer")) ask();
    else if (changed.has("target") || changed.has("foil")) drawChoices(app);
  });
  for (const [name, field] of Object.entries(fields)) field.value = store.get()[name];
  return ask;
}

/** Tokens and answers that are not among the likeliest can be written. */
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

/** Labels are the same for every text; tokens and answers are not. */
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

/** Ask for the prediction of what is typed; the newest question wins. */
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
  const found = app.prediction;
  byId("prediction-card").hidden = (!found && !problem) || isElsewhere(app.store.get());
  byId("prediction-card").classList.remove("is-old");
  byId("prediction-error").textContent = problem;
  byId("says").replaceChildren();
  const cut = found?.truncated ?? 0;
  byId("truncated").textContent = cut ? `The text is too long for the model: ${cut} tokens were cut off.` : "";
  if (found) {
    const sure = found.probability === null ? "" : ` (${percent(found.probability)})`;
    const said = app.store.get().answer ? "The likeliest here is " : "The model says ";
    byId("says").append(said, el("b", { dir: "auto" }, found.prediction.trim() || JSON.stringify(found.prediction)), `${sure}.`);
  }
  drawPositions(app);
  drawChoices(app);
}

/** An answer shows what else could have stood there; here it can be picked, for one token. */
function isElsewhere({ answer, part }) {
  return Boolean(answer) && (!part || part[1] - part[0] > 1);
}

const drawn = new WeakMap(); // place: what it shows

/** Draw anew only what differs: a button that is replaced while it is being clicked loses the click. */
function redraw(place, facts, draw) {
  const content = JSON.stringify(facts);
  if (drawn.get(place) === content) return;
  drawn.set(place, content);
  place.replaceChildren(...draw());
}

/** Which token is labeled or filled in, where there is more than one that could be. */
function drawPositions(app) {
  const found = app.prediction;
  redraw(byId("positions"), [found?.tokens, found?.words, found?.position], () => positionButtons(app, found));
}

function positionButtons(app, found) {
  const { asks } = app.model;
  if (!found || found.position === null || !asks.position) return [];
  const same = (token) => asks.any_position || token === found.tokens[found.position];
  const indices = [...found.tokens.keys()].filter((i) => same(found.tokens[i]) && !specialAt(found, i, asks));
  if (indices.length < 2) return [];
  const buttons = indices.map((i) => {
    const pick = () => app.store.change({ position: i, target: null, foil: null });
    const attributes = { type: "button", class: "chip", "aria-pressed": String(i === found.position), onclick: pick };
    return el("button", attributes, found.tokens[i]);
  });
  return [el("p", { class: "quiet" }, "Of which token?"), ...buttons];
}

function specialAt(found, token, asks) {
  return asks.any_position && found.words.some((word) => word.special && word.tokens.includes(token));
}

function drawChoices(app) {
  const choices = (app.prediction?.choices ?? []).slice(0, SHOWN);
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

/** The token of the answer that the question is about, as the model counts; null where there is none. */
function writtenAt(app) {
  const { answer, part } = app.store.get();
  return (part && (answer?.ids ?? app.answers.explanations()[0]?.ids)?.[part[0]]) ?? null;
}

/** As the state keeps a target or a foil. */
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
    if (!pressed && same(state[other], value)) changes[other] = null; // a contrast with itself says nothing
    app.store.change(changes);
    const again = byId("choices").querySelector(`[data-pick="${part}"][data-choice="${CSS.escape(choice.name)}"]`);
    again?.focus();
  };
  const label = part === "target" ? `explain ${choice.name.trim()}` : `rather than ${choice.name.trim()}`;
  const told = { "aria-label": label, "aria-pressed": String(pressed), "data-pick": part, "data-choice": choice.name };
  return el("button", { type: "button", class: "pick", onclick: pick, ...told }, part);
}
