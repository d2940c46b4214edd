"""ALTI, figure 10: the matrices R^l of Attention Rollout for all layers of BERT, for one sentence.

python -m papers.alti.figure10
python -m papers.alti.figure10 --small
python -m papers.alti.figure10 --text "A sentence of your own."
"""

from collections.abc import Sequence

from papers.alti.matrices import draw_layers


def main(arguments: Sequence[str] | None = None) -> None:
    draw_layers("figure10", "rollout", __doc__, arguments)


if __name__ == "__main__":
    main()
