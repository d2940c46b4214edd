"""How well the small models do what they were trained for, on fresh texts of the same templates.

python -m papers.small_accuracy                  # trains those that are not in the cache
python -m papers.small_accuracy pairs inferences

Agreement: the share of sentences in which the right verb form gets the higher logit, all nouns between subject and
verb being of the other number. Questions: the answer's token has the highest start and the highest end logit. The
others: accuracy. There are few different pairs and inferences, so nearly all of them were seen in training; of an
inference, the hypothesis alone gives the label away.

Measured on 2026-11-18 (seed 0, one core): 1.000 for agreement, questions, pairs and inferences of every family;
reviews: 0.993 (BERT), 0.963 (RoBERTa), 0.980 (DistilBERT). Training took 25 to 50 seconds for each of the six models
that were timed: agreement with BERT, GPT-2 and Llama, and questions, pairs and inferences with BERT.
"""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import tokenlight as tl
from papers import small_models, small_texts
from papers.small_models import RECIPES

COUNT = 300
SEED = 12_345  # not one of a model


def verb_accuracy(explainer: tl.Explainer, draw: random.Random) -> float:
    sentences = [small_texts.make_agreement_sentence(draw, opposite=True) for _ in range(COUNT)]
    mask = explainer.tokenizer.mask_token
    is_masked = explainer.task.gap == "inside"
    texts = [sentence.before for sentence in sentences]
    if is_masked:
        texts = [f"{sentence.before} {mask} {sentence.after}" for sentence in sentences]
    blank = "" if is_masked else " "
    target, foil = ([blank + getattr(sentence, form) for sentence in sentences] for form in ("verb", "other_form"))
    explained = explainer.explain(texts, "random", target=target, foil=foil, progress=False)
    return sum(explanation.score > 0 for explanation in explained) / COUNT


def answer_accuracy(explainer: tl.Explainer, draw: random.Random) -> float:
    questions = [small_texts.make_question(draw) for _ in range(COUNT)]
    right = 0
    for question in questions:
        batch = explainer.tokenizer(
            question.question,
            question.passage,
            return_tensors="pt",
            return_token_type_ids=explainer.model.config.model_type == "bert",
        )
        answer_token = batch.char_to_token(0, question.start, sequence_index=1)
        with torch.no_grad():
            output: Any = explainer.model(**batch)
        right += answer_token == int(output.start_logits.argmax()) == int(output.end_logits.argmax())
    return right / COUNT


def class_accuracy(make: Callable[[random.Random], tuple[Any, ...]]) -> Callable[[tl.Explainer, random.Random], float]:
    def accuracy(explainer: tl.Explainer, draw: random.Random) -> float:
        rows = [make(draw) for _ in range(COUNT)]
        texts = [row[0] if len(row) == 2 else (row[0], row[1]) for row in rows]
        names: Any = explainer.model.config.id2label
        explained = explainer.explain(texts, "random", progress=False)
        return sum(e.prediction == names[row[-1]] for e, row in zip(explained, rows, strict=True)) / COUNT

    return accuracy


ACCURACIES: Mapping[str, Callable[[tl.Explainer, random.Random], float]] = {  # by the beginning of a model's name
    "agreement": verb_accuracy,
    "questions": answer_accuracy,
    "pairs": class_accuracy(small_texts.make_pair),
    "inferences": class_accuracy(small_texts.make_inference),
    "reviews": class_accuracy(small_texts.make_review),
}


def accuracy_of(name: str) -> float:
    measure = next(measure for start, measure in ACCURACIES.items() if name.startswith(start))
    return measure(tl.load(small_models.small_model(name)), random.Random(SEED))


def main(names: Sequence[str]) -> None:
    for name in names or RECIPES:
        print(f"{name}: {accuracy_of(name):.3f} of {COUNT} fresh texts", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
