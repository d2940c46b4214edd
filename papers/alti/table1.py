"""ALTI, table 1: saliency maps of three methods for a Yelp review that BERT calls negative.

python -m papers.alti.table1
python -m papers.alti.table1 --small
python -m papers.alti.table1 --text "A review of your own."
"""

from collections.abc import Sequence

from papers.alti.saliency import show_maps

TITLES = ("Grad_ℓ2", "IG_ℓ2", "ALTI")


def main(arguments: Sequence[str] | None = None) -> None:
    show_maps("table1", "bert-yelp", "mango and shrimp quesadilla", TITLES, __doc__, arguments)


if __name__ == "__main__":
    main()
