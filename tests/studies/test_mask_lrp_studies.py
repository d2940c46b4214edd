"""The studies of Mask-LRP's masks on small models."""

from pathlib import Path

import torch

from studies import mask_stability, thresholds
from tests.papers.conftest import _hardly_trained  # noqa: F401 (a fixture for the whole session)


def test_thresholds_of_masks(tmp_path: Path):
    thresholds.main(["--small", "--limit", "2", "--dataset", "qqp", "--variant", "released", "--output", str(tmp_path)])
    (written,) = tmp_path.rglob("comparison.md")
    rows = [line for line in written.read_text("utf-8").splitlines() if line.startswith("| ξ_synt")]
    assert rows
    assert all("as released" in row and "(0 of" not in row for row in rows)


def test_masks_of_several_data_sets(tmp_path: Path):
    path = tmp_path / "study.md"
    mask_stability.main(["--small", "--limit", "20", "--output", str(path)])
    rows = [line for line in path.read_text("utf-8").splitlines() if line.startswith("| templates of")]
    assert len(rows) == 3


def test_the_same_counts_agree(tmp_path: Path):
    strength = torch.arange(12.0)
    assert mask_stability.strongest(strength).nonzero().flatten().tolist() == [9, 10, 11]
    assert mask_stability.correlation(strength, 2 * strength) == "1.000"
    assert mask_stability.shared(strength > 8, strength > 6) == "3 / 5"
