"""`mcp` lets agents look at push tasks, over the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

from pushlane.cli.doing import CommandLine, on_client
from pushlane.cli.flags import Flags, LogFormat, switch
from pushlane.cli.logs import set_up_logs
from pushlane.operations.access import GetCaller
from pushlane.operations.operation import Role
from pushlane.util.extras import needs_extra


def mcp(
    flags: Flags,
    may_apply: Annotated[
        bool, switch("--may-apply", "It may do changes, too, each just as it was previewed.")
    ] = False,
    log_format: LogFormat = None,
) -> None:
    """Let an agent look at tasks, sinks and results, over the Model Context Protocol (stdio).

    The agent's program starts it. No recipient or content is shown, and nothing can be changed
    without --may-apply. With PUSHLANE_URL it goes through a server, with the rights of your token.
    """
    with needs_extra("mcp"):
        from pushlane.agents.server import Hands, serve_stdio
    settings = flags.also(log_format=log_format).settings()
    set_up_logs(settings.log_format)

    async def work(client: CommandLine) -> None:
        me = await client.do(GetCaller())
        await serve_stdio(Hands(client.do, may_apply and me.role.may(Role.SUBMITTER)))

    on_client(settings, work)
