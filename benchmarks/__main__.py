"""`python -m benchmarks [--quick]`: everything side by side in one run, as a Markdown page of ratios."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import anyio

from benchmarks import footprint, growth, latency, load, tunnel
from benchmarks.bench import Bench


async def main() -> int:
    """Run what was asked for; fail where a promise does not hold."""
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("--quick", action="store_true", help="a minute, for gross regressions")
    parser.add_argument("--out", type=Path, help="write the page to this file as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-sandbox-bench-") as folder:
        bench = Bench(os.environ["DOCKER_HOST"], Path(folder), quick=arguments.quick)
        parts = [f"Measured on {bench.machine()}. Ratios are within one run.\n"]
        parts.append(await latency.small_program(bench, "runc"))
        if not arguments.quick:
            parts.append(await latency.small_program(bench, "runsc"))
            parts.append(await latency.data_program(bench))
            parts.append(await latency.others(bench))
        parts.append(await load.sustained(bench))
        parts.append(await load.much_output(bench))
        parts.append(await footprint.start_up(bench))
        parts.append(await footprint.at_rest(bench))
        if not arguments.quick:
            parts.append(await load.burst(bench))
            parts.append(await load.in_and_out(bench))
            parts.append(await tunnel.download(bench))
            parts.append(await growth.with_the_workspace(bench))
            parts.append(await growth.with_the_output(bench))
    page = "\n".join(parts)
    print(page)
    if arguments.out:
        arguments.out.write_text(page, encoding="utf-8")
    for promise in bench.failed:
        print(f"does not hold: {promise}", file=sys.stderr)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
