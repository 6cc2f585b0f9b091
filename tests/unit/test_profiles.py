"""Profiles: every number has a source, and parents merge number by number."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simgpu.errors import ProfileError
from simgpu.hardware import load
from simgpu.hardware.document import head_list, read_document
from simgpu.hardware.load import load_profile, profile_names
from simgpu.hardware.profile import KINDS, Profile
from simgpu.hardware.sections import SECTIONS

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a100_sxm4_40gb", "a100_sxm4_80gb", "b200_sxm", "h100_sxm5", "h200_sxm"]
FOR_OCCUPANCY = ["rtx_3090", "rtx_4090", "rtx_5090"]  # what else they say is mostly assumed
H100, H200 = load_profile("h100"), load_profile("h200")
CHILD = "schema: simgpu.profile/1\nname: x\ntitle: X\nextends: h100\n"
NUMBERS = [row.path for row in H200.sources() if isinstance(row.value, float)]


def test_all_profiles_load_by_name():
    assert profile_names() == [*NAMES, *FOR_OCCUPANCY]
    assert [load_profile(name).name for name in profile_names()] == profile_names()


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("a100", "a100_sxm4_80gb"),
        ("a100_40gb", "a100_sxm4_40gb"),
        ("h100", "h100_sxm5"),
        ("H200", "h200_sxm"),
        ("b200", "b200_sxm"),
    ],
)
def test_alias(alias, name):
    profile = load_profile(alias)
    assert profile.name == name
    assert alias.lower() in profile.gpu_names()


@pytest.mark.parametrize("name", FOR_OCCUPANCY)
def test_small_shared_memory_of_the_gaming_boards(name):
    profile = load_profile(name)
    assert profile.occupancy.smem_per_cta_max_bytes == 101376
    assert profile.occupancy.warps_per_sm == 48
    assert profile.has("tma") == (name == "rtx_5090")
    inherited = [row for row in profile.sources() if "A100" in row.source]
    assert all(row.kind == "assumed" for row in inherited)


@pytest.mark.parametrize("name", [*NAMES, *FOR_OCCUPANCY])
def test_name_is_the_file_name_and_no_alias_is_claimed_twice(name):
    assert load_profile(name).gpu_names()[0] == name
    claimed = [alias for other in profile_names() for alias in load_profile(other).gpu_names()]
    assert len(claimed) == len(set(claimed))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_kind_and_source(name):
    profile = load_profile(name)
    rows = profile.sources()
    paths = {
        f"{section}.{field}"
        for section, model in SECTIONS.items()
        for field in model.model_fields
        if getattr(getattr(profile, section), field, None) is not None
    }
    assert {row.path for row in rows} == paths == set(profile.origins)
    assert all(row.kind in KINDS and len(row.source) > 8 and row.meaning for row in rows)
    assert all(row.fitted_on for row in rows if row.kind == "fitted")


@pytest.mark.parametrize("name", NAMES)
def test_the_guesses_are_listed_first(name):
    order = [KINDS.index(row.kind) for row in load_profile(name).sources()]
    assert order == sorted(order)
    assert KINDS[0] == "assumed"


@pytest.mark.parametrize("name", NAMES)
def test_facts_that_vendors_print_follow_from_the_profile(name):
    dense_fp16 = {"a100": 312, "h100": 989, "h200": 968, "b200": 2243}[name[:4]]  # H200 at 1790
    profile = load_profile(name)
    flops_per_us = profile.rates.tensor_flops_fp16 * profile.device.sm_count
    assert flops_per_us * profile.device.sustained_mhz / 1e6 == pytest.approx(dense_fp16, rel=1e-3)
    assert profile.memory.hbm_sustained_gb_per_s < profile.memory.hbm_peak_gb_per_s
    assert profile.memory.l2_effective_bytes <= profile.memory.l2_capacity_bytes
    assert profile.memory.l2_hit_latency_cycles < profile.memory.hbm_latency_cycles
    assert profile.occupancy.smem_carveouts_kb[-1] * 1024 == profile.occupancy.smem_per_sm_bytes
    assert list(profile.occupancy.smem_carveouts_kb) == sorted(profile.occupancy.smem_carveouts_kb)


def test_capabilities_and_their_numbers_go_together():
    for profile in map(load_profile, NAMES):
        assert profile.has("fp8") == (profile.rates.tensor_flops_fp8 is not None)
        assert profile.has("fp4") == (profile.rates.tensor_flops_fp4 is not None)
        assert profile.has("tma") == (profile.memory.tma_latency_cycles is not None)
    assert not load_profile("a100").has("cp_async", "tma")


def test_numbers_are_plain_and_the_profile_is_frozen():
    assert type(H200.rates.mufu_instructions) is float
    assert type(H200.device.sm_count) is int
    with pytest.raises(ValueError, match="frozen"):
        H200.device.sm_count = 1


def test_a_child_keeps_its_parents_numbers_with_their_sources():
    child = read_document(load._find("h200_sxm")).content
    for path, origin in H200.origins.items():
        section, name = path.split(".")
        if name not in child.get(section, {}):
            assert origin == H100.origins[path]
            assert getattr(getattr(H200, section), name) == getattr(getattr(H100, section), name)
    assert H200.rates.fma_instructions == H100.rates.fma_instructions
    assert H200.origins["memory.hbm_peak_gb_per_s"] != H100.origins["memory.hbm_peak_gb_per_s"]


def test_a_childs_number_never_wears_its_parents_note(tmp_path):
    text = (
        "extends: h100\nrates:\n  mufu_instructions: {value: 1, kind: assumed, source: a what-if}"
    )
    profile = load_profile(write(tmp_path, "schema: simgpu.profile/1\nname: x\ntitle: X\n" + text))
    assert profile.rates.mufu_instructions == 1
    assert profile.origins["rates.mufu_instructions"].note is None
    assert profile.gpu_names() == ("x",)


@given(st.randoms(use_true_random=False))
def test_digest_is_stable_under_key_order(random):
    def shuffled(value):
        if not isinstance(value, dict):
            return value
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}

    assert Profile.model_validate(shuffled(H200.to_document())).digest == H200.digest


@given(st.sampled_from(NUMBERS))
def test_digest_changes_with_any_number(path):
    section, name = path.split(".")
    changed = H200.with_changes({path: getattr(getattr(H200, section), name) * 0.5})
    assert changed.digest != H200.digest
    assert changed.origins[path].kind == "assumed"
    assert changed.origins[path].source == "changed by caller"
    assert {p: o for p, o in changed.origins.items() if p != path}.items() <= H200.origins.items()


def test_digest_does_not_depend_on_words_or_on_how_a_number_is_written():
    document = H200.to_document()
    document["title"] = "other"
    document["device"]["sm_count"]["source"] = "other words"
    document["rates"]["fma_instructions"]["value"] = 4
    assert Profile.model_validate(document).digest == H200.digest
    assert len(H200.digest) == 12


def test_a_document_survives_yaml(tmp_path):
    text = yaml.safe_dump(H200.to_document() | {"name": "copy"}, sort_keys=False)
    text = text.replace("extends: h100_sxm5\n", "")
    copy = load_profile(write(tmp_path, text))
    assert copy.device == H200.device
    assert copy.costs == H200.costs
    assert copy.origins == H200.origins


def test_zero_l2_is_a_legal_question():
    changed = H200.with_changes({"memory.l2_capacity_bytes": 0, "memory.l2_effective_bytes": 0})
    assert (changed.memory.l2_capacity_bytes, changed.memory.l2_effective_bytes) == (0, 0)


def test_none_removes_an_optional_number():
    changed = H200.with_changes({"memory.coalescer_joined_share": None})
    assert changed.memory.coalescer_joined_share is None
    assert "memory.coalescer_joined_share" not in changed.origins


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def plugin(monkeypatch):
    def install(target):
        point = EntryPoint("theirs", "theirs:profiles", load.ENTRY_POINT_GROUP)
        fake = SimpleNamespace(name=point.name, value=point.value, load=lambda: target)
        monkeypatch.setattr(load, "entry_points", lambda group: [fake])

    return install


def test_a_package_adds_profiles_through_the_entry_point(tmp_path, plugin):
    text = "schema: simgpu.profile/1\nname: x1\naliases: [x]\ntitle: X\nextends: h100\n"
    write(tmp_path, text, "x1.yaml")
    plugin(tmp_path)
    assert profile_names() == [*NAMES, *FOR_OCCUPANCY, "x1"]
    assert load_profile("x").name == load_profile("x1").name == "x1"
    assert load_profile("h100").digest == H100.digest


def test_a_broken_entry_point_says_whose_it_is(plugin):
    plugin(3)
    with pytest.raises(ProfileError, match=r"entry point 'theirs' \(theirs:profiles\) cannot"):
        profile_names()


def test_a_missing_plugin_directory_says_so(tmp_path, plugin):
    plugin(str(tmp_path / "gone"))
    with pytest.raises(ProfileError, match=r"cannot be read: No such file.*reinstall"):
        profile_names()


def test_head_list_reads_only_the_top_level(tmp_path):
    path = write(tmp_path, "a: {aliases: [no]}\nb: [aliases, no]\naliases: [x, 'y']\nc: [z]\n")
    assert head_list(path, "aliases") == ["x", "y"]
    assert head_list(path, "nothing") == []


def test_pure_python_yaml_gives_the_same(monkeypatch):
    monkeypatch.setattr("simgpu.hardware.document._Loader", yaml.SafeLoader)
    assert load_profile("h200") == H200


def test_loading_is_quick():
    best = min(_seconds_to_load() for _ in range(5))
    assert best < 0.03


def _seconds_to_load() -> float:
    start = time.perf_counter()
    load_profile("h200")
    return time.perf_counter() - start


def test_importing_brings_nothing_heavy():
    code = (
        "import sys, simgpu.hardware.load, simgpu.hardware.occupancy\n"
        "print(sorted({'numpy', 'torch', 'simpy', 'networkx', 'typer'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
