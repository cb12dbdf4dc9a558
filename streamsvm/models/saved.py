"""Classes that are saved to one file, and how `streamsvm.load` finds them."""

from __future__ import annotations

import importlib
import os
from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Self

from numpy.typing import NDArray

from streamsvm.models.archive import DAMAGED, ArchiveError, check_replaced, read_archive, write_archive

LOADABLE: dict[str, Any] = {}
"""Classes that `streamsvm.load` makes by `from_state`, by name: each is added where it is defined."""

LOADABLE_LATER = ("RefitClassifier", "DecidingClassifier", "CoveringClassifier")
"""Those that are defined further up than `load`, and are added once they are asked for by their public name."""

_WIDTH = "n_features_in_"


def innermost(model: Any) -> Any:
    """The learner inside of what is around it."""
    while not hasattr(model, _WIDTH) and hasattr(model, "model"):
        model = model.model
    return model


class Archived:
    """What is kept as one archive: a class says what its `state` is, and makes one of it by `from_state`."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All there is to know, as a header and arrays: `from_state` continues from it bit for bit."""

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `state` was asked of.

        Parameters
        ----------
        header, arrays
            What `state` gave, or what was read from a file.

        Raises
        ------
        ArchiveError
            Where header or arrays are not those of one.
        """
        try:
            if header["class"] != cls.__name__:
                raise ArchiveError(f"the state of a {header['class']}, not of a {cls.__name__}")
            self = cls._from_state(header, arrays)
            self._take_width(header.get(_WIDTH))
            return self
        except ArchiveError:
            raise
        except DAMAGED as error:
            raise ArchiveError(f"not the state of a {cls.__name__}: {error!r}") from error

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The same, where nothing is damaged."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write it to one file, whole or not at all; `streamsvm.load` continues from it bit for bit.

        Labels and feature names may be bool, int, float, str, None, and tuples of these.

        Parameters
        ----------
        path
            The file, which is replaced where it is one of this package.
        overwrite
            Whether a file of something else is replaced, too.

        Raises
        ------
        TypeError
            Where a label, a feature name or a parameter cannot be saved, before anything is written.
        FileExistsError
            Where there is a file of something else.
        OSError
            Where it cannot be written; what was there before stays.
        """
        if not overwrite:
            check_replaced(path)
        header, arrays = self.state()
        width = getattr(innermost(self), _WIDTH, None)
        # No part of what was learned, which is the same whether rows came as arrays or as dicts.
        write_archive(path, header if width is None else header | {_WIDTH: width}, arrays)

    def _take_width(self, width: Any) -> None:
        """Take over how many columns arrays must have, from the header of a file."""
        if width is None:
            return
        if type(width) is not int or width < 0:
            raise ArchiveError(f"arrays of {width!r} columns were learned")
        setattr(innermost(self), _WIDTH, width)

    def __copy__(self) -> Self:
        # What was learned belongs together: there would be no room for labels that a copy learns, if it shared them.
        return deepcopy(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What was saved to a file.

        Parameters
        ----------
        path
            The file.

        Raises
        ------
        ArchiveError
            Where the file is damaged, of a newer version, or holds something else.
        FileNotFoundError
            Where there is none.
        """
        header, arrays = read_archive(path)
        try:
            return cls.from_state(header, arrays)
        except ArchiveError as error:
            raise ArchiveError(f"{path}: {error}") from error


def public(name: str) -> Any:
    """What the package has under a public name, for those who may not import it, since imports go downward."""
    return getattr(importlib.import_module("streamsvm"), name)
