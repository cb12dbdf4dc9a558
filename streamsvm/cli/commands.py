"""Commands and their options.

The docstrings are the help: description, options and examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streamsvm.run.config import RunConfig
from streamsvm.run.converters import Span
from streamsvm.run.options import STREAM_OPTIONS, Settings, option

_DONE = "0 done; 1 failed; 2 invalid settings, no data were read"
_REJECTED = "3 done, but more than half of the events were rejected"
_AWAY = "75 brokers or servers are unreachable, start the same command again"
_ENDED = "129, 130 or 143 ended by SIGHUP, SIGINT or SIGTERM"
EXIT_CODES = {
    "run": f"{_DONE}; {_REJECTED}; {_AWAY}; {_ENDED}, with checkpoint and report (a second signal kills)",
    "profile": f"{_DONE}; {_REJECTED}; {_AWAY}; {_ENDED}, without a profile",
    "per_key": f"{_DONE}; {_AWAY}; {_ENDED}, after a commit",
    "watch": f"2 invalid settings, or no page of a run; {_AWAY}; {_ENDED}",
}
"""Exit codes, by the module of a command."""


class RunCommand(RunConfig):
    """Predict every event of a stream, then learn from it.

    Predict every event of a stream before learning from its label. Write predictions, measure accuracy and save the
    model. Without arguments, the stream is a generated one whose concept changes twice (synthetic:demo).

    Examples
    --------
    streamsvm run events.csv --label outcome -o predictions.csv --save model.svm
    streamsvm run 'events.csv?delimiter=;&decimal=,' --label outcome --types zip:category --checkpoint state/
    streamsvm run kafka://localhost:9092/events --label outcome -o kafka://localhost:9092/predictions --page 8080
    """

    module: ClassVar[str] = "run"


class PredictCommand(RunConfig):
    """Predict the events of a stream with a saved model.

    Predict the events of a stream with a saved model, which does not change. Labels are optional; with labels, the
    accuracy is measured.

    Parameters
    ----------
    label : NAME
        The column with the true label, if there is one. It is not a feature, and the accuracy is measured with it.
    model : FILE
        The file of a saved model.

    Examples
    --------
    streamsvm predict events.csv --model model.svm -o predictions.csv
    streamsvm predict events.csv --model model.svm --label outcome -o scores.jsonl --set proba=true
    streamsvm predict kafka://localhost:9092/events --model model.svm -o kafka://localhost:9092/predictions
    """

    module: ClassVar[str] = "run"
    takes: ClassVar[frozenset[str]] = RunConfig.takes - {
        *("params", "save", "refit", "relearn_corrections", "timeout_label")
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.learn = False


class ProfileCommand(RunConfig):
    """Write the reference profile of a stream, to monitor later events.

    Read a stream once and write the distribution of each feature as a JSON file, for `run --reference` and `predict
    --reference`. Name the label, so that it is not a feature.

    Parameters
    ----------
    label : NAME
        The column with the label, which is not a feature.
    out : FILE
        The file of the profile, which is replaced (default profile.json).
    max_events : N
        Use the first N events only.

    Examples
    --------
    streamsvm profile history.csv --label outcome -o profile.json
    streamsvm run live.csv --label outcome --reference profile.json --alerts alarms.jsonl
    """

    module: ClassVar[str] = "profile"
    takes: ClassVar[frozenset[str]] = frozenset(
        (*STREAM_OPTIONS, "source", "max_events", "out", "overwrite", "quiet", "log_every", "config")
    ) - {"at_end"}

    def __post_init__(self) -> None:
        self.learn, self.out = False, self.out or "profile.json"
        super().__post_init__()
        if self.urls["source"].startswith("kafka:"):
            self.at_end = "stop"  # the default of files

    def validate(self) -> None:
        """Refuse inconsistent options, before any stream is opened."""
        from streamsvm.cli.profile import check

        check(self)


@dataclass(kw_only=True, eq=False, repr=False)
class KeyOptions(Settings):
    """Keys.

    Each customer, machine or sensor has its own model, which predicts its events and learns from them. The workers of
    a consumer group share the partitions of a Kafka topic through Quix Streams (extra `quix`). Each event is predicted
    exactly once, even if workers fail or join.

    Parameters
    ----------
    field : FIELD
        The field of an event with its key, which is also the key in Kafka.
    consumer_group : NAME
        The consumer group of the workers; the state of all keys belongs to it.
    repartition
        The topic has other keys in Kafka: send events through a topic that is keyed by --field.
    prior_model : FILE
        A model of all keys that votes together with the model of each key: the file of a saved model, or learn for a
        model that each worker trains on its events.
    key_ttl : TIME
        A key without events for this long in event time, such as 90d, starts over. After twice that, it is removed.
    """

    field: str | None = option(common=True)
    consumer_group: str | None = option(common=True)
    repartition: bool = False
    prior_model: str | None = None
    key_ttl: Span | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class PerKeyCommand(RunConfig, KeyOptions):
    """Train one model per customer, machine or sensor, on many machines.

    Predict the events of a Kafka topic of JSON objects and learn from them, with one model per key. The state of the
    keys belongs to the consumer group. A worker that is started again resumes exactly once.

    Parameters
    ----------
    source : TOPIC
        The topic of the events, as kafka://HOST:PORT/TOPIC.
    label : NAME
        The field to predict. Events without a label are predicted and not learned.
    model : NAME
        The model of each key: blend (the most accurate, the default), bsgd or cpm (the fastest).
    label_source : TOPIC
        The topic of the labels, on the brokers of the events.
    label_timeout : TIME
        How long an event waits for its label in event time, such as 90s, 30m, 12h or 30d. A later label is not learned.
        Default: until more than 100 events and labels of its key wait.
    out : TOPIC
        The topic of the predictions, on the brokers of the events.
    dead_letter : TOPIC
        The topic of rejected events, with the reason.
    checkpoint : DIR
        The directory of the workers' state (default: state).

    Examples
    --------
    streamsvm per-key kafka://localhost:9092/events --field customer --consumer-group fraud --label outcome
    """

    module: ClassVar[str] = "per_key"
    takes: ClassVar[frozenset[str]] = frozenset(
        (
            *("field", "consumer_group", "repartition", "prior_model", "key_ttl"),
            *("source", "label", "time", "time_unit", "time_format", "ignore", "at_end"),
            *("flatten", "lists", "label_source", "join", "label_timeout", "model", "params", "out", "dead_letter"),
            *("checkpoint", "checkpoint_every", "metrics_port", "quiet", "config"),
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.checkpoint = self.checkpoint or "state"


@dataclass(kw_only=True, eq=False, repr=False)
class WatchCommand(Settings):
    """Serve a dashboard of a run from its checkpoints or from its own dashboard.

    Serve a dashboard of a run until interrupted. The figures come from the checkpoint directory, which is neither
    locked nor changed, or from the dashboard of the run (`run --page`).

    Parameters
    ----------
    place : DIR|URL
        The --checkpoint directory of the run, or the URL of its dashboard.
    page : PORT
        Where to serve the dashboard, as for `run --page` (default 8080).
    page_token_file : FILE
        A file with the token of both dashboards (default: the environment variable STREAMSVM_PAGE_TOKEN).
    quiet
        Do not print the URL of the dashboard.
    """

    module: ClassVar[str] = "watch"
    takes: ClassVar[frozenset[str]] = frozenset(("place", "page", "page_token_file", "quiet"))
    place: str
    page: str = "8080"
    page_token_file: str | None = None
    quiet: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class WarmupCommand(Settings):
    """Compile the kernels before the first use, for example in a container image.

    Compile the kernels of the learners, and of the batch solvers if scikit-learn is installed. Print the folder of
    compiled code, which is under NUMBA_CACHE_DIR or XDG_CACHE_HOME if these are set. Compiled code of other versions
    that was not used for a day is removed.

    Parameters
    ----------
    jobs : N
        Number of processes (default: number of cores).
    all
        Also compile the kernels that only some settings use: coverage, --label-source.
    quiet
        Show no progress.
    """

    module: ClassVar[str] = "warmup"
    takes: ClassVar[frozenset[str]] = frozenset(("jobs", "all", "quiet"))
    jobs: int | None = None
    all: bool = False
    quiet: bool = False


COMMANDS: dict[str, type[Settings]] = {
    "run": RunCommand,
    "predict": PredictCommand,
    "profile": ProfileCommand,
    "per-key": PerKeyCommand,
    "watch": WatchCommand,
    "warmup": WarmupCommand,
}
"""Options of each command."""
