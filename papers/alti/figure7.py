"""ALTI, figure 7: the Jaccard similarity of the top 25 % of tokens between ten models that differ in their seed.

python -m papers.alti.figure7 --limit 1000 --device cuda      # fine-tunes ten MultiBERTs on SST-2 first
python -m papers.alti.figure7 --small
python -m papers.alti.figure7 --small --dataset multiberts-0 --dataset multiberts-1
"""

from collections.abc import Sequence

from papers.alti.seeds import compare_seeds


def main(arguments: Sequence[str] | None = None) -> None:
    compare_seeds("figure7", 0, __doc__, arguments)


if __name__ == "__main__":
    main()
