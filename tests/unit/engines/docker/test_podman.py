"""The same restrictions in Podman's words, and none of them lost: where Podman would not see to one, nothing runs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcp_sandbox.engines.docker.engine import refuse_unsafe
from mcp_sandbox.engines.docker.lockdown import MASKED, container_config
from mcp_sandbox.engines.docker.podman import podman_config
from mcp_sandbox.engines.docker.seccomp import profile
from mcp_sandbox.errors import EngineUnsafe, RuntimeMissing
from mcp_sandbox.sandbox import Mount
from tests.specs import SPEC

if TYPE_CHECKING:
    from mcp_sandbox.engines.docker.connection import Connection
    from tests.unit.engines.docker.http_engine import HttpEngine


@pytest.fixture
def docker() -> dict[str, Any]:
    return container_config(SPEC, image_id="sha256:1", image_volumes=("/var/lib/data",), labels={})


def test_nothing_but_these_differs(docker: dict[str, Any]) -> None:
    podman = podman_config(docker)
    assert {name for name in docker if podman[name] != docker[name]} == {"HostConfig"}
    ours, theirs = docker["HostConfig"], podman["HostConfig"]
    assert {name for name in theirs if theirs[name] != ours.get(name)} == {"Tmpfs", "SecurityOpt", "Ulimits"}
    assert ours.keys() == theirs.keys()


def test_memory_file_systems_keep_every_bound_that_podman_takes(docker: dict[str, Any]) -> None:
    assert podman_config(docker)["HostConfig"]["Tmpfs"] == {
        "/scratch": "rw,noexec,nosuid,nodev,size=16777216,mode=1777",
        "/tmp": "rw,noexec,nosuid,nodev,size=16777216,mode=1777",
        "/var/lib/data": "ro,noexec,nosuid,nodev,size=4k",
        # Podman's own, writable and without a bound otherwise.
        "/run": "ro,noexec,nosuid,nodev,size=4k",
        "/var/tmp": "ro,noexec,nosuid,nodev,size=4k",
    }


def test_limits_are_added_to_and_none_is_dropped(docker: dict[str, Any]) -> None:
    limits = podman_config(docker)["HostConfig"]["Ulimits"]
    assert limits[: len(docker["HostConfig"]["Ulimits"])] == docker["HostConfig"]["Ulimits"]
    assert [limit["Name"] for limit in limits[len(docker["HostConfig"]["Ulimits"]) :]] == ["nproc"]


def test_the_filter_is_the_same_by_its_file_and_all_that_is_masked_is_named(docker: dict[str, Any]) -> None:
    privileges, filter_, masked = podman_config(docker)["HostConfig"]["SecurityOpt"]
    assert privileges == "no-new-privileges"
    assert json.loads(Path(filter_.removeprefix("seccomp=")).read_text()) == json.loads(profile())
    assert masked == "mask=" + ":".join(MASKED)


def test_a_folder_that_gvisor_might_change_is_not_mounted() -> None:
    shown = (Mount(source="/home/me/papers", target="/workspace"),)
    for runtime in ("runc", "runsc"):
        spec = SPEC.model_copy(update={"runtime": runtime, "mounts": shown})
        config = container_config(spec, image_id="sha256:1", image_volumes=(), labels={})
        with (
            nullcontext()
            if runtime == "runc"
            else pytest.raises(EngineUnsafe, match="read-only under gVisor")
        ):
            podman_config(config)


@pytest.mark.parametrize(
    ("source", "target"),
    [("/a,b", "/workspace"), ("/a", "/workspace/x,rw=true"), ("/a", '/workspace/"'), ("/a", "/workspace/\n")],
)
def test_a_path_in_which_podman_would_read_options_is_not_mounted(source: str, target: str) -> None:
    spec = SPEC.model_copy(update={"mounts": (Mount(source=source, target=target),)})
    with pytest.raises(EngineUnsafe, match="comma"):
        podman_config(container_config(spec, image_id="sha256:1", image_volumes=(), labels={}))


def test_a_runtime_that_podman_would_exchange_for_its_own_is_refused(
    http_engine: HttpEngine, connection: Connection
) -> None:
    # It lists what it has heard of, installed or not, and its Docker API starts all under the default one.
    http_engine.info |= {
        "BuildahVersion": "1.28.2",
        "DefaultRuntime": "crun",
        "Runtimes": {"crun": {}, "runsc": {}},
    }
    with connection.client() as client:
        facts = connection.facts(client)
    assert facts.product == "Podman"
    refuse_unsafe(SPEC.model_copy(update={"runtime": "crun"}), facts)
    with pytest.raises(RuntimeMissing, match="it has crun") as caught:
        refuse_unsafe(SPEC.model_copy(update={"runtime": "runsc"}), facts)
    assert "containers.conf" in caught.value.next_step
