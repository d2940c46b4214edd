// The list of methods by kind, each with a summary and its paper.
import { byId, el } from "./dom.js";

export function mountMethods(app) {
  const groups = Map.groupBy(app.model.methods, (method) => method.group);
  byId("methods").replaceChildren(...[...groups].map(([group, methods]) => groupBox(app, group, methods)));
  byId("methods-default").addEventListener("click", () => app.store.change({ methods: app.model.default_methods }));
  byId("methods-none").addEventListener("click", () => app.store.change({ methods: [] }));
  app.store.listen((_, changed) => changed.has("methods") && drawChosen(app));
  drawChosen(app);
}

export function titleOf(app, name) {
  return app.model.methods.find((method) => method.name === name)?.title ?? name;
}

/** name -> title, for heatmaps. */
export function titles(app) {
  return Object.fromEntries(app.model.methods.map((method) => [method.name, method.title]));
}

function groupBox(app, group, methods) {
  const chosen = el("span", { class: "chosen" });
  const summary = el("summary", {}, el("span", { class: "group" }, group), chosen);
  return el("details", { "data-group": group }, summary, ...methods.map((method) => methodRow(app, method)));
}

function methodRow(app, method) {
  const toggle = (event) => {
    const others = app.store.get().methods.filter((name) => name !== method.name);
    app.store.change({ methods: inOrder(app, event.target.checked ? [...others, method.name] : others) });
  };
  const box = el("input", { type: "checkbox", value: method.name, disabled: !method.available, onchange: toggle });
  const marks = [method.slow ? "slow" : "", method.heads ? "takes a head map" : ""].filter(Boolean).join(", ");
  return el(
    "label",
    { class: method.available ? "method" : "method is-off" },
    box,
    el("span", { class: "method-title" }, method.title, marks ? el("span", { class: "mark" }, marks) : null),
    el("span", { class: "method-about" }, method.available ? method.summary : method.reason),
    el("span", { class: "paper" }, method.paper),
  );
}

function inOrder(app, names) {
  return app.model.methods.map((method) => method.name).filter((name) => names.includes(name));
}

function drawChosen(app) {
  const { methods } = app.store.get();
  for (const box of byId("methods").querySelectorAll("input")) box.checked = methods.includes(box.value);
  for (const group of byId("methods").querySelectorAll("details")) {
    const checked = [...group.querySelectorAll("input:checked")].map((box) => titleOf(app, box.value));
    group.querySelector(".chosen").textContent = checked.join(", ");
  }
  byId("methods-count").textContent = `${methods.length} of ${app.model.methods.length} chosen`;
}
