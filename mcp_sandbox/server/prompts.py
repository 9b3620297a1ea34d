"""What a person may pick instead of typing it: prompts about the workspace's files.

Offered where there is a workspace folder. The name of a file goes into a prompt quoted, as data.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Annotated, NamedTuple

from mcp.server.mcpserver.prompts.base import Prompt
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, Completion, PromptReference
from pydantic import Field

from mcp_sandbox.capture import clean
from mcp_sandbox.paths import is_plain_path
from mcp_sandbox.server.completion import Completer, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcp.server import MCPServer
    from mcp.types import CompletionArgument, CompletionContext, ResourceTemplateReference
    from mcp.types import Prompt as OfferedPrompt

    from mcp_sandbox.executor import Executor

MAX_WISH = 4000
"""Characters that a person may add in words of their own."""

File = Annotated[str, Field(description="A file of the workspace, such as data/sales.csv.")]
Folder = Annotated[str, Field(description="A folder of the workspace; all of it where none is named.")]
Question = Annotated[str, Field(description="What you want to know; what stands out where you do not say.")]
Picture = Annotated[str, Field(description="What it should show; what is in the data where you do not say.")]


def analyze_file(path: File, question: Question = "") -> str:
    """Look at a data file and answer a question about it, with figures that were computed."""
    name = json.dumps(_plain("path", path), ensure_ascii=False)
    return (
        f"Analyse the file {name} with execute_python: `open` finds it under that name.\n"
        "First see what is in it: format, size, columns or keys, types, missing values, a few rows. Then "
        + (
            _wish("question", "answer this", question)
            or "tell what stands out: totals, trends, outliers, what may be wrong."
        )
        + "\nCompute every figure that you tell, print only what you need, and say what you left out or assumed."
    )


def plot_file(path: File, picture: Picture = "") -> str:
    """Draw a chart of a data file."""
    name = json.dumps(_plain("path", path), ensure_ascii=False)
    return (
        f"Draw a chart of the file {name} with execute_python and matplotlib: `open` finds it under that name.\n"
        "First see its columns or keys. Then "
        + (_wish("picture", "draw this", picture) or "choose the chart that shows best what is in it.")
        + '\nLabel the axes, with units where they are known, give it a title, and save it as "plot.png": I see that. '
        "Say in a sentence or two what it shows, and which of the data it leaves out."
    )


def run_tests(folder: Folder = "") -> str:
    """Run the tests of a folder, and tell what fails and why."""
    source = shlex.quote(f"/workspace/{_plain('folder', folder)}" if folder else "/workspace")
    return (
        f"Run the tests in {source} with execute_shell.\n"
        # Not to /scratch: what is there at the end comes back as files of the run.
        f"That folder is read-only and every call starts anew, so begin each with `cp -r {source} /tmp/tests; "
        "cd /tmp/tests`; where it is too large for /tmp, copy only what the tests need. Find out how the project "
        "runs its tests; where it does not say, use `python3 -m pytest -q` if pytest is installed, else "
        "`python3 -m unittest`.\n"
        "Where a package or the network is missing, tell the tests that want it apart from those that fail. Tell how "
        "many passed, failed and could not run, and for each failure the test, file and line, and the cause in a "
        "sentence."
    )


class Offer(NamedTuple):
    """A prompt, and which of its arguments is completed."""

    title: str
    text: Callable[..., str]
    argument: str
    kind: Kind


OFFERS = {
    "analyze_file": Offer("Analyse a data file", analyze_file, "path", "file"),
    "plot_file": Offer("Plot a data file", plot_file, "path", "file"),
    "run_tests": Offer("Run the tests of a folder", run_tests, "folder", "folder"),
}


def add_prompts(server: MCPServer, executor: Executor) -> None:
    """Offer prompts over the workspace's folder, where there is one."""
    if executor.policy.path is None:
        return
    for name, offer in OFFERS.items():
        server.add_prompt(Prompt.from_function(offer.text, name=name, title=offer.title))
    completer = Completer(executor.policy, executor.folders)

    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]  # the SDK left its types out
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion:
        offer = OFFERS.get(ref.name) if isinstance(ref, PromptReference) else None
        if offer is None or argument.name != offer.argument:
            return Completion(values=[], has_more=False)
        names = await completer.complete(argument.value, offer.kind)
        return Completion(values=list(names.paths), has_more=names.more)


def refuse_mistakes(offered: Sequence[OfferedPrompt], name: str, arguments: Mapping[str, str]) -> None:
    """Refuse what is no prompt, or not what it takes: the SDK would log a traceback for it.

    Raises:
        MCPError: In words for the person.
    """
    takes = {prompt.name: prompt.arguments or [] for prompt in offered}
    if name not in takes:
        raise _wrong(f"there is no prompt `{clean(name)[:80]}`")
    if missing := [each.name for each in takes[name] if each.required and each.name not in arguments]:
        raise _wrong(f"`{missing[0]}` is missing")
    if unknown := sorted(arguments.keys() - {each.name for each in takes[name]}):
        raise _wrong(f"`{clean(unknown[0])[:80]}` is not an argument of this prompt")


def _plain(argument: str, path: str) -> str:
    path = path.removeprefix("./").rstrip("/")
    if not is_plain_path(path):
        raise _wrong(f"`{argument}` must be a path in the workspace, such as data/sales.csv")
    return path


def _wish(argument: str, order: str, words: str) -> str:
    if len(words) > MAX_WISH:
        raise _wrong(f"`{argument}` may have {MAX_WISH:,} characters")
    words = clean(words).strip()
    return words and f"{order}: {words}"


def _wrong(words: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"{words}.")
