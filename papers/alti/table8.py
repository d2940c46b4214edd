"""ALTI, table 8: saliency maps of four methods for a Yelp review that BERT calls negative.

python -m papers.alti.table8
python -m papers.alti.table8 --small
python -m papers.alti.table8 --text "A review of your own."
"""

from collections.abc import Sequence

from papers.alti.saliency import show_maps

TITLES = ("Grad_ℓ2", "G×I_ℓ2", "IG_ℓ2", "ALTI")


def main(arguments: Sequence[str] | None = None) -> None:
    show_maps("table8", "bert-yelp", "food fight so much", TITLES, __doc__, arguments)


if __name__ == "__main__":
    main()
