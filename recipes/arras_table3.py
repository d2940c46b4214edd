"""Arras et al., table 3: size and lengths of the dataset for a model's tokenizer, and the model's accuracy.

    python recipes/arras_table3.py --data PATH/TO/lgd_dataset.tsv --output results/table3      # bert-base-uncased
    python recipes/arras_table3.py --model PATH/TO/smollm2 --data PATH/TO/pairs.csv --output results/table3_smollm2

Masked models read the sentence with a mask in place of the verb, causal ones what stands before it. Kept are examples
whose two forms are one token each, with the ground truth shorter than the input. Right is who prefers the right form.
"""

import json
from collections import Counter
from dataclasses import asdict
from itertools import islice
from statistics import fmean, median

from arras_published import NO_DATA, TABLE_3, Size, load
from side_by_side import NOT_AT_HAND, arguments, differences, show

from tokenlight.bench.cases import sort_out
from tokenlight.bench.presets import ARRAS
from tokenlight.data.reading_examples import read_examples
from tokenlight.data.source import Source
from tokenlight.foundation.progress import counting

parser = arguments(__doc__)
args = parser.parse_args()
if args.data is None:
    parser.error(NO_DATA)
model = args.model or "bert-base-uncased"
explainer = load(model)

rows = enumerate(read_examples(Source(args.data, split=args.split, limit=args.limit), explainer.task.gap))
dropped: Counter[str] = Counter()
lengths: list[int] = []
groups: Counter[str] = Counter()
right = 0
with counting("asking the model", args.limit) as advance:
    while some := list(islice(rows, 256)):
        cases, others = sort_out(explainer, ARRAS, some)
        for record in (*(case.record for case in cases), *others):
            if "right" in record:
                lengths.append(record["tokens"])
                groups[record["group"] or "-"] += 1
                right += record["right"]
            else:
                dropped[record.get("bad") or record["set_aside"]] += 1
        advance(len(some))
if not lengths:
    raise SystemExit(f"no example suits this tokenizer: {dict(dropped)}")

found = Size(len(lengths), min(lengths), max(lengths), fmean(lengths), median(lengths), right / len(lengths))
published = TABLE_3.get(model)
titles = ("examples", "shortest", "longest", "mean length", "median length", "accuracy")
show(
    f"Arras et al., table 3, {model}",
    ["", "measured", "published"],
    [
        [title, f"{value:.5g}", NOT_AT_HAND if published is None else f"{asdict(published)[name]:.5g}"]
        for title, (name, value) in zip(titles, asdict(found).items(), strict=True)
    ],
    [
        *differences(model, args.data, model if published else "another one", "LGD", args.limit),
        *(f"group {group}: {count:,} examples" for group, count in sorted(groups.items())),
        *(f"dropped {count:,}: {reason}" for reason, count in dropped.most_common()),
    ],
    args.output / "table3.md",
)
(args.output / "table3.json").write_text(
    json.dumps({"model": model, **asdict(found), "groups": groups, "dropped": dropped}, indent=1), encoding="utf-8"
)
