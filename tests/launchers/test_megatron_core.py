"""Our groups and stages are those of Megatron core itself."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product

import pytest

from ranklaunch.plan.megatron import ORDER, ORDER_DP_LAST, Layout, Stages

pytestmark = pytest.mark.launchers

LAYOUTS = [
    Layout(tp * pp * cp * rest, tp, pp, cp, ep, order=order)
    for tp, pp, cp, ep, rest, order in product((1, 2), (1, 2, 4), (1, 2), (1, 2), (1, 2, 3), (ORDER, ORDER_DP_LAST))
]
STAGES = [
    Stages(24, 4),
    Stages(24, 4, 2),
    Stages(24, 4, 3),
    Stages(20, 4, 1, 4, 4),
    Stages(22, 4, 1, 4),
    Stages(36, 4, 2, 8, 4),
    Stages(7, 1),
]
THEIRS = """
import json, sys
from types import SimpleNamespace
from megatron.core.parallel_state import RankGenerator, default_embedding_ranks
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

KINDS = {"tp": "tp", "pp": "pp", "cp": "cp", "dp": "dp", "dp_cp": "dp-cp", "mp": "tp-pp"}
EXPERTS = {"ep": "ep", "expert_tp": "tp", "expert_dp": "dp"}
asked = json.load(sys.stdin)
found = []
for sizes, experts in asked["layouts"]:
    generator, of_experts = RankGenerator(**sizes), RankGenerator(**experts)
    groups = {kind: generator.get_ranks(token) for kind, token in KINDS.items()}
    groups["embedding"] = [default_embedding_ranks(group) for group in groups["pp"]]
    groups.update({kind: of_experts.get_ranks(token) for kind, token in EXPERTS.items()})
    found.append(groups)
offsets = []
for layers, pp, chunks, first, last in asked["stages"]:
    config = SimpleNamespace(
        num_layers=layers, pipeline_model_parallel_size=pp, virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        num_layers_in_first_pipeline_stage=first, num_layers_in_last_pipeline_stage=last, pipeline_model_parallel_layout=None,
        account_for_embedding_in_pipeline_split=False, account_for_loss_in_pipeline_split=False,
    )
    parts = [chunk if chunks > 1 else None for chunk in range(chunks)]
    offsets.append([[get_transformer_layer_offset(config, part, stage) for part in parts] for stage in range(pp)])
json.dump([found, offsets], sys.stdout)
"""


def test_groups_and_stages_are_megatrons() -> None:
    layouts = [layout for layout in LAYOUTS if not any(layout.problems())]
    assert len(layouts) > 80
    asked = {"layouts": [sizes(layout) for layout in layouts], "stages": [[s.layers, s.pp, s.chunks, s.first, s.last] for s in STAGES]}
    ended = subprocess.run([sys.executable, "-c", THEIRS], input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    groups, offsets = json.loads(ended.stdout)
    for layout, theirs in zip(layouts, groups):
        assert {kind: layout.groups(kind) for kind in theirs} == theirs, layout
    for stages, theirs in zip(STAGES, offsets):
        assert [[part.start for part in stages.of(stage)] for stage in range(stages.pp)] == theirs, stages


def sizes(layout: Layout) -> tuple[dict[str, object], dict[str, object]]:
    common = {"pp": layout.pp, "order": layout.order}
    rest = {"tp": layout.tp, "ep": 1, "dp": layout.dp, "cp": layout.cp}
    return {**common, **rest}, {**common, "tp": layout.expert_tp, "ep": layout.ep, "dp": layout.expert_dp, "cp": 1}
