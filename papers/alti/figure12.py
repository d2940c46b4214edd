"""ALTI, figure 12: the matrices R^l of ALTI for all layers of BERT, for one sentence.

python -m papers.alti.figure12
python -m papers.alti.figure12 --small
python -m papers.alti.figure12 --text "A sentence of your own."
"""

from collections.abc import Sequence

from papers.alti.matrices import draw_layers


def main(arguments: Sequence[str] | None = None) -> None:
    draw_layers("figure12", "alti", __doc__, arguments)


if __name__ == "__main__":
    main()
