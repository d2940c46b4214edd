// Copies links and saves files.
import { download } from "./api.js";
import { announce, byId, el } from "./dom.js";
import { titles } from "./methods.js";
import { pictureOf, pngOf, svgText } from "./picture.js";
import { maskFor } from "./results.js";

const NAME = "explanation";

export function mountShare(app) {
  const makers = {
    json: () => fromServer(app, "json"),
    svg: () => new Blob([svgText(picture(app))], { type: "image/svg+xml" }),
    png: () => pngOf(picture(app)),
    html: () => fromServer(app, "html"),
    latex: () => fromServer(app, "latex"),
  };
  for (const [format, make] of Object.entries(makers)) {
    byId(`save-${format}`).addEventListener("click", () => attempt(async () => save(await make(), format)));
  }
  byId("copy-link").addEventListener("click", () => attempt(copyLink));
  app.results.listen((results) => (byId("share-card").hidden = !results.found.size));
}

async function attempt(action) {
  byId("share-error").textContent = "";
  byId("share-words").textContent = "";
  try {
    await action();
  } catch (error) {
    byId("share-error").textContent = error.message;
  }
}

async function copyLink() {
  const link = location.href;
  try {
    await navigator.clipboard.writeText(link);
    tell("The link is copied. It holds the text itself: whoever has it can read the text.");
  } catch {
    throw new Error("The browser did not allow copying. The link is the address of this page, in the address bar.");
  }
}

function tell(text) {
  byId("share-words").textContent = text;
  announce(text);
}

function picture(app) {
  return pictureOf(app.results.explanations(), titles(app), app.store.get().unit);
}

/** A file that the server makes from its cached results. */
function fromServer(app, format) {
  const all = app.results.explanations().map((explanation) => explanation.method);
  const methods = format === "html" ? (app.shownAnswer() ?? all) : all; // an answer has one file per method
  return download(app.results.question(), { methods, ...maskFor(app, methods), format });
}

function save(blob, format) {
  const ending = format === "latex" ? "tex" : format;
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: `${NAME}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // the browser may still be reading it
  tell(`${NAME}.${ending} is saved with your downloads.`);
}
