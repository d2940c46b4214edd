"""The options that every script of a paper has."""

from importlib import import_module

import pytest

from tests.papers.test_default_commands import SCRIPTS

SHARED = ("--small", "--model", "--data", "--limit", "--sample", "--seed", "--device", "--output", "--record")
READS_NOTHING = "arras.appendix_d"  # rules on random numbers


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != READS_NOTHING])
def test_scripts_choose_model_data_and_device(script: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        import_module(f"papers.{script}").main(["--help"])
    printed = capsys.readouterr().out
    assert [option for option in SHARED if f"{option} " not in printed and f"{option}\n" not in printed] == []
