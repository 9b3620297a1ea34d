"""The tools: arguments checked strictly, one result told twice, one place where errors become answers."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import anyio
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, ResourceLink, TextContent, ToolAnnotations
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import SkipJsonSchema

from mcp_sandbox.capture import clean
from mcp_sandbox.errors import RequestRefused, SandboxError
from mcp_sandbox.model import Client, ExecutionRequest, ExecutionResult, Language, Network
from mcp_sandbox.plan import MIN_TIMEOUT_SECONDS
from mcp_sandbox.server.describe import describe
from mcp_sandbox.server.flight import Flight, Flights, Offsets, from_record
from mcp_sandbox.server.pictures import SHOWN, picture_of, pictures
from mcp_sandbox.server.reading import (
    ArtifactSlice,
    earlier_files,
    encoded,
    given_files,
    read_slice,
    slice_as_text,
)
from mcp_sandbox.server.render import abridged, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.mcpserver import Context

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.executor import Executor

HEARTBEAT_SECONDS = 5.0
"""Time between two signs of life to the client."""
MAX_LINKS = 20
"""Resource links in one answer."""
ANSWER_BYTES = 900_000
"""Bytes of one answer: Claude Desktop takes 1 MB, and quoting adds to what is counted here."""
CANCEL_SECONDS = 10.0
"""Longest wait for a cancelled run to end."""

_log = logging.getLogger(__name__)


class StrictTool(Tool):
    """A tool that checks its own arguments and words its own errors.

    The SDK's way drops unknown arguments without a word and shows the model pydantic's text.
    """

    flights: Any = Field(exclude=True)
    arguments: type[BaseModel] = Field(exclude=True)
    handle: Any = Field(exclude=True)
    """`async (flights, arguments, context) -> CallToolResult`"""
    result: type[BaseModel] = Field(exclude=True)

    @property
    def output_schema(self) -> dict[str, Any]:  # a cached property there
        """The result's schema, flat."""
        return flat_schema(self.result)

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """Run one call and answer it; whatever fails, the answer is a result that says what to do."""
        flights: Flights = self.flights
        try:
            try:
                checked = self.arguments.model_validate(arguments)
            except ValidationError as error:
                refusal = RequestRefused(in_words(error, self.arguments))
                await flights.executor.record.refused({"tool": self.name, "arguments": arguments}, refusal)
                raise refusal from None
            return await self.handle(flights, checked, context)
        except SandboxError as error:
            return failure(error)
        except Exception:
            _log.exception("a call of %s failed", self.name)
            return failure(
                SandboxError("the server met an error of its own; nothing is known of the program.")
            )


def make_tools(flights: Flights) -> list[Tool]:
    """Return the tools under one policy."""
    return [
        _execute_tool(flights, "python"),
        _execute_tool(flights, "shell"),
        _run_tool(flights, "get_run", "Get a run", GetRun, _get_run, read_only=True),
        _run_tool(flights, "cancel_run", "Cancel a run", CancelRun, _cancel_run, read_only=False),
        _run_tool(
            flights,
            "read_artifact",
            "Read a file of a run",
            ReadArtifact,
            _read_artifact,
            read_only=True,
            result=ArtifactSlice,
        ),
    ]


_SOURCE = {"python": "code", "shell": "command"}
_TITLE = {"python": "Run Python", "shell": "Run a shell command"}


def _execute_tool(flights: Flights, language: Language) -> StrictTool:
    policy = flights.executor.policy
    return _tool(
        flights,
        f"execute_{language}",
        _TITLE[language],
        describe(language, policy),
        _execute_arguments(language, policy),
        partial(_execute, language),
        # Not read-only: it runs a program. Not destructive: nothing outside can be changed. Not idempotent: a
        # program may use the time or chance. Open-world as soon as it may speak with anybody.
        ToolAnnotations(
            title=_TITLE[language],
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=False,
            open_world_hint=bool(policy.egress.allow),
        ),
    )


def _run_tool(
    flights: Flights,
    name: str,
    title: str,
    arguments: type[BaseModel],
    handle: Any,
    *,
    read_only: bool,
    result: type[BaseModel] = ExecutionResult,
) -> StrictTool:
    return _tool(
        flights,
        name,
        title,
        (arguments.__doc__ or "").strip(),
        arguments,
        handle,
        ToolAnnotations(
            title=title,
            read_only_hint=read_only,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
        result,
    )


def _tool(
    flights: Flights,
    name: str,
    title: str,
    description: str,
    arguments: type[BaseModel],
    handle: Any,
    annotations: ToolAnnotations,
    result: type[BaseModel] = ExecutionResult,
) -> StrictTool:
    async def never_called() -> None:
        """Stand where the SDK wants a function: `StrictTool.run` answers."""

    shape = Tool.from_function(never_called, name=name, structured_output=False)
    return StrictTool(
        fn=never_called,
        name=name,
        title=title,
        description=description,
        parameters=flat_schema(arguments),
        fn_metadata=shape.fn_metadata,
        is_async=True,
        annotations=annotations,
        flights=flights,
        arguments=arguments,
        handle=handle,
        result=result,
    )


_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _execute_arguments(language: Language, policy: Policy) -> type[BaseModel]:
    source = Annotated[
        str,
        Field(
            description="Source text of the program." if language == "python" else "Command, as in a shell."
        ),
    ]
    timeout = Annotated[
        float,
        Field(
            description="Wall-clock limit in seconds.",
            ge=MIN_TIMEOUT_SECONDS,
            le=policy.max_timeout_seconds,
            default=policy.timeout_seconds,
        ),
    ]
    fields: dict[str, Any] = {
        _SOURCE[language]: source,
        "timeout_seconds": timeout,
        "stdin": (
            Annotated[str, Field(description="Text that the program reads from standard input.")],
            "",
        ),
        "files": (
            Annotated[
                dict[str, str],
                BeforeValidator(_from_json),
                Field(
                    description="Files for the working directory: path to text; "
                    'for bytes "data:;base64,..." as in a data URL.'
                ),
            ],
            {},
        ),
        "inputs": (
            Annotated[
                list[str],
                BeforeValidator(_from_json),
                Field(description='Files of earlier runs for the working directory, as "RUN_ID/PATH".'),
            ],
            [],
        ),
        "network": _network_argument(policy),
    }
    return create_model(f"execute_{language}_arguments", __config__=_STRICT, **fields)


_Unshown: TypeAlias = SkipJsonSchema[Network | None]


def _network_argument(policy: Policy) -> tuple[Any, Network | None]:
    """Return the argument by which a call asks for less; it is not shown where there is nothing less to ask for."""
    if not policy.egress.allow:
        return _Unshown, None
    said = 'What the program may reach: "none" for no host at all, "allowlist" for those of the workspace.'
    return Annotated[Network, Field(description=said)], "allowlist"


def _from_json(value: Any) -> Any:
    """Take the JSON text that some clients send for a list or an object."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


class GetRun(BaseModel):
    """Wait for a run that an earlier call left going, and return its result or what is new of its output."""

    model_config = _STRICT

    run_id: Annotated[str, Field(description="The run, as an earlier result names it.", max_length=64)]
    wait_seconds: Annotated[float, Field(description="How long to wait for its end.", ge=0, le=3600)] = 0.0
    stdout_from: Annotated[int, Field(description="Bytes of stdout that you have already.", ge=0)] = 0
    stderr_from: Annotated[int, Field(description="Bytes of stderr that you have already.", ge=0)] = 0


class CancelRun(BaseModel):
    """Stop a run that goes on; returns its result with all output up to then."""

    model_config = _STRICT

    run_id: Annotated[str, Field(description="The run, as an earlier result names it.", max_length=64)]


class ReadArtifact(BaseModel):
    """Read a file that a run left, or its whole output as stdout.txt or stderr.txt: text in slices, or a picture."""

    model_config = _STRICT

    run_id: Annotated[str, Field(description="The run, as an earlier result names it.", max_length=64)]
    path: Annotated[str, Field(description="The file, as the result names it.", max_length=1024)]
    offset: Annotated[int, Field(description="Byte to start at.", ge=0)] = 0
    limit: Annotated[int, Field(description="Most bytes to return.", ge=1, le=100_000)] = 20_000


async def _execute(
    language: Language, flights: Flights, arguments: Any, context: Context[Any, Any]
) -> CallToolResult:
    files = given_files(arguments.files) + await earlier_files(
        flights.executor.record, arguments.inputs, flights.executor.policy.input_limit
    )
    flight = flights.begin(
        ExecutionRequest(
            language=language,
            code=getattr(arguments, _SOURCE[language]),
            timeout_seconds=arguments.timeout_seconds,
            stdin=encoded("stdin", arguments.stdin),
            files=files,
            network=arguments.network,
            client=_client(context),
        )
    )
    try:
        await wait_with_progress(flight, flights.reply_within_seconds, context)
    except anyio.get_cancelled_exc_class():
        flight.stop()  # who cancels the call wants nothing of the run
        raise
    return await answer(flight.so_far(flights.executor.policy.reply_limit), flights.executor)


async def _get_run(flights: Flights, arguments: GetRun, context: Context[Any, Any]) -> CallToolResult:
    flight = flights.find(arguments.run_id)
    offsets = Offsets(arguments.stdout_from, arguments.stderr_from)
    reply_limit = flights.executor.policy.reply_limit
    if flight is None:  # of an earlier server, or long ended
        await flights.executor.record.open()  # before the first run there is none to read
        recorded = await from_record(flights.executor.record, arguments.run_id, reply_limit, offsets)
        if recorded:
            return await answer(recorded, flights.executor)
        raise RequestRefused("that run has no result.", next_step="Run it again: it ended with its server.")
    seconds = min(arguments.wait_seconds, flights.reply_within_seconds)
    await wait_with_progress(flight, seconds, context)
    return await answer(flight.so_far(reply_limit, offsets), flights.executor)


async def _cancel_run(flights: Flights, arguments: CancelRun, context: Context[Any, Any]) -> CallToolResult:
    flight = flights.find(arguments.run_id)
    if flight is None:
        raise RequestRefused(
            "no run of that name goes on here.", next_step="get_run returns the results of runs that ended."
        )
    flight.stop()
    await wait_with_progress(flight, CANCEL_SECONDS, context)
    return await answer(flight.so_far(flights.executor.policy.reply_limit), flights.executor)


async def _read_artifact(
    flights: Flights, arguments: ReadArtifact, context: Context[Any, Any]
) -> CallToolResult:
    executor = flights.executor
    found = await read_slice(
        executor.record, arguments.run_id, arguments.path, arguments.offset, arguments.limit
    )
    content: list[Any] = [TextContent(type="text", text=slice_as_text(found))]
    if found.mime_type in SHOWN and not arguments.offset:
        picture = await picture_of(arguments.run_id, arguments.path, found.mime_type, executor)
        content += [picture] if picture else []
    return CallToolResult(content=content, structured_content=found.model_dump(mode="json"), is_error=False)


async def wait_with_progress(flight: Flight, seconds: float, context: Context[Any, Any]) -> None:
    """Wait for a run's end, so long at most, and tell the client meanwhile of each phase, and that it goes on."""
    give_up = anyio.current_time() + seconds
    news = flight.news
    while not flight.ended.is_set():
        left = give_up - anyio.current_time()
        if left <= 0 and flight.run.run_id:  # without its name nobody could come back to it
            return
        with anyio.move_on_after(min(left, HEARTBEAT_SECONDS) if left > 0 else HEARTBEAT_SECONDS):
            await news.wait()
        news = flight.news  # before it is told: what comes meanwhile is not to be missed
        if not flight.ended.is_set():
            await context.report_progress(*flight.elapsed(), flight.in_words())


async def answer(result: ExecutionResult, executor: Executor) -> CallToolResult:
    """Return a result in both forms: half of the clients show their model one of them, half the other."""
    shown = abridged(result)
    text, structured = as_text(shown), shown.model_dump(mode="json")
    links = [
        ResourceLink(
            type="resource_link",
            uri=artifact.uri,
            name=artifact.path,
            mime_type=artifact.mime_type,
            size=artifact.size,
        )
        for artifact in shown.artifacts[:MAX_LINKS]
    ]
    taken = sum(len(str(part).encode()) for part in (text, structured, *links))
    seen = await pictures(result, executor, ANSWER_BYTES - taken)
    return CallToolResult(
        content=[TextContent(type="text", text=text), *seen, *links],
        structured_content=structured,
        is_error=False,
    )


def failure(error: SandboxError) -> CallToolResult:
    """Return the answer to a call that ran nothing: code, what happened, next step, and what of it is the model's."""
    text = clean(f"{error} {error.for_model}".rstrip())
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def in_words(error: ValidationError, arguments: type[BaseModel]) -> str:
    """Say in plain words what is wrong with the arguments, without repeating what was sent."""
    return "; ".join(_problem(details, arguments) for details in error.errors(include_url=False)[:5]) + "."


def _problem(details: Any, arguments: type[BaseModel]) -> str:
    name = ".".join(str(part) for part in details["loc"])[:80]
    match details["type"]:
        case "extra_forbidden":
            return f"`{clean(name)}` is not an argument of this tool (it takes {_names(arguments)})"
        case "missing":
            return f"`{name}` is missing"
        case "greater_than_equal" | "less_than_equal" | "finite_number":
            field = arguments.model_fields[name]
            low, high = (limit for kind in ("ge", "le") for limit in _limits(field.metadata, kind))
            return f"`{name}` must be from {low:g} to {high:g}"
        case "literal_error":
            return f"`{name}` must be {details['ctx']['expected']}".replace("'", '"')
        case kind if kind.startswith(("string", "float", "int")):
            expected = {"string": "text", "float": "a number", "int": "a number"}[kind.split("_")[0]]
            return f"`{name}` must be {expected}"
        case _:
            return f"`{clean(name)}` is not well formed"


def _names(arguments: type[BaseModel]) -> str:
    return ", ".join(f"`{name}`" for name in flat_schema(arguments)["properties"])


def _limits(metadata: list[Any], kind: str) -> list[float]:
    return [getattr(part, kind) for part in metadata if hasattr(part, kind)]


def flat_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a JSON schema without `$defs`, references and titles: some clients follow none, and all pay for them."""
    schema = model.model_json_schema()
    inline = partial(_inline, definitions=schema.pop("$defs", {}))
    flat: dict[str, Any] = inline(schema)
    flat.pop("description", None)
    return flat


def _inline(node: Any, *, definitions: Mapping[str, Any], names: bool = False) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions=definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"].rsplit("/", 1)[1]], definitions=definitions)
    return {
        key: _inline(value, definitions=definitions, names=key == "properties")
        for key, value in node.items()
        if names or key != "title"
    }


def _client(context: Context[Any, Any]) -> Client:
    try:
        parameters = context.session.client_params
    except (AttributeError, ValueError):
        return Client()
    if parameters is None:
        return Client()
    return Client(
        name=clean(parameters.client_info.name)[:100], version=clean(parameters.client_info.version)[:100]
    )
