"""The tools as a server of the Model Context Protocol, over stdio or streamable HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from pushlane.agents.tools import DATA, Do, tame, tools_for, use
from pushlane.core.errors import PushlaneError
from pushlane.util.errors import PreviewChanged
from pushlane.version import VERSION

log = logging.getLogger("pushlane.agents")

MOST_BODY_BYTES = 1024 * 1024

_ABOUT = (
    "pushlane sends push notifications by priority: each task has a lane, levels (high, medium, "
    "low) share a sink by weights, and inside a level tasks take turns by quota. Begin with "
    "`health`; `why_task` says why a task is late and what would help. Preview each change "
    "first: `preview` says what it would do, and gives the token for `apply`."
)

Context = ServerRequestContext[Any, Any]


class Hands(NamedTuple):
    """Does operations with the rights of who asks; `may_apply` tells if they may change any."""

    do: Do
    may_apply: bool


Rights = Callable[[Context], Awaitable[Hands]]
"""Return the hands of who makes a request. Raises Unauthorized."""


def server(rights: Rights) -> Server[Any]:
    """Return a server of the tools; each call is done with the rights of its request."""

    async def listed(ctx: Context, params: Any) -> types.ListToolsResult:
        hands = await rights(ctx)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=one.name,
                    description=one.told,
                    input_schema=one.schema,
                    annotations=types.ToolAnnotations(
                        read_only_hint=not one.changes, open_world_hint=False
                    ),
                )
                for one in tools_for(may_apply=hands.may_apply)
            ]
        )

    async def called(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            do, may_apply = await rights(ctx)
            shown = await use(params.name, params.arguments or {}, do, may_apply=may_apply)
        except PreviewChanged as error:
            changed = {"refused": f"{error}", "preview": error.present or {}}
            shown = {"note": DATA, "data": tame(changed)}
            return _answer(msgspec.json.encode(shown).decode(), is_error=True)
        except PushlaneError as error:
            return _answer(tame(f"{error}"), is_error=True)
        except Exception as error:
            kind = type(error).__name__
            told = "tool %s ended in an unexpected %s: a defect in pushlane; please report it"
            extra = {"action": "tool_failed"}
            log.error(told, tame(params.name), kind, exc_info=error, extra=extra)
            return _answer("this is a defect in pushlane; its log has more", is_error=True)
        return _answer(msgspec.json.encode(shown).decode())

    return Server(
        "pushlane",
        version=VERSION,
        instructions=_ABOUT,
        on_list_tools=listed,
        on_call_tool=called,
    )


async def serve_stdio(hands: Hands) -> None:
    """Serve on standard input and output until the input ends."""

    async def rights(ctx: Context) -> Hands:
        return hands

    told = server(rights)
    async with stdio_server() as (incoming, outgoing):
        await told.run(incoming, outgoing, told.create_initialization_options())


@asynccontextmanager
async def over_http(rights: Rights) -> AsyncIterator[StreamableHTTPSessionManager]:
    """Answer requests of streamable HTTP, any process each: it keeps nothing between two."""
    manager = StreamableHTTPSessionManager(
        server(rights), stateless=True, json_response=True, max_request_body_size=MOST_BODY_BYTES
    )
    async with manager.run():
        yield manager


def _answer(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )
