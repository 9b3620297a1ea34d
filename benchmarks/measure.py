"""Samples and what is said of them: medians and quartiles, compared as ratios within one run."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass
class Series:
    """Seconds that one way of doing something took, again and again."""

    name: str
    seconds: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float:
        """Return the median, in seconds."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Return the first and the third quartile, in seconds."""
        first, _, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return first, third

    def ratio(self, base: Series) -> float:
        """Return how often the base's median fits into this one's."""
        return self.median / base.median


async def alternate(
    ways: dict[str, Callable[[], Awaitable[None]]],
    *,
    rounds: int,
    rest: Callable[[], Awaitable[None]] | None = None,
    deadline: float,
) -> dict[str, Series]:
    """Do each way once in every round, so that a noisy minute falls on all of them alike; stop at the deadline."""
    series = {name: Series(name) for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            if rest:
                await rest()
            began = time.perf_counter()
            await way()
            series[name].seconds.append(time.perf_counter() - began)
        if number >= 2 and time.monotonic() > deadline:
            break
    return series


def table(title: str, series: dict[str, Series], base: str) -> str:
    """Return a Markdown table of medians, quartiles and ratios to the base."""
    lines = [f"### {title}", "", "| | median | quartiles | ratio | n |", "|---|---:|---:|---:|---:|"]
    for one in series.values():
        if not one.seconds:
            lines.append(f"| {one.name} | – | – | – | 0 ({one.note}) |")
            continue
        first, third = one.quartiles if len(one.seconds) > 1 else (one.median, one.median)
        lines.append(
            f"| {one.name} | {one.median * 1e3:.1f} ms | {first * 1e3:.1f}–{third * 1e3:.1f} "
            f"| {one.ratio(series[base]):.2f} × | {len(one.seconds)} |"
        )
    return "\n".join(lines) + "\n"
