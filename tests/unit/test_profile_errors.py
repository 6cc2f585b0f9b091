"""Every mistake in a profile gets one line: the file, the line, the field, what to do."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import pytest

from simgpu.errors import ProfileError
from simgpu.hardware.load import load_profile

if TYPE_CHECKING:
    from pathlib import Path

SM_COUNT = 'sm_count: {value: 132, kind: vendor, source: "NVIDIA H100 whitepaper, table 3 (SXM5)"}'
H100_FILE = resources.files("simgpu") / "hw_profiles/h100_sxm5.yaml"
H100_TEXT = H100_FILE.read_text(encoding="utf-8")
H200 = load_profile("h200")
CHILD = "schema: simgpu.profile/1\nname: x\ntitle: X\nextends: h100\n"


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    """Return the one line that loading ``path`` gives."""
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


REPLACED = [
    # what stands in the file, what is put there, field, what the message says after it
    (SM_COUNT, SM_COUNT.replace("sm_count", "sm_cuont"), "device.sm_cuont",
     "unknown key; did you mean 'sm_count'?"),
    ("\ndevice:", "\ndevcie:", "devcie", "unknown key; did you mean 'device'?"),
    (SM_COUNT, SM_COUNT.replace("source", "sorce"), "device.sm_count.sorce",
     "unknown key; did you mean 'source'?"),
    (SM_COUNT, "sm_count: {value: 132, kind: vendor}", "device.sm_count.source",
     "missing; name the document and its table, or the runs"),
    (SM_COUNT, "sm_count: {value: 132, source: somewhere}", "device.sm_count.kind",
     "missing; one of vendor, measured, derived, fitted, assumed"),
    (SM_COUNT, "sm_count: {kind: vendor, source: somewhere}", "device.sm_count",
     "missing; add sm_count: {value: ..., kind: ..., source: ...}"),
    (SM_COUNT, SM_COUNT.replace("vendor", "vender"), "device.sm_count.kind",
     "unknown value 'vender'; did you mean 'vendor'?"),
    (SM_COUNT, SM_COUNT.replace("vendor", "fitted"), "device.sm_count",
     "is fitted but does not say on what; add fitted_on: the runs it was fitted on"),
    (SM_COUNT, "sm_count: 132", "device.sm_count",
     "is a bare 132; write {value: 132, kind: ..., source: ...}, so that it has a source"),
    (SM_COUNT, SM_COUNT + "\n  " + SM_COUNT, "device.sm_count",
     "duplicate key, first at line 10; delete one of the two"),
    (SM_COUNT, SM_COUNT.replace("132", "-132"), "device.sm_count",
     "is -132; it must be more than 0 (check its unit)"),
    (SM_COUNT, SM_COUNT.replace("132", "132000"), "device.sm_count",
     "is 132000; it must be at most 1024 (check its unit)"),
    (SM_COUNT, SM_COUNT.replace("132", "132.5"), "device.sm_count",
     "is 132.5; it must be a whole number"),
    (SM_COUNT, SM_COUNT.replace("132", "1e2"), "device.sm_count",
     "is the text '1e2': YAML 1.1 reads it as text; write 1.0e+2 or 100"),
    (SM_COUNT, SM_COUNT.replace("132", "many"), "device.sm_count",
     "is the text 'many'; write a number"),
    (SM_COUNT, SM_COUNT.replace("132", "on"), "device.sm_count",
     "is true; YAML 1.1 reads on, off, yes and no as true and false: write a number"),
    (SM_COUNT, SM_COUNT.replace("132", "0132"), "device.sm_count.value",
     "YAML 1.1 reads 0132 as 90; write a plain decimal number"),
    (SM_COUNT, SM_COUNT.replace("132", "{a: {b: {c: 1}}}"), "device.sm_count.value.a.b",
     "nested too deeply; a profile is sections of numbers"),
    ("sustained_mhz: {value: 1830", "sustained_mhz: {value: .inf", "device.sustained_mhz",
     "is inf; input should be a finite number"),
    ("sustained_mhz:", "sustained_ghz:", "device.sustained_ghz",
     "wrong unit; this number is 'sustained_mhz': convert it and rename the key"),
    ("hbm_peak_gb_per_s:", "hbm_peak_tb_per_s:", "memory.hbm_peak_tb_per_s",
     "wrong unit; this number is 'hbm_peak_gb_per_s': convert it and rename the key"),
    ("smem_per_sm_bytes:", "smem_per_sm_kb:", "occupancy.smem_per_sm_kb",
     "wrong unit; this number is 'smem_per_sm_bytes': convert it and rename the key"),
    ("tma, wgmma", "tma, wgma", "capabilities", "unknown value 'wgma'; did you mean 'wgmma'"),
    ("capabilities: [", "capabilities: tma #", "capabilities",
     "is 'tma'; it must be a list: [...]"),
    ("title: NVIDIA H100 SXM5 80 GB", "title:", "title",
     "is empty; write a value or delete the key"),
    ("[0, 8, 16", "[0, 8, 016", "occupancy.smem_carveouts_kb.value",
     "YAML 1.1 reads 016 as 14; write a plain decimal number"),
    ('"9.0"', "9.0", "compute_capability", 'is the number 9.0; quote it: "9.0"'),
    ("simgpu.profile/1", "simgpu.profile/2", "schema", "unknown value 'simgpu.profile/2'"),
    ("\ndevice:", "\non: 3\ndevice:", "on",
     "YAML 1.1 reads this key as bool; quote it or rename it"),
    ("title: NVIDIA H100 SXM5 80 GB", "title: yes", "title",
     "is true; YAML 1.1 reads on, off, yes and no as true and false: quote it"),
    ("[0, 8, 16", "[0, eight, 16", "occupancy.smem_carveouts_kb",
     "is the text 'eight'; write a number"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "field", "message"), REPLACED)
def test_a_mistake_names_file_line_field_and_cure(tmp_path, old, new, field, message):
    assert H100_TEXT.count(old) >= 1
    text = H100_TEXT.replace(old, new, 1)
    path = write(tmp_path, text)
    line = line_of(H100_TEXT, old.lstrip("\n"))
    said = complaint(path)
    if "duplicate" in message:
        line += 1
    assert said.startswith(f"{path}:{line}: {field}: {message}")


def test_a_missing_number_points_at_its_section(tmp_path):
    path = write(tmp_path, H100_TEXT.replace("  " + SM_COUNT + "\n", ""))
    assert complaint(path) == (
        f"{path}:{line_of(H100_TEXT, 'device:')}: device.sm_count: "
        "missing; add sm_count: {value: ..., kind: ..., source: ...}"
    )


def test_a_missing_section_points_at_the_file(tmp_path):
    path = write(tmp_path, "schema: simgpu.profile/1\nname: x\ntitle: X\n")
    assert complaint(path) == f"{path}:1: compute_capability: missing; add it"


def test_a_section_must_be_a_mapping(tmp_path):
    path = write(tmp_path, CHILD + "device: 3")
    assert complaint(path) == f"{path}:5: device: is 3; it must be a mapping of names to numbers"


def test_a_mistake_in_the_parent_points_at_the_parent(tmp_path):
    parent = write(tmp_path, H100_TEXT.replace("sm_count", "sm_cuont", 1), "base.yaml")
    child = write(tmp_path, "schema: simgpu.profile/1\nname: x\ntitle: X\nextends: base.yaml\n")
    line = line_of(H100_TEXT, "sm_count")
    assert complaint(child).startswith(f"{parent}:{line}: device.sm_cuont: unknown key")


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("h10", "unknown hardware profile 'h10'; did you mean 'h100'"),
        ("[h100]", "is ['h100']; name one profile"),
        ("gone.yaml", "gone.yaml: cannot be read: No such file or directory; check the path"),
    ],
)
def test_extends_refuses(tmp_path, extends, message):
    text = f"schema: simgpu.profile/1\nname: x\ntitle: X\nextends: {extends}\n"
    path = write(tmp_path, text)
    said = complaint(path).replace(f"{tmp_path}/gone", "gone")
    assert said.startswith(f"{path}:4: extends: {message}")


def test_profiles_that_extend_each_other_are_refused(tmp_path):
    for name, parent in (("a.yaml", "b.yaml"), ("b.yaml", "a.yaml")):
        write(tmp_path, f"schema: simgpu.profile/1\nname: x\ntitle: X\nextends: {parent}\n", name)
    said = complaint(tmp_path / "a.yaml")
    assert said.startswith(f"{tmp_path}/b.yaml:4: extends:")
    assert said.endswith("extends this profile; break the circle")


def test_a_profile_may_extend_one_that_extends_another(tmp_path):
    path = write(
        tmp_path,
        CHILD.replace("h100", "h200")
        + "rates:\n  mufu_instructions: {value: 1, kind: assumed, source: doubled}\n",
    )
    found = load_profile(path)
    assert found.rates.mufu_instructions == 1
    assert found.memory.hbm_peak_gb_per_s == H200.memory.hbm_peak_gb_per_s
    assert found.rates.fma_instructions == H200.rates.fma_instructions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the file is empty; copy a profile from hw_profiles"),
        ("# only a comment\n", "1: the file is empty; copy a profile from hw_profiles"),
        ("\n- 1\n- 2\n", "2: not a mapping; a profile is `name: value` lines"),
        ("name: [1, 2\n", "2: not YAML: did not find expected ',' or ']'; check this line"),
        ("name: !!python/name:os.system\n", "1: not YAML: could not determine a constructor"),
        ("name: \x00\n", "1: not YAML: "),
    ],
)
def test_what_is_no_profile_at_all(tmp_path, text, message):
    path = write(tmp_path, text)
    assert complaint(path).startswith(f"{path}:{message}")


def test_what_cannot_be_read(tmp_path):
    gone, folder, binary = (tmp_path / f"{n}.yaml" for n in ("gone", "folder", "binary"))
    folder.mkdir()
    binary.write_bytes(b"name: \xff\xfe")
    cause = "No such file or directory"
    assert complaint(gone) == f"{gone}: cannot be read: {cause}; check the path"
    assert complaint(folder) == f"{folder}: cannot be read: Is a directory; check the path"
    assert complaint(binary) == f"{binary}: cannot be read: not UTF-8 text; save it as UTF-8"


def test_an_unknown_name_gets_a_hint():
    with pytest.raises(ProfileError) as caught:
        load_profile("h20")
    said = "unknown hardware profile 'h20'; did you mean 'h200'? (or the path of a .yaml file)"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory.l2_size_bytes": 1},
            "h200_sxm: unknown number 'memory.l2_size_bytes'; did you mean",
        ),
        (
            {"device.sm_count": 0},
            "h200_sxm: device.sm_count: is 0; it must be more than 0 (check its unit)",
        ),
        (
            {"device.sm_count": 1.5},
            "h200_sxm: device.sm_count: is 1.5; it must be a whole number",
        ),
        (
            {"device.sm_count": None},
            "h200_sxm: device.sm_count: missing; add sm_count: "
            "{value: ..., kind: ..., source: ...}",
        ),
    ],
)
def test_with_changes_refuses(changes, message):
    with pytest.raises(ProfileError) as caught:
        H200.with_changes(changes)
    assert str(caught.value).startswith(message)
