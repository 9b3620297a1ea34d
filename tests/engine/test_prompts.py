"""What a prompt tells the model to do works when it is done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.raw import configuration_file, server_command, serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

SUMS = "import unittest\nclass Sums(unittest.TestCase):\n    def test(self): self.assertEqual(1 + 1, 2)\n"


async def test_the_names_and_commands_of_the_prompts_are_right(engine_host: str, tmp_path: Path) -> None:
    project = tmp_path / "workspace" / "it's a project"
    project.mkdir(parents=True)
    (project / "test_sums.py").write_text(SUMS)
    configuration = configuration_file(tmp_path, engine_host)
    command = [*server_command(configuration), "--workspace", str(project.parent)]
    async with serving(configuration, command=command) as server:

        async def prompt(name: str, **arguments: str) -> str:
            answer = await server.request("prompts/get", {"name": name, "arguments": arguments})
            text: str = answer["result"]["messages"][0]["content"]["text"]
            return text

        found = re.search(r"begin each with `(.+?)`", await prompt("run_tests", folder=project.name))
        assert found
        tests = await server.shell(f"{found[1]}\npython3 -m unittest")
        assert "Ran 1 test" in tests["stderr"]
        assert tests["exit_code"] == 0
        assert tests["artifacts"] == [], "the project's own files are no results"

        found = re.search(
            r"the file (\".+?\") with", await prompt("analyze_file", path=f"{project.name}/test_sums.py")
        )
        assert found
        assert (await server.python(f"print(open({found[1]}).read(), end='')"))["stdout"] == SUMS
