"""Configuration files of accelerate's, read without a library for YAML: as PyYAML reads them, or not at all."""

from __future__ import annotations

import json
from typing import Any

import helpers
import pytest

from ranklaunch.adapters.launchers.shared.accelerate.merge import loads

yaml = pytest.importorskip("yaml")

WRITTEN = """compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 1
  zero3_init_flag: true
distributed_type: DEEPSPEED
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config: {}
machine_rank: 0
main_process_ip: null
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
use_cpu: false
"""
# What YAML takes for something else than it looks like.
VALUES = (
    "1",
    "-1",
    "+1",
    "0",
    "010",
    "0x1F",
    "0b1",
    "1_000",
    "1.5",
    "1.",
    "1e5",
    "1.5e+3",
    "1.5e3",
    ".5",
    ".inf",
    "1:30",
    "2001-01-01",
    "~",
    "null",
    "Null",
    "nULL",
    "",
    "yes",
    "No",
    "NO",
    "oN",
    "off",
    "true",
    "10.0.0.1",
    "a b",
    '"b c"',
    "a:b",
    "a: b",
    "a #b",
    "a#b",
    "'it''s'",
    '"a\\nb"',
    '"\\x41"',
    "'a' # b",
    "[]",
    "[a, 1]",
    "{}",
    "{a: 1}",
    "[[a]]",
    "['a']",
    "&a b",
    "*a",
    "!!str 1",
    "|",
    "> x",
    "@a",
    "%a",
    "- a",
    "-a",
    "--a",
    "? a",
    "<<",
    "=",
    "a,b",
    "a\tb",
    "bf16",
    "Größe",
    "/a/b.json",
    "1.2.3",
    "1e-5",
    "0.0",
    "-0.1",
    "09",
    "1__0",
    "12e03",
    "0o17",
    "a 'b' \"c\"",
    "'a' b",
    '"open',
)


def read(text: str) -> Any:
    """None where it is refused."""
    try:
        return loads(text, "x.yaml")
    except ValueError:
        return None


@helpers.for_each(
    [
        WRITTEN,
        f"---\n# x\n\n{WRITTEN}",
        "a:\n- b\n- c\n",
        "a:\n   b: 1\n   c: 2\nd:\n",
        "a: 1 # x\n",
        "a:\n  b: 1\na: 3\n",
        "'a': 1\n",
        *(f"key: {value}\nother: 1\n" for value in VALUES),
        *(f"k:\n  key: {value}\n" for value in VALUES),
        *(f"k:\n- {value}\n" for value in VALUES),
    ]
)
def test_what_is_read_is_what_pyyaml_reads(text: str) -> None:
    found = read(text)
    assert found is None or json.dumps(found) == json.dumps(yaml.safe_load(text))


def test_what_accelerate_writes_is_read() -> None:
    assert loads(WRITTEN, "x.yaml")["deepspeed_config"]["zero3_init_flag"] is True
    understood = [value for value in VALUES if read(f"key: {value}") is not None]
    usual = ("1", "-1", "1.5", "~", "yes", "NO", "10.0.0.1", "a b", "'a' # b", "[]", "{}", "bf16", "1e-5", "/a/b.json", "a:b", '"b c"')
    assert {*usual} <= {*understood}


@helpers.for_each(
    [
        ("a: 1\n  b: 2", "line 2: expected one level of keys"),
        ("a:\n  b:\n    c: 1", "line 3: expected one level of keys"),
        ("a:\n- b", "line 2: expected `key: value`"),
        ("a: &x b", "line 1: the value is not understood: put it into quotes"),
        ("a: 1\nnothing", "line 2: expected `key: value`"),
        ("\ta: 1", "line 1"),
        ("a: |\n  x", "line 1"),
        ("a: b\n...\n", "line 2"),
        ("[1]", "line 1"),
        ("a: [hunter2", "line 1: the value is not understood"),
    ]
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="line") as caught:
        loads(text, "x.yaml")
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)  # a value may be a secret


def test_json_is_known_by_its_name_and_must_be_a_mapping() -> None:
    with pytest.raises(ValueError, match="expected keys"):
        loads("[1]", "x.json")
