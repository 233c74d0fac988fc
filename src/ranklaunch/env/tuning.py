"""Variables of the command tune. Most of them are also keys in the section "autotuning" of the user's DeepSpeed configuration."""

from __future__ import annotations

import re

from ranklaunch.env import parse
from ranklaunch.env.reader import Variable

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(value: str) -> int:
    """Return the bytes of 34359738368, 512m, 32g or 32GiB. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([kmgt]?)(?:i?b)?", value.strip().lower())
    if not match or not float(match[1]):
        msg = "expected bytes, as 34359738368 or 32g"
        raise ValueError(msg)
    return int(float(match[1]) * _UNITS[match[2]])


_BY_FILE = "the value in the configuration's autotuning section, else"

TUNER = Variable(
    "tune_tuner", ("RANKLAUNCH_TUNER",), parse.OneOf("gridsearch", "random", "model_based"), "", "method that chooses the next trial: "
    "gridsearch, random or model_based", option="--tuner", default_text=f"{_BY_FILE} gridsearch",
)  # fmt: skip
METRIC = Variable(
    "tune_metric", ("RANKLAUNCH_METRIC",), parse.OneOf("throughput", "latency", "flops"), "", "metric to optimise: throughput, "
    "latency or flops", option="--metric", default_text=f"{_BY_FILE} throughput",
)  # fmt: skip
MAX_TRIALS = Variable(
    "tune_max_trials", ("RANKLAUNCH_MAX_TRIALS",), parse.positive, 0, "maximum number of trials", option="--max-trials",
    default_text=f"{_BY_FILE} 50",
)  # fmt: skip
EARLY_STOP = Variable(
    "tune_early_stop", ("RANKLAUNCH_EARLY_STOP",), parse.count, 0, "the search ends after this many trials in a row without "
    "a better one; 0: never", option="--early-stop", default_text=f"{_BY_FILE} 5",
)  # fmt: skip
START_STEP = Variable(
    "tune_start_profile_step", ("RANKLAUNCH_START_PROFILE_STEP",), parse.count, 0, "steps of the optimizer before the first "
    "measured one", option="--start-profile-step", default_text=f"{_BY_FILE} 3",
)  # fmt: skip
END_STEP = Variable(
    "tune_end_profile_step", ("RANKLAUNCH_END_PROFILE_STEP",), parse.positive, 0, "last measured step, with which an experiment "
    "ends", option="--end-profile-step", default_text=f"{_BY_FILE} ten more than the start",
)  # fmt: skip
ARG_MAPPINGS = Variable(
    "tune_arg_mappings", ("RANKLAUNCH_ARG_MAPPINGS",), parse.text, "", "options of the program that repeat a key of the "
    'configuration, as {"train_micro_batch_size_per_gpu": "--batch-size"}', option="--arg-mappings",
    default_text=f"{_BY_FILE} the options of Hugging Face's Trainer on the program's command line",
)  # fmt: skip
DS_CONFIG = Variable(
    "tune_ds_config", ("RANKLAUNCH_DS_CONFIG",), parse.text, "", "the user's DeepSpeed configuration", option="--ds-config",
    default_text="the file that the program's --deepspeed_config or --deepspeed names",
)  # fmt: skip
TIMEOUT_S = Variable(
    "tune_experiment_timeout", ("RANKLAUNCH_EXPERIMENT_TIMEOUT",), parse.seconds_from(1), 600.0, "seconds after which an "
    "experiment counts as hung, and is stopped", option="--experiment-timeout",
)  # fmt: skip
EXPS_DIR = Variable(
    "tune_exps_dir", ("RANKLAUNCH_EXPS_DIR",), parse.text, "", "folder of the experiments, from which a stopped search "
    "continues: choose one that outlives the container", option="--exps-dir", default_text="tune/exps in the log directory",
)  # fmt: skip
RESULTS = Variable(
    "tune_results", ("RANKLAUNCH_RESULTS",), parse.text, "", "folder of the search's results, on node 0", option="--results",
    default_text="tune in the log directory",
)  # fmt: skip
MEMORY = Variable(
    "tune_memory", ("RANKLAUNCH_MEMORY",), size, 0, "memory of each device, as 32g; a configuration that cannot fit is not tried",
    option="--memory", default_text="as nvidia-smi or npu-smi shows; on CPUs the container's memory divided by its slots",
)  # fmt: skip
EXP_NODES = Variable(
    "tune_exp_nodes", ("RANKLAUNCH_EXP_NODES",), parse.positive, 0, "nodes of each experiment; if fewer than the job's, "
    "experiments run side by side", option="--exp-nodes", default_text="all of the job's",
)  # fmt: skip
EXP_SLOTS = Variable(
    "tune_exp_slots", ("RANKLAUNCH_EXP_SLOTS",), parse.positive, 0, "ranks of an experiment on each node", option="--exp-slots",
    default_text="the slots of the node that has the fewest",
)  # fmt: skip
SEED = Variable(
    "tune_seed", ("RANKLAUNCH_SEED",), parse.count, 0, "seed of the tuners random and model_based: the same seed gives the same order",
    option="--seed",
)  # fmt: skip
RUN = Variable(
    "tune_run", ("RANKLAUNCH_RUN",), parse.flag, False, "start the program with the best configuration as soon as it is known",
    option="--run", is_switch=True,
)  # fmt: skip
DRY_RUN = Variable(
    "tune_dry_run", ("RANKLAUNCH_DRY_RUN",), parse.flag, False, "show the trials, and the configurations left out and why; start nothing",
    option="--dry-run", is_switch=True,
)  # fmt: skip

OF_SEARCH = (TUNER, METRIC, MAX_TRIALS, EARLY_STOP, START_STEP, END_STEP, ARG_MAPPINGS)  # options of ranklaunch.tune.autotuning
VARIABLES: tuple[Variable[object], ...] = (
    *OF_SEARCH, DS_CONFIG, TIMEOUT_S, EXPS_DIR, RESULTS, MEMORY, EXP_NODES, EXP_SLOTS, SEED, RUN, DRY_RUN,
)  # fmt: skip
