"""ALTI, figure 11: the matrices R^l of Globenc for all layers of BERT, for one sentence.

python -m papers.alti.figure11
python -m papers.alti.figure11 --small
python -m papers.alti.figure11 --text "A sentence of your own."
"""

from collections.abc import Sequence

from papers.alti.matrices import draw_layers


def main(arguments: Sequence[str] | None = None) -> None:
    draw_layers("figure11", "globenc", __doc__, arguments)


if __name__ == "__main__":
    main()
