"""Saved learners of any class, and compiling them all beforehand."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from streamsvm.budgeted.classifier import BSGDClassifier
from streamsvm.core import merging
from streamsvm.core.cache import cache_folder
from streamsvm.core.precompile import prepare
from streamsvm.ensemble.classifier import StreamSVMClassifier
from streamsvm.models import ArchiveError
from streamsvm.models.archive import read_archive
from streamsvm.models.saved import LOADABLE, LOADABLE_LATER, public
from streamsvm.polytope.classifier import CPMClassifier

if TYPE_CHECKING:
    from streamsvm.decide.covering import CoveringClassifier
    from streamsvm.decide.deciding import DecidingClassifier
    from streamsvm.refit.classifier import RefitClassifier

    _Online: TypeAlias = StreamSVMClassifier | CPMClassifier | BSGDClassifier
    Saved: TypeAlias = _Online | RefitClassifier | DecidingClassifier | CoveringClassifier

__all__ = ["BSGDClassifier", "CPMClassifier", "StreamSVMClassifier", "from_state", "load", "warmup"]

# Modules whose entry points `warmup` compiles, and those it compiles with `everything`.
_KERNELS = (
    *("features.encoding", "features.ranks", "online.driver", "ensemble.vote", "ensemble.linear", "polytope.kernels"),
    *("budgeted.kernels", "budgeted.maintenance"),
    *("refit.outliers", "refit.expert_vote", "refit.frozen_models", "keyed.snapshots"),
)
_ASKED_FOR = (*("decide.conformal_kernels", "delayed.label_join"),)


def from_state(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Saved:
    """The learner, of whatever class, whose `state` this is.

    Raises
    ------
    ArchiveError
        Where it is none of ours.
    """
    name = header.get("class")
    if name in LOADABLE_LATER:
        public(name)
    learner = LOADABLE.get(name) if isinstance(name, str) else None
    if name == "LinearModel":
        raise ArchiveError(
            "holds a LinearModel, which does not learn: read it with streamsvm.models.LinearModel.load; "
            "CPMClassifier(n_faces=1) can adopt its polytopes() to learn on"
        )
    if learner is None:
        raise ArchiveError(f"holds {name!r}, which is none of {', '.join(sorted({*LOADABLE, *LOADABLE_LATER}))}")
    found: Saved = learner.from_state(header, arrays)
    return found


def load(path: str | os.PathLike[str]) -> Saved:
    """The learner that was saved to a file; it continues bit for bit.

    Parameters
    ----------
    path
        A file that `save` or ``streamsvm run --save`` wrote.

    Raises
    ------
    ArchiveError
        Where the file is damaged, foreign, of a newer version, or holds a `LinearModel`: `LinearModel.load` reads it.
    FileNotFoundError
        Where there is none.

    Examples
    --------
    >>> import tempfile, streamsvm
    >>> model = streamsvm.CPMClassifier()
    >>> model.learn_one({"size": 2.0}, "large")
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     model.save(file.name)
    ...     streamsvm.load(file.name).predict_one({"size": 3.0})
    'large'
    """
    header, arrays = read_archive(path)
    try:
        return from_state(header, arrays)
    except ArchiveError as error:
        raise ArchiveError(f"{path}: {error}") from error


def warmup(jobs: int | None = None, everything: bool = False) -> Path:
    """Compile all kernels of the learners, in several processes, and keep them on disk: for container images, say.

    Those around a learner with refits are among them; `streamsvm.batch.warmup` does so for the smoothed Newton solver,
    and needs scikit-learn.

    Parameters
    ----------
    jobs
        In how many processes; None: as the environment's STREAMSVM_JOBS says, else as there are cores.
    everything
        Whether to compile also what only some options need: sets of labels, and labels that come later.

    Returns
    -------
    Path
        Where compiled code is kept. An image takes it along if XDG_CACHE_HOME is the same when it is run.
    """
    names = (*_KERNELS, *_ASKED_FOR) if everything else _KERNELS
    modules = (importlib.import_module(f"streamsvm.{name}") for name in names)
    entries = [entry for module in modules for entry in module.ENTRY_POINTS.values()]
    prepare(entries, jobs)
    for entry in entries:
        if not entry.is_compiled:  # the process that was to do so could not keep it
            entry.compile()
    merging.table()
    return cache_folder()
