"""What the evidence sets share: a case as a line of JSON, and the cases whose evidence matters to a model."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenlight.cli.load import load_model

TIMES = 10  # that an answer must be likelier with its evidence than without


@dataclass(frozen=True)
class Case:
    """A question about documents that stand in its messages."""

    messages: list[dict[str, str]]
    documents: list[str]
    answer: str
    evidence: list[str]  # what makes it the answer, as it stands in the messages


def make_messages(task: str, text: str, question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{task}\n\n{text}\n\nQuestion: {question}"}]


def keep_relevant(checkpoint: str, cases: Iterable[Case], device: str | None) -> Iterator[Case]:
    """The cases whose answer a language model finds much likelier with the evidence than without it."""
    explainer = load_model(checkpoint, None, device=device)

    def log_probability(messages: Any, answer: str) -> float:
        return explainer.explain_answer(messages, answer, "random", progress=False).log_probability

    for case in cases:
        without = case.messages[0]["content"]
        for passage in case.evidence:
            without = without.replace(passage, "")
        gain = log_probability(case.messages, case.answer)
        gain -= log_probability([{**case.messages[0], "content": without}], case.answer)
        if gain > math.log(TIMES):
            yield case


def write_cases(path: Path, cases: Iterable[Case], checkpoint: str | None, device: str | None = None) -> None:
    kept = list(cases if checkpoint is None else keep_relevant(checkpoint, cases, device))
    lines = [json.dumps(asdict(case), ensure_ascii=False) + "\n" for case in kept]
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path}: {len(kept)} cases")
