"""Wording of messages. Other tests check errors by class and attributes."""

from __future__ import annotations

import re
import struct
import sys

import numpy as np
import pytest
from river import drift

from connectors import ConnectorError, open_sink, open_source
from streamsvm import CPMClassifier, KeyedClassifier, RefitClassifier
from streamsvm.batch import IndexedBCD, SampledCuts, SmoothedNewton
from streamsvm.decide.costs import Costs
from streamsvm.keyed.key_state import VERSION, unseal
from streamsvm.parameters import check_choice, check_class_weight, check_number
from streamsvm.refit import FirstOf, OnDrift
from streamsvm.run import Run, RunConfig
from tests.connectors.streams import write

ROWS = [[0.0], [1.0]], [0, 1]
SEA = 'generator = "sea"\n'
SCHEDULED = 'source = "a.csv"\nschedule = [{ concept = 0 }, { concept = 1, at = 9 }]'
NEWER = struct.pack("<4sHI", b"svmk", VERSION + 1, 0)
ENCODINGS = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
TWO_MEANINGS = "a;b;y\n" + "1,234;1;0\n2,500;1;1\n" * 8


@pytest.mark.parametrize(
    ("name", "content", "options", "advice"),
    [
        ("a.csv", "a,b\n1,2\n", {"label": "c"}, "no column 'c' for `label`; the columns are 'a', 'b'"),
        ("a.csv", "x,State\n1,a\n", {"label": "state"}, "`label` (did you mean 'State'?); the columns"),
        ("a.csv", "x,y\n1,a\n", {"label": "y", "delimiter": ";"}, "only column contains this name: check delimiter="),
        ("a.csv", "By me\na,b\n1,2\n", {"label": "b"}, "line 2 names them: set skip_rows=1"),
        ("a.csv", "# by me\na,b\n1,2\n", {}, "set skip_rows=1 if values contain a #, else comment=#"),
        ("a.csv", "# by me\n#a,b\n1,2\n", {"label": "b"}, "looks like a comment: set skip_rows=1"),
        ("a.csv", '"a,b"\n"1,2"\n', {"label": "b"}, "take the quotes off whole lines"),
        ("a.csv", "x;y\n1;2\n", {"label": "y"}, "set delimiter=; if it is several (or delimiter=, if not)"),
        ("a.csv", "0.5  1.5  up\n0.7  1.1  down\n", {"label": "y"}, "set delimiter=space if it is several"),
        ("a.csv", "x  t  y\n0.5  7  up\n", {"label": "y"}, "set delimiter=space if it is several"),
        ("a.csv", "0.5  1.5  2\t'a'\n", {"label": "f4", "header": "no"}, "set delimiter=space if it is several"),
        ("a.csv", "1;2\n3;4\n", {"label": "f2", "header": "no"}, "a single value, '1;2': set delimiter=;"),
        ("a.csv", "0.5,1.5,7,up\n0.7,1.1,9,down\n", {"label": "y"}, "the first line looks like values: set header=no"),
        ("a.csv", "x,,,y\n1,2,3,a\n", {}, "columns 2, 3 have values, but no name"),
        ("a.csv", TWO_MEANINGS, {"label": "y", "delimiter": ";", "types": "a:number"}, "--set thousands=,"),
        ("a.csv", "a,b\n1,2\n", {"encoding": "utf-16"}, "set encoding=utf-16-le"),
        ("a.csv", "größe,y\n1,a\n".encode("latin-1"), {"label": "y"}, "encoding="),
        ("a.csv", "x,y\r1,2\r3,4\r", {}, "end only in carriage returns: convert them first: tr "),
        ("a.csv.zst", "x\n1\n", {}, "ends in .zst but is not a zstd file"),
        ("a.csv", b"PK\x03\x04 rest", {}, "the ZIP archive cannot be read"),
        ("a.csv", b"PAR1\x15\x04 rest", {}, "is Parquet: set format=parquet"),
        ("a.dat", "x\n1\n", {}, "set format="),
        ("a.jsonl", '{"x": 1, "class": 2}\n', {"label": "clas"}, "add ?late_label=yes to the source"),
        ("a.jsonl", '{\n"x": 1\n}\n', {}, "an object continues in line 2, but each must be on one line"),
        ("a.json", '[{"x": 1}', {"at_end": "wait"}, "jq -c '.[]'"),
        ("a.arff", "@relation r\n@attribute x real\n", {}, "no @data line"),
        ("a.arff", "@relation r\n@data\n", {}, "declares no attributes"),
        ("a.arff", "@attribute x real\nx,y\n@data\n", {}, "line 2 is not an ARFF declaration"),
        ("a.arff", "@attribute x\n@data\n", {}, "line 1 is not an attribute declaration"),
        ("a.arff", "@attribute x real\n@attribute x real\n@data\n", {}, "declared twice"),
        ("a.arff", "@attribute x date yyyy\n@attribute y real\n@data\n", {}, "type date; name it in ignore="),
        ("a.arff", "@attribute c {a,'b}\n@data\n", {}, "line 1: a quote is not closed or not separated"),
        ("mine.toml", "events = ", {}, "mine.toml: Invalid value"),
        ("mine.toml", "evnts = 3", {}, "mine.toml: unknown key `evnts`; a scenario has title, kind, events"),
        ("mine.toml", "events = 3", {}, "needs a `generator` or a `source`"),
        ("mine.toml", 'generator = "see"', {}, "unknown generator 'see'; available are agrawal"),
        ("mine.toml", SEA + "events = 0", {}, "`events` must be a whole number"),
        ("mine.toml", SEA + "parameters = { noice = 0.1 }", {}, "sea has no parameter `noice`; allowed are noise"),
        ("mine.toml", SEA + "schedule = [{ concept = 4 }]", {}, "sea has no concept 4"),
        ("mine.toml", SEA + "schedule = [{ concept = 0, at = 5 }]", {}, "the first at 0"),
        ("mine.toml", SEA + "schedule = [{ at = 0 }]", {}, "a stage of `schedule` has `concept`, `at` and `width`"),
        ("mine.toml", SEA + '[[disturbance]]\nkind = "gone"', {}, "one of late, missing, mix, noise"),
        ("mine.toml", SEA + '[[disturbance]]\nkind = "noise"\nlevel = 1', {}, "noise has no `level`; allowed are at"),
        ("mine.toml", SEA + '[[disturbance]]\nkind = "noise"\nafter = 2.0', {}, "must be shares"),
        ("mine.toml", SEA + '[[disturbance]]\nkind = "late"', {}, "late: missing 1 required keyword-only argument"),
        ("mine.toml", SEA + '[[disturbance]]\nkind = "mix"', {}, "mix: needs a `label`"),
        ("mine.toml", SEA + '[[disturbance]]\nkind = "missing"\nfeatures = 0', {}, "`features` must be a number"),
        ("mine.toml", SCHEDULED, {}, "a `source` has one concept"),
        *(
            (f"a.{suffix}", "1 x:1\n2 x:1\n".encode(encoding), {}, f"set encoding={encoding}")
            for suffix, encoding in zip(("csv", "jsonl", "libsvm", "csv"), ENCODINGS, strict=True)
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_what_to_do(tmp_path, name, content, options, advice):
    url = write(tmp_path / name, content)
    url = f"synthetic:{url}" if name.endswith(".toml") else url
    with pytest.raises(ConnectorError, match=re.escape(advice)):
        open_source(url, **options)


def without_pyarrow(path: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow.parquet", None)
        open_source(path)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: open_source("synthetic:nope"), "unknown stream; available are agrawal-1-in-10, "),
        (
            lambda: open_source("synthetic:sea?foo=1"),
            "unknown option `foo`; allowed are `batch_size`, `drift`, `n`, `noise`, `seed`, `variant`, `width`",
        ),
        (lambda: open_source("synthetic:sea?n=0"), "`n` must be a whole number of at least 1"),
        (lambda: open_source("synthetic:sea?drift=soon"), "`drift` must be event numbers"),
        (lambda: open_source("synthetic:sea?variant=99"), "sea has no concept 99, but 0 to 3"),
        (lambda: open_source("synthetic:rbf?n_classes=none"), "synthetic:rbf: 'str' object cannot be interpreted"),
        (lambda: open_source("synthetic:nowhere.toml"), "no such file"),
        (lambda: open_source("synthetic:sine-late"), "its labels are late"),
        (lambda: open_source("synthetic:waveform?drift=3"), "waveform has only one concept"),
        (lambda: open_source("kafka"), "kafka: no such file"),
        (lambda: open_source("/dev/null"), "/dev/null: the name has no suffix of a format; set format= to one of arff"),
        (lambda: open_source("sqlite:///no.db?table=t"), "sqlite:///no.db: no such file: no.db"),
        (lambda: open_sink("no/o.csv"), "no/o.csv: cannot be written: no such directory: no"),
        (lambda: open_source("null:"), "null:: events cannot be read from this URL"),
        (
            lambda: open_source("a.csv", types="x:number,x:time"),
            "a.csv: option `types` 'x:number,x:time': column 'x' has both 'number' and 'time': give one of them",
        ),
        (lambda: open_source("a.csv", types="x:number,x"), "'x' is no NAME:KIND with KIND one of number, category"),
        (lambda: open_source("a.csv", types={"x": "text"}), "`types` must be NAME:KIND with KIND one of number, cate"),
        (lambda: RunConfig(alarms="up=recall"), "--set alarms: up=recall: use LABEL=SHARE, LABEL=recall:SHARE or"),
        (
            lambda: open_source("a.csv?time_format=%d,x:%m"),
            "a.csv: option `time_format` '%d,x:%m': '%d' is no NAME:FORMAT; one with a comma goes in double quotes",
        ),
        (lambda: open_source("a.foo?format=xml"), "must be one of arff, arrow, csv, feather, ipc, json, jsonl, libsvm"),
        (lambda: open_sink("a.foo?format=xml"), "`format` must be one of csv, json, jsonl, parquet, tsv, got 'xml'"),
        (lambda: open_sink("synthetic:demo"), "results cannot be written as synthetic; use one of csv, tsv, jsonl"),
        (lambda: open_sink("/dev/full?format=csv").write({"n": [1]}), "cannot be written: No space left on device"),
        (lambda: open_sink("a.csv").write({"a": [1], "b": []}), "columns of unequal length: {'a': 1, 'b': 0}"),
        (lambda: without_pyarrow("a.parquet"), "Parquet needs pyarrow: pip install 'streamsvm[parquet]'"),
        (lambda: CPMClassifier().learn_many([[1.0]], ["a"]), "rows are lists, which do not name their features: pass"),
        (lambda: check_number("n", 11, 1, 10, whole=True), "`n` must be an integer of at least 1 and at most 10, got"),
        (lambda: check_number("l2", "0.1", 0.0), "`l2` must be a number of at least 0, got '0.1'"),
        (lambda: check_choice("kind", "three", ("one", "two")), "`kind` must be one of 'one', 'two', got 'three'"),
        (lambda: check_class_weight("even", 1.0), "`class_weight` must be a dict of weights, 'balanced' or None"),
        (lambda: CPMClassifier(class_weight=np.ones(2)), "`class_weight` must be a dict of weights, 'balanced' or"),
        (lambda: CPMClassifier().mutate({"n_faces": 2}), "`n_faces` of a CPMClassifier cannot change (horizon, l2"),
        (lambda: RefitClassifier(CPMClassifier(), "svm"), "`solver` must be one of 'trees', 'cuts', 'newton', 'bcd'"),
        (lambda: RefitClassifier(5), "`learner` must be a StreamSVMClassifier without `refit` and costs"),
        (lambda: unseal(NEWER), f"has version {VERSION + 1}, this streamsvm reads {VERSION}: install the version of"),
        (lambda: Run(RunConfig(source="a.csv", window=0)).start(), "argument --set window: must be at least 1, got 0"),
        (lambda: Run(RunConfig(source="a.csv", reset=True)).start(), "--reset needs --checkpoint DIR"),
        (lambda: FirstOf(5), "`triggers` must be triggers of streamsvm.refit, such as Every(5_000), got 5"),
        (lambda: OnDrift(drift.KSWIN()), "`detector` KSWIN is random: set its `seed`"),
        (lambda: OnDrift("ADWIN"), "`detector` must be one of river.drift (ADWIN, "),
        (lambda: KeyedClassifier(object()), "`model` of each key must be a CPMClassifier, BSGDClassifier or"),
        (lambda: KeyedClassifier(CPMClassifier(), prior_model=3), '`prior_model` must be "learn", a file that `save`'),
        (lambda: KeyedClassifier(CPMClassifier(), label_timeout=5, join="order"), "`label_timeout` uses the times"),
        (lambda: Costs([[0, 1, 2], [1, 0, 2]]), "`cost` must be a square matrix, got shape (2, 3)"),
        (lambda: SampledCuts(cost=[[1, 1], [1, 0]]).fit(*ROWS), "0 or more, zero on the diagonal"),
        (lambda: IndexedBCD(1e300).fit(*ROWS), "`C` has magnitude 1e+300, not between 1e-50 and 1e+50: rescale `C`"),
        (lambda: SmoothedNewton(0.0).fit(*ROWS), "`l2` and `l1` are both 0: one of them must be positive"),
    ],
)
def test_a_message_says_what_is_wrong_and_what_to_do(act, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=re.escape(text)):
        act()
