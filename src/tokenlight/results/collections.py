"""Lists and dicts of explanations, which a notebook shows as heatmaps; apart from that they are lists and dicts."""

from typing import TypeVar

from tokenlight.results.explanation import Explanation

Found = TypeVar("Found", Explanation, list[Explanation])


class ExplanationList(list[Explanation]):
    """Of several texts."""

    def _repr_html_(self) -> str:
        from tokenlight.views.html import overview

        return overview(self)


class ExplanationDict(dict[str, Found]):
    """By method; of one text, or of several."""

    def _repr_html_(self) -> str:
        from tokenlight.views.html import overview

        return overview(self)
