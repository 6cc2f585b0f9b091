"""Law: same inputs, same program, same interleaving, same bytes, in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simgpu.front import run
from simgpu.problem import Attention
from simgpu.program.record import record
from simgpu.read.numeric import run_numeric
from simgpu.read.reference import random_inputs
from tests.laws.cases import ORDERS, SMALL

PROBLEM = Attention(batch=1, heads_q=2, seq_q=70, seq_kv=90, head_dim=16, causal=True)
ROOT = Path(__file__).parents[2]

# Prints the interleavings of every CTA of one run.
INTERLEAVINGS = """
from simgpu.read import numeric
from tests.laws.test_determinism import PROBLEM, SMALL, random_inputs, record

def spy(*args, inner=numeric.interleave):
    for action in inner(*args):
        print(action.kind, action.role, action.number)
        yield action

numeric.interleave = spy
for order in ("random", "adversarial"):
    recording = record(SMALL["fa3"], PROBLEM)
    numeric.run_numeric(recording, random_inputs(PROBLEM), order=order, seed=7)
"""


@pytest.mark.parametrize("schedule", SMALL.values(), ids=SMALL)
def test_recording_twice_gives_equal_programs(schedule):
    assert record(schedule, PROBLEM).launches == record(schedule, PROBLEM).launches


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("schedule", SMALL.values(), ids=SMALL)
def test_running_twice_gives_the_same_bytes(schedule, order):
    recording, inputs = record(schedule, PROBLEM), random_inputs(PROBLEM)
    first, second = (run_numeric(recording, inputs, order=order, seed=7) for _ in range(2))
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_interleavings_do_not_depend_on_the_process():
    def interleavings(hash_seed):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", INTERLEAVINGS]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True).stdout

    assert interleavings("1") == interleavings("2") != b""


# Prints predictions, fast and exact.
PREDICTIONS = """
from tests.laws.test_determinism import predictions

print(predictions())
"""

PREDICTED = Attention(batch=1, heads_q=2, heads_kv=1, seq_q=90, seq_kv=133, head_dim=64, window=59)


def prediction(schedule, exact):
    return json.dumps(run(schedule, PREDICTED, "h200", exact=exact).to_dict())


def predictions():
    return "\n".join(prediction(SMALL[name], exact) for name in SMALL for exact in (False, True))


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("schedule", SMALL.values(), ids=SMALL)
def test_predicting_twice_gives_the_same_bytes(schedule, exact):
    assert prediction(schedule, exact) == prediction(schedule, exact)


def test_predictions_do_not_depend_on_the_process():
    def elsewhere(hash_seed):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PREDICTIONS]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True).stdout

    assert elsewhere("1").decode().strip() == elsewhere("2").decode().strip() == predictions()
