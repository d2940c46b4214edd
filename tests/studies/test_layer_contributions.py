from pathlib import Path

import pytest

from studies import layer_contributions


def test_a_panel_for_each_measure(tmp_path: Path):
    path = tmp_path / "maps.png"
    layer_contributions.main(["--text", "a fine film .", "--layer", "2", "--output", str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_missing_layers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        layer_contributions.main(["--layer", "7", "--output", str(tmp_path / "maps.png")])
    assert "layers 1 to 6" in capsys.readouterr().err
