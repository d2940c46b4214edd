"""Arras et al., appendix B: the annotated data set of subject-verb agreement, for all models and in each one's tokens.

python -m papers.arras.dataset --data PATH/TO/lgd_dataset.tsv
python -m papers.arras.dataset --data PATH/TO/lgd_dataset.tsv --dataset bert-base --spacy en_core_web_sm
python -m papers.arras.dataset --small

Writes agreement.jsonl, a line for each sentence with the places of verb and subject in characters (also for
tokenlight bench), and for each model tokens.jsonl: tokens, their ids, the subject's places, the ids of both verb forms.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median, pstdev

from transformers import AutoTokenizer

from papers.arras.agreement import SENTENCES, agreement_parser, agreement_runs, annotated, left_out_file
from papers.arras.facts import GENERIC, MODELS, PAPER, SPACY, TOKENIZED, family_of
from papers.arras.tokenized import TokenizedSentence, tokenize
from papers.options import Run
from papers.tables import Comparison, finish, format_published
from tokenlight.heads.parses import SPACY_PIPELINE

SCRIPT = "dataset"
# What the paper counts -> reasons of `data.subject_verb`. Rows that are left out for other reasons are malformed.
REASONS = {
    "both forms of the verb are the same": ("both forms of the verb are the same",),
    "no nominal subject": ("no nsubj", "several subjects", "the parser splits the verb otherwise"),
    "verb not tagged as present tense": ("verb not tagged as present tense",),
}
MALFORMED = "not in the format of the LGD file"


def main(arguments: Sequence[str] | None = None) -> None:
    options = agreement_parser(__doc__, list(MODELS)).parse_args(arguments)
    pipeline = SPACY_PIPELINE if options.small and options.spacy == SPACY else options.spacy
    for run in agreement_runs(options, SCRIPT):
        if run.source.data == SENTENCES:  # annotated by their template: here the same sentences are parsed
            run = replace(run, source=replace(run.source, data=SENTENCES.with_suffix(".tsv")))
        source = annotated(run, pipeline)
        tokenizer = AutoTokenizer.from_pretrained(run.model)
        gap = "inside" if family_of(run.name) == "BERT" else "end"
        sentences, left_out = tokenize(tokenizer, source, gap)
        run.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.files[0], run.folder / "agreement.jsonl")
        write_sentences(run.folder / "tokens.jsonl", sentences)
        remarks = [*(f"left out {count:,}: {reason}" for reason, count in left_out.most_common()), *run.differences]
        if pipeline != SPACY:
            remarks.append(f"subjects are found by spaCy's {pipeline}, in the paper by {SPACY}")
        rows = [*generic_rows(source.files[0]), *tokenized_rows(run, sentences)]
        heading = f"Arras et al., appendix B, {MODELS[run.name]}"
        comparison = Comparison(heading, ["", "measured", "published"], rows, remarks)
        finish(comparison, PAPER, SCRIPT, run, options.record)


def write_sentences(path: Path, sentences: Iterable[TokenizedSentence]) -> None:
    lines = [json.dumps(asdict(sentence), ensure_ascii=False) + "\n" for sentence in sentences]
    path.write_text("".join(lines), encoding="utf-8")


def generic_rows(path: Path) -> list[list[str]]:
    """What was left out on the way from the LGD file to annotated sentences; nothing for data with subjects."""
    if not left_out_file(path).is_file():
        return []
    left_out = json.loads(left_out_file(path).read_text(encoding="utf-8"))
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    plural = 100 * fmean(is_plural(case["text"][slice(*case["verb"])], case["other"]) for case in cases)
    counts = {
        "rows of the LGD file": len(cases) + sum(left_out.values()),
        **{name: sum(left_out.pop(reason, 0) for reason in reasons) for name, reasons in REASONS.items()},
        MALFORMED: sum(left_out.values()),
        "sentences with a subject": len(cases),
        "plural verb forms, %": round(plural, 1),
        "singular verb forms, %": round(100 - plural, 1),
    }
    return [[name, f"{count:,}", format_published(GENERIC.get(name))] for name, count in counts.items()]


def is_plural(verb: str, other: str) -> bool:
    """The singular form of the present tense ends in s; where both do (passes, pass), it is the longer one."""
    return not verb.endswith("s") or (other.endswith("s") and len(verb) < len(other))


def tokenized_rows(run: Run, sentences: Sequence[TokenizedSentence]) -> list[list[str]]:
    lengths = [len(sentence.tokens) for sentence in sentences]
    subjects = [len(sentence.subject) for sentence in sentences]
    shares = [fmean(subject == tokens for subject in subjects) for tokens in (1, 2)]
    inputs = [min(lengths), max(lengths), fmean(lengths), pstdev(lengths), median(lengths)]
    measured = [len(sentences), *inputs, min(subjects), max(subjects), *shares]
    published = TOKENIZED.rows[family_of(run.name)]
    written = [f"{number:.4g}" if isinstance(number, float) else f"{number:,}" for number in measured]
    columns = zip(TOKENIZED.columns, written, published, strict=True)
    return [[name, here, format_published(there)] for name, here, there in columns]


if __name__ == "__main__":
    main()
