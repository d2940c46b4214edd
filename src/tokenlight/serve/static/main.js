// Entry point: creates the state and mounts all cards.
import { mountAnswerCard } from "./answer_card.js";
import { explainAnswer, getModel } from "./api.js";
import { mountAsk } from "./ask.js";
import { mountCompare } from "./compare.js";
import { mountConversation } from "./conversation.js";
import { bringIntoView, byId, debounce } from "./dom.js";
import { mountFaithful } from "./faithful.js";
import { mountHeadMap } from "./headmap.js";
import { mountLayers } from "./layers.js";
import { mountMethods } from "./methods.js";
import { mountRemoval } from "./removal.js";
import { createResults } from "./results.js";
import { hintAtMore } from "./scroll_hint.js";
import { mountShare } from "./share.js";
import { mountShow } from "./show.js";
import { createStore, fromHash, toHash } from "./state.js";

const CARDS = [
  mountMethods,
  mountAnswerCard,
  mountConversation,
  mountShow,
  mountHeadMap,
  mountLayers,
  mountFaithful,
  mountRemoval,
  mountCompare,
  mountShare,
];
const WHOLE_ANSWER = { part: null, target: null, foil: null };
const CHANGE_DELAY = 8; // milliseconds between a change and its request

try {
  start(await getModel());
} catch (error) {
  byId("page-error").textContent = error.message;
}

function start(model) {
  const store = createStore(startingState(model));
  const app = { model, store, prediction: null };
  app.results = createResults(app, (state) => state.text);
  app.send = () => app.explainNow(); // on Ctrl + Enter
  app.answers = createResults(app, (state) => state.text, () => WHOLE_ANSWER, explainAnswer);
  app.explainNow = () => {
    const needed = model.form.second_required ? ["text", "second"] : ["text"];
    const missing = needed.find((name) => !store.get()[name].trim());
    if (missing) return byId(missing).focus();
    app.results.run(true);
    if (store.get().answer) app.answers.run(true);
    else app.answers.clear();
    bringIntoView(byId("results"));
  };
  byId("model").textContent = `${model.name} · ${model.task} · ${model.layers} layers of ${model.heads} heads`;
  const predictNow = mountAsk(app);
  for (const mount of CARDS) mount(app);
  if (model.writes) for (const id of ["headmap-card", "layers-card"]) byId("share-card").before(byId(id));
  followChanges(app);
  followLink(app);
  byId("skip").addEventListener("click", () => byId("results-title").focus());
  for (const box of document.querySelectorAll(".scroll")) hintAtMore(box);
  if (store.get().text) {
    predictNow();
    app.explainNow();
  }
}

function startingState(model) {
  const linked = fromHash(location.hash, model);
  const heads = linked.heads ?? model.masks[0]?.lit ?? null;
  return { ...linked, heads, methods: linked.methods ?? model.default_methods };
}

/** Once there are results, run again after every change except of the text. */
function followChanges(app) {
  const parts = ["methods", "target", "foil", "position", "heads", "mapForAll", "part"];
  const runSoon = debounce(CHANGE_DELAY, () => app.results.question() && app.store.get().text.trim() && app.results.run());
  app.store.listen((_, changed) => parts.some((part) => changed.has(part)) && runSoon());
  const answerParts = ["methods", "heads", "mapForAll"];
  app.store.listen((state, changed) => {
    if (app.answers.question() && state.answer && answerParts.some((part) => changed.has(part))) app.answers.run();
  });
}

/** Keep the state in the address; reload the page if the address is changed by hand. */
function followLink(app) {
  let ownHash = location.hash;
  const write = debounce(200, (state) => {
    ownHash = toHash(state, app.model);
    history.replaceState(null, "", ownHash);
  });
  app.store.listen(write);
  window.addEventListener("hashchange", () => location.hash !== ownHash && location.hash.length > 1 && location.reload());
}
