"""ALTI, table 9: saliency maps of four methods for a long IMDB review that BERT calls positive.

python -m papers.alti.table9
python -m papers.alti.table9 --small
python -m papers.alti.table9 --text "A review of your own."
"""

from collections.abc import Sequence

from papers.alti.saliency import show_maps

TITLES = ("Grad_ℓ2", "G×I_ℓ2", "IG_ℓ2", "ALTI")


def main(arguments: Sequence[str] | None = None) -> None:
    show_maps("table9", "bert-imdb", "bill mcghee", TITLES, __doc__, arguments)


if __name__ == "__main__":
    main()
