// The card of an answer: the text while it is generated, then the explained answer, for each method.
import { drawAnswer } from "./answer.js";
import { NO_ANSWER } from "./conversation.js";
import { bringIntoView, byId, el } from "./dom.js";
import { titleOf } from "./methods.js";
import { drawWaiting } from "./show.js";
import { same } from "./state.js";

export function mountAnswerCard(app) {
  const { store, answers } = app;
  let method = null; // the method that is shown
  let picked = null; // the method that was clicked
  let drawn = null; // the explained answer that is shown
  let view = null;
  let draft = null; // {text, words} while the answer is generated

  app.draft = (now) => {
    draft = now;
    show();
  };
  /** The method of the shown answer as a list; null if something else is explained. */
  app.shownAnswer = () => {
    const { target, foil, answer } = store.get();
    return answer && target === null && foil === null && method ? [method] : null;
  };
  byId("answer-cancel").addEventListener("click", () => answers.cancel());
  answers.listen(show);
  store.listen(show);
  show();

  function show() {
    const asked = answers.question() !== null;
    byId("answer-card").hidden = !asked && !draft;
    byId("empty").hidden = asked || Boolean(draft) || app.results.question() !== null;
    byId("answer-cancel").hidden = !answers.pending.size;
    byId("answer-stale").hidden = !asked || !answers.stale();
    byId("answer-card").classList.toggle("is-old", asked && answers.stale());
    byId("answer-card").setAttribute("aria-busy", String(Boolean(draft) || answers.pending.size > 0));
    drawDraft();
    if (asked) drawWaiting(byId("answer-waiting"), app, answers);
    else byId("answer-waiting").replaceChildren();
    drawMethods();
    drawView();
  }

  /** Show the text of the answer until it is explained. */
  function drawDraft() {
    const text = draft ? draft.text : drawnNow() ? null : store.get().answer?.text;
    byId("draft").hidden = text === null || text === undefined;
    byId("draft").textContent = text ?? "";
    byId("draft").classList.toggle("is-writing", Boolean(draft));
    byId("draft-words").textContent = draft?.words ?? "";
  }

  function drawnNow() {
    const chosen = store.get().methods.filter((name) => answers.found.has(name));
    const usual = [picked, ...app.model.default_methods].find((name) => chosen.includes(name));
    method = usual ?? chosen[0] ?? null;
    return method === null ? null : answers.found.get(method).explanation;
  }

  function drawMethods() {
    const chosen = store.get().methods.filter((name) => answers.found.has(name));
    const buttons = chosen.map((name) => {
      const pick = () => {
        picked = name;
        show();
      };
      const pressed = { "aria-pressed": String(name === method) };
      return el("button", { type: "button", class: "chip", onclick: pick, ...pressed }, titleOf(app, name));
    });
    byId("answer-methods").replaceChildren(...(buttons.length > 1 ? buttons : []));
  }

  function drawView() {
    const answer = drawnNow();
    if (answer === drawn) return answer && follow();
    drawn = answer;
    if (!answer) {
      view = null;
      return byId("answer-view").replaceChildren();
    }
    const container = el("div");
    byId("answer-view").replaceChildren(container);
    const chosen = view?.choice() ?? tokensOf(answer);
    view = drawAnswer(container, answer, { onChoose, onAlternative });
    if (chosen) view.choose(chosen);
  }

  /** Select the part of the answer that was changed elsewhere. */
  function follow() {
    const { part } = store.get();
    if (!same(part, partOf(view.choice())) && part) view.choose(tokensOf(drawn));
  }

  function tokensOf(answer) {
    const { part } = store.get();
    if (!part || part[1] > answer.ids.length) return null;
    return { side: "answer", tokens: Array.from({ length: part[1] - part[0] }, (_, i) => answer.start + part[0] + i) };
  }

  /** [first token, token after the last] if the chosen tokens are contiguous; null: the whole answer. */
  function partOf(choice) {
    if (!choice || choice.side !== "answer") return null;
    const [first, last] = [choice.tokens[0], choice.tokens.at(-1)];
    return last - first + 1 === choice.tokens.length ? [first - drawn.start, last - drawn.start + 1] : null;
  }

  function onChoose(choice) {
    const part = partOf(choice);
    if (!same(part, store.get().part)) store.change({ part, target: null, foil: null });
  }

  /** Explain a token of the answer with an alternative as foil. */
  function onAlternative(token, index) {
    const foil = index === drawn.ids[token] ? null : index;
    store.change({ ...NO_ANSWER, answer: store.get().answer, part: [token, token + 1], foil });
    bringIntoView(byId("heatmaps-card"));
  }
}
