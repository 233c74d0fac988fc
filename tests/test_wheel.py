"""What people install: every file of the wheel by name, the same whether it is built from the tree or from the source distribution."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import helpers
import pytest

from ranklaunch import __version__

pytestmark = pytest.mark.processes

# A new file is added here by hand: hatchling would leave out or take in others without a word.
WHEEL = {
    "ranklaunch/__init__.py",
    "ranklaunch/__main__.py",
    "ranklaunch/adapters/__init__.py",
    "ranklaunch/adapters/launchers/__init__.py",
    "ranklaunch/adapters/launchers/accelerate.py",
    "ranklaunch/adapters/launchers/deepspeed.py",
    "ranklaunch/adapters/launchers/jax.py",
    "ranklaunch/adapters/launchers/megatron.py",
    "ranklaunch/adapters/launchers/mpirun.py",
    "ranklaunch/adapters/launchers/msrun.py",
    "ranklaunch/adapters/launchers/plain.py",
    "ranklaunch/adapters/launchers/pytorch.py",
    "ranklaunch/adapters/launchers/ranktable.py",
    "ranklaunch/adapters/launchers/ray.py",
    "ranklaunch/adapters/launchers/shared/__init__.py",
    "ranklaunch/adapters/launchers/shared/accelerate/__init__.py",
    "ranklaunch/adapters/launchers/shared/accelerate/default_file.py",
    "ranklaunch/adapters/launchers/shared/accelerate/merge.py",
    "ranklaunch/adapters/launchers/shared/base.py",
    "ranklaunch/adapters/launchers/shared/contradictions.py",
    "ranklaunch/adapters/launchers/shared/deepspeed/__init__.py",
    "ranklaunch/adapters/launchers/shared/deepspeed/filters.py",
    "ranklaunch/adapters/launchers/shared/deepspeed/options.py",
    "ranklaunch/adapters/launchers/shared/deepspeed_remote.py",
    "ranklaunch/adapters/launchers/shared/from_node_0.py",
    "ranklaunch/adapters/launchers/shared/open_mpi.py",
    "ranklaunch/adapters/launchers/shared/own_starts.py",
    "ranklaunch/adapters/launchers/shared/place_conflicts.py",
    "ranklaunch/adapters/launchers/shared/rank_table.py",
    "ranklaunch/adapters/launchers/shared/route.py",
    "ranklaunch/adapters/launchers/shared/scripts/__init__.py",
    "ranklaunch/adapters/launchers/shared/scripts/rank_scripts.py",
    "ranklaunch/adapters/launchers/shared/scripts/shell.py",
    "ranklaunch/adapters/launchers/shared/ssh.py",
    "ranklaunch/adapters/launchers/shared/starters.json",
    "ranklaunch/adapters/launchers/shared/starters.py",
    "ranklaunch/adapters/launchers/shared/user_options.py",
    "ranklaunch/adapters/launchers/shared/variables.py",
    "ranklaunch/adapters/launchers/spawn.py",
    "ranklaunch/adapters/launchers/starters.toml",
    "ranklaunch/adapters/launchers/tensorflow.py",
    "ranklaunch/adapters/launchers/torchrun.py",
    "ranklaunch/adapters/platforms/__init__.py",
    "ranklaunch/adapters/platforms/ascend_operator.py",
    "ranklaunch/adapters/platforms/aws_batch.py",
    "ranklaunch/adapters/platforms/azureml.py",
    "ranklaunch/adapters/platforms/flux.py",
    "ranklaunch/adapters/platforms/indexed_job.py",
    "ranklaunch/adapters/platforms/jobset.py",
    "ranklaunch/adapters/platforms/kubeflow_trainer.py",
    "ranklaunch/adapters/platforms/leaderworkerset.py",
    "ranklaunch/adapters/platforms/local.py",
    "ranklaunch/adapters/platforms/lsf.py",
    "ranklaunch/adapters/platforms/modelarts.py",
    "ranklaunch/adapters/platforms/mpijob.py",
    "ranklaunch/adapters/platforms/oci.py",
    "ranklaunch/adapters/platforms/pbs.py",
    "ranklaunch/adapters/platforms/platforms.json",
    "ranklaunch/adapters/platforms/platforms.toml",
    "ranklaunch/adapters/platforms/pytorchjob.py",
    "ranklaunch/adapters/platforms/sagemaker.py",
    "ranklaunch/adapters/platforms/shared/__init__.py",
    "ranklaunch/adapters/platforms/shared/base.py",
    "ranklaunch/adapters/platforms/shared/batch.py",
    "ranklaunch/adapters/platforms/shared/facts.py",
    "ranklaunch/adapters/platforms/shared/host_command.py",
    "ranklaunch/adapters/platforms/shared/hostfile.py",
    "ranklaunch/adapters/platforms/shared/hostlist.py",
    "ranklaunch/adapters/platforms/shared/kubernetes.py",
    "ranklaunch/adapters/platforms/shared/self_index.py",
    "ranklaunch/adapters/platforms/shared/unrecognised.py",
    "ranklaunch/adapters/platforms/shared/user_rows.py",
    "ranklaunch/adapters/platforms/slurm.py",
    "ranklaunch/adapters/platforms/torchx.py",
    "ranklaunch/adapters/platforms/vertexai.py",
    "ranklaunch/adapters/platforms/volcano.py",
    "ranklaunch/api/__init__.py",
    "ranklaunch/catalogue/__init__.py",
    "ranklaunch/catalogue/answer.py",
    "ranklaunch/catalogue/entry.py",
    "ranklaunch/catalogue/known.json",
    "ranklaunch/catalogue/known.py",
    "ranklaunch/catalogue/literals.py",
    "ranklaunch/catalogue/matcher.py",
    "ranklaunch/cli/__init__.py",
    "ranklaunch/cli/child_command.py",
    "ranklaunch/cli/completion.py",
    "ranklaunch/cli/host_command.py",
    "ranklaunch/cli/job_body.py",
    "ranklaunch/cli/job_spec.py",
    "ranklaunch/cli/launch.py",
    "ranklaunch/cli/options.py",
    "ranklaunch/cli/platform_file.py",
    "ranklaunch/cli/preflight.py",
    "ranklaunch/cli/rank_tables.py",
    "ranklaunch/cli/simulation.py",
    "ranklaunch/cli/usage.py",
    "ranklaunch/control/__init__.py",
    "ranklaunch/control/all_nodes.py",
    "ranklaunch/control/client.py",
    "ranklaunch/control/desk.py",
    "ranklaunch/control/rank_records.py",
    "ranklaunch/control/rank_states.py",
    "ranklaunch/control/save.py",
    "ranklaunch/control/server.py",
    "ranklaunch/control/stacks.py",
    "ranklaunch/control/stops.py",
    "ranklaunch/diagnose/__init__.py",
    "ranklaunch/diagnose/failures.py",
    "ranklaunch/diagnose/suspects.py",
    "ranklaunch/ends/__init__.py",
    "ranklaunch/ends/collect.py",
    "ranklaunch/ends/exceptions.py",
    "ranklaunch/ends/host_lines.py",
    "ranklaunch/ends/model.py",
    "ranklaunch/entrypoints/__init__.py",
    "ranklaunch/entrypoints/check.py",
    "ranklaunch/entrypoints/completion.py",
    "ranklaunch/entrypoints/explain.py",
    "ranklaunch/entrypoints/layout.py",
    "ranklaunch/entrypoints/logs.py",
    "ranklaunch/entrypoints/main.py",
    "ranklaunch/entrypoints/plan.py",
    "ranklaunch/entrypoints/ranktable.py",
    "ranklaunch/entrypoints/report.py",
    "ranklaunch/entrypoints/run.py",
    "ranklaunch/entrypoints/save.py",
    "ranklaunch/entrypoints/simulate.py",
    "ranklaunch/entrypoints/spec.py",
    "ranklaunch/entrypoints/stacks.py",
    "ranklaunch/entrypoints/status.py",
    "ranklaunch/entrypoints/template.py",
    "ranklaunch/entrypoints/tune.py",
    "ranklaunch/env/__init__.py",
    "ranklaunch/env/features.py",
    "ranklaunch/env/job.py",
    "ranklaunch/env/parse.py",
    "ranklaunch/env/reader.py",
    "ranklaunch/env/recovery.py",
    "ranklaunch/env/settings.py",
    "ranklaunch/env/tasks.py",
    "ranklaunch/env/tuning.py",
    "ranklaunch/errors.py",
    "ranklaunch/evidence/__init__.py",
    "ranklaunch/evidence/all_nodes.py",
    "ranklaunch/evidence/collection.py",
    "ranklaunch/evidence/collector.py",
    "ranklaunch/evidence/dumps.py",
    "ranklaunch/evidence/flight.py",
    "ranklaunch/evidence/folder.py",
    "ranklaunch/evidence/pickles.py",
    "ranklaunch/evidence/processes.py",
    "ranklaunch/evidence/ras.py",
    "ranklaunch/evidence/stack_signals.py",
    "ranklaunch/evidence/stacks.py",
    "ranklaunch/evidence/tools.py",
    "ranklaunch/fields.py",
    "ranklaunch/files.py",
    "ranklaunch/hangs/__init__.py",
    "ranklaunch/hangs/alarms.py",
    "ranklaunch/hangs/cpu_limit.py",
    "ranklaunch/hangs/detector.py",
    "ranklaunch/hangs/devices.py",
    "ranklaunch/hangs/expect.py",
    "ranklaunch/hangs/frames.py",
    "ranklaunch/hangs/monitor.py",
    "ranklaunch/hangs/pace.py",
    "ranklaunch/hangs/rank_lines.py",
    "ranklaunch/hangs/sample.py",
    "ranklaunch/hangs/sampler.py",
    "ranklaunch/hangs/slow_job.py",
    "ranklaunch/hangs/steps.py",
    "ranklaunch/hangs/straggler.py",
    "ranklaunch/hangs/suspicion.py",
    "ranklaunch/hangs/uncaught.py",
    "ranklaunch/layout/__init__.py",
    "ranklaunch/layout/model.py",
    "ranklaunch/layout/svg.py",
    "ranklaunch/layout/text.py",
    "ranklaunch/logs/__init__.py",
    "ranklaunch/logs/lines.py",
    "ranklaunch/logs/merging.py",
    "ranklaunch/logs/moments.py",
    "ranklaunch/logs/reading.py",
    "ranklaunch/logs/search.py",
    "ranklaunch/logs/shown.py",
    "ranklaunch/logs/times.py",
    "ranklaunch/logs/view.py",
    "ranklaunch/logs/written.py",
    "ranklaunch/muster/__init__.py",
    "ranklaunch/muster/barrier.py",
    "ranklaunch/muster/dialler.py",
    "ranklaunch/muster/door.py",
    "ranklaunch/muster/driver.py",
    "ranklaunch/muster/events.py",
    "ranklaunch/muster/hub.py",
    "ranklaunch/muster/liveness.py",
    "ranklaunch/muster/member.py",
    "ranklaunch/muster/membership.py",
    "ranklaunch/muster/nodes.py",
    "ranklaunch/muster/reports.py",
    "ranklaunch/muster/secret.py",
    "ranklaunch/muster/wire.py",
    "ranklaunch/notify/__init__.py",
    "ranklaunch/notify/endpoint.py",
    "ranklaunch/notify/hook.py",
    "ranklaunch/notify/metrics.py",
    "ranklaunch/notify/notifications.py",
    "ranklaunch/openmetrics.py",
    "ranklaunch/output/__init__.py",
    "ranklaunch/output/abort_stacks.py",
    "ranklaunch/output/console.py",
    "ranklaunch/output/console_filter.py",
    "ranklaunch/output/dedupe.py",
    "ranklaunch/output/demux.py",
    "ranklaunch/output/files.py",
    "ranklaunch/output/follow.py",
    "ranklaunch/output/hiding.py",
    "ranklaunch/output/inner_launcher.py",
    "ranklaunch/output/logs.py",
    "ranklaunch/output/pipe.py",
    "ranklaunch/placement/__init__.py",
    "ranklaunch/placement/model.py",
    "ranklaunch/placement/rules.py",
    "ranklaunch/placement/success.py",
    "ranklaunch/plan/__init__.py",
    "ranklaunch/plan/agreement.py",
    "ranklaunch/plan/compact_text.py",
    "ranklaunch/plan/ds_config.py",
    "ranklaunch/plan/facts.py",
    "ranklaunch/plan/hints/__init__.py",
    "ranklaunch/plan/hints/behind.py",
    "ranklaunch/plan/hints/own_templates.py",
    "ranklaunch/plan/hints/unknown.py",
    "ranklaunch/plan/meeting.py",
    "ranklaunch/plan/megatron.py",
    "ranklaunch/plan/megatron_args.py",
    "ranklaunch/plan/model.py",
    "ranklaunch/plan/optional_features.py",
    "ranklaunch/plan/planning.py",
    "ranklaunch/plan/prelaunch.py",
    "ranklaunch/plan/recorders.py",
    "ranklaunch/plan/show.py",
    "ranklaunch/processes/__init__.py",
    "ranklaunch/processes/advice.py",
    "ranklaunch/processes/child_ranks.py",
    "ranklaunch/processes/children.py",
    "ranklaunch/processes/launchers.py",
    "ranklaunch/processes/orphans.py",
    "ranklaunch/processes/pipe_backlog.py",
    "ranklaunch/processes/program_end.py",
    "ranklaunch/processes/rank_count.py",
    "ranklaunch/processes/rank_heads.py",
    "ranklaunch/processes/records.py",
    "ranklaunch/processes/unnamed.py",
    "ranklaunch/programs/ask_route_plan.py",
    "ranklaunch/programs/end_as_rank.py",
    "ranklaunch/programs/measure.py",
    "ranklaunch/programs/place_rank.py",
    "ranklaunch/programs/post_trainjob_status.py",
    "ranklaunch/programs/ray_driver.py",
    "ranklaunch/programs/ray_node.py",
    "ranklaunch/programs/ray_offer.py",
    "ranklaunch/py.typed",
    "ranklaunch/rank_wrapper/__init__.py",
    "ranklaunch/rank_wrapper/cores.py",
    "ranklaunch/rank_wrapper/rank.py",
    "ranklaunch/rank_wrapper/vscode.py",
    "ranklaunch/rankside/path/ranklaunch_rankside/__init__.py",
    "ranklaunch/rankside/path/ranklaunch_rankside/heads.py",
    "ranklaunch/rankside/path/ranklaunch_rankside/records.py",
    "ranklaunch/rankside/path/ranklaunch_rankside/redact.py",
    "ranklaunch/rankside/path/sitecustomize.py",
    "ranklaunch/ranktable/__init__.py",
    "ranklaunch/ranktable/check.py",
    "ranklaunch/ranktable/document.py",
    "ranklaunch/ranktable/group_list.py",
    "ranklaunch/ranktable/make.py",
    "ranklaunch/ranktable/model.py",
    "ranklaunch/ranktable/own.py",
    "ranklaunch/ranktable/rank_list.py",
    "ranklaunch/ranktable/read.py",
    "ranklaunch/ranktable/server_list.py",
    "ranklaunch/ranktable/show.py",
    "ranklaunch/ranktable/write.py",
    "ranklaunch/redact/__init__.py",
    "ranklaunch/redact/forms.py",
    "ranklaunch/redact/harmless.py",
    "ranklaunch/redact/lines.py",
    "ranklaunch/redact/patterns.py",
    "ranklaunch/redact/redact.py",
    "ranklaunch/render/__init__.py",
    "ranklaunch/render/jinja.py",
    "ranklaunch/render/quoting.py",
    "ranklaunch/render/templates.py",
    "ranklaunch/report/__init__.py",
    "ranklaunch/report/accounting.py",
    "ranklaunch/report/assembly.py",
    "ranklaunch/report/attempts.py",
    "ranklaunch/report/checked.py",
    "ranklaunch/report/exception_records.py",
    "ranklaunch/report/formats/__init__.py",
    "ranklaunch/report/formats/advice.py",
    "ranklaunch/report/formats/html.py",
    "ranklaunch/report/formats/page/__init__.py",
    "ranklaunch/report/formats/page/axis.py",
    "ranklaunch/report/formats/page/lanes.py",
    "ranklaunch/report/formats/page/look.css",
    "ranklaunch/report/formats/page/page.html.j2",
    "ranklaunch/report/formats/page/plots.py",
    "ranklaunch/report/formats/page/ranks.py",
    "ranklaunch/report/formats/page/zoom.js",
    "ranklaunch/report/formats/prom.j2",
    "ranklaunch/report/formats/prom.py",
    "ranklaunch/report/formats/template.py",
    "ranklaunch/report/formats/text.j2",
    "ranklaunch/report/formats/text.py",
    "ranklaunch/report/formats/trace.py",
    "ranklaunch/report/formats/words.py",
    "ranklaunch/report/layers.py",
    "ranklaunch/report/model.py",
    "ranklaunch/report/node_events.py",
    "ranklaunch/report/nodes.py",
    "ranklaunch/report/reading.py",
    "ranklaunch/report/rounds.py",
    "ranklaunch/report/verdicts.py",
    "ranklaunch/restarts/__init__.py",
    "ranklaunch/restarts/cleaning.py",
    "ranklaunch/restarts/decision.py",
    "ranklaunch/restarts/round_facts.py",
    "ranklaunch/rows.py",
    "ranklaunch/schemas/__init__.py",
    "ranklaunch/schemas/answers.py",
    "ranklaunch/schemas/check.schema.json",
    "ranklaunch/schemas/ends.py",
    "ranklaunch/schemas/ends.schema.json",
    "ranklaunch/schemas/events.schema.json",
    "ranklaunch/schemas/explain.schema.json",
    "ranklaunch/schemas/hang.schema.json",
    "ranklaunch/schemas/plan-1.schema.json",
    "ranklaunch/schemas/plan.py",
    "ranklaunch/schemas/plan.schema.json",
    "ranklaunch/schemas/platforms.schema.json",
    "ranklaunch/schemas/ranktable-diff.schema.json",
    "ranklaunch/schemas/ranktable.schema.json",
    "ranklaunch/schemas/record.py",
    "ranklaunch/schemas/record.schema.json",
    "ranklaunch/schemas/report.schema.json",
    "ranklaunch/schemas/round.schema.json",
    "ranklaunch/schemas/slow.schema.json",
    "ranklaunch/schemas/status.schema.json",
    "ranklaunch/schemas/verdict.py",
    "ranklaunch/schemas/verdict.schema.json",
    "ranklaunch/showing.py",
    "ranklaunch/spans.py",
    "ranklaunch/specs/__init__.py",
    "ranklaunch/specs/documents.py",
    "ranklaunch/specs/familiar.py",
    "ranklaunch/specs/image.py",
    "ranklaunch/specs/keys.py",
    "ranklaunch/specs/kubernetes/__init__.py",
    "ranklaunch/specs/kubernetes/check.py",
    "ranklaunch/specs/kubernetes/companions.py",
    "ranklaunch/specs/kubernetes/containers.py",
    "ranklaunch/specs/kubernetes/fields.py",
    "ranklaunch/specs/model.py",
    "ranklaunch/specs/places/__init__.py",
    "ranklaunch/specs/places/clouds.py",
    "ranklaunch/specs/places/hpc.py",
    "ranklaunch/specs/places/quantities.py",
    "ranklaunch/specs/pod.py",
    "ranklaunch/specs/refuse.py",
    "ranklaunch/specs/refuse_kubernetes.py",
    "ranklaunch/specs/rules.json",
    "ranklaunch/specs/rules.py",
    "ranklaunch/specs/sbatch.py",
    "ranklaunch/specs/shape.py",
    "ranklaunch/specs/slurm.py",
    "ranklaunch/specs/values.py",
    "ranklaunch/specs/variables.json",
    "ranklaunch/specs/variables.py",
    "ranklaunch/specs/warn.py",
    "ranklaunch/supervise/__init__.py",
    "ranklaunch/supervise/attempt.py",
    "ranklaunch/supervise/context.py",
    "ranklaunch/supervise/ending.py",
    "ranklaunch/supervise/guardian.py",
    "ranklaunch/supervise/judge.py",
    "ranklaunch/supervise/nested.py",
    "ranklaunch/supervise/placement_check.py",
    "ranklaunch/supervise/record.py",
    "ranklaunch/supervise/running.py",
    "ranklaunch/supervise/session.py",
    "ranklaunch/supervise/stop.py",
    "ranklaunch/supervise/teardown.py",
    "ranklaunch/supervise/waits/__init__.py",
    "ranklaunch/supervise/waits/host_command.py",
    "ranklaunch/supervise/waits/ssh_banners.py",
    "ranklaunch/supervise/waits/table_renewal.py",
    "ranklaunch/supervise/waits/waiting.py",
    "ranklaunch/system/__init__.py",
    "ranklaunch/system/bounded.py",
    "ranklaunch/system/disk.py",
    "ranklaunch/system/inotify.py",
    "ranklaunch/system/interfaces.py",
    "ranklaunch/system/lookup.py",
    "ranklaunch/system/loop.py",
    "ranklaunch/system/memory.py",
    "ranklaunch/system/ports.py",
    "ranklaunch/system/signals.py",
    "ranklaunch/system/stream.py",
    "ranklaunch/system/submit.py",
    "ranklaunch/system/tree.py",
    "ranklaunch/templates/accelerate/command.j2",
    "ranklaunch/templates/deepspeed/command.j2",
    "ranklaunch/templates/deepspeed/hostfile.j2",
    "ranklaunch/templates/jax/command.j2",
    "ranklaunch/templates/jobs/acjob.yaml.j2",
    "ranklaunch/templates/jobs/aws_batch.json.j2",
    "ranklaunch/templates/jobs/companions.yaml.j2",
    "ranklaunch/templates/jobs/flux.sh.j2",
    "ranklaunch/templates/jobs/indexed.yaml.j2",
    "ranklaunch/templates/jobs/job.yaml.j2",
    "ranklaunch/templates/jobs/jobset.yaml.j2",
    "ranklaunch/templates/jobs/key.sh.j2",
    "ranklaunch/templates/jobs/lsf.sh.j2",
    "ranklaunch/templates/jobs/metadata.yaml.j2",
    "ranklaunch/templates/jobs/modelarts.json.j2",
    "ranklaunch/templates/jobs/mpijob.yaml.j2",
    "ranklaunch/templates/jobs/pbs.sh.j2",
    "ranklaunch/templates/jobs/pod.yaml.j2",
    "ranklaunch/templates/jobs/rank_table.yaml.j2",
    "ranklaunch/templates/jobs/replicated.yaml.j2",
    "ranklaunch/templates/jobs/setup.sh.j2",
    "ranklaunch/templates/jobs/slurm.sh.j2",
    "ranklaunch/templates/jobs/task.yaml.j2",
    "ranklaunch/templates/jobs/told.sh.j2",
    "ranklaunch/templates/jobs/trainjob.yaml.j2",
    "ranklaunch/templates/jobs/volcano.yaml.j2",
    "ranklaunch/templates/megatron/command.j2",
    "ranklaunch/templates/mpirun/command.j2",
    "ranklaunch/templates/mpirun/hostfile.j2",
    "ranklaunch/templates/msrun/command.j2",
    "ranklaunch/templates/msrun/scheduler.j2",
    "ranklaunch/templates/plain/command.j2",
    "ranklaunch/templates/program.j2",
    "ranklaunch/templates/pytorch/command.j2",
    "ranklaunch/templates/ranktable/command.j2",
    "ranklaunch/templates/ray/command.j2",
    "ranklaunch/templates/ray/start.j2",
    "ranklaunch/templates/spawn/command.j2",
    "ranklaunch/templates/ssh/known_hosts.j2",
    "ranklaunch/templates/ssh/ssh_config.j2",
    "ranklaunch/templates/ssh/sshd.j2",
    "ranklaunch/templates/ssh/sshd_config.j2",
    "ranklaunch/templates/tensorflow/command.j2",
    "ranklaunch/templates/torchrun/command.j2",
    "ranklaunch/tune/__init__.py",
    "ranklaunch/tune/autotuning.py",
    "ranklaunch/tune/experiments/__init__.py",
    "ranklaunch/tune/experiments/best.py",
    "ranklaunch/tune/experiments/command.py",
    "ranklaunch/tune/experiments/coordinator.py",
    "ranklaunch/tune/experiments/experiment.py",
    "ranklaunch/tune/experiments/folder.py",
    "ranklaunch/tune/experiments/outcome.py",
    "ranklaunch/tune/experiments/site.py",
    "ranklaunch/tune/experiments/work.py",
    "ranklaunch/tune/experiments/worker.py",
    "ranklaunch/tune/memory.py",
    "ranklaunch/tune/metrics.py",
    "ranklaunch/tune/model.py",
    "ranklaunch/tune/plot.py",
    "ranklaunch/tune/results.py",
    "ranklaunch/tune/search.py",
    "ranklaunch/tune/space.py",
    "ranklaunch/tune/surrogate.py",
    "ranklaunch/tune/table.py",
    "ranklaunch/tune/tuners.py",
    "ranklaunch/tune/words.py",
    "ranklaunch/verdict/__init__.py",
    "ranklaunch/verdict/blame.py",
    "ranklaunch/verdict/events.json",
    "ranklaunch/verdict/events.py",
    "ranklaunch/verdict/folders.py",
    "ranklaunch/verdict/messages.py",
    "ranklaunch/verdict/model.py",
    "ranklaunch/version.py",
    "ranklaunch_start.py",
}
INFO = {"METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "licenses/LICENSES/detect-secrets.txt", "RECORD"}


def build(what: str, source: Path, target: Path) -> Path:
    """Runs hatchling's own build, without a network and without an environment of its own."""
    script = f"from hatchling.build import build_{what}; print(build_{what}({str(target)!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", helpers.ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    return folder / f"ranklaunch-{__version__}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", helpers.ROOT, tmp_path_factory.mktemp("wheel"))


def test_wheel_of_the_source_distribution_is_that_of_the_tree(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(build("wheel", unpacked, tmp_path)) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
        assert [name for name in ours.namelist() if ours.read(name) != theirs.read(name)] == []


def test_wheel_holds_exactly_these_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert len(set(names)) == len(names)
    info = f"ranklaunch-{__version__}.dist-info"
    of_info = {name for name in names if name.startswith(f"{info}/")}
    assert of_info == {f"{info}/{name}" for name in INFO}
    helpers.listed_in("WHEEL in tests/test_wheel.py", WHEEL, set(names) - of_info)


def test_wheel_says_what_it_is_and_needs(wheel: Path) -> None:
    info = f"ranklaunch-{__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        wheel_info = archive.read(f"{info}/WHEEL").decode()
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.9"
    needed = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert needed == ["jinja2>=3.1"]
    extras = {
        name: [line for line in metadata.get_all("Requires-Dist") or [] if f"extra == '{name}'" in line]
        for name in ("yaml", "spec", "tune")
    }
    assert extras == {"yaml": ["pyyaml>=6; extra == 'yaml'"], "spec": ["pyyaml>=6; extra == 'spec'"], "tune": []}
    assert extras.keys() <= set(metadata.get_all("Provides-Extra") or [])
    assert metadata["Metadata-Version"] == "2.4"
    assert entry_points.split("\n")[:2] == ["[console_scripts]", "ranklaunch = ranklaunch_start:script"]
    assert "Tag: py3-none-any" in wheel_info


def test_files_of_the_wheel_are_those_of_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in WHEEL:
            linked = Path(name).parts[1:2] in {("adapters",), ("entrypoints",), ("templates",)}
            source = helpers.ROOT.joinpath(*Path(name).parts[1:]) if linked else helpers.ROOT / "src" / name
            if name.endswith(".schema.json"):
                source = helpers.ROOT / "docs" / "schemas" / Path(name).name
            assert archive.read(name) == source.read_bytes(), name


@pytest.mark.one_python
def test_source_distribution_holds_the_tests_and_no_link(sdist: Path, unpacked: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    assert len({member.name for member in members}) == len(members)
    for folder in ("tests", "testbench", "benchmarks", "templates", "adapters", "entrypoints"):
        there = {path.relative_to(unpacked) for path in (unpacked / folder).rglob("*") if path.is_file()}
        here = {path.relative_to(helpers.ROOT) for path in (helpers.ROOT / folder).rglob("*") if path.is_file()}
        assert {path for path in here if "__pycache__" not in path.parts} == there
    containers = {path.name for path in (unpacked / "containers").iterdir()}
    assert containers == {"README.md", "ascend.Dockerfile", "cpu.Dockerfile", "gpu.Dockerfile", "install.sh"}


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as installed: unpacked into a folder of its own, with the dependencies alone beside it."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    import jinja2
    import markupsafe

    for package in (jinja2, markupsafe):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, folder / source.name)
    return folder


def call_in(site: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-m", "ranklaunch", *words]
    return subprocess.run(command, cwd=cwd, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=60, check=False)


def test_wheel_runs_where_nothing_else_of_ours_is(site: Path, tmp_path: Path) -> None:
    done = call_in(site, tmp_path, "plan", "--method=spawn", "--slots=2", "x.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "python -u x.py" in done.stdout
    assert call_in(site, tmp_path, "--version").stdout == f"ranklaunch {__version__}\n"


def test_without_pyyaml_values_are_read_from_json_and_yaml_names_the_extra(site: Path, tmp_path: Path) -> None:
    (tmp_path / "values.json").write_text('{"nodes": 3}')
    (tmp_path / "values.yaml").write_text("nodes: 3\n")
    words = ("spec", "job", "--name", "llm", "--image", "team/train:1", "--values")
    done = call_in(site, tmp_path, *words, "values.json", "--", "train.py")
    assert (done.returncode, "completions: 3" in done.stdout) == (0, True), done.stderr
    done = call_in(site, tmp_path, *words, "values.yaml", "--", "train.py")
    assert (done.returncode, done.stdout) == (78, "")
    (line,) = done.stderr.splitlines()
    assert "--values values.yaml: YAML needs PyYAML, which is not installed: pip install 'ranklaunch[yaml]'" in line


@pytest.mark.one_python
def test_types_of_the_api_reach_whoever_installs_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """By mypy --strict: the example is typed, and a misspelt name or attribute is found."""
    pytest.importorskip("mypy", reason="mypy is of the extra lint")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=120)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    shutil.copy(helpers.ROOT / "examples" / "python_api.py", tmp_path)
    wrong = (
        "ranklaunch.make_plans",
        "ranklaunch.make_plan({}, 1)",
        "ranklaunch.explain_log('').kin",
        "ranklaunch.read_report('x').job.nods",
    )
    (tmp_path / "wrong.py").write_text("".join(f"{line}\n" for line in ("import ranklaunch", *wrong)))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--python-executable={tmp_path}/venv/bin/python"]
    said = subprocess.run([*command, "python_api.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    found = re.findall(r"^(\S+?):(\d+): error: .*\[([a-z-]+)\]$", said.stdout, re.MULTILINE)
    expected = [("wrong.py", str(line), kind) for line, kind in enumerate(("attr-defined", "arg-type", "attr-defined", "attr-defined"), 2)]
    assert found == expected, said.stdout + said.stderr


THIEVES = ("jinja2", "ranklaunch", "queue", "selectors", "socket", "markupsafe")


def test_modules_of_the_program_do_not_take_the_place_of_ours(wheel: Path, tmp_path: Path) -> None:
    """As pip installs it, into an environment that others share: PYTHONPATH is for the ranks, which get it with one folder in front."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=120)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    # --prefix alone would uninstall the ranklaunch of the environment that pip runs in.
    into = [
        "--prefix",
        str(tmp_path / "venv"),
        "--ignore-installed",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--quiet",
        "--no-warn-script-location",
    ]
    done = subprocess.run([sys.executable, "-m", "pip", "install", *into, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    script = tmp_path / "venv" / "bin" / "ranklaunch"
    script.write_text(re.sub("^#!.*", f"#!{tmp_path}/venv/bin/python", script.read_text()))
    import jinja2
    import markupsafe

    for package in (jinja2, markupsafe):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, site / source.name)
    (tmp_path / "code").mkdir()
    for name in THIEVES:
        (tmp_path / "code" / f"{name}.py").write_text(f"raise SystemExit('{name} of PYTHONPATH')\n")
    (tmp_path / "code" / "model.py").write_text("NAME = 'a model'\n")
    (tmp_path / "train.py").write_text("import model, os; print(model.NAME, os.environ['PYTHONPATH'])\n")
    options = ("--method", "spawn", "--slots", "2", "--log-tag", "{{ rank }}> ")
    env = {"PYTHONPATH": f"{tmp_path}/code", "PATH": os.environ["PATH"], "RANKLAUNCH_PYTHON": sys.executable}
    for command in (["bin/ranklaunch"], ["bin/python", "-m", "ranklaunch"]):
        words = [str(tmp_path / "venv" / command[0]), *command[1:], "run", *options, "train.py"]
        ran = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        assert sorted(ran.stdout.splitlines()) == [f"{rank}> a model {site}/ranklaunch/rankside/path:{tmp_path}/code" for rank in range(2)]
        (tmp_path / "code" / "ranklaunch.py").unlink(missing_ok=True)  # which -m would take
