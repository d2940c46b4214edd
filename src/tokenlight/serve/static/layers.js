// Scores of every token in every layer, for methods that provide them.
import { explain, wasCancelled } from "./api.js";
import { byId, el, fillSelect } from "./dom.js";
import { paint, signedNumber, withFolds } from "./heatmap.js";
import { usesMap } from "./results.js";
import { roveGrid } from "./roving.js";
import { hintAtMore } from "./scroll_hint.js";
import { same } from "./state.js";

export function mountLayers(app) {
  const { store, model } = app;
  const select = byId("layers-method");
  const withLayers = model.methods.filter((method) => method.layers && method.available);
  byId("layers-card").hidden = !withLayers.length;
  fillSelect(select, [["", "choose a method"], ...withLayers.map((method) => [method.name, method.title])]);
  select.addEventListener("change", () => store.change({ layers: select.value || null }));
  const run = createLayers(app);
  store.listen((_, changed) => (changed.has("layers") || changed.has("heads") || changed.has("mapForAll")) && run());
  app.results.listen(run);
}

/** Sends a request only if the question, the method or its mask has changed. */
function createLayers(app) {
  let running = null;
  let last = null;
  return async () => {
    const { layers: method, heads } = app.store.get();
    byId("layers-method").value = method ?? "";
    const question = app.results.question();
    const masked = method !== null && usesMap(app, method);
    const request = [question, method, masked ? heads : null];
    if (same(request, last)) return;
    last = structuredClone(request);
    running?.abort();
    if (!question || !method) return byId("layers").replaceChildren();
    running = new AbortController();
    const settings = { methods: [method], heads: masked ? heads : null, layers: true };
    try {
      await explain(question, settings, take, running.signal);
    } catch (error) {
      if (!wasCancelled(error)) tell(error.message);
    }
  };
}

function take(event) {
  if (event.event === "failed") tell(event.error);
  if (event.event === "result") drawLayers(byId("layers"), event.explanation);
}

function tell(problem) {
  byId("layers").replaceChildren(el("p", { class: "error", role: "alert" }, problem));
}

/** The last layer is on top, as in papers. Folded tokens of long texts are left out. */
function drawLayers(container, explanation) {
  const values = explanation.maps.layers;
  if (!values) return tell("This method gave no scores of layers.");
  const shown = withFolds(explanation, "token_pieces")
    .filter((part) => !part.label)
    .flatMap((part) => explanation.token_pieces[part.from].tokens);
  const plain = shown.filter((token) => !explanation.special[token]);
  const largest = values.flatMap((row) => plain.map((token) => Math.abs(row[token]))).reduce(larger, 0) || 1;
  const readout = el("p", { class: "quiet", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys.");
  const say = (cell) => (readout.textContent = cell.getAttribute("aria-label"));
  const cell = (layer, token, value) => layerCell(explanation, layer, token, value / largest, say);
  const rows = values.map((row, layer) => shown.map((token) => cell(layer, token, row[token])));
  const order = rows.map((_, i) => rows.length - 1 - i);
  const label = `Scores of ${explanation.method} by layer and token`;
  const grid = el("div", { role: "grid", class: "layer-grid", "aria-label": label });
  grid.style.setProperty("--tokens", shown.length);
  grid.append(...order.map((layer) => el("div", { role: "row", class: "layer-row" }, rowName(layer), ...rows[layer])));
  const names = shown.map((token) => {
    const kind = explanation.special[token] ? "layer-token special" : "layer-token";
    return el("span", { role: "columnheader", class: kind }, el("span", {}, explanation.tokens[token]));
  });
  grid.append(el("div", { role: "row", class: "layer-row" }, el("span", { class: "head-number" }), ...names));
  roveGrid(grid, order.map((layer) => rows[layer]));
  const left = explanation.tokens.length - shown.length;
  const note = left ? [el("p", { class: "quiet" }, `${left} tokens of folded passages are left out.`)] : [];
  const box = el("div", { class: "scroll", role: "group", "aria-label": label }, grid);
  container.replaceChildren(box, readout, ...note);
  hintAtMore(box);
}

function larger(a, b) {
  return Math.max(a, b);
}

function rowName(layer) {
  return el("span", { role: "rowheader", class: "head-number" }, String(layer));
}

function layerCell(explanation, layer, token, strength, say) {
  const value = explanation.maps.layers[layer][token];
  const label = `layer ${layer}, ${explanation.tokens[token]}: ${signedNumber(value, explanation.signed)}`;
  const kind = explanation.special[token] ? "layer-cell is-special" : "layer-cell";
  const cell = el("span", { role: "gridcell", class: kind, "aria-label": label });
  paint(cell, strength);
  cell.addEventListener("pointerenter", () => say(cell));
  cell.addEventListener("focus", () => say(cell));
  return cell;
}
