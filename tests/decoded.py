"""A Perfetto trace as tests see it, read with Perfetto's own protobuf classes."""

from __future__ import annotations

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace


class Decoded:
    """A trace by track: slices, instants, counter steps; and its arrows."""

    def __init__(self, path):
        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        self.names, self.parents, self.units = {}, {}, {}
        self.slices, self.instants, self.counters = {}, {}, {}
        self.starts, self.ends = {}, {}
        open_slices, last = {}, 0
        for number, packet in enumerate(trace.packet):
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                self.names[track.uuid] = track.name
                self.parents[track.uuid] = track.parent_uuid
                self.units[track.uuid] = track.counter.unit_name
                continue
            event, time = packet.track_event, packet.timestamp
            assert time >= last
            last = time
            kind = event.Type.Name(event.type)
            for flow in event.flow_ids:
                assert self.starts.setdefault(flow, (number, time, event)) == (number, time, event)
            for flow in event.terminating_flow_ids:
                assert flow not in self.ends
                self.ends[flow] = (number, time, event)
            if kind == "TYPE_SLICE_BEGIN":
                assert event.track_uuid not in open_slices, "slices overlap on a row"
                open_slices[event.track_uuid] = (time, event)
            elif kind == "TYPE_SLICE_END":
                begin, opened = open_slices.pop(event.track_uuid)
                self.slices.setdefault(event.track_uuid, []).append((begin, time, opened))
            elif kind == "TYPE_INSTANT":
                self.instants.setdefault(event.track_uuid, []).append((time, event))
            else:
                value = event.double_counter_value
                self.counters.setdefault(event.track_uuid, []).append((time, value))
        assert not open_slices

    def path(self, track):
        """The names of a track and the groups it is in."""
        above = self.parents[track]
        return (*(self.path(above) if above else ()), self.names[track])

    def named(self, *names):
        """The track whose path ends so."""
        (found,) = [t for t in self.names if self.path(t)[-len(names) :] == names]
        return found


def args(event):
    kinds = ("int_value", "double_value", "string_value")
    return {
        a.name: next(getattr(a, kind) for kind in kinds if a.HasField(kind))
        for a in event.debug_annotations
    }
