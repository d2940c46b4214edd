"""What a calibration has found so far, in a file: a run that was stopped continues there."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.calibration.effects import Effects
from tokenlight.calibration.search import Climb, Search
from tokenlight.foundation.files import write_whole

FORMAT = "tokenlight.calibration"


@dataclass
class Checkpoint:
    """Effects of the texts that were measured, and the state of the search; both belong to these settings alone."""

    path: Path | None  # None: nothing is kept
    settings: Mapping[str, Any]
    effects: list[Effects] = field(default_factory=list)
    search: Search | None = None

    @classmethod
    def open(cls, path: Path | None, settings: Mapping[str, Any], lengths: Sequence[int]) -> "Checkpoint":
        """What is in the file, if it was made with the same settings, for texts of so many tokens."""
        if path is None or not path.exists():
            if path is not None and not path.parent.is_dir():
                raise ValueError(f"there is no folder {str(path.parent)!r} for the checkpoint {path.name}")
            return cls(path, settings)
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            if plain["format"] != FORMAT:
                raise ValueError(f"format {plain['format']!r}")
            before, found = plain["settings"], plain["search"]
            effects = [read_effects(one) for one in plain["effects"]]
            state = None if found is None else read_search(found)
            other = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
            if not other:
                check_whole(effects, state, lengths, settings["folds"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is not a calibration's checkpoint ({error}): delete it to start again") from error
        if other:
            raise ValueError(f"{path} belongs to a calibration with other {', '.join(other)}: delete it to start again")
        return cls(path, settings, effects, state)

    def add(self, effects: Sequence[Effects]) -> None:
        self.effects += effects
        self._write()

    def reach(self, search: Search) -> None:
        self.search = search
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            found = None if self.search is None else write_search(self.search)
            effects = [write_effects(one) for one in self.effects]
            plain = {"format": FORMAT, "settings": self.settings, "effects": effects, "search": found}
            write_whole(self.path, json.dumps(plain))


def check_whole(effects: Sequence[Effects], search: Search | None, lengths: Sequence[int], folds: int) -> None:
    """Whether all that is there belongs to the texts."""
    if [len(one.values) for one in effects] != list(lengths[: len(effects)]):
        raise ValueError("its effects are not those of the texts")
    if not all(one.values.isfinite().all() for one in effects):
        raise ValueError("it holds numbers that are not finite")
    if search is None:
        return
    if len(effects) < len(lengths):
        raise ValueError("it has searched before all texts were measured")
    if search.judged.shape[1:] != (len(lengths),) or not search.judged.isfinite().all():
        raise ValueError("its search was not judged by the texts")
    trails = [climb.trail for climb in search.climbs if climb.trail.isfinite().all()]
    if [len(trail) for trail in trails] != [len(search.judged)] * (folds + 1):
        raise ValueError("its search is not whole")


def write_search(search: Search) -> dict[str, Any]:
    climbs = [{one.name: getattr(climb, one.name).tolist() for one in fields(climb)} for climb in search.climbs]
    return {"climbs": climbs, "judged": search.judged.tolist()}


def read_search(plain: Mapping[str, Any]) -> Search:
    climbs = [Climb(**{one.name: numbers(climb[one.name]) for one in fields(Climb)}) for climb in plain["climbs"]]
    return Search(tuple(climbs), numbers(plain["judged"]))


def numbers(plain: Any) -> Tensor:
    return torch.tensor(plain, dtype=torch.float64)


def write_effects(effects: Effects) -> list[float | None]:
    """A value for each token, None for those that may not go."""
    return [value if may_go else None for value, may_go in zip(effects.values.tolist(), effects.measured, strict=True)]


def read_effects(plain: Sequence[float | None]) -> Effects:
    values = torch.tensor([value or 0.0 for value in plain], dtype=torch.float64)
    return Effects(values, torch.tensor([value is not None for value in plain]))
