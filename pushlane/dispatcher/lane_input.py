"""One of the two readers of a lane, and the messages of it that are at hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pushlane.dispatcher.messages import Held, Message
from pushlane.lanes.naming import is_pool
from pushlane.lanes.ports import LaneReader, Taken

_ANSWER_WAIT_S = 0.1


class LaneInput:
    """A reader, once it is open, and what of it was asked about and may be taken.

    `has_more`: the reader has something. `asking` counts the batches that are being asked about,
    and `last_seq` is the highest that came off the reader. Of the `depth` messages that the reader
    and this may have at hand, a quarter is pulled off the reader at once, when an eighth is left
    here. Tasks that share the lane take turns.
    """

    __slots__ = (
        "_at_hand",
        "_is_shared",
        "asking",
        "depth",
        "has_more",
        "last_seq",
        "messages",
        "name",
        "reader",
        "wanted",
    )

    def __init__(self, name: str, depth: int, *, wanted: bool) -> None:
        self.name = name
        self.depth = depth
        self.wanted = wanted
        self.reader: LaneReader | None = None
        self._is_shared = is_pool(name)
        self._at_hand: deque[deque[Message]] = deque()  # of each task
        self.messages = 0
        self.last_seq = 0
        self.has_more = False
        self.asking = 0

    @property
    def is_low(self) -> bool:
        """Tell whether it is time to pull more off the reader."""
        return self.has_more and not self.asking and self.messages <= max(1, self.depth // 8)

    def want(self) -> None:
        """Have a reader from now on, as soon as it is open."""
        self.wanted = True

    def opened(self, reader: LaneReader | None) -> None:
        """Take messages off this reader from now on."""
        self.reader = reader

    def ready(self) -> None:
        """Note that the reader has something."""
        self.has_more = True

    def close(self) -> LaneReader | None:
        """Forget what is at hand, and return the reader, which is to be closed."""
        reader, self.reader = self.reader, None
        self.has_more = False
        self.clear()
        return reader

    def pull(self) -> list[Taken]:
        """Take the next few messages of the reader, which says when it has something again."""
        pulled: list[Taken] = []
        reader = self.reader
        most = max(1, self.depth // 4)
        while self.has_more and reader is not None and len(pulled) < most:
            if (taken := reader.take()) is None:
                self.has_more = False
            else:
                pulled.append(taken)
        return pulled

    def at_hand(self) -> list[Message]:
        return [message for some in self._at_hand for message in some]

    def add(self, messages: Iterable[Message]) -> None:
        """Have messages at hand that were asked about."""
        by_task = {self._turn_of(some[0]): some for some in self._at_hand}
        for message in messages:
            turn = self._turn_of(message)
            some = by_task.get(turn)
            if some is None:
                some = by_task[turn] = deque()
                self._at_hand.append(some)
            some.append(message)
            self.messages += 1

    def _turn_of(self, message: Message) -> str:
        """Return whose turn it waits for. A task's own lane has one, so nothing is overtaken."""
        return message.task_id if self._is_shared else ""

    def take(self, oldest_s: float) -> Held | None:
        """Take the next push; each task has its turn.

        It is of a message that was asked about since `oldest_s`, on a monotonic clock.
        """
        if not self._at_hand or self._at_hand[0][0].asked_s < oldest_s:
            return None
        mine = self._at_hand[0]
        held = mine[0].take()
        if mine[0].is_spent:
            mine.popleft()
            self.messages -= 1
        if not mine:
            self._at_hand.popleft()
        elif len(self._at_hand) > 1:
            self._at_hand.rotate(-1)
        return held

    def remove_spent(self) -> None:
        """Drop the messages of which every push has been taken or has ended."""
        left = [message for message in self.at_hand() if not message.is_spent]
        if len(left) < self.messages:
            self.clear()
            self.add(left)

    def saw(self, messages: Iterable[Message]) -> None:
        """Note how far the lane has been read."""
        self.last_seq = max(self.last_seq, *(message.last_seq for message in messages))

    def ask(self) -> None:
        """Count a batch that is being asked about."""
        self.asking += 1

    def answered(self) -> None:
        """Count off a batch that was asked about."""
        self.asking -= 1

    def clear(self) -> None:
        """Forget what is at hand."""
        self._at_hand.clear()
        self.messages = 0

    def refill_wait_s(self) -> float:
        if self.asking:
            return _ANSWER_WAIT_S
        return self.reader.refill_wait_s() if self.reader is not None else 0.0
