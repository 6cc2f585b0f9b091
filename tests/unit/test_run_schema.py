"""The JSON Schema of a run describes real runs: no field is missing, none is too many."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

import simgpu

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs/reference/run.schema.json").read_text("utf-8")
)
COMPILED = {"mix_source", "mix_known", "mix_differences"}
VALIDATOR = Draft202012Validator(SCHEMA)
SMALL = simgpu.Attention(batch=1, heads_q=2, seq_q=300, head_dim=64)
WINDOW = simgpu.Attention(batch=1, heads_q=4, heads_kv=2, seq_q=300, head_dim=64, window=100)


def validate(run):
    VALIDATOR.validate(json.loads(json.dumps(run.to_dict())))


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("schedule", ["fa1", "fa2", "fa3", "standard"])
def test_runs_of_every_schedule(schedule):
    validate(simgpu.run(schedule, SMALL, "h100"))
    validate(simgpu.run(schedule, WINDOW, "h100"))


@pytest.mark.parametrize("clock", ["board", "sustained"])
def test_both_clocks(clock):
    run = simgpu.run("fa2", SMALL, "h200", clock=clock)
    assert run.provenance["clock"] == clock
    validate(run)


def test_a_run_with_everything_given():
    resources = {"registers": 200, "shared_bytes": 65536}
    given = simgpu.run("fa2", SMALL, "a100", resources=resources, clock_mhz=1000, exact=True)
    validate(given)


def test_a_gpu_with_tensor_memory():
    run = simgpu.run("fa2", SMALL, "b200")
    assert "tensor_memory" in run.to_dict()["occupancy"]["limits"]
    validate(run)


@pytest.mark.kernels
def test_a_compiled_mix():
    pytest.importorskip("triton")
    run = simgpu.run("fa2", SMALL, "h100", mix="compiled")
    assert set(run.provenance) >= COMPILED
    validate(run)


def objects(schema):
    """Yield every object of the schema that lists its fields."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for part in schema.values():
            yield from objects(part)


def test_every_field_is_described_and_none_may_be_added():
    for each in objects(SCHEMA):
        assert each["additionalProperties"] is False
        for name, field in each["properties"].items():
            assert field.get("description") or "$ref" in field, name


def test_only_what_a_compiled_mix_and_tensor_memory_add_may_be_absent():
    optional = set()
    for each in objects(SCHEMA):
        optional |= set(each["properties"]) - set(each["required"])
    assert optional == COMPILED | {"loops_source", "tmem", "tensor_memory"}


def test_a_missing_and_an_unknown_field_are_refused():
    data = simgpu.run("fa2", SMALL, "h100").to_dict()
    less, more = copy.deepcopy(data), copy.deepcopy(data)
    del less["counts"]["exps"]
    more["launches"][0]["surprise"] = 1
    for wrong, text in ((less, "'exps' is a required"), (more, "'surprise' was unexpected")):
        with pytest.raises(ValidationError, match=text):
            VALIDATOR.validate(wrong)
