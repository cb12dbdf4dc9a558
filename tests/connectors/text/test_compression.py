"""Files and pipes compressed by gzip, bzip2, xz, zstd and lz4."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from connectors import ConnectorError, open_sink, open_source
from connectors.text.bytestreams import CHUNK, Pipe
from connectors.text.compression import Unpacked
from connectors.text.opening import open_bytes
from tests.connectors.streams import events, read, rejects, resumed_everywhere, rows, write
from tests.errors import raises

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB),
}
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
each_suffix = pytest.mark.parametrize("suffix", PACK)


def lines(n: int) -> bytes:
    return b"x,z\n" + b"".join(b"%d,%d\n" % (i, i * 7919 % 100_003) for i in range(n))


@each_suffix
def test_frames_are_joined_by_suffix_and_by_content(tmp_path, suffix):
    pack = PACK[suffix]
    data = pack(b"x\n1\n2") + pack(b"") + pack(b"0\n3\n")
    if suffix in ("zst", "lz4"):  # as pzstd and seekable zstd write them
        data = SKIPPABLE + data + SKIPPABLE
    elif suffix == "gz":
        data += b"\0\0"  # padding
    for name in (f"a.csv.{suffix}", f"b.CSV.{suffix.upper()}", *(["c.csv"] if suffix != "lz4" else [])):
        assert [row["x"] for row in rows(write(tmp_path / name, data))] == [1, 20, 3]
    assert rows(write(tmp_path / f"a.jsonl.{suffix}", pack(b'{"x": 1}\n'))) == [{"x": 1.0}]
    assert rows(write(tmp_path / f"a.libsvm.{suffix}", pack(b"1 1:1\n"))) == [{1: 1.0}]


@each_suffix
def test_an_empty_file_has_no_events(tmp_path, suffix):
    assert rows(write(tmp_path / f"a.jsonl.{suffix}", PACK[suffix](b""))) == []
    assert rows(write(tmp_path / f"b.jsonl.{suffix}", b"")) == []


@each_suffix
def test_resumed_at_every_position(tmp_path, suffix):
    data = lines(3000)
    url = write(tmp_path / f"a.csv.{suffix}", PACK[suffix](data[:7000]) + PACK[suffix](data[7000:]))
    batches = resumed_everywhere(url, 500, step=500)
    assert [row["x"] for batch in batches for row in batch.rows()] == list(range(3000))


@each_suffix
def test_a_truncated_file_ends_in_one_dead_letter_and_one_warning(tmp_path, suffix, caplog):
    packed = PACK[suffix](lines(25_000))
    url = write(tmp_path / f"a.csv.{suffix}", packed[: len(packed) * 9 // 10])
    source = open_source(url, types="x:number")
    batches = list(source)
    seen = [event[0]["x"] for event in events(batches)]
    assert seen == list(range(len(seen)))
    assert len(seen) > 5000
    ((line, reason, _),) = rejects(batches)
    assert (line, reason.split()[-1]) == (len(seen) + 2, "truncated")
    (warning,) = caplog.messages
    assert url in warning
    assert reason in warning
    for rest in ([], range(len(seen), 25_000)):  # nothing is reported again; then the rest arrives
        resumed = open_source(url, types="x:number")
        resumed.seek(source.position)
        batches = list(resumed)
        assert [event[0]["x"] for event in events(batches)] == list(rest)
        assert rejects(batches) == []
        assert caplog.messages == [warning]
        write(tmp_path / f"a.csv.{suffix}", packed)


@each_suffix
def test_garbage_after_the_data_is_one_dead_letter(tmp_path, suffix):
    seen, bad = read(write(tmp_path / f"a.csv.{suffix}", PACK[suffix](lines(1000)) + b"garbage after it"))
    assert len(seen) == 1000
    assert ["damaged" in reason for _, reason, _ in bad] == [True]


def test_a_wrong_checksum_of_gzip_is_one_dead_letter(tmp_path):
    packed = bytearray(gzip.compress(lines(60_000)))
    packed[-6] ^= 255
    seen, bad = read(write(tmp_path / "a.csv.gz", bytes(packed)))
    assert len(seen) > 40_000
    assert ["damaged" in reason for _, reason, _ in bad] == [True]


@each_suffix
def test_a_file_without_any_text_left_is_refused(tmp_path, suffix):
    with raises(ConnectorError, reason="damaged"):
        open_source(write(tmp_path / f"a.csv.{suffix}", PACK[suffix](b"x\n1\n")[:8]))


@each_suffix
def test_damage_in_the_middle_ends_the_stream(tmp_path, suffix):
    packed = bytearray(PACK[suffix](lines(30_000)))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = bytes(range(64))
    seen, bad = read(write(tmp_path / f"a.csv.{suffix}", bytes(packed)))
    assert [event[0]["x"] for event in seen[:2000]] == list(range(2000))
    assert "damaged" in bad[-1][1]


@pytest.mark.parametrize("suffix", ["bz2", "xz", "lz4"])
def test_a_small_file_of_many_equal_bytes_is_decompressed_in_chunks(tmp_path, suffix):
    stream = open_bytes(write(tmp_path / f"a.csv.{suffix}", PACK[suffix](bytes(1 << 22))))
    sizes = [len(data) for data in iter(lambda: stream.read(0.0), None)]
    assert (sum(sizes), max(sizes) <= CHUNK) == (1 << 22, True)


def piped(data: bytes, n: int) -> tuple[bytes, str | None]:
    """Return what a pipe yields that receives n bytes at a time, and its damage."""
    receiver, sender = os.pipe()
    stream = Unpacked(Pipe(os.fdopen(receiver, "rb", buffering=0), "pipe"), "pipe")
    found = b""
    for i in range(0, len(data), n):
        os.write(sender, data[i : i + n])
        found += stream.read(0.0) or b""
    os.close(sender)
    while (more := stream.read(0.0)) is not None:
        found += more
    stream.close()
    return found, stream.damage


@each_suffix
def test_a_pipe_is_decompressed_on_arrival(suffix):
    assert piped(PACK[suffix](b"x\n1\n") + PACK[suffix](b"2\n"), 1) == (b"x\n1\n2\n", None)


@pytest.mark.parametrize("text", [b"BZh\n1\n", b"B", b"", b"(x\n"])
def test_text_in_a_pipe_that_starts_like_compressed_data(text):
    assert piped(text, 9) == (text, None)


@each_suffix
def test_a_wrong_suffix(tmp_path, suffix, caplog):
    with raises(ConnectorError):
        open_source(write(tmp_path / f"a.csv.{suffix}", "x\n1\n"))
    other = "gz" if suffix != "gz" else "zst"
    url = write(tmp_path / f"b.csv.{other}", PACK[suffix](b"x\n1\n"))
    assert rows(url) == [{"x": 1.0}]  # the content decides
    assert len(caplog.messages) == 1
    with raises(ConnectorError, reason="packed", option="at_end"):
        open_source(url, at_end="wait")


@pytest.mark.parametrize(("suffix", "package"), [("zst", "zstandard"), ("lz4", "lz4")])
def test_a_missing_package_is_named(tmp_path, suffix, package, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard" if suffix == "zst" else "lz4.frame", None)
    with raises(ConnectorError, "streamsvm[compression]", reason=f"no {package}"):
        open_source(write(tmp_path / f"a.csv.{suffix}", PACK[suffix](b"x\n1\n")))


def test_an_old_lz4_file_is_refused_with_the_remedy(tmp_path):
    with raises(ConnectorError, "compress it again"):
        open_source(write(tmp_path / "a.csv", b"\x02\x21\x4c\x18" + bytes(20)))


def archive(path: Path, files: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return str(path)


def test_a_zip_archive_of_one_file_is_read_and_resumed(tmp_path):
    url = archive(tmp_path / "a.csv.zip", {"data/a.csv": lines(3000), "__MACOSX/._a.csv": b"x"})
    batches = resumed_everywhere(url, 500, step=500)
    assert [row["x"] for batch in batches for row in batch.rows()] == list(range(3000))
    with raises(ConnectorError, reason="packed", option="at_end"):
        open_source(url, at_end="wait")


def test_the_file_in_a_zip_archive_tells_the_format(tmp_path):
    assert rows(archive(tmp_path / "a.zip", {"data/a.jsonl": b'{"x": 1}\n'})) == [{"x": 1}]
    for name in ("a.bin", "a.csv.gz"):
        with raises(ConnectorError, reason="suffix", option="format"):
            open_source(archive(tmp_path / "a.zip", {name: b"x\n1\n"}))


def test_a_damaged_zip_archive_ends_in_one_dead_letter(tmp_path):
    url = archive(tmp_path / "a.csv.zip", {"a.csv": lines(40_000)})
    packed = bytearray(Path(url).read_bytes())
    packed[len(packed) * 3 // 4] ^= 255
    Path(url).write_bytes(packed)
    seen, bad = read(url)
    assert [event[0]["x"] for event in seen[:2000]] == list(range(2000))
    assert "damaged" in bad[-1][1]


def test_other_zip_archives_are_refused(tmp_path):
    for reason, files in (
        ("several", {"a.csv": b"x\n1\n", "b.csv": b"x\n1\n"}),
        ("spreadsheet", {"[Content_Types].xml": b"", "xl/workbook.xml": b""}),
    ):
        with raises(ConnectorError, reason=reason):
            open_source(archive(tmp_path / "a.csv.zip", files))
        with raises(ConnectorError, reason=reason):
            open_source(archive(tmp_path / "a.zip", files))
    with raises(ConnectorError, reason="not zip"):
        open_source(write(tmp_path / "c.csv.zip", "x\n1\n"))
    with raises(ConnectorError, reason="no sink"):
        open_sink(str(tmp_path / "out.csv.zip"))
