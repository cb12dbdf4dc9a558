"""What a run is asked to do beside predicting: settings alone, so that one that cannot be is refused at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamsvm.names import shown
from streamsvm.run.errors import SetupError
from streamsvm.run.names import meant

logger = logging.getLogger("streamsvm.run")


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
        return {f"--set {names.get(name, name).replace('_', '-')}": repr(value) for name, value in given.items()}

    @property
    def named(self) -> dict[Any, str]:
        """Labels that it speaks of, and by which option."""
        found: dict[Any, str] = {}
        if isinstance(self.cost, Mapping):
            found |= {label: "--set cost" for true, costs in self.cost.items() for label in (true, *costs)}
        if isinstance(self.class_weight, Mapping):
            found |= dict.fromkeys(self.class_weight, "--set class-weight")
        return found if self.alarms is None else found | {self.alarm_class: "--set alarms"}

    def warn_of_unknown(self, classes: Iterable[Any]) -> None:
        """Warn of labels that it speaks of and that no event had."""
        known = set(classes)
        for label, option in self.named.items():
            if known and meant(label, known) not in known:
                logger.warning("%s speaks of %r, which was the label of no event", option, label)

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


def label_of(text: str) -> Any:
    """The label that a text stands for in a stream."""
    from connectors.columns import label_of  # imports numpy

    return label_of(text)


def costs_of(text: str) -> dict[Any, dict[Any, float]]:
    """A table of costs by label."""
    if text.startswith("{"):
        return {label_of(true): _by_label(costs) for true, costs in _object("--set cost", text).items()}
    table: dict[Any, dict[Any, float]] = {}
    for pair, cost in _pairs("--set cost", text, "TRUE:DECIDED=COST").items():
        true, colon, decided = pair.partition(":")
        if not colon:
            raise SetupError(f"--set cost={text}: {pair} does not say for which decision: TRUE:DECIDED=COST")
        table.setdefault(label_of(true), {})[label_of(decided)] = cost
    return table


def weights_of(text: str) -> dict[Any, float] | str:
    """The weights of classes, or how they are found."""
    if text == "balanced":
        return text
    if text.startswith("{"):
        return dict(_by_label(_object("--set class-weight", text)))
    return {label_of(name): weight for name, weight in _pairs("--set class-weight", text, "LABEL=WEIGHT").items()}


def alarms_of(given: Any) -> tuple[tuple[str, float], Any]:
    """Kind and share of alarms, and their class, from ``LABEL=SHARE``, ``LABEL=recall:SHARE`` or a mapping.

    Examples
    --------
    >>> alarms_of("fraud=0.01"), alarms_of({1: "recall:0.9"})
    ((('share', 0.01), 'fraud'), (('recall', 0.9), 1))
    """
    text = str(given)
    if isinstance(given, str) and given.startswith("{"):
        given = {label_of(name): value for name, value in _object("--set alarms", given).items()}
    if not isinstance(given, Mapping):
        name, _, value = text.rpartition("=")
        given = {label_of(name): value} if name else {}
    if len(given) != 1:
        raise SetupError(f"--set alarms={text}: say for which class and how many: LABEL=SHARE, as fraud=0.01")
    ((label, value),) = given.items()
    kind, _, share = str(value).rpartition(":")
    return (kind or "share", number_of(f"--set alarms={text}", share)), label


def _object(option: str, text: str) -> dict[str, Any]:
    """What a JSON object says."""
    import json  # which help does without

    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SetupError(f"{option}={shown(text)}: is no JSON object: {error}") from error
    return found


def _by_label(found: Any) -> Any:
    return {label_of(name): value for name, value in found.items()} if isinstance(found, dict) else found


def _pairs(option: str, text: str, form: str) -> dict[str, float]:
    """Names with numbers, separated by commas."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, sign, value = part.rpartition("=")
        if not sign:
            raise SetupError(f"{option}={text}: {part} is not of the form {form}")
        if name.strip() in found:
            raise SetupError(f"{option}={text}: {name.strip()} is there twice")
        found[name.strip()] = number_of(option, value)
    return found


def number_of(option: str, text: str) -> float:
    """The number that a text of an option stands for."""
    try:
        return float(text)
    except ValueError:
        raise SetupError(f"{option}: {text} is no number") from None
