"""The command-line options that all scripts share, and the models and data that they choose.

Without options a script takes the paper's own checkpoints and data from the Hub. `--small` takes models and texts that
need no network and finishes within minutes on two cores. `--model` and `--data` take anything else.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenlight as tl
from papers.facts import Checkpoint, Paper
from papers.small import SmallRun
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.common.samples import EMBEDDED


def plain_name(model: str) -> str:
    """A model's name without folders of this machine, and without the version that small models have in theirs."""
    if model == DEFAULT:
        return EMBEDDED
    return re.sub(r"(-seed\d+)-[0-9a-f]{12}$", r"\1", Path(model).name if Path(model).is_dir() else model)


@dataclass(frozen=True)
class Run:
    """One model with its data, as the options choose it."""

    name: str  # of the checkpoint in the paper's facts: "sst2"
    paper: Checkpoint  # what the paper used
    model: str
    source: tl.DataSource
    folder: Path  # for results
    device: str | None
    small: bool

    def load(self, task: str | None = None) -> tl.Explainer:
        return load_model(self.model, task, device=self.device)

    @property
    def model_difference(self) -> list[str]:
        """A sentence if the model is not the paper's. Scripts that explain texts of their own need no more."""
        if self.model == self.paper.model:
            return []
        return [f"the model is {plain_name(self.model)}, the paper's is {self.paper.model}"]

    @property
    def data_name(self) -> str:
        """The name of the data: on the Hub, or of a file, with its folder unless it is one of the small ones."""
        path = Path(str(self.source.data))
        return "/".join(path.parts[-1:] if self.small else path.parts[-2:]) if path.is_file() else str(self.source.data)

    @property
    def differences(self) -> list[str]:
        """In what the run is not the paper's, one sentence each."""
        data, sentences = str(self.source.data), self.model_difference
        if self.paper.data not in (data, Path(data).name):
            sentences.append(f"the data are {Path(data).name}, the paper's are {self.paper.data}")
        if self.source.limit is not None:
            sentences.append(f"at most the first {self.source.limit:,} examples are used")
        if self.source.sample is not None:
            sentences.append(f"{self.source.sample:,} random examples are used (seed {self.source.seed})")
        return sentences


class ScriptParser(argparse.ArgumentParser):
    """Stores small runs in a folder of their own, where no --output names one."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        options = super().parse_args(args, namespace)
        if options.output is None:
            options.output = Path("results") / f"{options.paper.folder}{'-small' if options.small else ''}"
        return options


def make_parser(description: str | None, paper: Paper, names: Sequence[str]) -> argparse.ArgumentParser:
    """A parser with the options of every script. `names` are the checkpoints that the script can use."""
    parser = ScriptParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", action="append", choices=names, help="repeat for several; default: all")
    parser.add_argument("--small", action="store_true", help="small models and texts that need no network")
    parser.add_argument("--model", help="checkpoint in place of the paper's; 'default' is the one in the package")
    parser.add_argument("--data", help="data file or hf:NAME in place of the paper's data")
    parser.add_argument("--split", help="split of a Hugging Face dataset")
    parser.add_argument("--limit", type=int, help="use at most the first N examples")
    parser.add_argument("--sample", type=int, help="use N random examples; default: as many as the paper")
    parser.add_argument("--seed", type=int, default=0, help="seed of --sample and of other random choices")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
    parser.add_argument("--output", type=Path, help=f"folder for results; default: results/{paper.folder}[-small]")
    parser.add_argument("--record", action="store_true", help="store the numbers for the paper's page in the docs")
    parser.set_defaults(names=tuple(names), paper=paper, parser=parser)
    return parser


def choose_runs(options: argparse.Namespace, script: str, small: Mapping[str, SmallRun]) -> Iterator[Run]:
    """The runs that the options ask for, one per checkpoint. `small` has a stand-in for some of them."""
    if options.limit is not None and options.sample is not None:
        options.parser.error("choose --limit (the first examples) or --sample (random ones)")
    names = options.dataset or [name for name in options.names if not options.small or name in small]
    if (options.model or options.data) and len(names) > 1:
        options.parser.error("choose with --dataset which of the paper's runs your --model or --data replaces")
    for name in names:
        refuse_missing_file(options, name)
    for name in names:
        paper = options.paper.checkpoints[name]
        model, source = paper.model, None
        if options.small:
            if name not in small:
                options.parser.error(f"there is no small run for {name}; there are: {', '.join(small)}")
            model, source = small[name].make()
        if options.data or source is None:
            source = choose_source(options, paper)
        if options.limit is not None:
            source = replace(source, limit=options.limit, sample=None)
        if options.sample is not None:
            source = replace(source, limit=None, sample=options.sample, seed=options.seed)
        folder = options.output / script / name
        yield Run(name, paper, options.model or model, source, folder, options.device, options.small)


def choose_source(options: argparse.Namespace, paper: Checkpoint) -> tl.DataSource:
    """The data that the options name, or the paper's; a random sample if the paper took one."""
    data = options.data or paper.data
    if data != paper.data:
        return tl.DataSource(data, split=options.split)
    return tl.DataSource(data, split=options.split or paper.split, sample=paper.sample, seed=options.seed)


def refuse_missing_file(options: argparse.Namespace, name: str) -> None:
    """Say where data come from that have to be fetched by hand, before anything is run."""
    paper = options.paper.checkpoints[name]
    if paper.fetch and not options.small and not options.data and not Path(paper.data).is_file():
        options.parser.error(
            f"{name}: fetch {paper.data} from {paper.fetch} into this folder, or name the file with --data; "
            f"--dataset chooses other runs"
        )
