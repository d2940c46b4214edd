"""AttCAT, figure 5: texts with shaded tokens: (a) a question of SQuAD, (b) a sentence, by four methods.

python -m papers.attcat.figure5
python -m papers.attcat.figure5 --dataset sst2 --text "A charming and often affecting journey."      # (b)
python -m papers.attcat.figure5 --dataset squad1-bert --limit 3      # (a), the first three questions
python -m papers.attcat.figure5 --small

Green supports the explained class or answer, red speaks against it. Both are what the model predicts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import tokenlight as tl
from papers.attcat.choices import add_released, choose_methods, choose_protocol, name_run
from papers.attcat.facts import FIGURE_5_TEXT, PAPER
from papers.figures import save_figure
from papers.options import Run, choose_runs, make_parser
from papers.shaded_texts import draw_shaded_texts
from papers.small import QUESTIONS, SENTIMENT
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples
from tokenlight.explain.options import Resources
from tokenlight.results.explanation import Explanation
from tokenlight.text.tokenized_text import Text

SCRIPT = "figure5"
SMALL_TEXT = "I hardly ever laughed at this comedy. Two of the songs are lovely, but the plot is a mess."
SMALL = {"squad1-bert": QUESTIONS, "sst2": SENTIMENT}
PANELS = {"squad1-bert": ("a", ["AttCAT"]), "sst2": ("b", ["AttCAT", "TransAtt", "RawAtt", "Rollout"])}


def read_questions(run: Run, explainer: tl.Explainer) -> list[Text]:
    """The first question with its passage, or as many as the options ask for."""
    source = run.source if run.source.limit or run.source.sample else replace(run.source, limit=1)
    questions = (example.text for example in read_examples(source, explainer.task.gap) if isinstance(example, Example))
    return list(islice(questions, source.limit or source.sample))


def explain(run: Run, methods: Sequence[str], texts: Sequence[str], released: bool) -> list[Mapping[str, Explanation]]:
    """For each text, the explanations by method. Without texts, those of the run's data."""
    protocol = choose_protocol(run.name, released)
    explainer = protocol.fit(run.load())
    chosen = list(texts) or read_questions(run, explainer)
    method_configs = {
        method.label: method.method_config(explainer.inner) for method in choose_methods(methods, released)
    }
    targets = protocol.targets(explainer, explainer.encode(chosen)) if protocol.target == "argmax" else None
    resources = Resources(prepare=protocol.prepare(explainer.tokenizer))
    explanations = explainer.explain_configs(chosen, method_configs, target=targets, resources=resources)
    return [
        {method: protocol.adjust(by_text[number]) for method, by_text in explanations.items()}
        for number in range(len(chosen))
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = add_released(make_parser(__doc__, PAPER, list(PANELS)))
    parser.add_argument("--text", action="append", help="for (b); repeat for several; default: the paper's text")
    options = parser.parse_args(arguments)
    for plain_run in choose_runs(options, SCRIPT, SMALL):
        panel, methods = PANELS[plain_run.name]
        texts = (options.text or [SMALL_TEXT if plain_run.small else FIGURE_5_TEXT]) if panel == "b" else []
        explained = explain(plain_run, methods, texts, options.released)
        run, form = name_run(plain_run, options.released)
        for number, by_method in enumerate(explained, start=1):
            titles = {f"({panel}) {name}, {form}; explained: {e.target}": e for name, e in by_method.items()}
            save_figure(draw_shaded_texts(titles), PAPER, SCRIPT, run, options.record, f"{panel}{number}")
        for sentence in run.model_difference:
            print(f"- {sentence}")


if __name__ == "__main__":
    main()
