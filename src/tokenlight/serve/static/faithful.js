// Faithfulness curves: the target's probability while a method's words are removed.
import { curves, wasCancelled } from "./api.js";
import { drawChart } from "./chart.js";
import { announce, byId, el, percent } from "./dom.js";
import { titleOf } from "./methods.js";
import { maskFor } from "./results.js";
import { same } from "./state.js";

const CONTROLS = { random: "at random", erasure: "by erasure" };
const COLORS = 10; // curve-0 to curve-9 in style.css
const AXIS = { horizontal: "share of tokens removed", vertical: "probability of the target" };

export function mountFaithful(app) {
  const { store } = app;
  const runs = createCurves(app);
  const select = byId("perturbation");
  select.addEventListener("change", () => store.change({ perturbation: select.value || null }));
  byId("measure").addEventListener("click", () => {
    store.change({ curves: true });
    runs.start();
  });
  byId("measure-cancel").addEventListener("click", runs.cancel);
  store.listen((state, changed) => {
    select.value = state.perturbation ?? "";
    if (changed.has("perturbation") && state.curves) runs.start();
    if (changed.has("methods") || changed.has("heads") || changed.has("mapForAll")) runs.forget();
  });
  select.value = store.get().perturbation ?? "";
  app.results.listen(runs.follow);
  new ResizeObserver(() => runs.redraw()).observe(byId("curves"));
  return runs;
}

function createCurves(app) {
  let running = null;
  let curvesByName = new Map(); // name -> event
  let asked = null;
  let width = 0;

  return { start, cancel, forget, follow, redraw };

  async function start() {
    const question = app.results.question();
    if (!question) return;
    cancel();
    curvesByName = new Map();
    asked = question;
    const controller = new AbortController();
    running = controller;
    byId("faithful-error").textContent = "";
    busy(true);
    try {
      const { methods, perturbation } = app.store.get();
      await curves(question, { methods, ...maskFor(app, methods), perturbation }, take, controller.signal);
      announce("The curves are drawn.");
    } catch (error) {
      if (!wasCancelled(error)) byId("faithful-error").textContent = error.message;
    }
    if (running === controller) busy(false);
  }

  function take(event) {
    if (event.event === "curve") curvesByName.set(event.method, event);
    if (event.event === "failed") byId("faithful-error").textContent = `${titleOf(app, event.method)}: ${event.error}`;
    if (event.event === "progress" || event.event === "waiting") {
      const bar = byId("measure-progress");
      if (event.total) Object.assign(bar, { max: event.total, value: event.done });
      const about = event.method ? titleOf(app, event.method) : "";
      byId("measure-words").textContent = event.ahead ? `waits behind ${event.ahead}` : about;
    }
    if (event.event === "curve") draw();
  }

  function busy(on) {
    byId("measure-cancel").hidden = !on;
    byId("measure-progress").hidden = !on;
    byId("measure").disabled = on;
    byId("measure-progress").removeAttribute("value");
    byId("measure-words").textContent = "";
  }

  function cancel() {
    running?.abort();
    running = null;
    busy(false);
  }

  /** Remove curves, which belong to other methods or another mask. */
  function forget() {
    cancel();
    curvesByName = new Map();
    asked = null;
    draw();
    app.store.change({ curves: false });
  }

  function follow(results) {
    byId("faithful-card").hidden = !results.found.size;
    if (asked && !same(asked, results.question())) forget();
    if (!asked && app.store.get().curves && results.found.size && !results.pending.size) start();
  }

  function redraw() {
    if (byId("curves").clientWidth !== width) draw();
  }

  function draw() {
    width = byId("curves").clientWidth;
    byId("curves-table").hidden = !curvesByName.size;
    byId("curves-note").hidden = !curvesByName.size;
    if (!curvesByName.size) return byId("curves").replaceChildren();
    const lines = linesOf(app, [...curvesByName.values()]);
    byId("curves-note").textContent = noteOf(lines[0]);
    drawChart(byId("curves"), lines, axisOf(app), (point, byKey) => {
      drawTable(lines, point);
      if (byKey) announce(spoken(lines, point));
    });
    drawTable(lines, null);
  }
}

/** For targets of several tokens, the geometric mean of their probabilities is drawn. */
function axisOf(app) {
  const several = app.results.explanations().some(({ indices }) => app.model.writes && indices.length > 1);
  return several ? { ...AXIS, vertical: "mean probability of its tokens" } : AXIS;
}

function linesOf(app, events) {
  const methodEvents = events.filter((event) => !(event.method in CONTROLS) || app.store.get().methods.includes(event.method));
  return events.map((event) => {
    const control = CONTROLS[event.method];
    const style = control ? `curve-${event.method}` : `curve-${methodEvents.indexOf(event) % COLORS}`;
    return { ...event, name: event.method, title: control ?? titleOf(app, event.method), style };
  });
}

/** A note on curves that rise again, and on the noise of a single text. */
function noteOf({ shares, probabilities }) {
  const left = shares.at(-1) > 0.999 ? ` the target still has ${percent(probabilities.at(-1))}.` : " the model still predicts something.";
  return (
    `At the right end the whole text is removed, and${left} A model also predicts something for a text without words, so ` +
    "curves may rise again toward that value. A single text is noisy; the benchmark (tokenlight bench) takes the mean " +
    "over many."
  );
}

/** "25 % removed: AttnLRP 0.812, at random 0.930" */
function spoken(lines, point) {
  const values = lines.map((line) => `${line.title} ${line.probabilities[point].toFixed(3)}`);
  return `${Math.round(lines[0].shares[point] * 100)} % removed: ${values.join(", ")}`;
}

/** A table of all lines, the best first; it is also the legend. */
function drawTable(lines, point) {
  const share = point === null ? "" : `${Math.round(lines[0].shares[point] * 100)} % removed`;
  const head = ["", "AOPC", "log-odds", share].map((name) => el("th", { scope: "col" }, name));
  const rows = [...lines].sort((a, b) => b.aopc - a.aopc).map((line) => tableRow(line, point));
  byId("curves-table").replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}

function tableRow(line, point) {
  const swatch = el("span", { class: `swatch ${line.style}` });
  const at = point === null ? "" : line.probabilities[point].toFixed(3);
  const number = (value) => (value === null || value === undefined ? "" : value.toFixed(3).replace("-", "−"));
  return el(
    "tr",
    { "data-curve": line.name },
    el("th", { scope: "row" }, swatch, line.title),
    el("td", {}, number(line.aopc)),
    el("td", {}, number(line.log_odds)),
    el("td", {}, at),
  );
}
