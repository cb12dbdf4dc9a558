"""Loading of saved learners of any class, and compilation in advance."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from streamsvm.budgeted import merging
from streamsvm.budgeted.classifier import BSGDClassifier
from streamsvm.core.cache import cache_folder
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.library import library
from streamsvm.core.precompile import prepare
from streamsvm.ensemble.classifier import StreamSVMClassifier
from streamsvm.models import ArchiveError
from streamsvm.models.archive import read_archive
from streamsvm.models.saved import from_state, in_file
from streamsvm.polytope.classifier import CPMClassifier

if TYPE_CHECKING:
    from streamsvm.decide.deciding import DecidingClassifier
    from streamsvm.refit.classifier import RefitClassifier

    _Online: TypeAlias = StreamSVMClassifier | CPMClassifier | BSGDClassifier
    Saved: TypeAlias = _Online | RefitClassifier | DecidingClassifier

__all__ = ["BSGDClassifier", "CPMClassifier", "StreamSVMClassifier", "from_state", "load", "warmup"]

# Modules whose entry points `warmup` compiles, and further ones with `everything`.
_KERNELS = (
    *("features.ranks", "online.driver", "ensemble.vote", "ensemble.linear", "ensemble.trees"),
    *("ensemble.forest", "ensemble.naive_bayes", "polytope.kernels"),
    *("budgeted.kernels", "budgeted.vectors", "budgeted.maintenance"),
    *("refit.outliers", "refit.vote_kernels", "refit.frozen_models", "keyed.snapshots"),
)
_FURTHER_KERNELS = (
    *("decide.conformal_kernels", "delayed.digests", "delayed.label_join", "delayed.single_join", "monitor.kernels"),
)


def load(path: str | os.PathLike[str]) -> Saved:
    """Load a learner from a file; it continues bit for bit.

    Parameters
    ----------
    path
        File written by `save` or ``streamsvm run --save``.

    Returns
    -------
    learner
        The saved learner.

    Raises
    ------
    ArchiveError
        If the file is damaged, of another format or of a newer version, or contains a `LinearModel`, which
        `LinearModel.load` reads.
    FileNotFoundError
        If the file does not exist.

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
        found: Saved = from_state(header, arrays)
        return found
    except ArchiveError as error:
        raise in_file(path, error) from error


def entry_points(everything: bool) -> list[EntryPoint]:
    """Return the entry points of all learners.

    With `everything`, those of prediction sets, late labels and monitors are included.
    """
    names = (*_KERNELS, *_FURTHER_KERNELS) if everything else _KERNELS
    modules = (importlib.import_module(f"streamsvm.{name}") for name in names)
    return [entry for module in modules for entry in module.ENTRY_POINTS.values()]


def warmup(jobs: int | None = None, everything: bool = False) -> Path:
    """Compile all kernels of the learners in parallel and cache them on disk.

    Use it for example when building a container image. Kernels for refits are included. The smoothed Newton solver has
    its own function, `streamsvm.batch.warmup`, which needs scikit-learn.

    Parameters
    ----------
    jobs
        Number of processes. None: the environment variable STREAMSVM_JOBS, else the number of cores.
    everything
        Whether to compile the kernels of prediction sets, late labels and monitors, too.

    Returns
    -------
    Path
        The cache folder. An image needs the same XDG_CACHE_HOME when it is built and when it is run. The compiled
        library of a wheel has all these kernels: nothing is compiled then, and this is its file. Batch solvers
        compile at their first use.
    """
    used = library()
    entries = entry_points(everything)
    prepare(entries, jobs)
    for entry in entries:
        if not entry.is_compiled:  # the other process could not write to the cache
            entry.compile()
    merging.table()
    return cache_folder() if used is None else used.path
