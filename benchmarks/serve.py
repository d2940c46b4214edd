"""Latency of the page after a change of the head mask, with HTTP, on the embedded model.

    python benchmarks/serve.py                     # a sentence of about 20 tokens; the aim is 100 ms
    python benchmarks/serve.py --model PATH --text "..."

Every request lights other heads, so that nothing is answered from the cache. Requests and plain calls of the library
alternate; times are the processor's (all threads together), medians of one machine: read the ratio first.
"""

import argparse
import http.client
import json
import statistics
import threading
import time
from collections.abc import Iterator

import torch
from rich.console import Console
from rich.table import Table

import tokenlight as tl
from tokenlight.serve.server import Server, listen, make_server

TEXT = "A charming, often affecting journey with a luminous lead, and I never looked at my watch."
AIM = 100  # milliseconds
Heads = list[list[int]]


def other_heads(layers: int, heads: int) -> Iterator[Heads]:
    """Random masks, all different."""
    generator = torch.Generator().manual_seed(0)
    while True:
        yield torch.randint(0, 2, (layers, heads), generator=generator).tolist()


def ask(connection: http.client.HTTPConnection, route: str, question: dict[str, object]) -> list[dict[str, object]]:
    """The JSON lines of a response."""
    connection.request("POST", f"/api/{route}", json.dumps(question), {"Content-Type": "application/json"})
    lines = [json.loads(line) for line in connection.getresponse().read().splitlines()]
    if any(line.get("event") == "failed" or "error" in line for line in lines):
        raise RuntimeError(f"the server refused: {lines}")
    return lines


def start(explainer: tl.Explainer) -> tuple[Server, int]:
    sock = listen(0)
    server = make_server(explainer, sock)
    threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return server, sock.getsockname()[1]


def measure(explainer: tl.Explainer, port: int, text: str, repeats: int) -> dict[str, float]:
    """Milliseconds of a change by HTTP and by a plain call, of a repeated request, and of a prediction."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    config = explainer.model.config.get_text_config()
    masks = other_heads(config.num_hidden_layers, config.num_attention_heads)
    times: dict[str, list[float]] = {}

    def note(name: str, began: float) -> None:
        times.setdefault(name, []).append((time.process_time() - began) * 1e3)

    ask(connection, "explain", {"text": text, "methods": ["mask_lrp"], "heads": next(masks)})  # warms up
    for _ in range(repeats):
        heads = next(masks)
        question = {"text": text, "methods": ["mask_lrp"], "heads": heads}
        began = time.process_time()
        explainer.explain(text, "mask_lrp", heads=heads, progress=False)
        note("explainer.explain", began)
        began = time.process_time()
        ask(connection, "explain", question)
        note("change of the head mask", began)
        began = time.process_time()
        ask(connection, "explain", question)
        note("the same again (reused)", began)
        began = time.process_time()
        ask(connection, "predict", {"text": text, "target": f"{len(times['explainer.explain']) % 2}"})
        note("prediction", began)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="path of a checkpoint; default: the embedded model")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    explainer = tl.load(args.model)
    server, port = start(explainer)
    milliseconds = measure(explainer, port, args.text, args.repeats)
    server.should_exit = True
    tokens = len(explainer.encode([args.text])[0])
    table = Table(title=f"one text of {tokens} tokens, {torch.get_num_threads()} threads, {args.repeats} repetitions")
    for column in ("what", "ms", "ratio to explainer.explain"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, value in milliseconds.items():
        table.add_row(name, f"{value:.1f}", f"{value / milliseconds['explainer.explain']:.2f}")
    Console().print(table)
    changed = milliseconds["change of the head mask"]
    print(f"a change of the head mask takes {changed:.0f} ms of processor time (aim: {AIM} ms)")


if __name__ == "__main__":
    main()
