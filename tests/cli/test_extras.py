"""A missing extra is told as such; a defect of ours is not."""

from __future__ import annotations

import pytest

from pushlane.cli.errors import pipeline_extra
from pushlane.core.errors import BadInput


def missing(module: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {module!r}", name=module)


def test_a_missing_package_says_what_to_install():
    with pytest.raises(BadInput, match=r"package pyspark.* install") as error, pipeline_extra():
        raise missing("pyspark.sql")

    assert "'pushlane[pipeline]'" in str(error.value)


def test_a_missing_module_of_ours_is_a_defect():
    with pytest.raises(ModuleNotFoundError), pipeline_extra():
        raise missing("pushlane.pipeline.nothing")
