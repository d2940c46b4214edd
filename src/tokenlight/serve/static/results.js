// Results of methods: finished, pending and failed ones, and the requests for them.
import { explain, wasCancelled } from "./api.js";
import { questionOf } from "./ask.js";
import { announce } from "./dom.js";
import { same } from "./state.js";
import { titleOf } from "./methods.js";

const MASKED = "mask_lrp"; // the method that always uses the head map
const NO_RESULT = { seconds: 0 };

/** Whether a method uses the head map. */
export function usesMap(app, name) {
  const method = app.model.methods.find((entry) => entry.name === name);
  return Boolean(app.store.get().heads && method?.heads && (name === MASKED || app.store.get().mapForAll));
}

/** The fields of a request for methods with and without the map: the mask, and the methods that use it. */
export function maskFor(app, names) {
  const masked = names.filter((name) => usesMap(app, name));
  return masked.length ? { heads: app.store.get().heads, masked } : {};
}

/**
 * Explanations of one text; `more` returns fields of the question that differ.
 * Methods with and without the map have separate requests, so that a click on a head affects no other method.
 */
export function createResults(app, textOf, more = () => ({}), ask = explain) {
  const found = new Map(); // method -> {explanation, seconds, key}
  const pending = new Map(); // method -> {done, total, ahead}
  const failed = new Map(); // method -> sentence
  const lanes = { plain: null, masked: null };
  const listeners = [];
  let asked = null; // the question of the results
  let text = null; // ... and its text

  const results = {
    found,
    pending,
    failed,
    listen: (listener) => listeners.push(listener),
    question: () => asked,
    text: () => text,
    stale: () => asked !== null && !same(asked, question()),
    explanations: () => ordered().flatMap((name) => found.get(name)?.explanation ?? []),
    run,
    cancel,
    clear,
  };
  return results;

  function question() {
    const state = app.store.get();
    return { ...questionOf(state, app.model, textOf(state)), ...more() };
  }

  /** All chosen methods; those that use the map are last, next to it. */
  function ordered() {
    const { methods } = app.store.get();
    return [...methods.filter((name) => !usesMap(app, name)), ...methods.filter((name) => usesMap(app, name))];
  }

  /** Run chosen methods without results; a new question clears all results. With `again`, failed methods run again. */
  function run(again = false) {
    const now = question();
    if (!same(now, asked)) {
      cancel();
      found.clear();
      failed.clear();
      asked = now;
      text = textOf(app.store.get());
    }
    for (const name of failed.keys()) if (again || !app.store.get().methods.includes(name)) failed.delete(name);
    runLane("plain", ordered().filter((name) => !usesMap(app, name)));
    runLane("masked", ordered().filter((name) => usesMap(app, name)));
  }

  async function runLane(lane, chosen) {
    const heads = lane === "masked" ? app.store.get().heads : null;
    const key = JSON.stringify(heads);
    const missing = chosen.filter((name) => found.get(name)?.key !== key && failed.get(name)?.key !== key);
    const running = lanes[lane];
    if (running && same(running.missing, missing) && running.key === key) return;
    stop(lane);
    if (!missing.length) return tell();
    const controller = new AbortController();
    lanes[lane] = { controller, missing, key };
    for (const name of missing) pending.set(name, {});
    tell();
    try {
      await ask(asked, { methods: missing, heads, layers: false }, (event) => take(event, key), controller.signal);
    } catch (error) {
      if (wasCancelled(error)) return;
      for (const name of missing) if (pending.has(name)) fail(name, error.message, key);
    }
    if (lanes[lane]?.controller === controller) stop(lane);
    tell();
  }

  function take(event, key) {
    const { method } = event;
    if (event.event === "waiting") for (const about of pending.values()) about.ahead = event.ahead;
    if (event.event === "progress") pending.set(method, { done: event.done, total: event.total });
    if (event.event === "result") {
      found.set(method, { explanation: event.explanation, seconds: event.seconds, key });
      failed.delete(method);
    }
    if (event.event === "failed") fail(method, event.error, key);
    if (event.event === "result" || event.event === "failed") pending.delete(method);
    if (event.event === "result") announce(`${titleOf(app, method)} is shown.`);
    if (event.event === "failed") announce(`${titleOf(app, method)} failed: ${event.error}`);
    if (event.event === "result" && !pending.size) announce(`All chosen methods are shown, ${found.size} in all.`);
    if (event.event !== "done") tell();
  }

  function fail(name, error, key) {
    failed.set(name, { error, key });
    dropOther(name, key);
  }

  /** Remove the result of another mask. */
  function dropOther(name, key) {
    if (found.get(name)?.key !== key) found.delete(name);
  }

  function stop(lane) {
    const running = lanes[lane];
    lanes[lane] = null;
    running?.controller.abort();
    for (const name of running?.missing ?? []) pending.delete(name);
  }

  /** Cancel all requests; results of the present mask stay. */
  function cancel() {
    for (const running of Object.values(lanes)) for (const name of running?.missing ?? []) dropOther(name, running.key);
    stop("plain");
    stop("masked");
    tell();
  }

  function clear() {
    cancel();
    found.clear();
    failed.clear();
    asked = null;
    tell();
  }

  function tell() {
    for (const listener of listeners) listener(results);
  }
}

/** "30 ms", "30 ms for 4 methods" if they shared their passes, or "" if unknown. */
export function secondsOf(results, name) {
  const { seconds } = results.found.get(name) ?? NO_RESULT;
  if (!seconds) return "";
  const together = [...results.found.values()].filter((result) => result.seconds === seconds).length;
  const time = seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
  return together > 1 ? `${time} for ${together} methods` : time;
}
