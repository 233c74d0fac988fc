"""Warnings about a specification: legal values that may not do what their author wants."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping

from ranklaunch.env import recovery
from ranklaunch.errors import NO_PROGRESS, counted, number
from ranklaunch.redact.redact import argv, environment
from ranklaunch.showing import clipped
from ranklaunch.specs import rules as table
from ranklaunch.specs import slurm
from ranklaunch.specs.model import BY_SCRIPT, OF_CLOUDS, JobSpec
from ranklaunch.specs.places.quantities import MEBI, in_units
from ranklaunch.specs.pod import OF_MODELARTS, SECONDS_OF_HOUR, grace, has_several_nodes, hours_of_deadline, mounts, own_key

LIKE_VARIABLE = r"\$\{[^}\s]{1,60}\}|\$[A-Z][A-Z0-9_]+"
SHELLS = ("sh", "bash", "dash", "zsh")
REFERENCE = r"\$\([^)]*\)"
NOTHING = r"(?!)"
SOURCES = r"(?:^|[;&]\s*)(?:source|\.)\s"
# Safe places for a secret, for kinds without Secrets of Kubernetes.
SAFE = {
    "modelarts": "a file on a volume (modelarts.volumes) that the program reads",
    "slurm": "a line of slurm.setup that reads a file of yours",
    **dict.fromkeys(("sky", "dstack", "aws_batch"), "cloud.secrets"),
    "azureml": "a key vault that the program reads",
    **dict.fromkeys(BY_SCRIPT, "a file that the program reads"),
}
OPTION_WITH_VALUE = r"--?[A-Za-z][\w-]*\s+\S"
IN_PLACE = "RANKLAUNCH_MAX_RESTARTS"
WITHOUT_CODES = ("modelarts", "sky")  # restart after every exit code
OF_RAY = 0.3  # share of a node's memory for Ray's object store
USUAL_S = 30  # Kubernetes' default grace period of a container
# Names that ModelArts reserves, and ranklaunch's variable with the same meaning.
# Source: ModelArts' FAQ modelarts_05_0093.
RESERVED = r"MA_.*|ENABLE_HTTPS"
OWN_NAMES = {
    "MA_RUN_METHOD": "RANKLAUNCH_METHOD",
    "MA_EXTRA_TORCHRUN_PARAMS": "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS",
    "MA_TORCHRUN_MASTER_PORT": "RANKLAUNCH_MASTER_PORT",
    "MA_LOG_DIR": "RANKLAUNCH_LOG_DIR",
    "MA_SCRIPT_INTERPRETER": "RANKLAUNCH_PYTHON",
    "MA_VJ_NAME": "RANKLAUNCH_JOB_NAME",
}


def warnings(spec: JobSpec) -> Iterator[str]:
    """Yield all warnings about a correct specification, except those about a launcher as the program."""
    # Kubernetes replaces $(NAME) by another variable: that part is no text of the specification.
    literal = {str(each["name"]): re.sub(REFERENCE, "", str(each.get("value") or "")) for each in spec.extra_env}
    extra_env = {name: text for name, text in literal.items() if text}
    yield from _secrets(spec, extra_env)
    yield from _both_restart(spec, {**spec.env, **extra_env})
    yield from _joined(spec)
    arf = recovery.problem(spec.env.get(recovery.VARIABLE, ""))
    if arf:
        yield f"env.{arf}"
    yield from _literal(spec)
    if spec.engine == "modelarts":
        yield from _on_modelarts(spec)
    yield from table.problems(spec, "warnings")
    yield from _little_shm(spec)
    if spec.security.read_only_root_filesystem and not _can_write_logs(spec):
        yield (
            "security.readOnlyRootFilesystem: env.RANKLAUNCH_LOG_DIR is on no volume of volumeMounts that can be written, "
            "and a run that cannot write its logs ends with 78"
        )
    if spec.engine == "slurm":
        yield from slurm.warnings(spec)
    if spec.engine in OF_CLOUDS and has_several_nodes(spec) and not (own_key(spec) or "RANKLAUNCH_SECRET" in spec.cloud.secrets):
        where = SAFE[spec.engine] if spec.engine == "azureml" else "cloud.secrets"
        yield f"the key of the muster is derived from the job's name, which others may guess: give RANKLAUNCH_SECRET by {where}"


def _secrets(spec: JobSpec, extra_env: Mapping[str, str]) -> Iterator[str]:
    safe = SAFE.get(spec.engine, "a Secret in envFrom or extraEnv")
    for place, variables in (("env.", spec.env), ("extraEnv: ", extra_env)):
        shown = environment(variables)
        for name in sorted(name for name, value in variables.items() if shown[name] != value):
            yield f"{place}{name} stands in the specification for all to read; {safe} does not"
    hidden = argv(spec.args)
    if hidden != spec.args:
        yield f"args hold a secret for all to read ({shlex.join(hidden)}); {safe} does not"


def _can_write_logs(spec: JobSpec) -> bool:
    """Return False if `env` names a log folder outside all writable mounts."""
    log_dir = spec.env.get("RANKLAUNCH_LOG_DIR", "")
    folder = posixpath.normpath(posixpath.join(spec.working_dir, log_dir))
    writable = [posixpath.normpath(str(mount.get("mountPath"))) for mount in mounts(spec) if not mount.get("readOnly")]
    return not log_dir or any(f"{folder}/".startswith(f"{path}/") for path in writable)


def _little_shm(spec: JobSpec) -> Iterator[str]:
    """Warn if Ray's object store does not fit into /dev/shm. Its size is Ray's default, DEFAULT_OBJECT_STORE_MEMORY_PROPORTION."""
    limit, memory = spec.shm.size_limit, spec.resources.memory
    if spec.mode == "ray" and limit and memory and in_units(limit, MEBI) < in_units(memory, MEBI) * OF_RAY:
        yield (
            f"shm.sizeLimit={limit}: Ray's object store takes 30 % of resources.memory={memory}, and goes to /tmp where /dev/shm has less; "
            "leave it out"
        )


def _joined(spec: JobSpec) -> Iterator[str]:
    for word in argv(spec.args):
        if re.match(OPTION_WITH_VALUE, word):
            yield f"args: {clipped(word)!r}: an option and its value in one word are one argument to the program; make two words of them"


def _both_restart(spec: JobSpec, env: Mapping[str, str]) -> Iterator[str]:
    """Warn if ranklaunch restarts in place and the platform restarts in new containers: the numbers multiply."""
    most, starts = spec.restart.in_place or number(env.get(IN_PLACE, "").strip()), spec.restart.max_restarts + 1
    if starts > 1 and most:
        is_final = spec.engine not in WITHOUT_CODES and NO_PROGRESS in spec.restart.no_retry_exit_codes
        end = (
            f"; after {NO_PROGRESS}, the exit code of a job without progress, the job is not restarted"
            if is_final
            else ", after any exit code"
        )
        yield (
            f"{IN_PLACE}={most} and restart.maxRestarts={starts - 1}: a permanent failure is tried {most + 1} times in each of "
            f"{starts} starts{end}"
        )
    elif most and spec.modelarts.unconditional_retry:
        yield (
            f"{IN_PLACE}={most} and modelarts.unconditionalRetry: a permanent failure is tried {most + 1} times in "
            "each start; ModelArts restarts the job until it has failed three times in a row"
        )


def _on_modelarts(spec: JobSpec) -> Iterator[str]:
    for name in sorted(name for name in spec.env if re.fullmatch(RESERVED, name)):
        own_name = OWN_NAMES.get(name)
        instead = f"set env.{own_name}, which means the same" if own_name else "leave it out"
        why = "ModelArts reserves this name, and a job that sets it may not start"
        yield f"env.{name}: {why}: {instead}"
    yield from _code_elsewhere(spec)
    if _is_text_of_shell(spec) and any(re.search(SOURCES, text) for text in spec.args):
        yield (
            "args: the program is a shell that sources a file: put that line into modelarts.setup, "
            "and the program itself after --; methods that start Python refuse a shell"
        )
    hours, seconds = hours_of_deadline(spec), spec.lifecycle.deadline_seconds
    if hours * SECONDS_OF_HOUR != seconds:
        yield f"lifecycle.deadlineSeconds={seconds}: ModelArts counts hours; the job is stopped after {counted(hours, 'hour')}"
    period = spec.lifecycle.grace_period_seconds
    if grace(spec) and period > USUAL_S:
        yield f"lifecycle.gracePeriodSeconds={period}: only ranks get it; ModelArts may kill a container {USUAL_S} s after SIGTERM"
    if has_several_nodes(spec) and not own_key(spec):
        yield (
            "the key of the muster is derived from the job's name, which others may guess: put one into a file that all nodes see, and its "
            "path into env.RANKLAUNCH_SECRET_FILE"
        )


def _code_elsewhere(spec: JobSpec) -> Iterator[str]:
    """Warn of a script in another folder than the copy of codeDir."""
    modelarts = spec.modelarts
    folder = posixpath.basename(modelarts.code_dir.rstrip("/"))
    match = re.match(r"\$\{MA_JOB_DIR\}/([^/]+)/", spec.script)
    if folder and not modelarts.local_code_dir and match and match[1] != folder:
        where = f"the code is put into ${{MA_JOB_DIR}}/{folder}"
        yield f"script={spec.script!r}: {where}, the last folder of modelarts.codeDir"


def _is_text_of_shell(spec: JobSpec) -> bool:
    """Return True for `bash -c TEXT`: its shell replaces variables."""
    return spec.script.rpartition("/")[2] in SHELLS and bool(re.fullmatch(r"-[a-z]*c", (*spec.args, "")[0]))


def _literal(spec: JobSpec) -> Iterator[str]:
    """Warn of texts that look like a shell's variable where nothing replaces variables."""
    replaced = OF_MODELARTS if spec.engine == "modelarts" else NOTHING
    only = "; with modelarts, only ${MA_...} in script and args is replaced" if spec.engine == "modelarts" else ""
    args = () if _is_text_of_shell(spec) else argv(spec.args)
    program = [("script", spec.script), *(("args", word) for word in args)]
    others = [("workingDir", spec.working_dir), *((f"env.{name}", text) for name, text in sorted(environment(spec.env).items()))]
    for path, text in (*((path, re.sub(replaced, "", text)) for path, text in program), *others):
        for variable in dict.fromkeys(re.findall(LIKE_VARIABLE, text)):
            yield f"{path}: {variable} stays as it is written, for no shell replaces it by a value{only}"
