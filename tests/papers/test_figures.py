"""Figures as they are stored for the docs."""

from pathlib import Path

import numpy as np
from PIL import Image

from papers.figures import reduce_colors


def test_stored_pictures_keep_rare_colors(tmp_path: Path):
    """Many shades of gray and few colored pixels, as in a figure of shaded words."""
    draw = np.random.default_rng(0)
    pixels = np.repeat(draw.integers(0, 256, (300, 300, 1)), 3, axis=2)
    pixels[:40, :40] = draw.integers(0, 256, (40, 40, 1)) * [1, 0, 0] + [0, 60, 60]
    pixels[100:110, 100:110], pixels[200:203, 200:203] = (0, 0, 255), (0, 128, 0)
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "figure.png")
    reduce_colors(tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as stored:
        assert stored.mode == "P"
        difference = np.abs(np.asarray(stored.convert("RGB")).astype(int) - pixels)
    assert difference.max() <= 16  # of 255: not to be seen
