// Requests to the server. Every failure is an Error whose message can be shown.

export async function getModel() {
  return (await answer("/api/model")).json();
}

export async function predict(question, signal) {
  return (await post("/api/predict", question, signal)).json();
}

export async function attention(question, layer, head, signal) {
  return (await post("/api/attention", { ...question, layer, head }, signal)).json();
}

export async function remove(question, removed, perturbation, signal) {
  return (await post("/api/remove", { ...question, gone: removed, perturbation }, signal)).json();
}

/** `settings`: methods, heads, layers. `onEvent` is called with every line as it arrives. */
export async function explain(question, settings, onEvent, signal) {
  await readLines(await post("/api/explain", { ...question, ...settings }, signal), onEvent);
}

/** Explain every token of an answer by all earlier tokens. `settings`: methods, heads. */
export async function explainAnswer(question, settings, onEvent, signal) {
  const { methods, heads } = settings;
  await readLines(await post("/api/answer", { ...question, methods, heads }, signal), onEvent);
}

/** Generate an answer. `settings`: the prompt and the generation options. */
export async function write(settings, onEvent, signal) {
  await readLines(await post("/api/write", settings, signal), onEvent);
}

/** `settings`: methods, heads, perturbation. */
export async function curves(question, settings, onEvent, signal) {
  await readLines(await post("/api/curves", { ...question, ...settings }, signal), onEvent);
}

/** A file from the server, as a blob. */
export async function download(question, settings) {
  return (await post("/api/download", { ...question, ...settings })).blob();
}

export function wasCancelled(error) {
  return error.name === "AbortError";
}

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return answer(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function answer(path, request = {}) {
  let response;
  try {
    response = await fetch(path, request);
  } catch (error) {
    if (wasCancelled(error)) throw error;
    throw new Error("The server does not answer. Is `tokenlight serve` still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error ?? `The server answered ${response.status} ${response.statusText}.`);
}

async function readLines(response, onEvent) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let finished = false;
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines.filter(Boolean)) {
      const event = JSON.parse(line);
      finished ||= event.event === "done";
      onEvent(event);
    }
    if (done) break;
  }
  if (!finished) throw new Error("The answer of the server broke off. Try again.");
}
