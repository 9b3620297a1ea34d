"""What an image is built from, and what is told of the ways that this fails; the engine is a fake."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import ImageNotFound, NotFound

import mcp_sandbox
from mcp_sandbox.engines.docker.images import STANDARD, BuildProgress, Image, build_image, list_images
from mcp_sandbox.errors import EngineError, ImageMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(mcp_sandbox.__file__).parent / "image"
LOCK = (FOLDER / "requirements.lock").read_text()
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


class Engine:
    """Has some images, pulls none, and answers a build as it was told to."""

    def __init__(self, *present: str, output: list[dict[str, Any]] | None = None) -> None:
        self.present = present
        self.output = output or []
        self.built: dict[str, Any] = {}
        self.context: dict[str, bytes] = {}

    def inspect_image(self, image: str) -> dict[str, Any]:
        if image not in self.present:
            raise ImageNotFound("no such image")
        return {"Id": f"id of {image}"}

    def pull(self, repository: str, **_: object) -> Iterator[dict[str, Any]]:
        raise NotFound("404", explanation=f"{repository} is nowhere to be found")

    def build(self, *, fileobj: Any, **parameters: Any) -> Iterator[dict[str, Any]]:
        self.built = parameters
        with tarfile.open(fileobj=fileobj) as tar:
            self.context = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
        return iter(self.output)

    def images(self, **_: object) -> list[dict[str, Any]]:
        if not self.built:
            return []
        labels = self.built["labels"]
        return [
            {"RepoTags": [self.built["tag"]], "Id": "sha256:1", "Size": 1, "Created": 2, "Labels": labels}
        ]


def build(
    engine: Engine, *, base: str | None = None, ca_bundle: Path | None = None
) -> tuple[Image, list[str]]:
    lines: list[str] = []

    def progress(now: BuildProgress) -> None:
        lines.append(now.line)

    image = build_image(engine, base=base, minimal=False, ca_bundle=ca_bundle, progress=progress)  # type: ignore[arg-type]
    return image, lines


def test_what_is_built_is_current() -> None:
    image, _ = build(Engine("python:3.13-slim"))
    assert image.name == STANDARD
    assert image.current


def test_a_name_is_told_as_it_was_given_where_podman_puts_a_registry_before_it() -> None:
    engine = Engine("python:3.13-slim")
    build(engine)
    engine.built["tag"] = f"docker.io/{STANDARD}"
    [image] = list_images(engine)  # type: ignore[arg-type]
    assert image.name == STANDARD


def test_an_image_from_another_recipe_is_stale() -> None:
    engine = Engine("python:3.13-slim")
    build(engine)
    engine.built["labels"] = {"mcp-sandbox.image.content": "another"}
    [image] = list_images(engine)  # type: ignore[arg-type]
    assert not image.current


def test_the_official_python_image_is_preferred_and_said() -> None:
    engine = Engine("python:3.13-slim", "mcp-sandbox/debian-python:bookworm")
    _, lines = build(engine)
    assert engine.built["buildargs"]["BASE"] == "id of python:3.13-slim"
    assert "base image: python:3.13-slim" in lines


def test_without_a_registry_the_base_made_of_debian_packages_is_used_and_why_is_said() -> None:
    engine = Engine("mcp-sandbox/debian-python:bookworm")
    _, lines = build(engine)
    assert engine.built["buildargs"]["BASE"] == "id of mcp-sandbox/debian-python:bookworm"
    assert any("python:3.13-slim cannot be pulled" in line for line in lines)


def test_without_any_base_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ImageMissing) as caught:
        build(Engine())
    assert "docker pull python:3.13-slim" in caught.value.next_step
    assert "mmdebstrap" in caught.value.next_step


def test_a_base_that_fails_to_be_made_tells_the_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "mmdebstrap"
    broken.write_text("#!/bin/sh\necho 'E: the mirror is gone' >&2\nexit 25\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageMissing, match="the mirror is gone"):
        build(Engine())


def test_a_named_base_that_is_nowhere_is_never_replaced_by_another() -> None:
    engine = Engine("python:3.13-slim")
    with pytest.raises(ImageMissing, match="no/such:1 cannot be pulled"):
        build(engine, base="no/such:1")
    assert not engine.built


def test_a_failed_step_is_told_with_its_last_words() -> None:
    output = [
        {"stream": "Step 7/9 : RUN sh /build/pip\n"},
        {"stream": "Could not fetch URL: certificate verify failed\n"},
        {"error": "The command '/bin/sh -c sh /build/pip' returned a non-zero code: 1"},
    ]
    with pytest.raises(EngineError) as caught:
        build(Engine("python:3.13-slim", output=output))
    assert "step 7 of 9" in caught.value.message
    assert "certificate verify failed" in caught.value.message
    assert "--ca-bundle" in caught.value.next_step


def test_the_ca_bundle_goes_into_the_context_alone(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"-- my own authority --")
    engine = Engine("python:3.13-slim")
    image, _ = build(engine, ca_bundle=bundle)
    assert engine.context["ca.crt"] == b"-- my own authority --"
    assert image.current, "the content hash tells what the project ships, not who built it where"


def test_index_and_proxy_of_the_environment_are_passed_on_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "PIP_EXTRA_INDEX_URL",
        "PIP_TRUSTED_HOST",
        "HTTP_PROXY",
        "http_proxy",
        "NO_PROXY",
        "no_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do not tell")
    engine = Engine("python:3.13-slim")
    build(engine)
    assert engine.built["buildargs"] == {
        "BASE": "id of python:3.13-slim",
        "PIP_INDEX_URL": "https://index.example/simple",
        "HTTPS_PROXY": "http://proxy.example:3128",
    }


def test_every_pinned_package_has_hashes_and_no_address() -> None:
    pins = re.findall(
        r"^[a-z0-9][a-z0-9._-]*==\S+.*\\\n(?:\s+--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", LOCK, re.MULTILINE
    )
    assert "".join(pins) == LOCK
    assert "://" not in LOCK


def test_every_package_asked_for_is_pinned() -> None:
    wanted = re.findall(r"^[a-z0-9-]+", (FOLDER / "requirements.in").read_text(), re.MULTILINE)
    assert wanted
    assert set(wanted) <= set(re.findall(r"^[a-z0-9-]+(?===)", LOCK, re.MULTILINE))


@pytest.mark.parametrize("instruction", ["VOLUME", "ENTRYPOINT", "HEALTHCHECK", "EXPOSE", "ONBUILD", "ADD"])
def test_the_dockerfile_has_no_instruction_that_weakens_a_sandbox(instruction: str) -> None:
    assert not re.search(rf"^\s*{instruction}\b", DOCKERFILE, re.MULTILINE | re.IGNORECASE)
