"""Scripts that reproduce four papers, table by table and figure by figure: `python -m papers.PAPER.SCRIPT --help`."""
