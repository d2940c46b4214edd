"""The models, data and methods of ALTI's tables and figures, and how they are measured."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transformers import AutoConfig, AutoTokenizer

import tokenlight as tl
from papers.alti.agreement import MaskedNumber, read_part
from papers.alti.facts import DATASETS, METRICS, MODELS, PAPER, TRAINED
from papers.alti.finetune import fine_tuned
from papers.facts import Published, PublishedTable
from papers.options import Run, make_parser
from papers.tables import compare, describe_run, finish
from tokenlight.bench.protocol import Protocol
from tokenlight.bench.protocol import protocol as find_protocol
from tokenlight.cli.load import DEFAULT
from tokenlight.results.tables import Table
from tokenlight.runs.method_specs import MethodSpec

HEADS = ("ForSequenceClassification", "ForTokenClassification")


def alti_parser(description: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """The options of every script, and those of ALTI's methods and protocol."""
    parser = make_parser(description, PAPER, names)
    parser.add_argument("--steps", type=int, default=100, help="of integrated gradients")
    parser.add_argument("--released", action="store_true", help="protocol, quadrature and splits of the authors' code")
    return parser


def make_specs(titles: Sequence[str], steps: int = 100, released: bool = False) -> list[MethodSpec]:
    """Methods under the paper's names. The equations have a right Riemann sum, the release Gauss-Legendre."""
    integral = {"steps": steps, "quadrature": "gauss-legendre" if released else "riemann", "baseline": "mask"}
    known = {
        "Grad_ℓ2": ("gradient_l2", {}),
        "IG_ℓ2": ("integrated_gradients", {**integral, "reduce": "l2"}),
        "IG_μ": ("integrated_gradients", {**integral, "reduce": "mean_abs"}),
        "G×I_ℓ2": ("gradient_x_input", {"reduce": "l2"}),
        "G×I_μ": ("gradient_x_input", {"reduce": "mean_abs"}),
        "Rollout": ("rollout", {}),
        "Globenc": ("globenc", {}),
        "ALTI": ("alti", {}),
        "ALTI ℓ1": ("alti", {"norm": "l1"}),
        "ALTI ℓ2": ("alti", {"norm": "l2"}),
        "ALTI + LN2": ("alti", {"second_norm": True}),
        "Norms": ("value_norms", {}),
    }
    return [MethodSpec(title, *known[title]) for title in titles]


def load(run: Run, released: bool = False) -> tl.Explainer:
    """The run's model; where the paper trained its own and the run names none, it is trained first."""
    if run.name in TRAINED and not is_trained(run.model):
        run = replace(run, model=str(fine_tuned(run, released)))
    explainer = run.load()
    return tl.Explainer(explainer.model, explainer.tokenizer, MaskedNumber) if is_agreement(run) else explainer


def is_trained(model: str) -> bool:
    if model == DEFAULT:
        return True
    names = AutoConfig.from_pretrained(model).architectures or []
    return any(name.endswith(HEADS) for name in names)


def is_agreement(run: Run) -> bool:
    return run.name.endswith("-sva")


def source_of(run: Run, explainer: tl.Explainer, released: bool = False) -> tl.DataSource:
    """The run's data; of the agreement data the test part. The release measures every model on BERT's test part."""
    if not is_agreement(run):
        return run.source
    tokenizer = explainer.tokenizer
    if released and not run.small and run.name.startswith("roberta"):  # DistilBERT has BERT's vocabulary
        tokenizer = AutoTokenizer.from_pretrained(PAPER.checkpoints["bert-sva"].model)
    examples = read_part(Path(str(run.source.data)), "test", released, tokenizer)
    return replace(run.source, data=examples)


def measure(run: Run, specs: Sequence[MethodSpec], protocol: Protocol, released: bool = False) -> Table:
    explainer = load(run, released)
    source = source_of(run, explainer, released)
    anywhere = replace(protocol, tasks=())  # agreement has a task of its own
    return tl.benchmark(explainer, source, specs, protocol=anywhere, output=run.folder, erasure=False)


def measure_faithfulness(
    options: argparse.Namespace, run: Run, script: str, titles: Sequence[str], published: PublishedTable
) -> None:
    """Comprehensiveness and sufficiency of these methods beside the published numbers, printed and stored."""
    protocol = find_protocol("alti" if options.released else "alti_written")
    table = measure(run, make_specs(titles, options.steps, options.released), protocol, options.released)
    numbers = {title: [published_number(published, run.name, title, metric) for metric in METRICS] for title in titles}
    heading = f"ALTI, table {script.removeprefix('table')}, {describe(run)}: {describe_run(run, table)}"
    finish(compare(heading, run, table, numbers), PAPER, script, run, options.record)


def describe(run: Run) -> str:
    """What a run is or stands for."""
    name = name_in_paper(run.name)
    return name if run.small or run.model == run.paper.model else f"{name}, another model in place of the paper's"


def name_in_paper(name: str) -> str:
    """'bert-sst2' -> 'BERT SST-2'."""
    model, _, data = name.partition("-")
    return f"{MODELS[model]} {DATASETS[data]}"


def published_number(table: PublishedTable, run: str, method: str, metric: str) -> Published:
    """Tables 2, 6 and 7 have a row per method; tables 4 and 5 a row per data set and metric."""
    model, data = name_in_paper(run).split()
    if method in table.rows:
        return table.column(f"{model} {data} {metric}")[method]
    return table.column(f"{model} {method}").get(f"{data} {metric}")


def differences_of(runs: Sequence[Run]) -> list[str]:
    """In what runs of several seeds are not the paper's."""
    models = f"the models are {len(runs)} small ones that differ in their seed, the paper's are ten MultiBERTs"
    others = [sentence for sentence in runs[0].differences if not sentence.startswith("the model is ")]
    return [models, *others] if runs[0].small else runs[0].differences
