"""Masks on Spark: the same texts as in Python, and no plan or error that shows a key or a value."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from pushlane import Masks
from pushlane.core.errors import BadInput
from pushlane.model.masks import FieldType, Sensitivity
from pushlane.pipeline.spark_masks import mask

KEY = "a key of the tests, of 32 bytes."
NASTY = [
    *(None, "", " ", "\t\n", "+", "@", "-", "…", "#", "\x00", "\x1b[2J", "a" * 5_000),
    *("ann", "user-17", "device-0123456789", "f" * 64, "\u202egnp.exe", "İstanbul", "e\u0301"),
    *(
        "+49 151 23456789",
        "0049-151-23456789",
        "+35621234567",
        "+٤٩١٥١٢٣٤٥٦٧٨٩",
        " +4915123456789 ",
    ),
    *("foo@example.com", "a@b@example.com", "jürgen@bücher.example", "x@EXAMPLE.com\n"),
    *("https://fcm.googleapis.com/fcm/send/a", "ios:8D4E2C1A-77", "SUMMER-X7Q2-9ABC"),
    *("1990-05-17", "1990-05-17 08:30:00.5", "1990-13-01", "👩‍👩‍👧‍👧" * 4, "𝔘𝔫𝔦"),
]


def in_spark(spark, values: list[str | None]) -> dict[tuple[str, str], list[str | None]]:
    """The masks that Spark makes of these values, by type of field and level."""
    frame = spark.createDataFrame(enumerate(values), "place int, value string").repartition(3)
    kinds = [(field, level) for field in FieldType for level in Sensitivity]
    made = [mask("value", *kind, key=KEY).alias("-".join(kind)) for kind in kinds]
    rows = frame.select("place", *made).sort("place").collect()
    return {kind: [row["-".join(kind)] for row in rows] for kind in kinds}


def in_python(values: list[str | None]) -> dict[tuple[str, str], list[str | None]]:
    masks = Masks(KEY)
    kinds = [(field, level) for field in FieldType for level in Sensitivity]
    return {kind: [masks.mask(value, *kind) for value in values] for kind in kinds}


def test_spark_and_python_make_the_same_masks(spark) -> None:
    assert in_spark(spark, NASTY) == in_python(NASTY)


@settings(max_examples=3)
@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=200))
def test_they_do_of_any_text(spark, values: list[str | None]) -> None:
    assert in_spark(spark, values) == in_python(values)


def test_a_column_that_is_no_text_is_cast_to_one(spark) -> None:
    frame = spark.createDataFrame([(date(1990, 5, 17), 4915123456789)], "born date, phone long")

    [row] = frame.select(
        mask("born", "date", key=KEY).alias("born"), mask(F.col("phone"), key=KEY).alias("phone")
    ).collect()

    masks = Masks(KEY)
    assert row.born == masks.mask("1990-05-17", "date")
    assert row.phone == masks.mask("4915123456789")


def test_no_plan_shows_the_key(spark, capfd) -> None:
    frame = spark.createDataFrame([("ann",)], "value string").select(mask("value", key=KEY))

    frame.explain(extended=True)

    told = "".join(capfd.readouterr())
    assert "masked(" in told
    assert KEY not in told
    assert KEY not in frame.schema.json()


def test_a_wrong_name_or_key_is_refused_before_spark_begins(spark) -> None:
    with pytest.raises(BadInput, match="no field type 'mobile'"):
        mask("value", "mobile", key=KEY)
    with pytest.raises(BadInput, match="give at least 16"):
        mask("value", key="short")
