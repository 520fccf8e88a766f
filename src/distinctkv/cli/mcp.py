"""``distinctkv mcp``: digests of logs as tools for agents (Model Context Protocol)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mcp.server import MCPServer

TOKENS, LIMIT = 2000, 50  # of an answer; messages of a template: unless the agent says more
SIZE = 20_000  # characters of other answers
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("mcp", short_help="Digests of logs as tools for agents.")
@click.argument("folders", metavar="FOLDER...", nargs=-1, required=True, type=FOLDER)
def command(folders: tuple[Path, ...]) -> None:
    """Serve digests of the logs below some folders to an agent, over standard input and output.

    The tools are digest, new_since, diff and lines_of. No file outside the folders is read, and
    none is written. It needs the extra mcp.

    \b
    distinctkv mcp /var/log/app ./build
    """
    try:
        made = server(folders)
    except ImportError as error:
        from ..extras import install

        raise click.ClickException(f"mcp is not installed; {install('mcp')}") from error
    made.run()


def server(folders: tuple[Path, ...]) -> MCPServer:
    """A server with the four tools; an argument that a tool does not have is an error."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool

    from ..compression import SourceError
    from ..logs.diff import LogDiff
    from ..logs.digest import Digest, ParsedLog, shorten
    from .diff import diff_text, open_logs
    from .io import find_file, valid

    @contextmanager
    def logs(paths: list[str], header: str, field: str) -> Iterator[list[ParsedLog]]:
        """Logs read with one header; the agent is told what is wrong with its request."""
        try:
            files = [str(find_file(path, folders)) for path in paths]
            yield open_logs(files, header, field or None)
        except (LookupError, OSError, SourceError, ValueError, click.ClickException) as error:
            raise ToolError(str(error.args[0] if error.args else error)) from error

    def digest(
        path: str, tokens: int = TOKENS, values: bool = False, header: str = "auto", field: str = ""
    ) -> str:
        """Give a log or a long output in few lines: each template with count, id and an example.

        A value is ``<*>``; ``values`` says what stands there. If not all templates fit into so many
        tokens, frequent ones and rare errors are shown first. In all tools ``header`` may be a
        regular expression of what stands before a message, or none; ``field`` names the message in
        JSON lines or logfmt.
        """
        with logs([path], header, field) as [found]:
            return valid(Digest.of(found, values=values).fit(tokens=tokens).text())

    def new_since(
        path: str, line: int, tokens: int = TOKENS, header: str = "auto", field: str = ""
    ) -> str:
        """Give the templates first seen after a line, and those with a new exception there.

        A digest says how many lines there are.
        """
        with logs([path], header, field) as [found]:
            new = replace(Digest.of(found, after=line), name=f"{path}, new after line {line}")
            return valid(new.fit(tokens=tokens).text())

    def diff(
        before: str, after: str, everything: bool = False, header: str = "auto", field: str = ""
    ) -> str:
        """Give the templates that are new, gone, more or less frequent in the second log.

        ``everything`` also lists differences that may be chance.
        """
        with logs([before, after], header, field) as both:
            found, names = LogDiff.of(*both), [before, after]
            return shorten(valid(diff_text(found, names, everything, "everything=true")), SIZE)

    def lines_of(
        path: str,
        id: int,
        limit: int = LIMIT,
        after: int = 0,
        header: str = "auto",
        field: str = "",
    ) -> str:
        """Give the lines behind an id of a digest, as they are, with their numbers.

        At most ``limit`` messages after the line ``after`` are shown; long lines are cut.
        """
        with logs([path], header, field) as [found]:
            return valid(found.listing(id, max(1, limit), after, SIZE))

    tools = [Tool.from_function(one) for one in (digest, new_since, diff, lines_of)]
    for tool in tools:
        (model := tool.fn_metadata.arg_model).model_config["extra"] = "forbid"
        model.model_rebuild(force=True)
        tool.parameters = model.model_json_schema(by_alias=True)
    return MCPServer("distinctkv", log_level="WARNING", tools=tools)
