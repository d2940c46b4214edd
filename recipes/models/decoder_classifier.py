"""A small sentiment classifier with causal attention, for checks on a decoder. Read it top to bottom.

    python recipes/models/decoder_classifier.py --data PATH/TO/SST-2 --output PATH/TO/decoder

A Llama of three layers with a classification head. Its tokenizer and word embeddings are those of the sentiment model
inside tokenlight; everything else is learned from SST-2 (a folder with `train.tsv` and `dev.tsv`, columns `label`
and `text_a`). The dev set is only ever measured.
"""

import argparse
import csv
import random
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification, get_linear_schedule_with_warmup

import tokenlight as tl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, required=True, help="folder with train.tsv and dev.tsv")
parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--rate", type=float, default=3e-4)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()
random.seed(args.seed)
torch.manual_seed(args.seed)


def read(split: str) -> tuple[list[str], list[int]]:
    with open(args.data / f"{split}.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["text_a"].strip() for row in rows], [int(row["label"]) for row in rows]


texts, labels = read("train")
dev_texts, dev_labels = read("dev")
embedded = tl.load()
tokenizer = embedded.tokenizer
words = embedded.model.get_parameter("bert.embeddings.word_embeddings.weight").detach()
config = LlamaConfig(
    vocab_size=len(words),
    hidden_size=words.shape[1],
    intermediate_size=3 * words.shape[1],
    num_hidden_layers=args.layers,
    num_attention_heads=6,
    max_position_embeddings=512,
    pad_token_id=tokenizer.pad_token_id,
    bos_token_id=tokenizer.cls_token_id,
    eos_token_id=tokenizer.sep_token_id,
    attention_dropout=0.1,
    id2label={0: "negative", 1: "positive"},
    label2id={"negative": 0, "positive": 1},
)
model = LlamaForSequenceClassification(config)
model.get_parameter("model.embed_tokens.weight").data.copy_(words)
model.to(args.device)


@torch.inference_mode()
def accuracy(texts: list[str], labels: list[int]) -> float:
    model.eval()
    right = 0
    for start in range(0, len(texts), 64):
        batch = tokenizer(texts[start : start + 64], padding=True, truncation=True, return_tensors="pt").to(args.device)
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        right += (logits.argmax(-1).cpu() == torch.tensor(labels[start : start + 64])).sum().item()
    return right / len(texts)


optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.01)
steps = args.epochs * (len(texts) // args.batch)
schedule = get_linear_schedule_with_warmup(optimizer, int(0.06 * steps), steps)
encoded = tokenizer(texts, truncation=True, max_length=128)["input_ids"]
step = 0
for epoch in range(args.epochs):
    by_length = sorted(range(len(encoded)), key=lambda i: len(encoded[i]) + random.random())
    batches = [by_length[i : i + args.batch] for i in range(0, len(by_length) - args.batch + 1, args.batch)]
    random.shuffle(batches)
    model.train()
    for rows in batches:
        batch = tokenizer.pad({"input_ids": [encoded[i] for i in rows]}, return_tensors="pt").to(args.device)
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        loss = model(**inputs, labels=torch.tensor([labels[i] for i in rows], device=args.device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
        if step % 200 == 0:
            print(f"step {step}/{steps}  loss {loss.item():.3f}", flush=True)
    print(f"epoch {epoch + 1}: dev accuracy {accuracy(dev_texts, dev_labels):.4f}", flush=True)

model.save_pretrained(args.output)
tokenizer.save_pretrained(args.output)
print(f"{args.output}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")
