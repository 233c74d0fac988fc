"""Use ranklaunch from Python: plan a job before you submit it, and print afterwards why it failed.

python examples/python_api.py plan train.py --lr 1e-4
python examples/python_api.py why logs/
python examples/python_api.py explain rank_3.log
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ranklaunch

NODES = {"RANKLAUNCH_NODES": "2", "RANKLAUNCH_HOSTS": "h0,h1", "RANKLAUNCH_SLOTS": "8", "RANKLAUNCH_ACCELERATOR": "gpu"}


def planned(program: list[str]) -> str:
    """Return one line for each node: its host, its ranks and its command."""
    lines = []
    for index in range(2):
        plan: ranklaunch.Plan = ranklaunch.make_plan(NODES, ["--node", str(index), "--method", "torchrun", "--", *program])
        node = plan.job.nodes[index]
        lines.append(f"{node.host}: {node.slots} of {plan.job.world_size} ranks: {' '.join(plan.processes[0].argv)}")
    return "\n".join(lines)


def why(folder: Path) -> str:
    """Return the outcome and reason of the job in a log folder, with a remedy if one is known."""
    report: ranklaunch.Report = ranklaunch.read_report(folder)
    error = report.culprit.error if report.culprit else None
    return f"{report.outcome}: {report.reason}{f' ({error.remedy})' if error else ''}"


def explained(path: Path) -> str:
    """Return the known errors in a log, as JSON."""
    answer: ranklaunch.Answer = ranklaunch.explain_log(path.read_text(errors="replace"))
    return json.dumps(ranklaunch.as_json(answer), indent=1)


def main(argv: list[str]) -> int:
    command, *words = argv
    try:
        print(planned(words) if command == "plan" else why(Path(words[0])) if command == "why" else explained(Path(words[0])))
    except ranklaunch.RanklaunchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
