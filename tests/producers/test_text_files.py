"""Rows in other encodings, between other delimiters, packed with gzip; and what is no such text."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import BadInput
from pushlane.core.task import Level
from pushlane.producers.request import SubmitRequest
from pushlane.producers.rows import MAX_ROW, BadRow, Wanted, open_source
from pushlane.producers.text_file import Dialect

Write = Callable[[str, bytes], Path]
RECIPIENTS = Wanted(("recipient",))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def rows_of(path: Path, wanted: Wanted, kind: str = "csv", **dialect: str) -> list[Any]:
    source = open_source(path, kind, path.name, Dialect(**dialect))
    return [row.reason if isinstance(row, BadRow) else tuple(row) for _, row in source.rows(wanted)]


def refusal(path: Path, kind: str = "csv", **dialect: str) -> str:
    with pytest.raises(BadInput) as caught:
        rows_of(path, RECIPIENTS, kind, **dialect)
    return str(caught.value)


ENCODINGS = (
    *("utf-8", "utf-8-sig", "latin-1", "cp1252", "shift_jis", "gb18030", "koi8-r", "cp500"),
    *("utf-16", "utf-16-le", "utf-16-be", "utf-32"),
)


def _keeps(encoding: str, text: str) -> bool:
    return text.encode(encoding, "ignore").decode(encoding, "ignore") == text


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[list[str]], str]:
    encoding = draw(st.sampled_from(ENCODINGS))
    letters = st.one_of(
        st.sampled_from("aé日ж€\"',;\t|\r\n "), st.characters(exclude_characters="\0")
    )
    value = st.text(letters, max_size=8).filter(lambda text: _keeps(encoding, text))
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(value, min_size=width, max_size=width), min_size=1)), encoding


@given(_tables(), st.sampled_from(",;\t|"), st.booleans())
def test_a_table_reads_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    table: tuple[list[list[str]], str],
    delimiter: str,
    packed: bool,
) -> None:
    rows, encoding = table
    columns = tuple(f"c{number}" for number in range(len(rows[0])))
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter).writerows([columns, *rows])
    content = written.getvalue().encode(encoding)
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_bytes(gzip.compress(content, 1) if packed else content)

    read = rows_of(path, Wanted(columns), delimiter=delimiter, encoding=encoding)

    assert read == list(map(tuple, rows))


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_header_with_another_delimiter_names_what_to_add(write: Write, mark: str) -> None:
    word = {";": "';'", "\t": "tab", "|": "'|'"}[mark]

    told = refusal(write("a.csv", f"recipient{mark}name\n".encode()))

    assert told == (
        f"a.csv:1 has no ','; its columns seem to be separated by {mark!r}: add --delimiter {word}"
    )


def test_a_wrong_delimiter_is_answered_with_the_right_one(write: Write) -> None:
    told = refusal(write("a.csv", b"recipient,name\n"), delimiter=";")

    assert told.endswith("has no ';'; its columns seem to be separated by ',': give --delimiter ,")


def test_one_column_whose_name_is_quoted_may_hold_other_marks(write: Write) -> None:
    path = write("a.csv", b'"recipient; or mail"\na\n')

    assert rows_of(path, Wanted(("recipient; or mail",))) == [("a",)]


def test_a_first_line_that_tells_excel_the_delimiter_is_no_header(write: Write) -> None:
    path = write("a.csv", b"sep=;\r\nrecipient;name\r\na;Ann\r\n")

    source = open_source(path, "csv", "a.csv", Dialect(delimiter=";"))

    assert list(source.rows(RECIPIENTS)) == [(3, ["a"])]
    assert refusal(path).endswith("add --delimiter ';'")


@pytest.mark.parametrize(
    ("encoding", "header", "words"),
    [
        ("utf-16", "recipient,name", "a.csv is in UTF-16: add --encoding utf-16"),
        ("utf-16", "r\tname", "a.csv is in UTF-16: add --encoding utf-16 --delimiter tab"),
        ("utf-32", "r;n", "a.csv is in UTF-32: add --encoding utf-32 --delimiter ';'"),
        ("utf-16-le", "recipient,n", "a.csv is in UTF-16-LE: add --encoding utf-16-le"),
        ("utf-16-be", "recipient,n", "a.csv is in UTF-16-BE: add --encoding utf-16-be"),
    ],
)
def test_wide_text_is_known_by_its_first_bytes(
    write: Write, encoding: str, header: str, words: str
) -> None:
    path = write("a.csv", f"{header}\na,b\n".encode(encoding))

    assert refusal(path) == words
    packed = write("a.csv", gzip.compress(path.read_bytes()))
    assert refusal(packed) == words


def test_a_byte_order_mark_contradicts_another_encoding(write: Write) -> None:
    path = write("a.csv", "recipient\nJürgen\n".encode("utf-8-sig"))

    assert refusal(path, encoding="cp1252") == "a.csv is in UTF-8: give --encoding utf-8"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_text_without_a_byte_order_mark_has_to_be_said(write: Write, encoding: str) -> None:
    told = refusal(write("a.csv", b"recipient\na\n"), encoding=encoding)

    assert told == (
        f"a.csv has no byte order mark of {encoding.upper()}: give --encoding {encoding}-le, "
        f"{encoding}-be, or another"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "UTF16"])
def test_a_byte_order_mark_is_no_part_of_a_column(write: Write, encoding: str) -> None:
    family = "utf-16" if "16" in encoding else "utf-8-sig"
    path = write("a.csv", "recipient\nä\n".encode(family))

    assert rows_of(path, RECIPIENTS, encoding=encoding) == [("ä",)]


def test_a_header_in_another_encoding_names_the_column(write: Write) -> None:
    path = write("a.csv", "recipient,Straße\n".encode("latin-1"))

    assert refusal(path) == (
        "a.csv:1: the name of column 2 is not UTF-8; say its encoding: --encoding cp1252 for most "
        "of Excel's, or latin-1"
    )
    assert rows_of(path, RECIPIENTS, encoding="cp1252") == []


@pytest.mark.parametrize(
    ("encoding", "broken"),
    [("utf-16", b"\x00\xdc"), ("utf-32", b"\1\1\1\1"), ("utf-16", b"x")],
)
def test_bytes_that_cannot_be_decoded_name_their_line(
    write: Write, encoding: str, broken: bytes
) -> None:
    rows = "recipient\n" + "".join(f"r{number}\n" for number in range(20_000))
    path = write("a.csv", rows.encode(encoding) + broken)

    assert refusal(path, encoding=encoding) == (
        f"a.csv:20002 is not {encoding}; give another --encoding"
    )


def test_json_lines_in_another_encoding(write: Write) -> None:
    path = write("a.jsonl", '{"recipient":"ä"}\n'.encode("latin-1"))

    assert rows_of(path, RECIPIENTS, "jsonl", encoding="latin-1") == [("ä",)]
    assert rows_of(path, RECIPIENTS, "jsonl") == [
        "is not UTF-8; say its encoding: --encoding cp1252 for most of Excel's, or latin-1"
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_packed_file_may_have_any_name_and_several_parts(write: Write, kind: str) -> None:
    rows = {
        "csv": (b"recipient\na\n", b"b\n"),
        "jsonl": (b'{"recipient":"a"}\n{"reci', b'pient":"b"}'),
    }

    path = write("rows", b"".join(map(gzip.compress, rows[kind])))

    assert rows_of(path, RECIPIENTS, kind) == [("a",), ("b",)]


def test_a_packed_file_that_is_cut_off_or_broken_says_after_which_line(write: Write) -> None:
    rows = b"recipient\n" + b"".join(b"user-%d\n" % number for number in range(50_000))
    packed = gzip.compress(rows)
    flipped = packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:]

    cut = refusal(write("a.csv.gz", packed[: len(packed) // 2]))
    assert cut.startswith("a.csv.gz is packed with gzip, and damaged or cut off after line 2")
    assert cut.endswith("; make or copy it again")
    assert "damaged or cut off after line 50001;" in refusal(write("a.csv.gz", flipped))
    assert "damaged or cut off;" in refusal(write("a.csv.gz", packed[:12]))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"x" * 1_000, "a.csv.gz:2 is a line of over 1048576 characters"),
        (b'"\n",', f"a row has over {MAX_ROW} characters; is a quote open?"),
    ],
)
def test_what_gzip_has_made_small_does_not_fill_the_memory(
    write: Write, block: bytes, words: str
) -> None:
    bomb = write("a.csv.gz", gzip.compress(b"recipient\n" + block * (60_000_000 // len(block)), 1))

    tracemalloc.start()
    told = refusal(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert words in told
    assert peak < 30_000_000


def test_packed_parquet_is_refused(write: Write) -> None:
    told = refusal(write("a.parquet.gz", gzip.compress(b"PAR1")), "parquet")

    assert told == "a.parquet.gz is packed with gzip, not Parquet; unpack it first, with gunzip"


def _zip(*names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(name, "recipient\na\n")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_zip("[Content_Types].xml", "xl/workbook.xml"), "a.csv is an Excel workbook; save it in"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504), "a.csv is an Excel workbook; save it"),
        (_zip("rows.csv"), "a.csv is a ZIP archive; unpack it, and submit the file in it"),
        (b"PAR1\x15\x04", "a.csv is a Parquet file: give --format parquet"),
    ],
    ids=["xlsx", "xls", "zip", "parquet"],
)
def test_what_is_no_text_is_told_by_its_first_bytes(
    write: Write, content: bytes, words: str
) -> None:
    assert refusal(write("a.csv", content)).startswith(words)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(";", ";"), ("Tab", "\t"), (r"\t", "\t"), ("\t", "\t"), ("semicolon", ";"), ("§", "§")],
)
def test_a_delimiter_is_a_character_or_a_word(given: str, kept: str) -> None:
    assert SubmitRequest(source="a.csv", level=Level.LOW, delimiter=given).delimiter == kept


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"delimiter": "semikolon"},
            "'semikolon' is not a character; use one, or comma, semicolon,",
        ),
        ({"delimiter": "semikolon"}, "did you mean 'semicolon'?"),
        ({"delimiter": ""}, "delimiter '' is not a character"),
        ({"delimiter": '"'}, "is not a character"),
        ({"delimiter": 1}, "delimiter is of type int; give a text"),
        ({"encoding": "latin1x"}, "unknown encoding 'latin1x'; use utf-8, cp1252, latin-1,"),
        ({"encoding": "latin1x"}, "did you mean 'latin1'?"),
        ({"encoding": "base64"}, "unknown encoding 'base64'"),
        ({"encoding": "a\0b"}, "unknown encoding"),
        ({"encoding": b"utf-8"}, "encoding is of type bytes; give a text"),
    ],
)
def test_what_is_no_delimiter_or_encoding_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        SubmitRequest(source="a.csv", level=Level.LOW, **given)

    assert words in str(caught.value)
