"""Rows out of CSV, JSON Lines and Parquet: numbered, aligned, and bad ones told apart."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.core.errors import BadInput
from pushlane.producers.rows import MAX_LINE, BadRow, Wanted, format_of, open_source

WANTED = Wanted(("recipient", "name"), ("city",))


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def rows_of(path, wanted=WANTED):
    return [
        (number, row.reason if isinstance(row, BadRow) else tuple(row))
        for number, row in open_source(path, format_of(path, None)).rows(wanted)
    ]


def test_csv_rows_carry_their_line_and_the_columns_wanted(write):
    path = write("a.csv", "name,x,recipient,city\nAnn,1,a@x,Oslo\nBo,2,b@x,Rome\n")
    assert rows_of(path) == [(2, ("a@x", "Ann", "Oslo")), (3, ("b@x", "Bo", "Rome"))]


def test_a_byte_order_mark_is_no_part_of_the_first_column(write):
    path = write("a.csv", b"\xef\xbb\xbfrecipient\na@x\n")
    assert rows_of(path, Wanted(("recipient",))) == [(2, ("a@x",))]


def test_a_quoted_field_may_span_lines_and_the_next_row_knows_its_line(write):
    path = write("a.csv", 'recipient,name,city\na@x,"An\nn",O\nb@x,Bo,R\n')
    assert rows_of(path) == [(2, ("a@x", "An\nn", "O")), (4, ("b@x", "Bo", "R"))]


def test_a_row_of_another_width_is_bad_and_the_next_is_read(write):
    path = write("a.csv", "recipient,name,city\na@x,Ann\nb@x,Bo,R\n")
    assert rows_of(path) == [
        (2, "has 2 columns, the header has 3"),
        (3, ("b@x", "Bo", "R")),
    ]


def test_blank_lines_are_no_rows(write):
    path = write("a.csv", "recipient,name,city\n\na@x,Ann,O\n\n")
    assert rows_of(path) == [(3, ("a@x", "Ann", "O"))]


def test_broken_quoting_is_a_bad_row(write):
    path = write("a.csv", 'recipient,name,city\n"a@x"y,Ann,O\nb@x,Bo,R\n')
    (line, reason), good = rows_of(path)
    assert (line, good) == (2, (3, ("b@x", "Bo", "R")))
    assert "broken quoting" in reason


def test_a_quote_that_never_closes_names_the_lines_it_swallowed(write):
    path = write("a.csv", 'recipient,name,city\n"a@x,Ann,O\nb@x,Bo,R\n')
    assert rows_of(path) == [(2, "lines 2 to 3 have broken quoting or a field that is too long")]


def test_jsonl_rows_are_aligned_and_may_lack_optional_fields(write):
    path = write(
        "a.jsonl", '{"name":"Ann","recipient":"a@x"}\n\n{"recipient":"b","name":1,"city":2}\n'
    )
    assert rows_of(path) == [(1, ("a@x", "Ann", None)), (3, ("b", 1, 2))]


def test_a_json_row_without_a_required_field_names_the_field(write):
    path = write("a.jsonl", '{"recipient":"a@x"}\n')
    assert rows_of(path) == [(1, "has no field 'name'")]


@pytest.mark.parametrize("line", ['{"recipient":', "[1]", '"text"'])
def test_a_line_that_is_no_object_is_a_bad_row(write, line):
    path = write("a.jsonl", line + "\n")
    assert rows_of(path) == [(1, "is not one JSON object")]


def test_parquet_rows_are_numbered_across_record_batches(tmp_path):
    path = tmp_path / "a.parquet"
    count = 20_000
    names = [f"n{index}" for index in range(count)]
    table = pa.table({"name": names, "recipient": range(count), "x": names, "city": names})
    pq.write_table(table, path)

    rows = rows_of(path)

    assert len(rows) == count
    assert rows[0] == (1, (0, "n0", "n0"))
    assert rows[-1] == (count, (count - 1, f"n{count - 1}", f"n{count - 1}"))


def test_the_columns_are_known_before_any_row_is_read(write):
    assert open_source(write("a.csv", "a,b\n"), "csv").columns == ("a", "b")
    assert open_source(write("a.jsonl", '{"a":1,"b":2}\n'), "jsonl").columns == ("a", "b")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_an_empty_file_is_refused(write, kind):
    with pytest.raises(BadInput, match="is empty"):
        open_source(write("a", ""), kind)


def test_a_missing_file_a_folder_and_a_wrong_format_are_refused(write, tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        open_source(tmp_path / "none.csv", "csv")
    with pytest.raises(BadInput, match="is a folder"):
        open_source(tmp_path, "csv")
    with pytest.raises(BadInput, match="not a Parquet file"):
        open_source(write("a.parquet", "recipient\n"), "parquet")
    with pytest.raises(BadInput, match=r"a\.csv:1 is not a CSV header; check"):
        open_source(write("a.csv", '"a"b\n'), "csv")


def test_a_parquet_file_that_breaks_off_says_after_which_row(tmp_path):
    path = tmp_path / "a.parquet"
    names = [f"name-{index}" for index in range(50_000)]
    pq.write_table(
        pa.table({"recipient": names, "name": names, "city": names}),
        path,
        row_group_size=10_000,
        compression="none",
        use_dictionary=False,
    )
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 100_000] = b"\xff" * 100_000
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"is damaged after row [1-9]\d*"):
        rows_of(path)


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(write):
    path = write("a.jsonl", b"x" * (MAX_LINE + 1))
    with pytest.raises(BadInput, match=r"a\.jsonl:1 is a line of over"):
        open_source(path, "jsonl")


def test_an_unknown_format_lists_the_known_ones_and_the_nearest(tmp_path):
    with pytest.raises(BadInput, match="use csv, jsonl, parquet; did you mean 'parquet'"):
        format_of(tmp_path / "a.csv", "parket")
    with pytest.raises(BadInput, match="add --format csv, jsonl, parquet"):
        format_of(tmp_path / "a.dat", None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.txt", "add --format csv if its first line names the columns, jsonl if"),
        ("a.txt.gz", "add --format csv if its first line names the columns, jsonl if"),
        ("a.json", "add --format jsonl if each of its lines is one JSON object"),
        ("a.tsv", "add --format csv --delimiter tab"),
        ("a.XLSX", "is an Excel workbook; save it in Excel as 'CSV UTF-8', then submit"),
    ],
)
def test_a_name_that_tells_no_format_is_answered_with_what_to_add(tmp_path, name, words):
    with pytest.raises(BadInput, match=words):
        format_of(tmp_path / name, None)


def test_the_format_of_a_packed_file_is_in_its_name_before_gz(tmp_path):
    assert format_of(tmp_path / "a.csv.gz", None) == "csv"
    assert format_of(tmp_path / "a.ndjson.GZ", None) == "jsonl"


def test_a_device_is_no_file_of_rows():
    with pytest.raises(BadInput, match="/dev/null is a device"):
        open_source(Path("/dev/null"), "csv")


def test_a_format_given_wins_over_the_extension(tmp_path):
    assert format_of(tmp_path / "a.csv", "jsonl") == "jsonl"
    assert format_of(tmp_path / "a.PARQUET", None) == "parquet"
