"""Wording of messages. Other tests check errors by class and attributes."""

from __future__ import annotations

import re
import struct
import sys

import pytest
from river import drift

from connectors import ConnectorError, open_sink, open_source
from streamsvm import CPMClassifier, KeyedClassifier, RefitClassifier
from streamsvm.batch import IndexedBCD, SampledCuts, SmoothedNewton
from streamsvm.decide.costs import Costs
from streamsvm.keyed.sections import unseal
from streamsvm.parameters import check_choice, check_class_weight, check_number
from streamsvm.refit import FirstOf, OnDrift
from streamsvm.run import Run, RunConfig
from tests.connectors.streams import write

ROWS = [[0.0], [1.0]], [0, 1]
SEA = 'generator = "sea"\n'
NEWER = struct.pack("<4sHI", b"svmk", 3, 0)
ENCODINGS = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
TWO_MEANINGS = "a;b;y\n" + "1,234;1;0\n2,500;1;1\n" * 8


@pytest.mark.parametrize(
    ("name", "content", "options", "advice"),
    [
        ("a.csv", "a,b\n1,2\n", {"label": "c"}, "no column 'c' for `label`; the columns are 'a', 'b'"),
        ("a.csv", "# by me\na,b\n1,2\n", {"label": "b"}, "line 2 names them: set skip_rows=1"),
        ("a.csv", '"a,b"\n"1,2"\n', {"label": "b"}, "take the quotes off whole lines"),
        ("a.csv", "x;y\n1;2\n", {"label": "y"}, "set delimiter=; if it is several (or delimiter=, if not)"),
        ("a.csv", "0.5  1.5  up\n0.7  1.1  down\n", {"label": "y"}, "set delimiter=space if it is several"),
        ("a.csv", "1;2\n3;4\n", {"label": "f2", "header": "no"}, "a single value, '1;2': set delimiter=;"),
