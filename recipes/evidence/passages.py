"""Questions with one right and several wrong passages, from a file in SQuAD's format. Read it top to bottom.

    python recipes/evidence/passages.py --data PATH/TO/squad.json --output passages.jsonl
    python recipes/evidence/passages.py --data PATH/TO/squad.json --model PATH/TO/smollm2 --output passages.jsonl
    tokenlight bench PATH/TO/smollm2 passages.jsonl -o results

A passage is the sentence that holds an answer, with sentences around it up to a number of characters. The wrong ones
belong to other questions and do not have the answer in them. Each line has the messages, the passages as documents, the
answer, and the right passage as evidence. With a model, only cases are kept whose answer it finds ten times likelier
with the evidence than without.
"""

import argparse
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cases import Case, make_messages, write_cases

from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples
from tokenlight.text.segmentation import sentences


def passage_around(context: str, span: tuple[int, int], length: int) -> str | None:
    """Whole sentences around a span: those behind it first, while they fit. None: its own sentences are too long."""
    sentence_spans = sentences(context)
    inside = [i for i, (start, end) in enumerate(sentence_spans) if start < span[1] and end > span[0]]
    first, last = inside[0], inside[-1]
    if sentence_spans[last][1] - sentence_spans[first][0] > length:
        return None
    while last + 1 < len(sentence_spans) and sentence_spans[last + 1][1] - sentence_spans[first][0] <= length:
        last += 1
    while first > 0 and sentence_spans[last][1] - sentence_spans[first - 1][0] <= length:
        first -= 1
    return " ".join(context[sentence_spans[first][0] : sentence_spans[last][1]].split())


def make_cases(questions: list[Example], passages: int, length: int, rng: random.Random) -> Iterator[Case]:
    """A case for each question, as long as there are wrong passages for it."""
    answered: list[tuple[str, str, str]] = []  # question, answer, passage
    for example in questions:
        assert isinstance(example.text, tuple), "a question and its context"
        question, context = example.text
        assert example.answer is not None, "questions without an answer are left out"
        passage = passage_around(context, example.answer, length)
        if passage is not None:
            answered.append((question, context[slice(*example.answer)], passage))
    rng.shuffle(answered)
    pool = list(dict.fromkeys(passage for _, _, passage in answered))
    for question, answer, right in answered:
        others = [passage for passage in rng.sample(pool, len(pool)) if answer.lower() not in passage.lower()]
        wrong = list(islice((passage for passage in others if not overlap(passage, right)), passages - 1))
        if len(wrong) < passages - 1:
            continue
        documents = [right, *wrong]
        rng.shuffle(documents)
        yield Case(
            messages=make_messages("Answer the question from the passages.", "\n\n".join(documents), question),
            documents=documents,
            answer=answer,
            evidence=[right],
        )


def overlap(passage: str, other: str) -> bool:
    """Passages of one paragraph can share sentences."""
    return any(passage[start:end].strip() in other for start, end in sentences(passage))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file in SQuAD's format")
    parser.add_argument("--output", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--cases", type=int, default=100, help="at most; a model leaves some of them out")
    parser.add_argument("--passages", type=int, default=3, help="of each question; one is right")
    parser.add_argument("--length", type=int, default=300, help="of a passage, in characters, at most")
    parser.add_argument("--model", help="a language model: only cases whose evidence matters to it are kept")
    parser.add_argument("--device", help="of the model: cpu, cuda, cuda:1 ...; default: cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.passages < 2:
        parser.error(f"one right and at least one wrong passage; found --passages {args.passages}")
    questions = [
        example
        for example in read_examples(DataSource(args.data))
        if isinstance(example, Example) and example.answer is not None
    ]
    made = islice(make_cases(questions, args.passages, args.length, random.Random(args.seed)), args.cases)
    write_cases(args.output, made, args.model, args.device)
