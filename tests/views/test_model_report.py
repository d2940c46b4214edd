"""The doctor's tables: counted by hand, with what is unknown and what does not work."""

import io

from rich.console import Console, RenderableType

from tokenlight.results.model_report import Check, Examination, Finding, ModelCheck, Need, Outlook
from tokenlight.views.model_report import examination_table, outlook_table


def lines(view: RenderableType) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=160).print(view)
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


def test_methods_that_need_the_same_share_a_row():
    needs = (
        Need("lrp", 3_000_000_000, 2_000_000, 12_345, 7),
        Need("random", 1_000_000, 1_000_000, None, None),
        Need("attn_lrp", 3_000_000_000, 2_000_000, 12_345, 7),
        Need("attcat", 3_000_000_000, 2_000_000, 12_345, 8),
    )
    assert lines(outlook_table(Outlook(64, 32, 70_000_000, "cpu", None, needs))) == [
        "Memory in addition to the weights (70 MB) for texts of 64 tokens, estimated; free on cpu: unknown",
        "32 texts with low_memory fit at once fit with low_memory method",
        "1 MB 1 MB ? ? random",
        "3.0 GB 2 MB > 9999 7 lrp, attn_lrp",
        "3.0 GB 2 MB > 9999 8 attcat",
        "",
    ]


def test_the_report_lists_methods_that_work_and_reasons_for_others():
    findings = (Finding("lrp", 0.0123, 1_500_000), Finding("alti", 0.2, 0), Finding("logit", 0, 0, "no [b]row[/b]"))
    check = ModelCheck("bert", checks=(Check("logits", 1e-8, 1e-6, "the instrumented model's beside the model's own"),))
    found = Examination("BertModel", "fill-mask", 17_100_000, 68_400_000, "torch.float32", "cpu", 19, findings, check)
    assert lines(examination_table(found)) == [
        "BertModel, fill-mask, 17.1 M weights (68 MB, torch.float32); one text of 19 tokens on cpu",
        "method works time held for backward",
        "lrp yes 12 ms 1.5 MB",
        "alti yes 200 ms nothing",
        "logit no: no [b]row[/b]",
        "",
        "Checked against the model itself, as in docs/families.md:",
        "logits: ok 1e-08 (the instrumented model's beside the model's own)",
    ]
