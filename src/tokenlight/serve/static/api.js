// What the page asks its server. Every failure is an Error whose message can be shown.

export async function getModel() {
  return (await answer("/api/model")).json();
}

export async function predict(question, signal) {
  return (await post("/api/predict", question, signal)).json();
}

export async function attention(question, layer, head, signal) {
  return (await post("/api/attention", { ...question, layer, head }, signal)).json();
}

export async function remove(question, gone, perturbation, signal) {
  return (await post("/api/remove", { ...question, gone, perturbation }, signal)).json();
}

/** `asked`: methods, heads, layers. `onEvent` gets every line as it arrives. */
export async function explain(question, asked, onEvent, signal) {
  await readLines(await post("/api/explain", { ...question, ...asked }, signal), onEvent);
}

/** Every token of an answer by all tokens before it. `asked`: methods, heads. */
export async function explainAnswer(question, asked, onEvent, signal) {
  const { methods, heads } = asked;
  await readLines(await post("/api/answer", { ...question, methods, heads }, signal), onEvent);
}

/** `asked`: what the model reads, and how it is to write. */
export async function write(asked, onEvent, signal) {
  await readLines(await post("/api/write", asked, signal), onEvent);
}

/** `asked`: methods, heads, perturbation. */
export async function curves(question, asked, onEvent, signal) {
  await readLines(await post("/api/curves", { ...question, ...asked }, signal), onEvent);
}

/** A file made by the server: its bytes. */
export async function download(question, asked) {
  return (await post("/api/download", { ...question, ...asked })).blob();
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
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `The server answered ${response.status} ${response.statusText}.`);
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
