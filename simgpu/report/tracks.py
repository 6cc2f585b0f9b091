"""Tracks of a Perfetto trace: rows of slices, counters, and arrows between rows."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Of what happens at one moment, ends come before what they make room for, and an arrival before
#: what it releases.
END, ARRIVAL, RELEASE, BEGIN = range(4)


class _Event(NamedTuple):
    time: float
    order: int
    number: int
    track: int
    fields: Mapping[str, Any]
    args: Mapping[str, Any]


class Tracks:
    """A trace being built with Perfetto's own protobuf classes.

    Times are in ns, rounded to whole ones. Raises MissingExtraError without the `perfetto` package.
    """

    def __init__(self) -> None:
        try:
            from perfetto.trace_builder.proto_builder import TraceProtoBuilder
        except ImportError:
            raise MissingExtraError("perfetto", "report") from None
        self._builder = TraceProtoBuilder()
        self._events: list[_Event] = []
        self._uuids, self._flows, self._numbers = count(1), count(1), count()

    def track(self, name: str, parent: int | None = None, *, unit: str | None = None) -> int:
        """Add a row, a group of rows, or, with a ``unit``, a counter; return its number."""
        uuid = next(self._uuids)
        descriptor = self._builder.add_packet().track_descriptor
        descriptor.uuid, descriptor.name = uuid, name
        descriptor.sibling_order_rank = uuid
        descriptor.child_ordering = descriptor.EXPLICIT
        if parent is not None:
            descriptor.parent_uuid = parent
        if unit is not None:
            descriptor.counter.unit_name = unit
        return uuid

    def flow(self) -> int:
        """Return the number of a new arrow."""
        return next(self._flows)

    def slice(
        self,
        track: int,
        name: str,
        start: float,
        end: float,
        *,
        category: str,
        args: Mapping[str, Any],
        flows: Iterable[int] = (),
    ) -> None:
        """Add a slice from which ``flows`` start. Slices of one row must not overlap."""
        fields = {"type": "TYPE_SLICE_BEGIN", "name": name, "categories": [category]}
        self._add(start, BEGIN, track, {**fields, "flow_ids": flows}, args)
        self._add(end, END, track, {"type": "TYPE_SLICE_END"})

    def instant(
        self,
        track: int,
        name: str,
        time: float,
        *,
        args: Mapping[str, Any],
        flows: Iterable[int] = (),
        ends: Iterable[int] = (),
    ) -> None:
        """Add an instant from which ``flows`` start, or at which the flows ``ends`` end."""
        ends = list(ends)
        fields = {"type": "TYPE_INSTANT", "name": name, "categories": ["barrier"]}
        flowing = {"flow_ids": flows, "terminating_flow_ids": ends}
        self._add(time, RELEASE if ends else ARRIVAL, track, {**fields, **flowing}, args)

    def value(self, track: int, time: float, value: float) -> None:
        """Set a counter from ``time`` on."""
        self._add(time, BEGIN, track, {"type": "TYPE_COUNTER", "double_counter_value": value})

    def _add(
        self,
        time: float,
        order: int,
        track: int,
        fields: Mapping[str, Any],
        args: Mapping[str, Any] | None = None,
    ) -> None:
        self._events.append(_Event(time, order, next(self._numbers), track, fields, args or {}))

    def serialize(self) -> bytes:
        """Return the trace as bytes."""
        for event in sorted(self._events, key=lambda event: event[:3]):
            packet = self._builder.add_packet()
            packet.timestamp = round(event.time)
            packet.trusted_packet_sequence_id = 1
            made = packet.track_event
            made.track_uuid = event.track
            for field, value in event.fields.items():
                if field == "type":
                    made.type = made.Type.Value(value)
                elif isinstance(value, str | float):
                    setattr(made, field, value)
                else:
                    getattr(made, field).extend(value)
            for name, value in event.args.items():
                _annotate(made.debug_annotations.add(), name, value)
        self._events.clear()
        return bytes(self._builder.serialize())


def _annotate(annotation: Any, name: str, value: Any) -> None:
    annotation.name = name
    if isinstance(value, bool) or not isinstance(value, int | float):
        annotation.string_value = str(value)
    elif isinstance(value, int):
        annotation.int_value = value
    else:
        annotation.double_value = value
