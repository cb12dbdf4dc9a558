from __future__ import annotations

import gzip
import json
import logging
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from connectors import ConnectorError, SparseRows, open_source
from tests.choices import each_choice
from tests.connectors.streams import events, labels, read, rejects, resumed_everywhere, rows, table, write
from tests.errors import raises


class TestJsonLines:
    def test_values_keep_their_types(self, tmp_path):
        url = write(
            tmp_path / "a.jsonl", '{"x": 1, "c": "red", "b": true, "gap": null, "y": "7"}\n{"z": 2.5, "y": 7}\n'
        )
        seen, _ = read(url, label="y")
        assert [e[:2] for e in seen] == [({"x": 1, "c": "red", "b": True}, "7"), ({"z": 2.5}, 7)]
        assert seen[0][0]["b"] is True

    def test_null_or_absent_labels_are_unknown(self, tmp_path):
        url = write(tmp_path / "a.jsonl", '{"x": 1, "y": null}\n{"x": 1}\n{"x": 1, "y": false}\n')
        assert labels(url, label="y") == [None, None, False]

    def test_other_values_than_objects_are_rejected(self, tmp_path):
        text = '{"x": 1}\n{"x": \n[1]\n{"x": {"a": 1}}\n\n{"x": 2, "y": [1]}\n{"x": nil}\n{"x": 3}\n'
        seen, bad = read(write(tmp_path / "a.jsonl", text), label="y", flatten=0)
        assert [(e[0], e[2]["line"]) for e in seen] == [({"x": 1}, 1), ({"x": 3}, 8)]
        assert [(line, reason.split(":")[0]) for line, reason, _ in bad] == [
            (2, "not JSON"),
            (3, "not a JSON object"),
            (4, "field 'x' is nested"),
            (6, "the label 'y' is nested"),
            (7, "not JSON"),
        ]
        assert bad[0][2] == '{"x": '

    def test_roles_and_declared_types(self, tmp_path):
        url = write(
            tmp_path / "a.jsonl",
            '{"zip": 123, "n": "1.5", "id": 5, "t": 9, "junk": [1]}\n{"zip": 4, "n": "x", "id": 6, "t": 10}\n',
        )
        (batch,) = open_source(url, types="zip:category,n:number", key="id", time="t", ignore="junk")
        assert batch.rows() == [{"zip": "123", "n": 1.5}]
        assert (batch.keys, batch.times) == ([5], [9])
        assert rejects([batch])[0][:2] == (2, "'n' is not a number: 'x'")

    def test_a_missing_label_stops_at_once_unless_declared_late(self, tmp_path):
        url = write(tmp_path / "a.jsonl", '{"x": 1, "class": 2}\n' * 1000 + '{"x": 1, "clas": 2}\n')
        with raises(ConnectorError, reason="no column", option="label", column="clas"):
            open_source(url, label="clas")
        assert labels(f"{url}?late_label=yes", label="clas", ignore="class") == [None] * 1000 + [2]

    def test_where_a_stream_is_resumed_labels_may_be_absent(self, tmp_path):
        url = write(tmp_path / "a.jsonl", '{"x": 1, "y": 2}\n' * 3 + '{"x": 1}\n' * 3)
        source = open_source(url, label="y", batch_size=3)
        position = next(iter(source)).position
        resumed = open_source(url, label="y", batch_size=3)
        resumed.seek(position)
        assert [batch.labels for batch in resumed] == [[None] * 3]

    def test_whole_numbers_of_any_length_stay_apart_where_they_name_something(self, tmp_path):
        names = [(1 << 64) - 1, 1 << 64, (1 << 64) + 1, -(1 << 63), -(1 << 63) - 1, -(1 << 63) - 2, 1e300, 10**300]
        text = "".join(json.dumps({"x": n, "id": n, "y": n, "c": n}) + "\n" for n in names)
        (batch,) = open_source(write(tmp_path / "a.jsonl", text), label="y", key="id", types="c:category")
        assert batch.labels == batch.keys == names
        assert list(map(type, batch.labels)) == list(map(type, names))
        assert [row["c"] for row in batch.rows()[1:3]] == ["18446744073709551616", "18446744073709551617"]
        assert [row["x"] for row in batch.rows()[1:3]] == names[1:3]

    def test_extensions_of_json_in_python_are_read(self, tmp_path):
        given = [{"x": math.nan, "z": 1, "y": "NaN"}, {"x": math.inf, "z": -math.inf, "y": math.nan}]
        seen, bad = read(
            write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in given)), label="y", missing="-"
        )
        assert [e[:2] for e in seen] == [({"z": 1}, "NaN"), ({"x": math.inf, "z": -math.inf}, None)]
        assert bad == []

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ('{"x": NaN, "c": "\\ud800"}', "not JSON: 'utf-8' codec can't encode"),
            ('{"x": NaN', "not JSON: Expecting ',' delimiter"),
            ('{"x": ' + "[" * 100_000 + "NaN", "not JSON: "),
            ('{"x": 1, "y": -Infinity}', "the label 'y' is infinite"),
            ('{"x": "1_000"}', "'x' is not a number: '1_000'"),
        ],
    )
    def test_the_slow_parser_refuses_the_same_texts_as_the_fast_one(self, tmp_path, line, reason):
        seen, ((number, why, _),) = read(
            write(tmp_path / "a.jsonl", '{"x": 1, "y": 0}\n' + line), label="y", types="x:number"
        )
        assert (len(seen), number) == (1, 2)
        assert why.startswith(reason)


OBJECTS = [
    {"x": 1, "c": 'a "quoted\\\\", [{', "y": "é"},
    {"x": 2.5, "junk": [{"a": [1, 2]}, {}], "y": "\\"},
    {"c": "\n,]", "y": None},
    {"x": -3, "y": "}"},
] * 5
LAYOUTS = {
    "in one line": json.dumps(OBJECTS),
    "compact": json.dumps(OBJECTS, separators=(",", ":"), ensure_ascii=False),
    "pretty": json.dumps(OBJECTS, indent=2),
    "without indents": json.dumps(OBJECTS, indent=0) + "\n",
    "an element a line": "[\r\n" + ",\r\n".join(map(json.dumps, OBJECTS)) + "\r\n]\r\n",
    "commas first": " [" + "\n, ".join(map(json.dumps, OBJECTS)) + "\n]",
    "with a mark": "\ufeff" + json.dumps(OBJECTS),
}


class TestJsonArrays:
    @each_choice(("layout", LAYOUTS), ("chunk", [1, 7, 64, 1 << 18]))
    def test_elements_are_the_events_whatever_the_layout(self, tmp_path, layout, chunk, monkeypatch):
        monkeypatch.setattr("connectors.text.bytestreams.CHUNK", chunk)
        options = {"label": "y", "ignore": "junk"}
        expected = read(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, OBJECTS))), **options)
        seen, bad = read(write(tmp_path / "a.json", LAYOUTS[layout]), **options)
        assert bad == []
        assert [e[:2] for e in seen] == [e[:2] for e in expected[0]]
        assert [e[2]["element"] for e in seen] == list(range(1, len(OBJECTS) + 1))

    @each_choice(("suffix", ["json", "json.gz"]), ("layout", LAYOUTS), ("sizes", [(1, 3), (3, 1), (7, 100)]))
    def test_resuming_anywhere(self, tmp_path, suffix, layout, sizes):
        data = (LAYOUTS[layout] + '\n{"x": 7, "y": "after"}\n{"x": 8, "y": "after"}\n').encode()
        url = write(tmp_path / f"a.{suffix}", gzip.compress(data) if suffix.endswith("gz") else data)
        batches = resumed_everywhere(url, sizes[1], step=sizes[0], label="y", ignore="junk")
        assert (sum(map(len, batches)), rejects(batches)) == (len(OBJECTS) + 2, [])

    def test_a_rejected_value_does_not_affect_others(self, tmp_path):
        text = '[{"x": 1}, 5, {"x": nil, "k": [{"a": 1}, {"b": ","}]}, {"x": [1]},\n{"x": "open\n},{"x": 2}, ]'
        url = write(tmp_path / "a.json", text)
        source = open_source(url, flatten=0)
        batches = list(source)
        assert [row for batch in batches for row in batch.rows()] == [{"x": 1}, {"x": 2}]
        assert [(r.origin["element"], r.reason.split(":")[0]) for batch in batches for r in batch.rejected] == [
            (2, "not a JSON object"),
            (3, "not JSON"),
            (4, "field 'x' is nested"),
            (5, "not JSON"),
        ]

    def test_one_that_is_not_closed_is_cut_short(self, tmp_path):
        with raises(ConnectorError, reason="damaged"):
            open_source(write(tmp_path / "a.json", "["))
        source = open_source(url := write(tmp_path / "a.json", '[{"x": 1},\n{"x": 2}'))
        batches = list(source)
        assert [row for row, *_ in events(batches)] == [{"x": 1}]
        assert [(one.origin["element"], one.raw) for batch in batches for one in batch.rejected] == [(2, ' {"x": 2}')]
        write(tmp_path / "a.json", '[{"x": 1},\n{"x": 2}]')  # complete after all
        (resumed := open_source(url)).seek(source.position)
        assert [row for row, *_ in events(resumed)] == [{"x": 2}]

    def test_an_empty_one_has_no_events(self, tmp_path):
        assert read(write(tmp_path / "a.json", " [ ]\n")) == ([], [])

    def test_one_that_is_too_large_is_refused_with_what_to_do(self, tmp_path, monkeypatch):
        url = write(tmp_path / "a.json", '[{"x": 1}, {"x": 2}]')
        monkeypatch.setattr("connectors.text.conversions.LARGEST", 10)
        with raises(ConnectorError, reason="array"):
            open_source(url)

    def test_one_in_a_growing_file_is_refused_with_what_to_do(self, tmp_path):
        url = write(tmp_path / "a.json", '[{"x": 1}')
        with raises(ConnectorError, reason="array"):
            open_source(url, at_end="wait")

    def test_lines_that_begin_with_a_bracket_are_lines(self, tmp_path):
        seen, bad = read(write(tmp_path / "a.jsonl", '[1, 2]\n{"x": 1}\n[{"x": 5}, 3\n{"x": 2, "z": 1}\n'))
        assert [(e[0], e[2]["line"]) for e in seen] == [({"x": 1}, 2), ({"x": 2, "z": 1}, 4)]
        assert [line for line, _, _ in bad] == [1, 3]

    @pytest.mark.parametrize(
        ("text", "way"),
        [
            ("[[1,2],[3,4]]", "'.[] | @csv'"),
            ("[\n  [1, 2],\n  [3, 4]\n]\n", "'.[] | @csv'"),
            ("[1,2]\n[3,4]\n", "@csv"),
        ],
    )
    def test_rows_that_are_lists_are_refused_with_what_to_do(self, tmp_path, text, way):
        url = write(tmp_path / "a.json", text)
        with raises(ConnectorError, reason="lists") as raised:
            open_source(url)
        assert f"jq -r {way} {url} > FILE.csv" in str(raised.value)

    def test_lines_of_a_log_are_no_lists(self, tmp_path):
        url = write(tmp_path / "a.jsonl", "[INFO] started\n[2024-01-01] ready\n")
        assert [len(batch.rejected) for batch in open_source(url)] == [2]

    @pytest.mark.parametrize("indent", [0, 2, "\t"])
    def test_objects_over_several_lines_are_refused_with_what_to_do(self, tmp_path, indent):
        url = write(tmp_path / "a.jsonl", "\n".join(json.dumps(row, indent=indent) for row in OBJECTS))
        with raises(ConnectorError, reason="spread"):
            open_source(url)
        assert rows(write(tmp_path / "b.jsonl", '{\n{"x": 1}\n')) == [{"x": 1}]


class TestLibsvm:
    def test_rows_are_sparse(self, tmp_path):
        url = write(
            tmp_path / "a.libsvm", "# head\n+1 1:0.5 7:2 # note\n\n-1\n2.5 qid:3 0:1e3\n3:4\n? 9:1\n1.0 1:nan\n"
        )
        (batch,) = open_source(url)
        assert isinstance(batch.features, SparseRows)
        assert batch.features.indptr.tolist() == [0, 2, 2, 3, 4, 5, 6]
        assert batch.rows()[:5] == [{1: 0.5, 7: 2.0}, {}, {0: 1000.0}, {3: 4.0}, {9: 1.0}]
        assert batch.labels == [1, -1, 2.5, None, None, 1]
        assert [batch.origins[i]["line"] for i in range(6)] == [2, 4, 5, 6, 7, 8]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("1 1:1 1:2", "indices must ascend, but 1 follows 1"),
            ("1 -3:1", "an index is negative"),
            ("1 1:1_0", "not a pair index:value: '1:1_0'"),
            ("1_0 1:1", "the label is not a number: '1_0'"),
            ("1 99999999999999999999:1", "not a pair index:value: '99999999999999999999:1'"),
            ("inf 1:2", "the label is not a number: 'inf'"),
        ],
    )
    def test_garbage_is_set_aside(self, tmp_path, line, reason):
        seen, bad = read(write(tmp_path / "a.libsvm", f"1 1:1\n{line}\n2 2:2\n"))
        assert [e[:2] for e in seen] == [({1: 1.0}, 1), ({2: 2.0}, 2)]
        assert bad == [(2, reason, line)]

    def test_it_has_no_named_columns(self, tmp_path):
        with raises(ConnectorError, reason="unknown", option="label"):
            open_source(write(tmp_path / "a.libsvm", "1 1:1\n"), label="y")


ARFF = """% a comment
@RELATION 'my data'
@attribute 'outside temp' NUMERIC
@attribute colour {red, 'dark blue', "it's"}
@attribute note string
@attribute class{up,down}

@DATA
"""


class TestArff:
    def test_dense_rows(self, tmp_path):
        url = write(
            tmp_path / "a.arff", ARFF + "1.5, 'dark blue', 'a, \\'b\\'', up\n% no\n?,?,?,?\n2,\"it's\",x,down\n"
        )
        seen, bad = read(url)
        assert [e[:2] for e in seen] == [
            ({"outside temp": 1.5, "colour": "dark blue", "note": "a, 'b'"}, "up"),
            ({}, None),
            ({"outside temp": 2.0, "colour": "it's", "note": "x"}, "down"),
        ]
        assert (bad, seen[0][2]["line"]) == ([], 9)

    def test_omitted_values_of_sparse_rows_are_zero_or_the_first_value(self, tmp_path):
        url = write(tmp_path / "a.arff", ARFF + "{0 5, 3 down}\n{}\n{1 'dark blue',2 hm}\n")
        assert [e[:2] for e in read(url)[0]] == [
            ({"outside temp": 5.0, "colour": "red"}, "down"),
            ({"outside temp": 0.0, "colour": "red"}, "up"),
            ({"outside temp": 0.0, "colour": "dark blue", "note": "hm"}, "up"),
        ]

    @pytest.mark.parametrize(
        "line",
        [
            "1.5,dark blue,x,up",
            "1.5,'dark blue',x,up, % comment, with commas",
            "1.5,\t'dark blue'\t,x , up\t% comment",
            "{0 1.5, 1 'dark blue', 2 x} % comment",
        ],
    )
    def test_rows_as_wekas_and_moas_readers_take_them(self, tmp_path, line):
        seen, bad = read(write(tmp_path / "a.arff", f"{ARFF}{line}\n"))
        assert bad == []
        assert seen[0][:2] == ({"outside temp": 1.5, "colour": "dark blue", "note": "x"}, "up")

    def test_the_comma_at_the_end_of_a_row_is_no_value_unless_one_is_due(self, tmp_path):
        seen, bad = read(write(tmp_path / "a.arff", ARFF + "1,red,x,\n1,red,x,,\n1,red,x,up,,\n"))
        assert [e[1] for e in seen] == [None, None]
        assert bad == [(11, "6 values instead of 4", "1,red,x,up,,")]

    def test_a_percent_sign_in_quotes_is_no_comment(self, tmp_path):
        url = write(tmp_path / "a.arff", ARFF + "1,red,'100 % \\'sure\\'',up % or so\n")
        assert read(url)[0][0][0]["note"] == "100 % 'sure'"

    def test_declarations_may_have_comments_and_white_space(self, tmp_path):
        text = (
            "@relation r % c\n@attribute x real % c {d}\n@attribute c { a, b,\t'c %' } % {d}\n@data % c\n1,a\n2,'c %'\n"
        )
        assert labels(write(tmp_path / "a.arff", text)) == ["a", "c %"]

    def test_another_label_or_none(self, tmp_path):
        url = write(tmp_path / "a.arff", ARFF + "1,red,x,up\n")
        assert read(url, label="colour", ignore="note")[0][0][:2] == ({"outside temp": 1.0, "class": "up"}, "red")
        assert read(url, label="")[0][0][1] is None

    def test_nominal_digits_are_whole_labels(self, tmp_path):
        url = write(tmp_path / "a.arff", "@relation r\n@attribute x real\n@attribute c {0,1}\n@data\n1,0\n2,1\n")
        assert labels(url) == [0, 1]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("1,red,x", "3 values instead of 4"),
            ("hot,red,x,up", "'outside temp' is not a number: 'hot'"),
            ("1,green,x,up", "'green' is not among the values declared for 'colour'"),
            ("1,red,'x,up", "a quote is not closed"),
            ("{0 1, 9 up}", "index 9 must be above 0 and below 4"),
            ("{1 red, 0 1}", "index 0 must be above 1"),
            ("{0}", "not a pair of index and value"),
            ("{0 1", "a sparse row must end in }"),
        ],
    )
    def test_garbage_is_set_aside(self, tmp_path, line, reason):
        seen, bad = read(write(tmp_path / "a.arff", f"{ARFF}1,red,x,up\n{line}\n2,red,x,up\n"))
        assert [e[0]["outside temp"] for e in seen] == [1, 2]
        ((number, why, raw),) = bad
        assert (number, raw) == (10, line)
        assert why.startswith(reason)

    def test_a_date_may_be_ignored(self, tmp_path):
        url = write(
            tmp_path / "a.arff", "@attribute d date yyyy\n@attribute x real\n@attribute y real\n@data\n1999,1,2\n"
        )
        assert read(url, ignore="d")[0][0][:2] == ({"x": 1.0}, 2)


GAPS = ["", "?", "NA", "nan", "NaN", "NULL", "null", "None", "none"]


def gaps(folder: Path, suffix: str, cells: list[str]) -> str:
    """A file with these texts as a category `c`, a label `y`, and a number `x`."""
    delimiter = "\t" if suffix == "tsv" else ","
    return table(folder / f"a.{suffix}", delimiter, x=[1] * len(cells), c=cells, y=cells)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "arff", "parquet"])
class TestMissing:
    """One rule for all formats: which texts are missing values, in all roles."""

    def test_texts_that_stand_for_no_value(self, tmp_path, suffix):
        seen, bad = read(gaps(tmp_path, suffix, ["up", *GAPS, "Nano", " ", "down"]), label="y")
        assert bad == []
        gap = ({"x": 1}, None)
        known = [({"x": 1, "c": text}, text) for text in ("up", "Nano", " ", "down")]
        assert [e[:2] for e in seen] == [known[0], *[gap] * len(GAPS), *known[1:]]

    def test_other_texts_by_choice(self, tmp_path, suffix):
        url = gaps(tmp_path, suffix, ["up", "none", "n/a", "-", ""])
        assert labels(url, label="y", missing="n/a,-") == ["up", "none", None, None, None]
        assert [row.get("c") for row in rows(url, label="y", missing=["up"])] == [None, "none", "n/a", "-", None]

    def test_a_similar_label_is_named_once(self, tmp_path, suffix, caplog):
        with caplog.at_level(logging.INFO, "connectors"):
            read(gaps(tmp_path, suffix, ["up", "none", "?", "none"]), label="y")
        assert [r.getMessage().split(" is taken")[0] for r in caplog.records] == ["the label 'none'"]


def test_missing_labels_of_libsvm_and_numbers_of_csv(tmp_path):
    url = write(tmp_path / "a.libsvm", "1 1:1\n" + "".join(f"{gap} 1:1\n" for gap in GAPS) + "-9 1:1\n")
    assert labels(url) == [1, *[None] * len(GAPS), -9]
    assert labels(url, missing="NA,-9")[-1] is None
    url = write(tmp_path / "a.csv", "x\n-999\n2\n")
    assert rows(url, missing="-999") == [{}, {"x": 2.0}]


def test_a_value_that_arff_declares_is_one(tmp_path):
    url = write(tmp_path / "a.arff", "@attribute c {none,a}\n@attribute y {none,NA}\n@data\nnone,NA\n?,none\n")
    assert [e[:2] for e in read(url)[0]] == [({"c": "none"}, "NA"), ({}, "none")]


TABLE = ["1,a,0", "2,b,1", ",,", '3,"c\nc",1', "x,y", "", "oops,a,1", '"', '4,"d",', "5,e,0\r", "\udcff,a,1"]
BODIES: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "csv": ("x,c,y\n", TABLE, {"label": "y", "types": "x:number"}),
    "jsonl": ("", ['{"x": 1}', '{"x": "é"}', "", "{", '{"x": [1]}', '{"z": 2}'], {}),
    "libsvm": ("", ["1 1:1 4:2", "-1", "# c", "x 1:1", "1 2:2 1:1", "2 9:9"], {}),
    "arff": (ARFF, ["1,red,x,up", "{0 1}", "% c", "1,2", "?,?,?,?", "x,red,x,up"], {}),
}


@pytest.mark.parametrize("suffix", [*BODIES, "csv.gz"])
@given(st.data())
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_resuming_anywhere_continues_with_exactly_the_same_events(tmp_path, suffix, data):
    header, choice, options = BODIES[suffix.removesuffix(".gz")]
    body = data.draw(st.lists(st.sampled_from(choice), max_size=25))
    assume(body.count("\udcff,a,1") < 3)  # a file with more of another encoding may be refused
    text = (header + "\n".join(body)).encode("utf-8", "surrogateescape")
    url = write(tmp_path / f"a.{suffix}", gzip.compress(text) if suffix.endswith("gz") else text)
    resumed_everywhere(url, data.draw(st.integers(1, 6)), step=data.draw(st.integers(1, 9)), **options)


def test_wide_arff_rows_have_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("connectors.text.arff.MOST_CELLS", 100)
    header = "".join(f"@attribute x{i} real\n" for i in range(30)) + "@data\n"
    batches = list(open_source(write(tmp_path / "a.arff", header + "{3 1}\n" * 7)))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert all(np.all(batch.features["x3"] == 1) for batch in batches)
