// Prompt and answer of a language model: system message, earlier turns, passages, message, answer.
import { wasCancelled, write } from "./api.js";
import { announce, byId, el, isSend } from "./dom.js";
import { same } from "./state.js";

export const NO_ANSWER = { answer: null, part: null, target: null, foil: null };

/** The prompt of a request. Passages are put before the message, separated by blank lines. */
export function promptOf(state, model, text = state.text) {
  const documents = state.passages.map((passage) => passage.trim()).filter(Boolean);
  const fullText = [...documents, text].join("\n\n");
  if (!model.chats) return { text: fullText, documents };
  const before = [{ role: "system", content: state.system ?? "" }, ...state.turns];
  return { messages: [...before.filter(({ content }) => content.trim()), { role: "user", content: fullText }], documents };
}

/** The answer of a request: token ids if the model generated it, or a text. */
export function answerOf(state) {
  return state.answer ? { answer: state.answer.ids ?? state.answer.text, part: state.part } : {};
}

/** Does nothing if the model does not generate text. */
export function mountConversation(app) {
  const { model, store } = app;
  if (!model.writes) return;
  for (const id of ["talk", "writing", "answer-field"]) byId(id).hidden = false;
  byId("add-system").hidden = byId("add-turn").hidden = !model.chats;
  byId("write").hidden = false;
  byId("explain").classList.remove("main");
  if (model.chats) {
    byId("text-label").textContent = "Message";
    byId("text").placeholder = "Ask something";
  }
  byId("text").rows = 3;
  mountBoxes(app);
  mountAnswer(app);
  mountSettings(app);
  const writer = createWriter(app);
  byId("write").addEventListener("click", () => (writer.running() ? writer.stop() : writer.start()));
  app.send = () => writer.start();
  byId("send-hint").textContent = "Ctrl + Enter: Write; in the answer: Explain";
  store.listen((state, changed) => {
    if (["text", "system", "turns", "passages"].some((part) => changed.has(part))) writer.stop();
  });
}

// Boxes around the message

function mountBoxes(app) {
  const { store } = app;
  byId("add-system").addEventListener("click", () => addAndFocus(app, { system: "" }, "#talk .is-system"));
  byId("add-turn").addEventListener("click", () => {
    const { turns } = store.get();
    const more = [{ role: "user", content: "" }, { role: "assistant", content: "" }];
    addAndFocus(app, { turns: [...turns, ...more] }, `#talk [data-turn="${turns.length}"]`);
  });
  byId("add-passage").addEventListener("click", () => {
    const { passages } = store.get();
    addAndFocus(app, { passages: [...passages, ""] }, `#talk [data-passage="${passages.length}"]`);
  });
  byId("go-on").addEventListener("click", () => goOn(app));
  let drawn = null;
  const draw = (state) => {
    const shape = [state.system === null, state.turns.map(({ role }) => role), state.passages.length];
    if (!same(shape, drawn)) drawBoxes(app, state);
    drawn = shape;
    fillBoxes(state);
    byId("add-system").disabled = state.system !== null;
    byId("go-on").hidden = !app.model.chats || !state.answer?.text.trim();
  };
  store.listen(draw);
  draw(store.get());
}

function addAndFocus(app, changes, selector) {
  app.store.change(changes);
  document.querySelector(`${selector} textarea`)?.focus();
}

/** Add message and answer to the turns, so that the next message can be typed. */
function goOn(app) {
  const state = app.store.get();
  const { messages } = promptOf(state, app.model);
  const turns = [messages.at(-1), { role: "assistant", content: state.answer.text }];
  app.results.clear();
  app.answers.clear();
  app.store.change({ turns: [...state.turns, ...turns], passages: [], text: "", ...NO_ANSWER });
  byId("text").focus();
}

function drawBoxes(app, { system, turns, passages }) {
  const change = (part, index, value) => {
    const { [part]: all } = app.store.get();
    app.store.change({ [part]: all.map((item, i) => (i === index ? value(item) : item)) });
  };
  const without = (part, index) => () => {
    app.store.change({ [part]: app.store.get()[part].filter((_, i) => i !== index) });
    byId("text").focus();
  };
  const boxes = [];
  if (system !== null) {
    const write = (event) => app.store.change({ system: event.target.value });
    boxes.push(box("System", { class: "box is-system" }, write, () => app.store.change({ system: null })));
  }
  turns.forEach(({ role }, i) => {
    const write = (event) => change("turns", i, (turn) => ({ ...turn, content: event.target.value }));
    const name = role === "user" ? "You" : "Model";
    boxes.push(box(name, { class: `box is-${role}`, "data-turn": i }, write, without("turns", i)));
  });
  passages.forEach((_, i) => {
    const write = (event) => change("passages", i, () => event.target.value);
    boxes.push(box(`Passage ${i + 1}`, { class: "box is-passage", "data-passage": i }, write, without("passages", i)));
  });
  byId("boxes").replaceChildren(...boxes);
}

function box(name, attributes, oninput, onclick) {
  const remove = el("button", { type: "button", class: "remove", "aria-label": `remove: ${name}`, onclick }, "×");
  const field = el("textarea", { rows: 2, dir: "auto", spellcheck: "false", "aria-label": name, oninput });
  return el("div", attributes, el("p", { class: "box-head" }, el("span", {}, name), remove), field);
}

function fillBoxes({ system, turns, passages }) {
  const contents = [...(system === null ? [] : [system]), ...turns.map(({ content }) => content), ...passages];
  byId("boxes").querySelectorAll("textarea").forEach((field, i) => {
    if (field.value !== contents[i]) field.value = contents[i];
  });
}

// The answer

function mountAnswer(app) {
  const field = byId("answer-text");
  field.addEventListener("input", () => {
    app.store.change({ ...NO_ANSWER, answer: field.value ? { text: field.value, ids: null } : null });
  });
  field.addEventListener("keydown", (event) => isSend(event) && app.explainNow());
  const draw = (state) => {
    const text = state.answer?.text ?? "";
    if (field.value !== text) field.value = text;
  };
  app.store.listen(draw);
  draw(app.store.get());
}

function mountSettings(app) {
  const fields = { tokens: byId("tokens"), temperature: byId("temperature"), seed: byId("seed") };
  for (const [name, field] of Object.entries(fields)) {
    field.addEventListener("change", () => {
      const value = Number(field.value);
      if (field.value !== "" && field.checkValidity()) app.store.change({ writing: { ...app.store.get().writing, [name]: value } });
      else field.reportValidity();
    });
  }
  const draw = ({ writing }) => {
    for (const [name, field] of Object.entries(fields)) if (document.activeElement !== field) field.value = writing[name];
  };
  fields.tokens.max = app.model.limits.answer;
  app.store.listen(draw);
  draw(app.store.get());
}

/** Generates an answer and explains it. `app.draft` gets the text generated so far. */
function createWriter(app) {
  let running = null;
  return { start, stop, running: () => running !== null };

  async function start() {
    const state = app.store.get();
    if (!state.text.trim()) return byId("text").focus();
    stop();
    app.results.clear();
    app.answers.clear();
    app.store.change({ ...NO_ANSWER, edited: null });
    const controller = new AbortController();
    running = controller;
    byId("write-error").textContent = "";
    byId("answer-text").readOnly = true;
    byId("write").textContent = "Stop";
    app.draft({ text: "", words: "The model reads the prompt …" });
    try {
      const settings = { ...promptOf(state, app.model), ...state.writing };
      await write(settings, (event) => running === controller && take(event), controller.signal);
    } catch (error) {
      if (!wasCancelled(error)) byId("write-error").textContent = error.message;
    }
    if (running !== controller) return; // stopped or restarted
    if (app.store.get().answer === null) return stop();
    end();
    app.explainNow();
  }

  function take(event) {
    if (event.event === "waiting") app.draft({ text: "", words: `waits behind ${event.ahead}` });
    if (event.event === "writing") {
      byId("answer-text").value = event.text;
      app.draft({ text: event.text, words: `${event.tokens} tokens` });
    }
    if (event.event === "failed") byId("write-error").textContent = event.error;
    if (event.event === "wrote") {
      app.store.change({ answer: { text: event.text, ids: event.ids, ended: event.ended } });
      announce(`The model wrote: ${event.text}`);
    }
  }

  /** Stop; the text generated so far stays, as if it had been typed. */
  function stop() {
    if (!running) return;
    running.abort();
    const text = byId("answer-text").value;
    end();
    app.store.change({ ...NO_ANSWER, answer: text ? { text, ids: null } : null });
  }

  function end() {
    running = null;
    byId("answer-text").readOnly = false;
    byId("write").textContent = "Write";
    app.draft(null);
  }
}
