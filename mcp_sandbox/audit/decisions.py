"""Every egress decision on the record, whatever run it was made for. Blocking; nothing here writes."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from mcp_sandbox.audit import rows
from mcp_sandbox.audit.run_id import first_at, name_of, range_of
from mcp_sandbox.egress.record import EgressRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mcp_sandbox.audit.query import Reader

# Its condition and its order are those of the index `records_with_egress`.
_WITH_EGRESS = """
SELECT json_extract(body, '$.data.run_id'), body FROM records
WHERE instr(body, '"egress":[') > 0 AND json_extract(body, '$.data.run_id') BETWEEN ? AND ?
ORDER BY json_extract(body, '$.data.run_id') DESC
"""


class EgressDecision(EgressRecord):
    """One decision, and the run that it was made for."""

    run_id: str
    workspace: str


def decisions(
    reader: Reader,
    *,
    run: str | None = None,
    workspace: str | None = None,
    since: datetime | None = None,
) -> Iterator[EgressDecision]:
    """Yield decisions, those of the newest run first, within a run the latest first.

    Raises:
        RequestRefused: No run, or more than one, has a name that starts with `run`.
        AuditError: A record is not what was recorded.
    """
    first, last = "", "~"  # no name is less, none is more
    if run is not None:
        first = last = name_of(reader.resolve(run))
    elif since is not None:
        first = name_of(first_at(int(since.timestamp() * 1000)))
    for run_id, body in reader.connection.execute(_WITH_EGRESS, (first, last)):
        found = range_of(run_id)
        row = rows.find_run(reader.connection, found[0]) if found else None
        of = row.workspace if row else ""
        if workspace is None or of == workspace:
            # They are recorded in the order of their ends.
            latest_first = sorted(_connections(reader, run_id, body), key=itemgetter("time"), reverse=True)
            for made in latest_first:
                yield EgressDecision(run_id=run_id, workspace=of, **made)


def _connections(reader: Reader, run_id: str, body: str) -> list[dict[str, Any]]:
    try:
        made = json.loads(body)["data"]["facts"]["egress"]
        return [EgressRecord.model_validate(one).model_dump() for one in made]
    except (ValueError, LookupError, TypeError) as exc:
        raise reader.altered(f"The end of {run_id}") from exc
