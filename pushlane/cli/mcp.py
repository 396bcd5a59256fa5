"""`mcp` lets agents look at push tasks, over the Model Context Protocol."""

from __future__ import annotations

from pushlane.cli.doing import CommandLine, on_client
from pushlane.cli.flags import Flags, LogFormat
from pushlane.cli.logs import set_up_logs
from pushlane.util.extras import needs_extra


def mcp(flags: Flags, log_format: LogFormat = None) -> None:
    """Let an agent look at tasks, sinks and results, over the Model Context Protocol (stdio).

    The agent's program starts it. Nothing can be changed, and no recipient or content is shown.
    With PUSHLANE_URL it goes through a server, with the rights of your token there.
    """
    with needs_extra("mcp"):
        from pushlane.agents.server import serve_stdio
    settings = flags.also(log_format=log_format).settings()
    set_up_logs(settings.log_format)

    async def work(client: CommandLine) -> None:
        await serve_stdio(client.do)

    on_client(settings, work)
