"""What a run is asked to do beside predicting: settings alone, so that one that cannot be is refused at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted beside predictions.

    Parameters
    ----------
    coverage
        How often sets of labels are to hold the true one; None for no sets.
    by_class
        Whether that is to hold for each class.
    cost, class_weight, abstain
        What decisions cost, as `Costs` has it; None each for no decisions.
    reasons
        How many reasons are to be told for each prediction; 0 for none.
    alarms, alarm_class
        What kind of alarms are wanted and how many, as `Alarms` has it, and for which class; None for none.
    """

    coverage: float | None = None
    by_class: bool = False
    cost: Any = None
    class_weight: Any = None
    abstain: float | None = None
    alarms: tuple[str, float] | None = None
    alarm_class: Any = None
    reasons: int = 0

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint must agree in."""
        given = {name: value for name, value in asdict(self).items() if value not in (None, False, 0)}
        names = {"by_class": "coverage-by-class", "reasons": "explain"}
        return {f"--{names.get(name, name).replace('_', '-')}": repr(value) for name, value in given.items()}

    @property
    def named(self) -> dict[Any, str]:
        """Labels that it speaks of, and by which option."""
        found: dict[Any, str] = {}
        if isinstance(self.cost, Mapping):
            found |= {label: "--cost" for true, costs in self.cost.items() for label in (true, *costs)}
        if isinstance(self.class_weight, Mapping):
            found |= dict.fromkeys(self.class_weight, "--class-weight")
        return found if self.alarms is None else found | {self.alarm_class: "--alarm-class"}

    @property
    def decides(self) -> bool:
        """Whether there are decisions by cost."""
        return not (self.cost is None and self.class_weight is None and self.abstain is None)

    @property
    def needs_probabilities(self) -> bool:
        """Whether any of it rests on all probabilities."""
        return self.coverage is not None or self.decides or self.alarms is not None


@dataclass(frozen=True, slots=True)
class LateSettings:
    """How labels are to be joined.

    Parameters
    ----------
    wait_ms
        How long an event waits for its label; None for as long as there is room.
    on_timeout
        As what an event is learned that waited in vain; None for nothing.
    relearn
        Whether corrections are learned.
    most, most_bytes
        What may wait, in number and memory.
    budget
        Of which share of the events labels are asked for; None asks for none.
    folder
        Where events wait on disk; None for memory alone.
    """

    wait_ms: int | None = None
    on_timeout: Any = None
    relearn: bool = False
    most: int = 1_000_000
    most_bytes: int = 1 << 30
    budget: float | None = None
    folder: Path | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint must agree in."""
        return {f"late {name}": repr(value) for name, value in asdict(self).items() if name != "folder"}
