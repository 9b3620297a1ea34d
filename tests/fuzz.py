"""Fuzzing by coverage of what reads hostile bytes; `scripts/fuzz` runs it, in a time that is given.

What must hold stands in the unit tests, as properties: atheris only looks for inputs by another way than hypothesis
does. What it finds is printed as the property's arguments, and is kept beside the property, as an `@example`.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis.errors import UnsatisfiedAssumption

if TYPE_CHECKING:
    from collections.abc import Callable

UNIT = Path(__file__).parent / "unit"
KEPT = Path(__file__).parent.parent / ".cache" / "fuzz"
PROPERTIES = {
    "frames": "guest/test_frames.py::test_any_bytes_are_frames_or_a_violation",
    "payloads": "guest/test_frames.py::test_any_payload_is_understood_or_a_violation",
    "attach": "engines/docker/test_stream.py::test_however_it_is_cut_the_same_comes_out",
    "output": "test_capture.py::test_what_is_shown_harms_no_reader",
    "paths": "test_paths.py::test_any_bytes_become_a_path_that_is_taken_or_nothing",
    "configuration": "config/test_properties.py::test_any_file_is_a_configuration_or_an_error_in_words",
    "heads": "egress/test_head.py::test_any_head_is_read_or_refused",
    "proxy": "egress/test_hostile_bytes.py::test_any_conversation_ends_without_an_error",
    "hellos": "egress/test_sni.py::test_any_bytes_are_a_hello_or_not_one_however_they_are_cut",
}
"""What is fuzzed, and the property of it that must hold."""
GRACE_SECONDS = 60
"""For the start, and the last input."""


def fuzzed(name: str) -> Callable[[bytes], object]:
    """Return what takes the bytes that an input of a property is made of."""
    file, _, test = PROPERTIES[name].partition("::")
    spec = importlib.util.spec_from_file_location(f"fuzzed_{name}", UNIT / file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    property_ = getattr(module, test).hypothesis
    property_.inner_test = telling(property_.inner_test)
    return property_.fuzz_one_input


def telling(test: Callable[..., None]) -> Callable[..., None]:
    """Return the test, which prints its arguments where it fails."""

    @functools.wraps(test)
    def tell(*arguments: object, **named: object) -> None:
        try:
            test(*arguments, **named)
        except UnsatisfiedAssumption:
            raise
        except BaseException:
            print(f"broken by {arguments or ''}{named or ''}", file=sys.stderr)
            raise

    return tell


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one property in this process, which libFuzzer ends."""
    import atheris

    (KEPT / name).mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["mcp_sandbox"]):
        take = fuzzed(name)
    # Long inputs from the start: of a short one hypothesis makes nothing, so there would be no coverage to go by.
    lengths = ["-len_control=0", "-max_len=1024"]
    arguments = [*lengths, f"-max_total_time={seconds}", f"-artifact_prefix={KEPT}/", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *arguments, str(KEPT / name)], take)
    atheris.Fuzz()


def fuzz_apart(name: str, seconds: int) -> bool:
    """Fuzz one property in a process of its own; say what came of it, and tell whether the property held."""
    command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--seconds", str(seconds)]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=seconds + GRACE_SECONDS
    )
    runs = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    held = done.returncode == 0 and runs is not None
    print(f"{name:14} {int(runs[1]) if runs else 0:>9,} inputs  {'held' if held else 'BROKEN'}", flush=True)
    if not held:
        print(done.stdout, done.stderr[-4000:], sep="\n")
    return held


def main() -> None:
    """Fuzz each property for its part of the time; the exit status is 1 if one did not hold."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz what reads hostile bytes.")
    parser.add_argument("--seconds", type=int, default=60, help="for all of it together (60)")
    parser.add_argument("--only", choices=list(PROPERTIES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        fuzz(given.only, given.seconds)
        return
    share = max(1, given.seconds // len(PROPERTIES))
    broken = [name for name in PROPERTIES if not fuzz_apart(name, share)]
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
