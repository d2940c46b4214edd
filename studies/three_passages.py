"""A small language model answers from three passages: which of them made it say that? Read it top to bottom.

    python recipes/models/smollm2.py --output PATH/TO/smollm2
    python studies/three_passages.py --model PATH/TO/smollm2

Prints the answer, what each of its sentences rests on, and how much less likely each becomes without each passage.
"""

import argparse

from tokenlight.cli.load import load_model

PASSAGES = {
    "museum": "The Harbour Museum in Lindvik opened in 1987. It shows old fishing boats and is closed on Mondays.",
    "lighthouse": "The lighthouse of Lindvik is 34 meters tall. It was painted red and white in 2015.",
    "ferry": "The ferry from Lindvik to Storholm takes 50 minutes. It leaves every day at nine in the morning.",
}
QUESTION = "What can I see in Lindvik, and how do I get to Storholm?"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", required=True, help="checkpoint of a language model with a chat template")
parser.add_argument("--question", default=QUESTION)
parser.add_argument("--method", default="attn_lrp")
parser.add_argument("--tokens", type=int, default=40, help="of the answer, at most")
parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()

explainer = load_model(args.model, None, device=args.device)


def ask(passages: dict[str, str]) -> list[dict[str, str]]:
    text = "\n\n".join(["Answer the question from the passages.", *passages.values(), f"Question: {args.question}"])
    return [{"role": "user", "content": text}]


written = explainer.generate(ask(PASSAGES), max_new_tokens=args.tokens, do_sample=False)
print(f"{args.question}\n{written.text}\n")
answer = written.explain(args.method, documents=PASSAGES, progress=False)
table = answer.by_document()
table.show()

# Check by ablation: how far does the log-probability of each sentence of the same answer fall without a passage?
sentences = [answer.of(sentence=i) for i in range(len(table.parts))]
token_ranges = [slice(len(s.given), len(s.given) + len(s.indices)) for s in sentences]
for name in PASSAGES:
    rest = {other: text for other, text in PASSAGES.items() if other != name}
    without = explainer.explain_answer(ask(rest), written, "random", progress=False)
    falls = [float((answer.log_probabilities - without.log_probabilities)[tokens].sum()) for tokens in token_ranges]
    print(f"without {name}: " + ", ".join(f"sentence {i} {-fall:+.1f}" for i, fall in enumerate(falls, 1)))
