"""What an operation is: its parameters, what it is for, who may do it, and where it is over HTTP.

An operation is a struct. Its fields are the parameters, with their bounds; its docstring is the
help. What has just one meaning is taken where a program makes one, as `"3"` for 3 (see `made`).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sized
from enum import StrEnum
from functools import cache, partial
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast, get_args

import msgspec
from msgspec import inspect

from pushlane.model.access import Role
from pushlane.operations.session import Session
from pushlane.util.conversion import instance, number, text, texts, whole, word

Result = TypeVar("Result")
LONGEST_S = 100 * 366 * 86_400.0
"""The longest duration that is taken: a hundred years."""

Read = Callable[[str, Any], Any]
"""Makes a field's value of what is given for it, by its name. Raises BadInput."""


class Of(StrEnum):
    """What an operation is about, by which a caller of some apps may do it or not."""

    TASK = "task"
    """The task that it names, which has to be of one of the caller's apps."""
    APP = "app"
    """The app that it names, which has to be one of the caller's."""
    APPS = "apps"
    """Whatever is of the caller's apps: it shows and touches nothing else."""
    EVERYTHING = "everything"
    """What all apps share: a caller of some apps sees no part of it."""


class ETag(StrEnum):
    """What the tag of a value is to an operation, where a caller has to show what it has seen."""

    NONE = "none"
    """It shows and sets no value that has one."""
    SHOWN = "shown"
    """It shows one."""
    TAKEN = "taken"
    """It shows one, and changes the value only from states that the caller names, if it does."""
    NEEDED = "needed"
    """So too, and the caller has to name them, as it sets a value over another's."""

    @property
    def is_taken(self) -> bool:
        return self in (ETag.TAKEN, ETag.NEEDED)


class Operation(
    msgspec.Struct, Generic[Result], frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One thing that can be done; `run` does it, and returns a view.

    `path` has the names of fields that are part of it in braces. One that `changes` is written to
    the audit, as is one that reveals what a push holds. One that `destroys` takes away what no
    other operation brings back. `commands` do the same on the command line. `etag` says what the
    tag of the value is to it.
    """

    method: ClassVar[Literal["GET", "POST", "PUT", "PATCH", "DELETE"]]
    path: ClassVar[str]
    role: ClassVar[Role]
    of: ClassVar[Of]
    commands: ClassVar[tuple[str, ...]] = ()
    changes: ClassVar[bool] = False
    destroys: ClassVar[bool] = False
    ends_read_only: ClassVar[bool] = False
    etag: ClassVar[ETag] = ETag.NONE

    @classmethod
    def word(cls) -> str:
        """Return its name, like `set-quota`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def made(cls, **given: Any) -> Self:
        """Return the operation with what a program gives for its fields.

        Raises BadInput, which names the field, for what cannot be one. UNSET is as not given.
        """
        readers = _readers(cls)
        values = {
            name: readers[name](name, value)
            for name, value in given.items()
            if value is not msgspec.UNSET
        }
        return cls(**values)

    @classmethod
    def in_path(cls) -> tuple[str, ...]:
        """Return the names of the fields that are part of its path."""
        return tuple(re.findall(r"{(\w+)}", cls.path))

    @staticmethod
    def size(page: Result) -> int:
        """Return how many items a page of a list has."""
        return len(cast(Sized, page))

    @staticmethod
    def joined(page: Result, following: Result) -> Result:
        """Return two pages of a list as one."""
        return cast(Result, [*cast(list[Any], page), *cast(list[Any], following)])

    @classmethod
    def has_pages(cls) -> bool:
        """Tell whether it is a list that goes on with a cursor, so many at a time."""
        return {"cursor", "limit"} <= {*cls.__struct_fields__}

    @abstractmethod
    async def run(self, at: Session) -> Result:
        """Do it. Raises what the help says."""


def result_of(kind: type[Operation[Any]]) -> Any:
    """Return the type of what an operation shows."""
    [base] = [one for one in kind.__orig_bases__ if get_args(one)]  # type: ignore[attr-defined]
    return get_args(base)[0]


def read_by(read: Read) -> msgspec.Meta:
    """Return what makes fields of a type be read like this where a program gives them."""
    return msgspec.Meta(extra={"read": read})


@cache
def _readers(operation: type[Operation[Any]]) -> Mapping[str, Read]:
    kind = inspect.type_info(operation)
    assert isinstance(kind, inspect.StructType)
    return {field.name: _reader(field.type) for field in kind.fields}


def _reader(kind: inspect.Type) -> Read:
    """Return what reads values of a type, by the type alone unless it says how."""
    if isinstance(kind, inspect.Metadata):
        own: Read | None = (kind.extra or {}).get("read")
        return own or _reader(kind.type)
    if isinstance(kind, inspect.UnionType):
        others = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        if len(others) > 1:
            return _as_given
        return partial(_unless_none, _reader(others[0]))
    if isinstance(kind, inspect.IntType):
        low, high = kind.ge, kind.le
        return lambda what, value: whole(what, value, 0 if low is None else low, high)
    if isinstance(kind, inspect.FloatType):
        least, most = kind.ge, kind.le
        return lambda what, value: number(what, value, 0 if least is None else least, most)
    if isinstance(kind, inspect.StrType):
        return text
    if isinstance(kind, inspect.BoolType):
        return lambda what, value: instance(what, value, bool)
    if isinstance(kind, inspect.EnumType):
        words = cast(type[StrEnum], kind.cls)
        return lambda what, value: word(what, value, words)
    if isinstance(kind, inspect.VarTupleType):
        return partial(_each, _reader(kind.item_type))
    return _as_given


def _as_given(what: str, value: Any) -> Any:
    """Return what has several forms, or parts: it is read where it is checked."""
    return value


def _unless_none(read: Read, what: str, value: Any) -> Any:
    return None if value is None else read(what, value)


def _each(read: Read, what: str, value: Any) -> tuple[Any, ...]:
    return tuple(read(what, one) for one in texts(what, value))


__all__ = ("LONGEST_S", "ETag", "Of", "Operation", "Result", "Role", "read_by", "result_of")
