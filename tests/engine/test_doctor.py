"""`doctor` on a real engine: all well where it is, and exactly the right rows red where a protection is taken away."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mcp_sandbox.config.settings import MIB
from mcp_sandbox.doctor.prove import chosen, prove
from mcp_sandbox.doctor.trial import trial
from tests.conftest import IMAGE
from tests.engine_proxy import EngineProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from mcp_sandbox.config.policy import Configuration

pytestmark = pytest.mark.engine

DOCTOR = "from mcp_sandbox.cli.doctor import doctor; doctor()"
SMALL = {"memory": 256 * MIB, "scratch_size": 32 * MIB, "tmp_size": 16 * MIB, "shm_size": 16 * MIB}


@pytest.fixture
async def proxy(engine_host: str, tmp_path: Path) -> AsyncIterator[EngineProxy]:
    async with EngineProxy(engine_host, tmp_path / "engine.sock").listening() as listening:
        yield listening


@pytest.fixture
def run_doctor(engine_host: str, tmp_path: Path) -> Callable[..., Awaitable[tuple[int, Any, str]]]:
    """Run the command as a person does; return its exit status, its JSON, and what it showed without --json."""

    async def run(*arguments: str, host: str = "", policy: str = "") -> tuple[int, Any, str]:
        file = tmp_path / "config.toml"
        file.write_text(
            f'[audit]\npath = "{tmp_path}/record"\n[defaults]\nimage = "{IMAGE}"\nmemory = "256MiB"\n'
            f'scratch_size = "32MiB"\ntmp_size = "16MiB"\nshm_size = "16MiB"\n{policy}'
        )
        with anyio.fail_after(100):
            done = await anyio.run_process(
                [sys.executable, "-c", DOCTOR, "--config", str(file), *arguments],
                env={**os.environ, "DOCKER_HOST": host or engine_host},
                check=False,
            )
        text = done.stdout.decode()
        assert not done.stderr, done.stderr.decode()
        return done.returncode, json.loads(text) if "--json" in arguments else None, text

    return run


def states(report: Any) -> dict[str, str]:
    return {finding["check"]: finding["state"] for finding in report["checks"]}


async def test_a_sound_engine_fails_no_check(run_doctor: Callable[..., Any], runtime: str) -> None:
    status, report, _ = await run_doctor("--json", policy=f'runtime = "{runtime}"\n')
    assert "failed" not in states(report).values()
    assert {"engine", "cgroups", "seccomp", "image", "sandbox", "memory limit", "crash helper"} <= states(
        report
    ).keys()
    assert status == 0


async def test_limits_are_read_inside_a_sandbox(run_doctor: Callable[..., Any]) -> None:
    _, report, _ = await run_doctor("--json", policy="pids_limit = 111\ncpus = 0.5\n")
    says = {finding["check"]: finding["says"] for finding in report["checks"]}
    assert says["memory limit"] == f"{256 * MIB:,} bytes, read inside"
    assert says["processes limit"] == "111 processes, read inside"
    assert says["processors limit"] == "0.5 CPUs, read inside"


async def test_the_record_of_runs_says_nothing_of_the_doctors_programs(
    run_doctor: Callable[..., Any], tmp_path: Path
) -> None:
    await run_doctor()
    assert not any((tmp_path / "record/blobs").rglob("*/*"))


async def test_an_engine_that_drops_a_limit_fails_that_check_alone(
    run_doctor: Callable[..., Any], proxy: EngineProxy
) -> None:
    proxy.ask("/containers/create", without_limits)
    status, report, _ = await run_doctor("--json", host=proxy.host)
    failed = {check for check, state in states(report).items() if state == "failed"}
    assert failed == {"memory limit", "memory and swap limit", "processors limit", "processes limit"}
    assert status == 1


def without_limits(body: Any) -> Any:
    body["HostConfig"].update(Memory=0, MemorySwap=0, NanoCpus=0, PidsLimit=-1)
    return body


async def test_an_engine_that_is_not_there_is_said_with_a_remedy(run_doctor: Callable[..., Any]) -> None:
    status, _, shown = await run_doctor("--prove", host="unix:///nonexistent/docker.sock")
    assert "/nonexistent/docker.sock" in shown.replace("\n", "")
    assert "→" in shown
    assert "nothing to attack" in shown
    assert status == 1


async def test_a_missing_image_is_said_with_the_command_that_builds_it(
    run_doctor: Callable[..., Any],
) -> None:
    status, report, _ = await run_doctor("--json", policy="", host="")
    assert states(report)["image"] != "failed"
    status, report, _ = await run_doctor("--json", "--workspace", "other", policy=OTHER)
    image = next(finding for finding in report["checks"] if finding["check"] == "image")
    assert image["state"] == "failed"
    assert "Build or pull it" in image["remedy"]
    assert status == 1


OTHER = '[workspaces.other]\nimage = "nobody/has-this"\n'


async def test_a_configuration_that_cannot_be_used_is_said_with_its_line(
    run_doctor: Callable[..., Any],
) -> None:
    status, report, _ = await run_doctor("--json", policy="memroy = 1\n")
    assert states(report) == {"configuration": "failed"}
    assert "memroy" in report["checks"][0]["says"]
    assert status == 1


async def test_every_claim_holds_on_a_sound_engine(run_doctor: Callable[..., Any], runtime: str) -> None:
    status, report, _ = await run_doctor("--prove", "--json", policy=f'runtime = "{runtime}"\n')
    assert [row for row in report["proof"] if not row["held"]] == []
    assert len(report["proof"]) == len(chosen(runtime)) >= 28
    assert status == 0


async def test_a_broken_claim_is_shown_in_red_and_ends_with_a_failure(
    run_doctor: Callable[..., Any], proxy: EngineProxy
) -> None:
    proxy.ask("/containers/create", weakened(ReadonlyRootfs=False))
    status, _, shown = await run_doctor("--prove", host=proxy.host)
    rows = [line for line in shown.splitlines() if "✗" in line]
    assert len(rows) == 2  # the claim, and the attack that broke it
    assert "A program cannot change the image" in rows[0]
    assert "16 of 17 claims held" in shown
    assert status == 1


def weakened(**options: Any) -> Callable[[Any], Any]:
    """Return a change of the create call: options of the host's side, or of the container itself."""

    def change(body: Any) -> Any:
        for name, value in options.items():
            (body if name in body else body["HostConfig"])[name] = value
        return body

    return change


def without(option: str) -> Callable[[Any], Any]:
    """Return a change that takes one security option out."""

    def change(body: Any) -> Any:
        options = body["HostConfig"]["SecurityOpt"]
        body["HostConfig"]["SecurityOpt"] = [kept for kept in options if not kept.startswith(option)]
        return body

    return change


def writable_mounts(body: Any) -> Any:
    for mount in body["HostConfig"]["Mounts"]:
        mount["ReadOnly"] = False
    return body


WEAKENED = {
    "seccomp off": (
        weakened(SecurityOpt=["no-new-privileges", "seccomp=unconfined"]),
        {
            "privileges_es15",
            "io_uring_setup_es09",
            "process_vm_readv_es13",
            "socket_alg_es10",
            "user_namespace_es04",
        },
    ),
    "no limit on processes": (
        weakened(PidsLimit=-1),
        {"forks_until_refused_rx01", "threads_until_refused_rx02"},
    ),
    "no limit on memory": (weakened(Memory=0, MemorySwap=0), {"heap_rx03"}),
    "writable root": (weakened(ReadonlyRootfs=False), {"image_is_read_only_es27"}),
    "the host's network": (
        weakened(NetworkMode="host"),
        {"interfaces_nw01", "internet_by_address_nw04", "names_nw02", "looks_for_traces_es23"},
    ),
    "root": (weakened(User="0:0"), {"privileges_es15", "set_user_id_es15"}),
    "capabilities": (weakened(CapDrop=[], CapAdd=["NET_ADMIN"]), {"privileges_es15"}),
    "new privileges": (without("no-new-privileges"), {"privileges_es15"}),
    "nothing masked": (
        weakened(MaskedPaths=[], ReadonlyPaths=[]),
        {"kernel_settings_es02", "masked_files_es17"},
    ),
    "a folder that can be written": (writable_mounts, {"shown_folder_fs22"}),
    "no size for scratch": (
        weakened(Tmpfs={"/scratch": "rw,mode=1777", "/tmp": "rw,mode=1777"}),
        {"scratch_full_rx04"},
    ),
}


@pytest.mark.parametrize("weakness", WEAKENED)
async def test_a_protection_that_is_taken_away_turns_exactly_its_rows_red(
    configure: Callable[..., Configuration], proxy: EngineProxy, weakness: str
) -> None:
    change, expected = WEAKENED[weakness]
    proxy.ask("/containers/create", change)
    configuration = configure(runtime="runc", **SMALL)
    configuration = configuration.model_copy(
        update={"engine": configuration.engine.model_copy(update={"host": proxy.host})}
    )
    async with trial(configuration, os.environ, shows_bait=True) as executor:
        verdicts = await prove(executor, chosen("runc"), "runc")
    red = {verdict.attack for verdict in verdicts if not verdict.held}
    # What the host's network would show of it, and whether its kernel lets users make namespaces, is the host's.
    of_the_host = {"internet_by_address_nw04", "names_nw02", "looks_for_traces_es23", "user_namespace_es04"}
    assert expected - of_the_host <= red <= expected, [verdict for verdict in verdicts if not verdict.held]
