// The head map: the role of every attention head, and its strength for relevance.
import { drawArcs } from "./arcs.js";
import { attention, wasCancelled } from "./api.js";
import { byId, debounce, el } from "./dom.js";
import { roveGrid } from "./roving.js";
import { same } from "./state.js";

const WIDE = 16; // with more heads than this, cells have no words
const SHORT = 3; // letters that fit into a cell on a phone
const CLEAR = 0.3; // heads with a lower share have no color

export function mountHeadMap(app) {
  const { model, store } = app;
  byId("headmap-card").hidden = !model.layers || !store.get().heads;
  if (byId("headmap-card").hidden) return;
  byId("headmap-fold").open = model.map !== null || !model.writes; // closed for answers if there are no statistics
  const rows = Array.from({ length: model.layers }, (_, layer) =>
    Array.from({ length: model.heads }, (_, head) => headCell(app, layer, head)),
  );
  drawGrid(byId("headmap"), rows);
  roveGrid(byId("headmap"), rows);
  mountPresets(app);
  const all = byId("map-for-all");
  all.parentElement.hidden = model.methods.filter((method) => method.heads && method.available).length < 2;
  all.addEventListener("change", () => store.change({ mapForAll: all.checked }));
  const draw = () => drawLit(app, rows);
  store.listen((_, changed) => (changed.has("heads") || changed.has("mapForAll")) && draw());
  draw();
  mountLooking(app, rows);
}

function drawGrid(grid, rows) {
  const corner = el("span", { role: "columnheader", class: "head-number" }, el("span", { class: "hidden" }, "layer"));
  const numbers = rows[0].map((_, head) => el("span", { role: "columnheader", class: "head-number" }, String(head)));
  grid.style.setProperty("--heads", rows[0].length);
  grid.classList.toggle("is-wide", rows[0].length > WIDE);
  grid.replaceChildren(
    el("div", { role: "row", class: "head-row" }, corner, ...numbers),
    ...rows.map((row, layer) => {
      const number = el("span", { role: "rowheader", class: "head-number" }, String(layer));
      return el("div", { role: "row", class: "head-row" }, number, ...row);
    }),
  );
}

function headCell(app, layer, head) {
  const about = app.model.map?.[layer]?.[head] ?? null;
  const toggle = () => {
    const heads = app.store.get().heads.map((row) => [...row]);
    heads[layer][head] = heads[layer][head] > 0 ? 0 : 1;
    app.store.change({ heads });
  };
  const words = app.model.heads > WIDE ? "" : label(about);
  const attributes = { type: "button", role: "gridcell", class: `head is-${tendency(about)}`, onclick: toggle };
  const cell = el("button", attributes, words);
  cell.classList.toggle("is-worded", words.length > SHORT);
  cell.dataset.layer = layer;
  cell.dataset.head = head;
  cell.style.setProperty("--strength", strength(about));
  return cell;
}

/** The role of a head, whether it is in the mask or not. */
function tendency(about) {
  if (!about) return "unknown";
  if (about.kind !== "dark") return about.kind;
  if (Math.max(about.accuracy, about.share) < CLEAR) return "unknown";
  return about.accuracy >= about.share ? "syntactic" : "positional";
}

function strength(about) {
  if (!about) return 0;
  const { accuracy, share } = about;
  return { syntactic: accuracy, positional: share }[tendency(about)] ?? Math.max(accuracy, share);
}

function label(about) {
  const kind = tendency(about);
  if (kind === "unknown") return "";
  if (kind === "both") return `${about.relation} ${sign(about.offset)}`;
  return kind === "syntactic" ? about.relation : sign(about.offset);
}

function sign(offset) {
  return offset > 0 ? `+${offset}` : String(offset).replace("-", "−");
}

const IN_MASK = {
  syntactic: "syntactic in the mask",
  positional: "positional in the mask",
  both: "syntactic and positional in the mask",
  dark: "below the thresholds of the mask",
};

/** "Layer 2, head 0: object (obj) in 34 %; offset −1 in 20 %." */
function sentence(about) {
  if (!about || (about.relation === null && about.offset === null)) return "nothing is recorded about it.";
  const percentage = (share) => `${Math.round(share * 100)} %`;
  const parts = [];
  if (about.relation !== null) parts.push(`follows ${about.relation} in ${percentage(about.accuracy)} of cases`);
  if (about.offset !== null) parts.push(`looks most often at offset ${sign(about.offset)}, in ${percentage(about.share)}`);
  return `${parts.join("; ")} (${IN_MASK[about.kind]}).`;
}

function drawLit(app, rows) {
  const { heads, mapForAll } = app.store.get();
  rows.forEach((row, layer) =>
    row.forEach((cell, head) => {
      const lit = heads[layer][head];
      cell.setAttribute("aria-selected", String(lit > 0));
      cell.classList.toggle("is-part", lit > 0 && lit < 1);
      cell.style.setProperty("--lit", lit);
      const role = label(app.model.map?.[layer]?.[head] ?? null);
      const state = lit > 0 && lit < 1 ? `lit to ${Math.round(lit * 100)} %` : lit ? "lit" : "out";
      const name = [`layer ${layer}`, `head ${head}`, role, state].filter(Boolean).join(", ");
      cell.setAttribute("aria-label", name);
    }),
  );
  byId("map-for-all").checked = mapForAll;
  byId("lit-count").textContent = `${count(heads)} of ${app.model.layers * app.model.heads} heads lit`;
  for (const button of byId("presets").children) {
    const mask = app.model.masks.find((entry) => entry.name === button.dataset.preset);
    button.setAttribute("aria-pressed", String(Boolean(mask) && same(mask.lit, heads)));
  }
}

function count(heads) {
  return heads.flat().filter((lit) => lit > 0).length;
}

function mountPresets(app) {
  const { model, store } = app;
  const button = (name, title, heads) => {
    const light = () => store.change({ heads: heads() });
    return el("button", { type: "button", class: "chip", "data-preset": name, onclick: light }, title);
  };
  byId("presets").replaceChildren(
    ...model.masks.map((mask) => button(mask.name, mask.title, () => mask.lit)),
    button("random", "random, as many", () => randomHeads(store.get().heads)),
  );
}

/** A mask with the same number of heads at random places: a control. */
export function randomHeads(heads) {
  const positions = heads.flatMap((row, layer) => row.map((_, head) => [layer, head]));
  const lit = heads.map((row) => row.map(() => 0));
  for (let left = count(heads); left > 0; left -= 1) {
    const [[layer, head]] = positions.splice(Math.floor(Math.random() * positions.length), 1);
    lit[layer][head] = 1;
  }
  return lit;
}

/** Hovering or focusing a head draws its attention on the explained text. */
function mountLooking(app, rows) {
  const known = new Map(); // head and question -> response
  let running = null;
  let shown = null;
  const look = debounce(40, async (layer, head) => {
    const question = app.results.question();
    const key = JSON.stringify([layer, head, question]);
    if (!question || key === shown) return;
    running?.abort();
    running = new AbortController();
    const about = `Layer ${layer}, head ${head}: ${sentence(app.model.map?.[layer]?.[head] ?? null)}`;
    byId("head-about").textContent = about;
    try {
      if (!known.has(key)) known.set(key, await attention(question, layer, head, running.signal));
      shown = key;
      byId("arcs-error").textContent = "";
      drawArcs(byId("arcs"), known.get(key), `Attention of layer ${layer}, head ${head}`);
    } catch (error) {
      if (!wasCancelled(error)) byId("arcs-error").textContent = error.message;
    }
  });
  for (const cell of rows.flat()) {
    const go = () => look(Number(cell.dataset.layer), Number(cell.dataset.head));
    cell.addEventListener("pointerenter", go);
    cell.addEventListener("focus", go);
  }
  app.results.listen(() => known.size > 200 && known.clear());
}
