"""The data sets and streams of the simulations, as arrays and tables.

They are read from the folder `STREAMSVM_DATA`, by default `../shared/data` next to the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import connectors
from connectors import events
from connectors.events import SparseRows, Table

# Streams in their original order: file, and options of the source.
STREAMS: dict[str, tuple[str, dict[str, str]]] = {
    "electricity": ("elec2.csv.gz", {"label": "label", "ignore": "date"}),
    "insects 2013": ("insects2013.csv.gz", {"label": "label"}),
    "insects abrupt": ("insects2013_abrupt.csv.gz", {"label": "label"}),
    "keystroke": ("keystroke.csv.gz", {"label": "label"}),
    "luxembourg": ("luxembourg.csv.gz", {"label": "label"}),
    "ozone": ("ozone_eighthr.csv.gz", {"label": "label", "ignore": "date"}),
    "power supply": ("powersupply.csv.gz", {"label": "label"}),
    "usenet1": ("usenet1.csv.gz", {"label": "label"}),
    "SEA 50k": ("sea50k.csv.gz", {"label": "label"}),
    "posture": ("posture.csv.gz", {"label": "label"}),
    "spam": ("spam_corpus.libsvm.gz", {}),
    "airlines": ("airlines_sample.csv.gz", {"label": "label"}),
}


def folder() -> Path:
    """Return the folder of the data."""
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    return Path(os.environ.get("STREAMSVM_DATA", default)).resolve()


def load_stream(name: str, most: int = 50_000) -> tuple[Table | scipy.sparse.csr_matrix, list[Any]]:
    """Load the first rows of a stream as a table or CSR matrix, and their labels."""
    file, options = STREAMS[name]
    return load_rows(file, most, **options)


def load_rows(file: str, most: int, **options: str) -> tuple[Table | scipy.sparse.csr_matrix, list[Any]]:
    """Load the first rows of a file as a table or CSR matrix, and their labels."""
    source = connectors.open_source(str(folder() / file), batch_size=8192, **options)
    tables: list[Any] = []
    labels: list[Any] = []
    for batch in source:
        tables.append(batch.features)
        labels += batch.labels
        if len(labels) >= most:
            break
    source.close()
    if isinstance(tables[0], SparseRows):
        return _stack_sparse(tables)[:most], labels[:most]
    return {key: np.concatenate([table[key] for table in tables])[:most] for key in tables[0]}, labels[:most]


def rows_of(table: Table | scipy.sparse.csr_matrix) -> list[dict[Any, Any]]:
    """Convert a table or CSR matrix to River's dicts, without missing values."""
    if isinstance(table, dict):
        return events.rows_of(table, len(next(iter(table.values()))))
    return events.rows_of(SparseRows(table.indptr, table.indices, table.data), table.shape[0])


def load_libsvm(name: str, n_features: int) -> tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]:
    """Load a data set in libsvm format; column j is feature j + 1 of the file."""
    source = connectors.open_source(str(folder() / name), batch_size=65_536)
    parts, labels = [], []
    for batch in source:
        parts.append(batch.features)
        labels += batch.labels
    source.close()
    return _stack_sparse(parts, n_features + 1)[:, 1:].tocsr(), np.array(labels)


def load_digits(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Load MNIST (`mnist.train`, `mnist.test`) or USPS, with pixels in [0, 1]."""
    with np.load(folder() / f"{name}.npz", allow_pickle=False) as file:
        X, y = file["X"], file["y"]
    return X.astype(float) / (255.0 if X.dtype == np.uint8 else 1.0), y.astype(np.int64)


def load_covertype_classes() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Load all rows of Covertype, with seven classes."""
    table, labels = load_rows("covtype.csv.gz", 1_000_000, label="label")
    assert isinstance(table, dict)
    return np.column_stack([np.asarray(column, np.float64) for column in table.values()]), np.array(labels)


def load_covertype() -> tuple[Any, NDArray[np.int64], Any, NDArray[np.int64]]:
    """Load Covertype, class 2 (+1) against the rest (-1), as CSR.

    Columns are scaled to [0, 1] over all rows. 387,341 rows, chosen with seed 0, are for training.

    Returns
    -------
    X_train, y_train, X_test, y_test
        Rows and labels.
    """
    X, labels = load_covertype_classes()
    low, high = X.min(axis=0), X.max(axis=0)
    X = (X - low) / np.where(high > low, high - low, 1.0)
    y = np.where(labels == 2, 1, -1)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:387_341], order[387_341:]
    return scipy.sparse.csr_matrix(X[train]), y[train], scipy.sparse.csr_matrix(X[test]), y[test]


def one_against_rest(name: str, digit: int, n: int | None = None) -> tuple[scipy.sparse.csr_matrix, NDArray[np.int64]]:
    """Load digits as CSR with labels +1 for one digit and -1 for the others."""
    X, digits = load_digits(name)
    return scipy.sparse.csr_matrix(X[:n]), np.where(digits[:n] == digit, 1, -1)


def _stack_sparse(parts: list[SparseRows], width: int | None = None) -> scipy.sparse.csr_matrix:
    width = width or int(max(part.indices.max(initial=0) for part in parts)) + 1
    return scipy.sparse.vstack(
        [scipy.sparse.csr_matrix((p.values, p.indices, p.indptr), shape=(len(p), width)) for p in parts], "csr"
    )
