"""What an engine says of itself, and what `doctor` makes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.doctor.engine import judge
from mcp_sandbox.engines.docker.address import Address
from mcp_sandbox.engines.docker.connection import EngineFacts
from mcp_sandbox.engines.docker.survey import ImageFacts, Survey

FACTS = EngineFacts(
    version="28.2.2",
    api_version="1.50",
    runtimes=frozenset({"runc", "runsc"}),
    default_runtime="runc",
    security_options=("name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"),
    cpus=8,
    memory_bytes=16 << 30,
    cgroup_version="2",
    storage_driver="overlay2",
    operating_system="Debian GNU/Linux 13",
    warnings=(),
)
SURVEY = Survey(
    address=Address("unix:///var/run/docker.sock", "Docker"),
    facts=FACTS,
    kernel="6.12",
    cgroup_driver="systemd",
    runc_version="1.2.8",
    image=ImageFacts(id="sha256:1", created=datetime.now(UTC), current=True),
)


def judged(survey: Survey, **policy: object) -> dict[str, str]:
    return {finding.check: finding.state for finding in judge(survey, Policy.model_validate(policy))}


def with_facts(**changes: object) -> Survey:
    return replace(SURVEY, facts=replace(FACTS, **changes))


def test_a_good_engine_is_only_told_that_it_runs_as_root() -> None:
    assert {check for check, state in judged(SURVEY).items() if state != "ok"} == {"engine's user"}


@pytest.mark.parametrize(
    ("survey", "check", "state"),
    [
        (with_facts(version="19.03.15"), "engine", "failed"),
        (with_facts(version="20.10.24+dfsg1"), "engine", "ok"),
        (with_facts(version="4.3.1", product="Podman"), "engine", "ok"),
        (with_facts(storage_driver="overlay"), "storage", "warning"),
        (with_facts(storage_driver="overlay", product="Podman"), "storage", "ok"),
        (with_facts(cgroup_version="1", warnings=("WARNING: No swap limit support",)), "cgroups", "failed"),
        (with_facts(warnings=("WARNING: No cpu cfs quota support",)), "cgroups", "failed"),
        (with_facts(warnings=("WARNING: IPv4 forwarding is disabled",)), "cgroups", "ok"),
        (with_facts(cgroup_version="1", security_options=("name=rootless",)), "cgroups", "failed"),
        (replace(SURVEY, cgroup_driver="none"), "cgroups", "failed"),
        (
            with_facts(security_options=("name=rootless", "name=seccomp,profile=builtin")),
            "engine's user",
            "ok",
        ),
        (with_facts(security_options=("name=userns",)), "engine's user", "ok"),
        (with_facts(security_options=("name=apparmor",)), "seccomp", "failed"),
        (with_facts(security_options=("name=seccomp,profile=unconfined",)), "seccomp", "failed"),
        (with_facts(security_options=("name=seccomp,profile=builtin",)), "AppArmor", "warning"),
        (with_facts(security_options=("name=selinux",)), "AppArmor", "ok"),
        (with_facts(storage_driver="vfs"), "storage", "warning"),
        (with_facts(default_runtime="crun"), "runtime", "failed"),
        (replace(SURVEY, runc_version="1.1.5+ds1"), "runc", "warning"),
        (replace(SURVEY, runc_version="1.3.0-rc.1"), "runc", "ok"),
        (replace(SURVEY, runc_version=""), "runc", "ok"),
        (replace(SURVEY, image=None), "image", "failed"),
        (replace(SURVEY, address=Address("tcp://10.0.0.1:2375", "DOCKER_HOST")), "transport", "failed"),
        (replace(SURVEY, address=Address("tcp://10.0.0.1:2376", "DOCKER_HOST", object())), "transport", "ok"),
    ],
)
def test_an_engine_is_judged_by_what_it_lacks(survey: Survey, check: str, state: str) -> None:
    assert judged(survey)[check] == state


def test_everything_that_is_not_well_has_a_remedy() -> None:
    bad = replace(
        with_facts(version="1.0", security_options=(), storage_driver="aufs", runtimes=frozenset()),
        cgroup_driver="none",
        image=None,
        runc_version="1.0.0",
        address=Address("tcp://10.0.0.1:2375", "DOCKER_HOST"),
    )
    findings = [finding for finding in judge(bad, Policy()) if finding.check != "workspace"]
    assert all(finding.state != "ok" for finding in findings)
    assert all(finding.remedy for finding in findings)


@pytest.mark.parametrize("option", ["name=rootless", "name=userns"])
def test_an_engine_that_maps_users_cannot_show_what_only_the_person_may_read(option: str) -> None:
    mapping = with_facts(security_options=(option,))
    assert judged(mapping, path="/data")["workspace"] == "warning"
    assert judged(mapping, path="/data", workspace_transfer="copy")["workspace"] == "ok"
    assert judged(mapping)["workspace"] == judged(SURVEY, path="/data")["workspace"] == "ok"


def test_under_gvisor_root_and_an_old_runc_are_of_no_concern() -> None:
    states = judged(replace(SURVEY, runc_version="1.0.0"), runtime="runsc")
    assert states["engine's user"] == states["runc"] == states["runtime"] == "ok"


@pytest.mark.parametrize(
    ("image", "state"),
    [
        (ImageFacts("sha256:1", datetime.now(UTC), current=False), "warning"),
        (ImageFacts("sha256:1", datetime.now(UTC) - timedelta(days=100), current=True), "warning"),
        (ImageFacts("sha256:1", datetime.now(UTC) - timedelta(days=10), current=None), "ok"),
    ],
)
def test_an_old_image_is_to_be_built_again(image: ImageFacts, state: str) -> None:
    assert judged(replace(SURVEY, image=image))["image"] == state


def test_the_remedy_for_a_missing_runtime_is_the_engines_own() -> None:
    for product, remedy in (("Docker", "runsc install"), ("Podman", "containers.conf")):
        survey = with_facts(runtimes=frozenset({"runc"}), product=product)
        [finding] = [found for found in judge(survey, Policy(runtime="runsc")) if found.check == "runtime"]
        assert finding.state == "failed"
        assert remedy in finding.remedy
