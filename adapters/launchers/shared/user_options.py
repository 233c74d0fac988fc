"""Parsers for options of launchers. They tell the launcher's options from the program and its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

UNKNOWN = "\0"  # in a script's command: any number of words that are known only when the script runs
PIECE = "\1"  # in a word of a script: part of the word that is known only when the script runs
HOSTNAME = "$(hostname)"  # in a word of a script: name of the host on which the script runs


def is_unknown(word: str) -> bool:
    """Return True if a script's word, or a part of it, is known only when the script runs."""
    return UNKNOWN in word or PIECE in word


def shown(word: str) -> str:
    """Return a script's word for messages, with ... for unknown parts."""
    return word.replace(UNKNOWN, "...").replace(PIECE, "...")


def with_underscores(name: str) -> str:
    """Return a long option with underscores: torchrun and accelerate accept --node-rank too, but every version knows --node_rank."""
    return "--" + name[2:].replace("-", "_")


class Option(NamedTuple):
    """Option with its value, or a word that is no option.

    name: full long name; of a word that is no option, the part before "=". words: the original words. known: False for an option that is
    not in the parser's table.
    """

    name: str
    value: str
    words: tuple[str, ...]
    known: bool


class Parser(NamedTuple):
    """Parser for the options of a launcher that uses Python's argparse. An empty table leaves names as they are.

    with_value: long options with one value each. switches: options without a value. short: long names by short options, such as -r.
    hyphens: True if --node-rank means --node_rank.
    """

    with_value: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    short: Mapping[str, str] = {}
    hyphens: bool = False

    def spelled(self, name: str) -> str:
        """Return the full long name of an option or of an abbreviation.

        A name that fits no option, or several, stays unchanged: argparse refuses such a name.
        """
        if not name.startswith("--"):
            return self.short.get(name[:2], name)
        name = with_underscores(name) if self.hyphens else name
        options = (*self.with_value, *self.switches)
        if name in options:
            return name
        matching = [option for option in options if option.startswith(name)]
        return matching[0] if len(matching) == 1 else name

    def following(self, name: str) -> int | None:
        """Return the number of words after an option that are its value; None for an option that is not in the table."""
        whole = self.spelled(name)
        return 0 if whole in self.switches else 1 if whole in self.with_value else None

    def options(self, words: Iterable[str]) -> set[str]:
        """Return the full names of all options in the words."""
        return {self.spelled(word.partition("=")[0]) for word in words if word.startswith("-")}

    def values(self, words: Sequence[str], option: str) -> list[str]:
        """Return every value of an option, from --option=VALUE or --option VALUE; "" if no word follows."""
        pairs = zip((word.partition("=") for word in words), (*words[1:], ""))
        return [value if equals else following for (name, equals, value), following in pairs if self.spelled(name) == option]

    def last(self, words: Sequence[str], option: str) -> str:
        """Return the last value of an option, which wins; "" without the option."""
        return "".join(self.values(words, option)[-1:])

    def writes_to(self, words: Sequence[str], option: str, folder: str) -> bool:
        """Return True if the option has this folder as value or, without the option, if a word of a user's template is the folder."""
        values = self.values(words, option)
        return values[-1] == folder if values else any(folder in (word, word.partition("=")[2]) for word in words)

    def parsed(self, words: Iterable[str]) -> Iterator[Option]:
        """Yield the options with their values, and each remaining word as an Option without a value."""
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if word[:2] in self.short and len(word) > len("-r"):  # -r3
                name, equals, value = word[:2], "=", word[2:].lstrip("=")
            takes = self.following(name) if name.strip("-") and name.startswith("-") and not equals else 0
            values = tuple(islice(rest, takes or 0))
            yield Option(self.spelled(name), "".join((value, *values)), (word, *values), takes is not None)

    def read(self, words: Iterable[str]) -> tuple[dict[str, str], str | None, bool]:
        """Return the last value of each option before the program, the program or None, and True if unknown words may add options.

        Words between an option that is not in the table and the next option are skipped: they may be its value. A program's name that
        begins with a dash is taken for an option.
        """
        values: dict[str, str] = {}
        known, is_open = True, False
        rest = iter(words)
        for option in self.parsed(rest):
            (word, *_) = option.words
            if word == "--":
                return values, next(rest, None), is_open
            is_open = is_open or UNKNOWN in word.partition("=")[0]
            if word.startswith("-"):
                values[option.name] = option.value
                known = option.known
            elif UNKNOWN in word:
                continue
            elif known:
                return values, word, is_open
        return values, None, is_open


AS_WRITTEN = Parser()


def without(options: Iterable[Option], names: Iterable[str]) -> tuple[str, ...]:
    """Return the words of all options except the named ones."""
    return tuple(word for option in options if option.name not in names for word in option.words)


def long(words: Iterable[str]) -> list[str]:
    """Return the words without short options, which may be those of a tool before the launcher, such as -t of nsys."""
    return [word for word in words if word.startswith("--") or not word.startswith("-")]


def before(argv: Sequence[str], program: str) -> Sequence[str]:
    """Return the words of a launcher's command before the program's path; all words if the path is not among them."""
    return argv[: argv.index(program)] if program in argv else argv


# torch 1.11 to 2.13.
_TORCHRUN_WITH_VALUE = (
    "--nnodes", "--nproc_per_node", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id", "--rdzv_conf", "--max_restarts", "--monitor_interval",
    "--start_method", "--event_log_handler", "--role", "--log_dir", "--redirects", "--tee", "--local_ranks_filter",
    "--duplicate_stdout_filters", "--duplicate_stderr_filters", "--node_rank", "--master_addr", "--master_port", "--local_addr",
    "--logs_specs", "--numa_binding", "--signals_to_handle", "--shutdown_timeout",
)  # fmt: skip
_TORCHRUN_SWITCHES = ("--standalone", "--module", "--no_python", "--run_path", "--virtual_local_rank", "--help")
TORCHRUN = Parser(
    _TORCHRUN_WITH_VALUE, _TORCHRUN_SWITCHES, {"-h": "--help", "-m": "--module", "-r": "--redirects", "-t": "--tee"}, hyphens=True
)  # fmt: skip

# Words for --nproc_per_node in place of a number: one rank for each such device. torch also takes the name of its accelerator.
DEVICE_WORDS = ("auto", "gpu", "cpu", "npu", "xpu", "mlu", "musa", "hpu", "privateuseone")

# msrun of MindSpore 2.10.
MSRUN = Parser(
    (
        "--worker_num", "--local_worker_num", "--master_addr", "--master_port", "--node_rank", "--log_dir", "--join", "--cluster_time_out",
        "--bind_core", "--bind_numa", "--sim_level", "--sim_rank_id", "--rank_table_file", "--worker_log_name", "--tail_worker_log",
    ),
    ("--help",),
    {"-h": "--help"},
)  # fmt: skip

# deepspeed of DeepSpeed 0.19.
_DEEPSPEED_SHORT = {"-h": "--help", "-H": "--hostfile", "-i": "--include", "-e": "--exclude", "-q": "--quiet"}
_DEEPSPEED_WITH_VALUE = """
    --hostfile --include --exclude --num_nodes --num_gpus --num_accelerators --min_elastic_nodes --max_elastic_nodes --master_port
    --master_addr --node_rank --launcher --launcher_args --enable_each_rank_log --autotuning --bind_core_list --ssh_port --venv_script
    --log_level --slurm_comment
"""
_DEEPSPEED_SWITCHES = """
    --module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid --bind_cores_to_rank --quiet --elastic_training
    --detect_nvlink_pairs --help
"""
DEEPSPEED = Parser(tuple(_DEEPSPEED_WITH_VALUE.split()), tuple(_DEEPSPEED_SWITCHES.split()), _DEEPSPEED_SHORT)

# `accelerate launch` 1.15. Its own parser refuses abbreviations, which this parser accepts.
_ACCELERATE_WITH_VALUE = """
    --config_file --mixed_precision --num_processes --num_machines --num_cpu_threads_per_process --gpu_ids --machine_rank
    --main_process_ip --main_process_port --tee --log_dir --role --rdzv_backend --rdzv_conf --max_restarts --monitor_interval --vm --env
    --main_training_function --zero_stage --gradient_accumulation_steps --gradient_clipping --zero3_init_flag --zero3_save_16bit_model
    --mpirun_hostfile
    --dynamo_backend --dynamo_mode
    --deepspeed_config_file --deepspeed_hostfile --deepspeed_exclusion_filter --deepspeed_inclusion_filter --deepspeed_multinode_launcher
    --deepspeed_moe_layer_cls_names
    --offload_optimizer_device --offload_param_device --offload_optimizer_nvme_path --offload_param_nvme_path
    --fsdp_version --fsdp_offload_params --fsdp_min_num_params --fsdp_sharding_strategy --fsdp_reshard_after_forward
    --fsdp_auto_wrap_policy --fsdp_transformer_layer_cls_to_wrap --fsdp_backward_prefetch --fsdp_state_dict_type --fsdp_forward_prefetch
    --fsdp_use_orig_params --fsdp_cpu_ram_efficient_loading --fsdp_sync_module_states --fsdp_activation_checkpointing
    --fsdp_activation_checkpointing_offload
    --megatron_lm_tp_degree --megatron_lm_use_custom_fsdp --megatron_lm_no_load_optim --megatron_lm_eod_mask_loss
    --megatron_lm_overlap_cpu_optimizer_d2h_h2d --megatron_lm_no_save_optim --megatron_lm_optimizer_cpu_offload
    --megatron_lm_use_precision_aware_optimizer --megatron_lm_decoder_last_pipeline_num_layers --megatron_lm_pp_degree
    --megatron_lm_num_micro_batches --megatron_lm_sequence_parallelism --megatron_lm_recompute_activations
    --megatron_lm_use_distributed_optimizer --megatron_lm_gradient_clipping --megatron_lm_recompute_granularity
    --megatron_lm_recompute_method --megatron_lm_recompute_num_layers --megatron_lm_attention_backend
    --megatron_lm_expert_model_parallel_size --megatron_lm_context_parallel_size --megatron_lm_attention_dropout
    --megatron_lm_hidden_dropout --megatron_lm_attention_softmax_in_fp32 --megatron_lm_expert_tensor_parallel_size
    --megatron_lm_calculate_per_token_loss --megatron_lm_use_rotary_position_embeddings
    --fp8_backend --fp8_margin --fp8_interval --fp8_format --fp8_amax_history_len --fp8_amax_compute_algo --fp8_override_linear_precision
    --fp8_opt_level --fp8_enable_fsdp_float8_all_gather --fp8_pad_inner_dim
    --aws_access_key_id --aws_secret_access_key
    --parallelism_config_dp_replicate_size --parallelism_config_dp_shard_size --parallelism_config_tp_size --parallelism_config_cp_size
    --parallelism_config_cp_backend --parallelism_config_cp_comm_strategy --parallelism_config_sp_size --parallelism_config_sp_backend
    --parallelism_config_sp_seq_length --parallelism_config_sp_seq_length_is_variable --parallelism_config_sp_attn_implementation
"""
_ACCELERATE_SWITCHES = """
    --help --quiet --cpu --multi_gpu --tpu --enable_cpu_affinity --use_deepspeed --use_fsdp --use_parallelism_config --use_megatron_lm
    --same_network --module --no_python --no_tpu_cluster --downcast_bf16 --debug
    --dynamo_use_fullgraph --dynamo_use_dynamic --dynamo_use_regional_compilation
    --tpu_cluster --tpu_use_sudo
    --fp8_use_autocast_during_eval
"""
ACCELERATE = Parser(
    tuple(_ACCELERATE_WITH_VALUE.split()),
    tuple(_ACCELERATE_SWITCHES.split()),
    {"-h": "--help", "-m": "--module", "-q": "--quiet", "-t": "--tee"},
    hyphens=True,
)

# Parsers by the field `options` of starters.toml.
PARSERS: Mapping[str, Parser] = {"torchrun": TORCHRUN, "msrun": MSRUN, "deepspeed": DEEPSPEED, "accelerate": ACCELERATE}
