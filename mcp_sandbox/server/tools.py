"""The tools: arguments checked strictly, one result told twice, one place where errors become answers."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from mcp_sandbox.capture import clean
from mcp_sandbox.errors import RequestRefused, SandboxError
from mcp_sandbox.model import Client, ExecutionRequest, ExecutionResult, Language
from mcp_sandbox.plan import MIN_TIMEOUT_SECONDS
from mcp_sandbox.server.describe import describe
from mcp_sandbox.server.render import as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.mcpserver import Context

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.executor import Executor

_log = logging.getLogger(__name__)


class SandboxTool(Tool):
    """A tool that checks its own arguments and words its own errors.

    The SDK's way drops unknown arguments without a word and shows the model pydantic's text.
    """

    executor: Any = Field(exclude=True)
    language: Language = Field(exclude=True)
    arguments: type[BaseModel] = Field(exclude=True)

    @property
    def output_schema(self) -> dict[str, Any]:  # type: ignore[override]  # a cached property there, constant here
        """The result's schema, flat."""
        return flat_schema(ExecutionResult)

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Run one call and answer it; whatever fails, the answer is a result that says what to do."""
        executor: Executor = self.executor
        try:
            try:
                request = self._request(arguments, _client(context))
            except RequestRefused as refusal:
                await executor.record.refused({"tool": self.name, "arguments": arguments}, refusal)
                raise
            return answer(await executor.execute(request))
        except SandboxError as error:
            return failure(error)
        except Exception:
            _log.exception("a call of %s failed", self.name)
            return failure(SandboxError("the server met an error of its own; nothing is known of the program."))

    def _request(self, arguments: Mapping[str, Any], client: Client) -> ExecutionRequest:
        try:
            checked = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise RequestRefused(in_words(error, self.arguments)) from None
        values = checked.model_dump()
        return ExecutionRequest(
            language=self.language,
            code=values.pop(_SOURCE[self.language]),
            timeout_seconds=values.pop("timeout_seconds"),
            client=client,
        )


_SOURCE = {"python": "code", "shell": "command"}
_TITLE = {"python": "Run Python", "shell": "Run a shell command"}


def make_tools(executor: Executor) -> list[Tool]:
    """Return the tools under one policy."""
    return [_tool(executor, "python"), _tool(executor, "shell")]


def _tool(executor: Executor, language: Language) -> SandboxTool:
    arguments = _arguments(language, executor.policy)

    def never_called() -> None:
        """Stand where the SDK wants a function: `SandboxTool.run` answers."""

    never_called.__name__ = f"execute_{language}"
    shape = Tool.from_function(never_called, structured_output=False)
    return SandboxTool(
        fn=never_called,
        name=f"execute_{language}",
        title=_TITLE[language],
        description=describe(language, executor.policy),
        parameters=flat_schema(arguments),
        fn_metadata=shape.fn_metadata,
        is_async=True,
        annotations=ToolAnnotations(
            title=_TITLE[language],
            # Not read-only: it runs a program. Not destructive, not open-world: nothing outside can be reached or
            # changed. Not idempotent: a program may use the time or chance.
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=False,
            open_world_hint=False,
        ),
        executor=executor,
        language=language,
        arguments=arguments,
    )


def _arguments(language: Language, policy: Policy) -> type[BaseModel]:
    source = Annotated[
        str,
        Field(description="Source text of the program." if language == "python" else "Command, as typed in a shell."),
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
    return create_model(
        f"execute_{language}_arguments",
        __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False),
        **{_SOURCE[language]: source, "timeout_seconds": timeout},  # type: ignore[call-overload]  # names are data
    )


def answer(result: ExecutionResult) -> CallToolResult:
    """Return a result in both forms: half of the clients show their model one of them, half the other."""
    return CallToolResult(
        content=[TextContent(type="text", text=as_text(result))],
        structured_content=result.model_dump(mode="json"),
        is_error=False,
    )


def failure(error: SandboxError) -> CallToolResult:
    """Return the answer to a call that ran nothing: code, what happened, next step."""
    return CallToolResult(content=[TextContent(type="text", text=clean(str(error)))], is_error=True)


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
        case kind if kind.startswith(("string", "float", "int")):
            expected = {"string": "text", "float": "a number", "int": "a number"}[kind.split("_")[0]]
            return f"`{name}` must be {expected}"
        case _:
            return f"`{clean(name)}` is not well formed"


def _names(arguments: type[BaseModel]) -> str:
    return ", ".join(f"`{name}`" for name in arguments.model_fields)


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
    return Client(name=clean(parameters.client_info.name)[:100], version=clean(parameters.client_info.version)[:100])
