// The state of the page, one object that is stored in the link. The part of a link after # is never sent to a server.

export const EMPTY = {
  text: "",
  second: "",
  target: null, // null: the prediction; an index, or {span} for an extractive answer
  foil: null,
  position: null,
  system: null, // system message of a language model
  turns: [], // earlier messages {role, content},
  passages: [],
  answer: null, // {text, ids}: typed (without ids) or generated
  part: null, // of the answer: [first token, token after the last]; null: all of it
  writing: { tokens: 60, temperature: 0, seed: 0 },
  methods: [],
  heads: null, // [layer][head] from 0 to 1; null if the model has no head map
  mapForAll: false, // whether the map is also used for other methods with heads
  unit: "word",
  layers: null, // the method whose scores by layer are shown
  curves: false,
  perturbation: null, // how words are removed; null: chosen for the model
  edited: null, // edited text to compare with, or null
  difference: null, // [first, second] method
};

/** A store of the state; listeners are called with the state and the set of changed keys. */
export function createStore(initial) {
  let state = { ...EMPTY, ...initial };
  const listeners = [];
  return {
    get: () => state,
    listen: (listener) => listeners.push(listener),
    change(changes) {
      const changed = new Set(Object.keys(changes).filter((key) => !same(changes[key], state[key])));
      state = { ...state, ...changes };
      if (changed.size) for (const listener of listeners) listener(state, changed);
    },
  };
}

export function same(a, b) {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/** "#t=A+charming+journey.&m=lrp.mask_lrp&h=.paper" */
export function toHash(state, model) {
  const parts = new URLSearchParams();
  const setUnlessDefault = (name, value, empty) => same(value, empty) || parts.set(name, value);
  setUnlessDefault("t", state.text, "");
  setUnlessDefault("s", state.second, "");
  for (const [name, key] of Object.entries(JSON_PARTS)) {
    if (!same(state[key], EMPTY[key])) parts.set(name, JSON.stringify(state[key]));
  }
  setUnlessDefault("m", state.methods.join("."), "");
  const preset = model.masks.find((mask) => same(mask.lit, state.heads));
  if (state.heads) parts.set("h", preset ? `.${preset.name}` : headsToText(state.heads));
  setUnlessDefault("a", state.mapForAll ? "1" : "", "");
  setUnlessDefault("u", state.unit, EMPTY.unit);
  setUnlessDefault("l", state.layers ?? "", "");
  setUnlessDefault("c", state.curves ? "1" : "", "");
  setUnlessDefault("r", state.perturbation ?? "", "");
  if (state.edited !== null) parts.set("e", state.edited);
  if (state.difference) parts.set("d", state.difference.join("."));
  return `#${parts}`;
}

const JSON_PARTS = {
  ...{ y: "target", f: "foil", p: "position" },
  ...{ q: "system", k: "turns", v: "passages", w: "answer", n: "part", g: "writing" },
};

/** The inverse of `toHash`. Values that do not fit the model are ignored, since a link may come from anywhere. */
export function fromHash(hash, model) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const known = new Set(model.methods.filter((method) => method.available).map((method) => method.name));
  const names = (text) => (text ?? "").split(".").filter((name) => known.has(name));
  const state = { text: parts.get("t") ?? "", second: parts.get("s") ?? "" };
  for (const [name, key] of Object.entries(JSON_PARTS)) state[key] = parseValid(parts.get(name), VALIDATORS[key]) ?? EMPTY[key];
  if (!model.asks.position) state.position = null;
  if (!model.writes) Object.assign(state, { system: null, turns: [], passages: [], answer: null, part: null });
  if (!model.chats) Object.assign(state, { system: null, turns: [] });
  state.methods = parts.has("m") ? names(parts.get("m")) : null;
  const heads = parts.get("h") ?? "";
  const preset = model.masks.find((mask) => heads === `.${mask.name}`);
  state.heads = preset?.lit ?? headsFromText(heads, model.layers, model.heads);
  state.mapForAll = parts.get("a") === "1";
  state.unit = parts.get("u") === "token" ? "token" : "word";
  state.layers = names(parts.get("l"))[0] ?? null;
  state.curves = parts.get("c") === "1";
  state.perturbation = ["mask", "pad", "delete"].includes(parts.get("r")) ? parts.get("r") : null;
  state.edited = parts.get("e");
  const pair = names(parts.get("d"));
  state.difference = pair.length === 2 ? pair : null;
  return state;
}

const isIndex = (value) => Number.isSafeInteger(value) && value >= 0;
const isTarget = (value) => isIndex(value) || typeof value === "string" || isSpan(value?.span);
const isSpan = (value) => Array.isArray(value) && value.length === 2 && value.every(isIndex);
const isText = (value) => typeof value === "string";
const isTurn = (value) => ["user", "assistant"].includes(value?.role) && isText(value.content);
const isIds = (value) => value === null || (Array.isArray(value) && value.every(isIndex));
const isAnswer = (value) => isText(value?.text) && isIds(value.ids);
const isWriting = (value) => isIndex(value?.tokens) && value.temperature >= 0 && isIndex(value.seed);
const everyItem = (isValid) => (value) => Array.isArray(value) && value.every(isValid);
const VALIDATORS = {
  ...{ target: isTarget, foil: isTarget, position: isIndex, system: isText, turns: everyItem(isTurn) },
  ...{ passages: everyItem(isText), answer: isAnswer, part: isSpan, writing: isWriting },
};

/** The JSON value, or null if it is invalid. */
function parseValid(text, isValid) {
  try {
    const value = JSON.parse(text);
    return isValid(value) ? value : null;
  } catch {
    return null;
  }
}

/** "b" and a bit per head as hexadecimal digits, or "v" and two digits per head if strengths are between 0 and 1. */
export function headsToText(heads) {
  const flat = heads.flat();
  if (flat.every((lit) => lit === 0 || lit === 1)) {
    const digits = flat.join("").match(/.{1,4}/g);
    return `b${digits.map((bits) => parseInt(bits.padEnd(4, "0"), 2).toString(16)).join("")}`;
  }
  return `v${flat.map((lit) => Math.round(lit * 255).toString(16).padStart(2, "0")).join("")}`;
}

/** The inverse of `headsToText`, or null if the text is not a mask of this shape. */
export function headsFromText(text, layers, heads) {
  const count = layers * heads;
  const digits = text.slice(1);
  const expected = text[0] === "b" ? Math.ceil(count / 4) : 2 * count;
  if (!/^[bv][0-9a-f]+$/.test(text) || digits.length !== expected) return null;
  const flat =
    text[0] === "b"
      ? [...digits].flatMap((digit) => [...parseInt(digit, 16).toString(2).padStart(4, "0")].map(Number))
      : digits.match(/../g).map((pair) => parseInt(pair, 16) / 255);
  return Array.from({ length: layers }, (_, layer) => flat.slice(layer * heads, (layer + 1) * heads));
}
