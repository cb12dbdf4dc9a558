"""Options of earlier versions, and what takes their place: they are refused with the new name."""

from __future__ import annotations

from streamsvm.run.config import RunConfig

_NEW = {
    "alarm-class": "--set alarms=LABEL=SHARE",
    "checkpoint-seconds": "--checkpoint-every TIME, as 30s",
    "effort": "--param effort=LEVEL",
    "follow": "--at-end wait",
    "forget-after": "--key-ttl",
    "fresh": "--reset",
    "group": "--consumer-group",
    "joined": "--label-output",
    "learn": "the command `streamsvm predict`",
    "load": "--model FILE",
    "on-timeout": "--timeout-label",
    "page-token": "the environment variable STREAMSVM_PAGE_TOKEN or page-token-file, as secrets are no options",
    "parent": "--prior-model",
    "patience": "--broker-timeout",
    "per-key": "the command `streamsvm per-key SOURCE --field FIELD`",
    "refit-every": "--refit SOLVER,every=WHEN",
    "refit-window": "--refit SOLVER,window=WHAT",
    "rejected": "--dead-letter",
    "requests": "--query-output",
    "until-end": "--at-end stop",
    "wait": "--label-timeout",
}


def new_name(old: str) -> str | None:
    """What takes the place of an option; None where it is unknown.

    Parameters
    ----------
    old
        Its name, without the dashes before it.

    Examples
    --------
    >>> new_name("wait"), new_name("no-learn"), new_name("bogus")
    ('--label-timeout', 'the command `streamsvm predict`', None)
    """
    return _NEW.get(old.removeprefix("no-"))


def setting_of(old: str) -> str | None:
    """How a setting that was an option is given; None for other names.

    Parameters
    ----------
    old
        Its name, without the dashes before it.

    Examples
    --------
    >>> setting_of("window"), setting_of("no-quiet"), setting_of("bogus")
    ('--set window=VALUE', '--set quiet=false', None)
    """
    plain = old.removeprefix("no-")
    if plain.replace("-", "_") not in RunConfig.takes:
        return None
    return f"--set {plain}={'VALUE' if plain == old else 'false'}"
