"""What tables 1, 3, 8 and 9 share: saliency maps of several methods for one review."""

from collections.abc import Sequence

from papers.alti.facts import PAPER
from papers.alti.runs import describe, load, make_specs
from papers.alti.small import SMALL
from papers.alti.texts import SMALL_REVIEWS, choose_text, text_parser
from papers.options import Run, choose_runs, plain_name
from papers.small import SmallRun
from papers.tables import Comparison, finish
from tokenlight.results.explanation import Explanation
from tokenlight.views import html, latex

SHOWN = 8  # words of each method in the terminal and in the docs


def show_maps(
    script: str,
    dataset: str,
    words: str,
    titles: Sequence[str],
    description: str | None,
    arguments: Sequence[str] | None,
) -> None:
    """The review with these words in it, explained by these methods: an HTML page, LaTeX, and the top words."""
    options = text_parser(description, (dataset,)).parse_args(arguments)
    # The embedded model reads any review; those trained on templates know few words.
    small: dict[str, SmallRun] = {dataset: SMALL["bert-sst2"]}
    for run in choose_runs(options, script, small):
        text = choose_text(options, run, words, SMALL_REVIEWS[script])
        explainer = load(run)
        specs = make_specs(titles, options.steps, options.released)
        method_configs = {spec.label: spec.method_config(explainer.inner) for spec in specs}
        explained = explainer.explain_configs(text, method_configs)
        write_maps(run, explained)
        heading = f"ALTI, table {script.removeprefix('table')}, {describe(run)}: {plain_name(run.model)} on one review"
        finish(list_words(heading, run, explained), PAPER, script, run, options.record)


def write_maps(run: Run, explained: dict[str, Explanation]) -> None:
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / "maps.html").write_text(html.page([list(explained.values())]), encoding="utf-8")
    (run.folder / "maps.tex").write_text(latex.heatmaps(list(explained.values())), encoding="utf-8")


def list_words(heading: str, run: Run, explained: dict[str, Explanation]) -> Comparison:
    """The words with the highest scores, best first."""
    first = next(iter(explained.values()))
    rows = [[title, ", ".join(word.text for word in e.top(SHOWN))] for title, e in explained.items()]
    remarks = [f"predicted: {first.prediction} ({first.probability:.3f}), {len(first.tokens)} tokens"]
    if run.small:
        remarks.append("the review is our own, and so is the model, which is the one in the package")
    return Comparison(heading, ["method", f"the {SHOWN} words with the highest scores"], rows, remarks)
