"""How much of each token's new state comes from each token in one layer, by three measures.

python -m studies.layer_contributions
python -m studies.layer_contributions --model textattack/bert-base-uncased-SST-2 --layer 6 --text "A fine film."

Rows are states, columns tokens, and rows sum to 1: by the lengths of the vectors (Norms, Kobayashi et al. 2021), and by
how near they are to the layer's output (ALTI with l2 and l1 distances, Ferrando et al. 2022).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from papers.figures import draw_maps
from tokenlight.cli.load import load_model
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.views.drawing import save

TEXT = "it 's a charming and often affecting journey ."
PANELS = {"Norms": "value_norms:layers=True", "ALTI l2": "alti:norm=l2,layers=True", "ALTI l1": "alti:layers=True"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default", help="default: the one in the package")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--layer", type=int, help="from 1; default: the middle one")
    parser.add_argument("--output", type=Path, default=Path("results/layer_contributions.png"))
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
    options = parser.parse_args(arguments)
    explainer = load_model(options.model, None, device=options.device)
    method_configs = {
        title: MethodSpec.parse(written).method_config(explainer.inner) for title, written in PANELS.items()
    }
    explained = explainer.explain_configs(options.text, method_configs)
    layers = len(explained["Norms"].maps["contributions"])
    layer = (layers + 1) // 2 if options.layer is None else options.layer
    if not 1 <= layer <= layers:
        parser.error(f"the model has the layers 1 to {layers}, found --layer {layer}")
    maps = {f"{title}, layer {layer}": e.maps["contributions"][layer - 1].numpy() for title, e in explained.items()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    save(draw_maps(maps, explained["Norms"].tokens), options.output)
    print(options.output)


if __name__ == "__main__":
    main()
