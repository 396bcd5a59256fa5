"""Spark's checkpoint beside the positions of the store: kept if it fits, else set aside."""

from __future__ import annotations

import json

import pytest

from pushlane.pipeline.receipts.log_source import as_offset
from pushlane.pipeline.receipts.resume import set_aside_unfit_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """Planned up to 30 in three batches, of which the last is not committed."""
    folder = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, position in enumerate(["10", "20", "30"]):
        offset = json.dumps(as_offset([position, "0"]))
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offset}")
        if number < 2:
            (folder / "commits" / str(number)).write_text("v1\n{}")
    return folder


@pytest.mark.parametrize("position", ["20", "30"])
def test_one_that_ends_where_the_store_does_or_is_to_do_is_kept(checkpoint, position):
    assert set_aside_unfit_checkpoint(checkpoint, [position, "0"]) == ""
    assert checkpoint.is_dir()


@pytest.mark.parametrize("position", ["10", "40"])
def test_one_that_goes_on_elsewhere_is_set_aside_and_named(checkpoint, position):
    said = set_aside_unfit_checkpoint(checkpoint, [position, "0"])
    assert "goes on elsewhere than the store: it was set aside as checkpoint-aside-1" in said
    assert not checkpoint.exists()


def test_one_that_cannot_be_read_is_set_aside(checkpoint):
    (checkpoint / "offsets" / "2").write_text("v1\n")
    assert "cannot be read" in set_aside_unfit_checkpoint(checkpoint, ["20", "0"])


def test_a_committed_one_must_end_where_the_store_does(checkpoint):
    (checkpoint / "commits" / "2").write_text("v1\n{}")
    assert "goes on elsewhere" in set_aside_unfit_checkpoint(checkpoint, ["20", "0"])


def test_none_is_no_fault(tmp_path):
    assert set_aside_unfit_checkpoint(tmp_path / "checkpoint", ["1"]) == ""
