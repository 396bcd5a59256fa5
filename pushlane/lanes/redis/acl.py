"""The access rules of Redis that each role needs, as commands for its administrator."""

from __future__ import annotations

from pushlane.backends.redis.keys import Keys
from pushlane.lanes.bootstrap import RoleLogin, Roles

# INFO tells which server filled the registry; SLOTS and so on are what clients of a Cluster ask.
_COMMANDS = (
    "+@read +@write +@connection -@dangerous +eval +evalsha +script|load +time +info +publish "
    "+subscribe +unsubscribe +cluster|slots +cluster|shards +cluster|nodes +cluster|myid"
)
_FAMILIES_OF_WRITERS = (
    *("lock", "seen", "moved", "counts", "mark", "rate", "places", "tallies", "suppressed"),
    *("process", "lease", "fence"),
)


def redis_logins(namespace: str, roles: Roles) -> list[RoleLogin]:
    """Return a line for each role that uses Redis; the pipeline's receipts need none.

    Writers reach all but the claims of pushes and what was counted of recipients.
    """
    keys = Keys(namespace)
    base = keys.lock("").removesuffix("lock:")
    named = [key for key in vars(keys).values() if isinstance(key, str) and key != base]
    families = tuple(f"{base}{family}:" for family in _FAMILIES_OF_WRITERS)
    of_writers = [key for key in named if not key.startswith(families)]
    of_writers += [f"{family}*" for family in families]
    return [
        RoleLogin(roles.dispatcher, _line(roles.dispatcher, [f"{base}*"], keys)),
        RoleLogin(roles.writer, _line(roles.writer, of_writers, keys)),
    ]


def _line(role: str, patterns: list[str], keys: Keys) -> str:
    allowed = " ".join(f"~{pattern}" for pattern in patterns)
    channel = f"resetchannels &{keys.change_channel}"
    return f"ACL SETUSER {role} reset on >PASSWORD {allowed} {channel} {_COMMANDS}"
