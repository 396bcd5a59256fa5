"""The script that measures the code: what it counts, and what it leaves out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.shape import (
    classes,
    cycle,
    function_lengths,
    measures,
    modules,
    on_a_pushs_way,
    on_its_lists,
    port_sizes,
    repeated,
    repeated_blocks,
)

Write = Callable[[str, str], None]

BLOCK = """
    def work(a, b):
        c = a + b
        d = c * 2
        e = d - 1
        f = e / 3
        return f
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a product file into a folder of the test's own."""

    def put(path: str, code: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(code))

    return put


def test_a_file_behind_a_link_counts_once(tmp_path: Path, write: Write) -> None:
    write("lanes/task.py", "class Task: ...")
    write("pushlane/__init__.py", "")
    (tmp_path / "pushlane" / "lanes").symlink_to(tmp_path / "lanes")

    assert [module.path for module in modules(tmp_path)] == [
        "lanes/task.py",
        "pushlane/__init__.py",
    ]


def test_a_class_of_two_files_is_named_with_both(tmp_path: Path, write: Write) -> None:
    write("lanes/a.py", "class Store: ...\nclass Alone: ...")
    write("cli/b.py", "def f():\n    class Store: ...")

    assert repeated(classes(modules(tmp_path))) == {"Store": ["lanes/a.py", "cli/b.py"]}


def test_a_function_is_as_long_as_its_lines(tmp_path: Path, write: Write) -> None:
    write("lanes/a.py", "@cache\ndef f():\n    'What it does.'\n    return 1")

    assert function_lengths(modules(tmp_path)) == {"lanes/a.py:2 f": 3}


@pytest.mark.parametrize(
    "place", ["pushlane/core/ports.py", "pushlane/backends/ports.py", "lanes/ports/lease.py"]
)
def test_a_port_has_its_own_methods(tmp_path: Path, write: Write, place: str) -> None:
    write(
        place,
        """
        class Lease(Protocol):
            name: str
            async def acquire(self): ...
            def is_held(self): ...
        class Fence(NamedTuple):
            def text(self): ...
        """,
    )

    assert port_sizes(modules(tmp_path)) == {"Lease": 2}


def test_a_pushs_way_is_what_the_loop_imports_at_the_top(tmp_path: Path, write: Write) -> None:
    write("pushlane/core/loop.py", "from pushlane.dispatcher.lane import Lane")
    write(
        "pushlane/dispatcher/lane.py",
        "from pushlane.model.task import Task\ndef f():\n    import pushlane.cli.late",
    )
    write("pushlane/model/task.py", "if TYPE_CHECKING:\n    from pushlane.model.typed import T")
    write("pushlane/model/typed.py", "")
    write("pushlane/cli/late.py", "")
    write("pushlane/core/publish.py", "import pushlane.core.way")
    write("pushlane/core/way.py", "def f():\n    from pushlane.core.deep import g")
    write("pushlane/core/deep.py", "")

    way = {module.name for module in on_a_pushs_way(modules(tmp_path))}

    assert way == {
        "core.loop",
        "dispatcher.lane",
        "model.task",
        "model.typed",
        "core.publish",
        "core.way",
        "core.deep",
    }


def test_the_way_of_an_earlier_revision_starts_where_it_did(tmp_path: Path, write: Write) -> None:
    write("dispatcher/loop.py", "from pushlane.lanes.task import Task")
    write("lanes/task.py", "")
    write("producers/publish.py", "")
    write("pushlane/__init__.py", "")

    way = [module.name for module in on_a_pushs_way(modules(tmp_path))]

    assert way == ["dispatcher.loop", "producers.publish", "lanes.task"]


def test_a_way_without_its_start_is_no_way(tmp_path: Path, write: Write) -> None:
    write("pushlane/core/loop.py", "")

    with pytest.raises(LookupError, match=r"core\.publish"):
        on_a_pushs_way(modules(tmp_path))


def test_a_block_is_found_however_it_is_written(tmp_path: Path, write: Write) -> None:
    write("lanes/a.py", BLOCK)
    write("lanes/b.py", "import os\n" + textwrap.dedent(BLOCK).replace("a + b", "(a +  # why\n b)"))
    write("lanes/c.py", BLOCK.replace("e / 3", "e / 4"))

    found = repeated_blocks(modules(tmp_path))

    assert [(length, path) for length, path, _ in found] == [(6, "lanes/b.py"), (6, "lanes/a.py")]


def test_what_lies_in_dev_is_counted_beside_the_product(tmp_path: Path, write: Write) -> None:
    write("pushlane/dispatcher/loop.py", "class Loop: ...\n")
    write("pushlane/producers/publish.py", "def publish():\n    pass\n\n\ndef seal():\n    pass\n")
    write("dev/demo.py", "\n\ndef play():\n    pass\n\n\ndef stop():\n    pass\n")

    found = measures(tmp_path)

    assert (found["files"], found["lines"]) == ("2", "7")
    assert found["in dev/, and all with it"] == "1 files, 8 lines; 3 files, 15 lines"


def test_a_circle_of_imports_is_named_by_its_modules(tmp_path: Path, write: Write) -> None:
    write("pushlane/util/a.py", "from pushlane.util.b import f")
    write("pushlane/util/b.py", "if TYPE_CHECKING:\n    from pushlane.util.c import g")
    write("pushlane/util/c.py", "def h(): ...")
    assert cycle(modules(tmp_path)) == []

    write("pushlane/util/c.py", "from pushlane.util.a import f")
    assert set(cycle(modules(tmp_path))) == {"util.a", "util.b", "util.c"}


def test_what_hangs_on_lists_is_what_a_line_adds_to_the_way(tmp_path: Path, write: Write) -> None:
    write("pushlane/core/loop.py", "from pushlane.core.lane import Lane")
    write("pushlane/core/publish.py", "")
    write("pushlane/core/lane.py", "class Lane: ...")
    write("pushlane/dispatcher/line.py", "from pushlane.dispatcher.gates.times import Times")
    write("pushlane/dispatcher/gates/times.py", "from pushlane.core.lane import Lane")
    write("pushlane/dispatcher/leader.py", "from pushlane.dispatcher.line import Line")

    names = [module.name for module in on_its_lists(modules(tmp_path))]
    assert names == ["dispatcher.line", "dispatcher.gates.times"]
