from pathlib import Path

import pytest

import tokenlight as tl
from studies import attractors
from tests.tokenizers_ import explainer_for


def test_metrics_are_drawn_by_the_number_of_attractors(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [
        tl.Example(
            f"{group}{form}", "the keys to the cabinet", target=form, foil=other, evidence=((4, 8),), group=group
        )
        for group in ("1", "2")
        for form, other in ((" are", " is"), (" is", " are"))
    ]
    explainer = explainer_for("gpt2", "text-generation")
    tl.benchmark(
        explainer, rows, ["gradient_l1"], protocol="arras", output=tmp_path / "run", erasure=False, progress=False
    )
    given = ["--results", str(tmp_path / "run"), "--output", str(tmp_path)]
    with pytest.raises(SystemExit):
        attractors.main(given)
    assert "1 attractors: 1 examples, too few" in capsys.readouterr().out
    attractors.main([*given, "--least", "1"])
    assert (tmp_path / "attractors.png").stat().st_size > 10_000
