"""ALTI, table 3: saliency maps of three methods for another Yelp review that BERT calls negative.

python -m papers.alti.table3
python -m papers.alti.table3 --small
python -m papers.alti.table3 --text "A review of your own."
"""

from collections.abc import Sequence

from papers.alti.saliency import show_maps

TITLES = ("Grad_ℓ2", "IG_ℓ2", "ALTI")


def main(arguments: Sequence[str] | None = None) -> None:
    show_maps("table3", "bert-yelp", "isles are narrow", TITLES, __doc__, arguments)


if __name__ == "__main__":
    main()
