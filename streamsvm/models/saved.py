"""Classes that are saved as one archive, and their registry for `streamsvm.load`."""

from __future__ import annotations

import importlib
import os
from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Self

from numpy.typing import NDArray

from streamsvm.models.archive import CORRUPT_ERRORS, ArchiveError, check_replaced, read_archive, write_archive
from streamsvm.models.codec import SavedState

LOADABLE: dict[str, Any] = {}
"""Classes for `streamsvm.load` by name; each registers itself."""

LOADABLE_LATER = ("RefitClassifier", "DecidingClassifier")
"""Public names of classes in higher layers, which register themselves on import."""

_WIDTH = "n_features_in_"


def innermost(model: Any) -> Any:
    """Unwrap the innermost learner."""
    while not hasattr(model, _WIDTH) and hasattr(model, "model"):
        model = model.model
    return model


class Archived:
    """Base of classes saved as one archive.

    A subclass implements `state` and `_from_state`.
    """

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state as header and arrays.

        An object restored by `from_state` continues bit for bit.
        """

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore an object from its state.

        Parameters
        ----------
        header, arrays
            The result of `state`, or the content of an archive.

        Raises
        ------
        ArchiveError
            If the header or the arrays are invalid.
        """
        try:
            if header["class"] != cls.__name__:
                raise ArchiveError(f"the state of a {header['class']}, not of a {cls.__name__}", "class")
            self = cls._from_state(header, arrays)
            self._take_width(header.get(_WIDTH))
            return self
        except ArchiveError:
            raise
        except CORRUPT_ERRORS as error:  # the checksum was right, so the file is probably not damaged
            what = f"not the state of a {cls.__name__} of this version of streamsvm: {error}"
            raise ArchiveError(what, "content") from error

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore an object; errors of damaged content are handled by `from_state`."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save to one file, atomically; `streamsvm.load` continues from it bit for bit.

        Labels and feature names may be bool, int, float, str, None, and tuples of these.

        Parameters
        ----------
        path
            The file; an existing saved model is replaced.
        overwrite
            Whether to replace other files, too.

        Raises
        ------
        TypeError
            If a label, feature name or parameter cannot be saved; nothing is written then.
        FileExistsError
            If the file exists and is not a saved model.
        OSError
            If writing fails; the old file is unchanged.
        """
        if not overwrite:
            check_replaced(path)
        header, arrays = self.state()
        width = getattr(innermost(self), _WIDTH, None)
        # The width of arrays is not part of the state, which is the same for arrays and dicts.
        write_archive(path, header if width is None else header | {_WIDTH: width}, arrays)

    def _take_width(self, width: Any) -> None:
        """Restore the number of columns of arrays."""
        if width is None:
            return
        if type(width) is not int or width < 0:
            raise ArchiveError(f"the number of columns of learned arrays is {width!r}")
        setattr(innermost(self), _WIDTH, width)

    def __copy__(self) -> Self:
        # A shallow copy would share buffers that grow with new labels.
        return deepcopy(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load from a file.

        Parameters
        ----------
        path
            The file.

        Raises
        ------
        ArchiveError
            If the file is damaged, or of another class, format or version.
        FileNotFoundError
            If the file does not exist.
        """
        header, arrays = read_archive(path)
        try:
            return cls.from_state(header, arrays)
        except ArchiveError as error:
            raise in_file(path, error) from error


def state_of(model: Any) -> SavedState:
    """Return the state of a classifier.

    Raises
    ------
    TypeError
        If the classifier has no `state` method. Pickle is not used as a fallback.
    """
    if not hasattr(model, "state"):
        raise TypeError(
            f"a {type(model).__name__} cannot be saved, because it has no `state`: only classifiers of this package "
            "can be saved"
        )
    state: SavedState = model.state()
    return state


def from_state(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Restore an object of any registered class from its state.

    Raises
    ------
    ArchiveError
        If the class is unknown, or the state is invalid.
    """
    name = header.get("class")
    if name in LOADABLE_LATER:
        public(name)
    kind = LOADABLE.get(name) if isinstance(name, str) else None
    if name == "LinearModel":
        raise ArchiveError(
            "contains a LinearModel, which does not learn: load it with streamsvm.models.LinearModel.load; "
            "CPMClassifier(n_faces=1) can adopt its polytopes() to continue learning",
            "class",
        )
    if name == "Checkpoint":
        raise ArchiveError("is the checkpoint of a run: start the same run with --save FILE to save its model", "class")
    if kind is None:
        known = ", ".join(sorted({*LOADABLE, *LOADABLE_LATER}))
        raise ArchiveError(f"holds {name!r}, which is not one of {known}", "class")
    return kind.from_state(header, arrays)


def in_file(path: str | os.PathLike[str], error: ArchiveError) -> ArchiveError:
    """Return the error of a model with the path of its file, and a remedy."""
    hint = "; train the model again, or use the version that saved it" if error.reason == "content" else ""
    return ArchiveError(f"{path}: {error}{hint}", error.reason)


def public(name: str) -> Any:
    """Resolve a public name of the package for lower layers.

    Lower layers must not import higher ones.
    """
    return getattr(importlib.import_module("streamsvm"), name)
