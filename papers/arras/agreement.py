"""What the scripts of Arras et al. share: the sentences with their subjects, and the models in their precision."""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import tokenlight as tl
from papers.arras.facts import LGD_ADDRESS, METHODS, PAPER, SPACY
from papers.options import Run, choose_runs, make_parser
from papers.small import DATA, SmallRun
from papers.small_models import small_model
from tokenlight.bench.cases import Case, select_cases
from tokenlight.bench.protocol import Protocol
from tokenlight.common.progress import count_progress
from tokenlight.data.read import read_examples
from tokenlight.data.subject_verb import AgreementCase, find_subjects, lgd_rows, write_cases
from tokenlight.results.explanation import Explanation
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.runs.run_folder import Record

FETCH = f"fetch {LGD_ADDRESS} and name the file with --data"
SENTENCES = DATA / "agreement.jsonl"
SMALL = {
    name: SmallRun(partial(small_model, f"agreement-{family}"), SENTENCES, limit=150)
    for name, family in (("bert-base", "bert"), ("gpt2-small", "gpt2"), ("llama-1b", "llama"))
}
PRECISIONS = {"double": torch.float64, "single": torch.float32, "bfloat16": torch.bfloat16}
IN_BFLOAT16 = ("llama-3b",)  # of the paper's models; the others are in double precision
CHUNK = 256  # sentences that are asked about together


def agreement_parser(description: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """A parser with the options of every script, and with those of this paper."""
    text = f"{description}\nThe data are not on the Hub: {FETCH}. A file that dataset.py has\nwritten, a CoNLL-U "
    text += "treebank and a CSV file of minimal pairs with evidence can be named as well."
    parser = make_parser(text, PAPER, names)
    parser.add_argument("--spacy", default=SPACY, help=f"spaCy pipeline that finds subjects; default: {SPACY}")
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="default: as in the paper, double, and bfloat16 for Llama-3.2-3B"
    )
    return parser


def agreement_runs(options: argparse.Namespace, script: str) -> Iterator[Run]:
    """The runs that the options ask for."""
    return choose_runs(options, script, SMALL)


def load(run: Run, precision: str | None = None) -> tl.Explainer:
    """The model in the precision that the options name, or in the paper's."""
    explainer = run.load()
    if explainer.task.gap is None:
        raise ValueError(f"{run.model} does {explainer.task.name}: expected a masked or a causal language model")
    chosen = precision or ("bfloat16" if run.name in IN_BFLOAT16 else "double")
    torch.nn.Module.to(explainer.model, dtype=PRECISIONS[chosen])
    return explainer


def annotated(run: Run, pipeline: str) -> tl.DataSource:
    """The run's sentences with their subjects. Those of the LGD file are parsed once and kept in the output folder."""
    source = run.source
    if not is_lgd(source):
        return source
    path = kept_file(run, pipeline)
    if not path.is_file():
        find_and_keep(source, pipeline, path)
    return tl.DataSource(path)


def is_lgd(source: tl.DataSource) -> bool:
    return len(source.files) == 1 and source.kind_of(source.files[0]) == "lgd"


def kept_file(run: Run, pipeline: str) -> Path:
    """Where the annotated sentences of a run are kept: by file, choice of rows and pipeline."""
    chosen = json.dumps([run.source.hash(), run.source.limit, run.source.sample, run.source.seed, pipeline])
    version = hashlib.sha256(chosen.encode()).hexdigest()[:12]
    folder = run.folder.parent.parent / "agreement"
    return folder / f"{run.source.files[0].stem}-{Path(pipeline).name}-{version}.jsonl"


def find_and_keep(source: tl.DataSource, pipeline: str, path: Path) -> None:
    """Parse the sentences; beside those with a subject, store how many were left out for which reason."""
    cases: list[AgreementCase] = []
    left_out: Counter[str] = Counter()
    with count_progress(f"finding subjects with {pipeline}", source.count()) as advance:
        for row in find_subjects(source.select(lgd_rows(source.files[0])), pipeline):
            if isinstance(row, AgreementCase):
                cases.append(row)
            else:
                left_out[row.reason] += 1
            advance(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    left_out_file(path).write_text(json.dumps(left_out, indent=1) + "\n", encoding="utf-8")
    write_cases(path, cases)


def left_out_file(path: Path) -> Path:
    return path.with_suffix(".left_out.json")


def paper_methods(explainer: tl.Explainer) -> list[str]:
    """Our names of the paper's methods; ALTI-Logit for causal models alone."""
    return [method for method in METHODS if method != "alti_logit" or explainer.task.gap == "end"]


def explain_cases(explainer: tl.Explainer, cases: Sequence[Case], method: str, **options: Any) -> list[Explanation]:
    """The difference of both verb forms' logits, explained by a method that may carry options."""
    spec = MethodSpec.parse(method)
    texts = [case.draft.tokenized_text.text for case in cases]
    targets = [case.target for case in cases]  # with their foils
    return explainer.explain(texts, spec.name, target=targets, progress=False, **spec.options, **options)


def sort_cases(
    explainer: tl.Explainer, source: tl.DataSource, protocol: Protocol
) -> Iterator[tuple[list[Case], list[Record]]]:
    """The cases of a protocol and records of the other rows, chunk after chunk."""
    rows = enumerate(read_examples(source, explainer.task.gap))
    with count_progress("asking the model", source.count()) as advance:
        while chunk := list(islice(rows, CHUNK)):
            yield select_cases(explainer, protocol, chunk)
            advance(len(chunk))


def data_remarks(run: Run, pipeline: str) -> list[str]:
    """How the subjects were found, where that is not as in the paper."""
    if run.source.data == SENTENCES:
        return ["subjects are known from the template of the sentences, not parsed"]
    if is_lgd(run.source) and pipeline != SPACY:
        return [f"subjects are found by spaCy's {pipeline}, in the paper by {SPACY}"]
    return []
