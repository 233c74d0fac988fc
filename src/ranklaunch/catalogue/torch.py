"""PyTorch: its store and rendezvous, data loading, checkpoints, torchrun and the launchers upon it."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

# Also where a traceback has one of these exceptions, by way of these frames: what the rank was to fetch from the worker is gone with it.
# Not where an exception of the same traceback names the worker, and says more.
WORKER_DIED = KnownError(
    "torch-dataloader-worker-died",
    r"DataLoader worker \(pid(?:\(s\))? .{1,80}\) exited unexpectedly",
    CAUSE,
    "A data loading worker ended by itself.",
    "Read the lines above; run the data loading with num_workers=0 to see its exception.",
    "https://github.com/THU-DA-6D-Pose-Group/GDR-Net/issues/16",
)
WORKER_GONE = r"^(?:ConnectionResetError|ConnectionRefusedError|BrokenPipeError|EOFError|FileNotFoundError)\b"
WORKER_FRAMES = ("torch/utils/data/", ", in rebuild_storage_fd")
WORKER_NAMED = "DataLoader worker (pid"

_TOLD = "With --debug (RANKLAUNCH_DEBUG=on) PyTorch tells how ranks meet."

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "torch-store-port-forbidden",
        r"failed to bind to .{0,80}Permission denied",
        CAUSE,
        "The port of the rendezvous may only be used by root.",
        "Choose a port above 1023.",
        "https://github.com/liucongg/ChatGLM-Finetuning/issues/97",
    ),
    KnownError(
        "torch-store-port-in-use",
        r"server socket has failed to (?:bind|listen)|\bEADDRINUSE\b|errno: 98|\[Errno 98\]",
        CAUSE,
        "The port of the rendezvous is taken, mostly by an earlier job or by another one on this host.",
        "End the other process, or choose another port (--master-port).",
        "https://github.com/pytorch/pytorch/issues/73320",
    ),
    KnownError(
        "torch-environment-missing",
        r"environment variable \w{1,40} expected, but not set",
        CAUSE,
        "The program was started without what a launcher sets for each rank.",
        "Say the number of ranks with --slots, and choose a method that sets this for each, such as torchrun or spawn; plain sets nothing.",
        "https://docs.pytorch.org/docs/stable/distributed.html",
    ),
    KnownError(
        "torch-store-connect-failed",
        r"client socket has (?:failed to connect|timed out)|connect\(\) timed out\. Original timeout",
        CONSEQUENCE,
        "The first rank's store did not answer: that rank has died, is late, or its address or port is wrong.",
        f"Look at the first rank's output; then compare MASTER_ADDR and MASTER_PORT on all nodes. {_TOLD}",
        "https://github.com/pytorch/pytorch/issues/107021",
    ),
    KnownError(
        "torch-store-lost",
        (
            r"\[c10d\] (?:sendBytes|recvBytes|recvVector|recvValue|recvValueWithTimeout) failed|"
            r"^RuntimeError: (?:Connection reset by peer|Broken pipe|Connection refused|Socket Timeout|"
            r'Stop_waiting response is expected)|Failed to check the "should dump" flag on TCPStore|'
            r"failed to recv, got 0 bytes|Did the remote server shutdown or crash"
        ),
        CONSEQUENCE,
        "The first rank's store is gone: that rank has ended.",
        f"Look at the first rank's output, and at the rank that failed first. {_TOLD}",
        "https://github.com/qibin0506/Cortex/issues/17",
    ),
    KnownError(
        "torch-name-not-resolved",
        r"network addresses? of .{1,120} cannot be retrieved",
        CONSEQUENCE,
        (
            "The first rank's host name did not resolve; in Kubernetes that is usual at the start and mostly passes, but it "
            "may also stay so."
        ),
        "Look at the rank that failed first; if there is none, check the name in MASTER_ADDR.",
        "https://github.com/pytorch/pytorch/issues/73682",
    ),
    KnownError(
        "torch-init-timeout",
        (
            r"Timed out initializing process group in store based barrier|Timed out after \d+ seconds waiting for clients|"
            r"failed to pass monitoredBarrier|wait timeout after \d+ms, keys:"
        ),
        CONSEQUENCE,
        "Not all ranks joined in time; the missing ones have died, are late or were never started.",
        f"Look at the rank that failed first; compare the number of ranks that started with WORLD_SIZE. {_TOLD}",
        "https://github.com/facebookresearch/metaseq/issues/52",
    ),
    KnownError(
        "torch-rendezvous-failed",
        r"Rendezvous(?:Connection|Timeout|Closed|Graceful\w{1,12})Error",
        CONSEQUENCE,
        "torchrun's nodes did not come together, or one of them has left; sometimes its endpoint is wrong.",
        "Look at the node that failed first; then compare rdzv_endpoint on all nodes.",
        "https://github.com/pytorch/pytorch/issues/69197",
    ),
    KnownError(
        "torch-dataloader-shared-memory",
        (
            r"DataLoader worker \(pid \d+\) is killed by signal: Bus error|insufficient shared memory \(shm\)|"
            r"unable to (?:write to file|open shared memory object|allocate shared memory|"
            r"mmap \d+ bytes from file) .{0,80}torch_"
        ),
        CAUSE,
        "/dev/shm is too small for the data loading workers.",
        "Give the container more shared memory (--shm-size, or an emptyDir of medium Memory at /dev/shm), or use fewer workers.",
        "https://github.com/pytorch/pytorch/issues/5040",
    ),
    KnownError(
        "torch-dataloader-worker-killed",
        r"DataLoader worker \(pid \d+\) is killed by signal: (?:Killed|Segmentation fault|Aborted)",
        CAUSE,
        "A data loading worker was killed; by Killed, mostly because memory ran out.",
        "Use fewer workers or less prefetching; for other signals, run the data loading with num_workers=0.",
        "https://github.com/pytorch/pytorch/issues/5040",
    ),
    KnownError(
        "torch-dataloader-worker-told-to-end",
        r"DataLoader worker \(pid \d+\) is killed by signal: Terminated",
        CONSEQUENCE,
        "A data loading worker was told to end: something else has failed, or the job is being stopped, and torchrun tells them too.",
        "Look for the rank that failed before it; at a stop, let the workers ignore SIGTERM (worker_init_fn), or choose method spawn.",
        "https://github.com/pytorch/pytorch/issues/5040",
    ),
    WORKER_DIED,
    KnownError(
        "torch-ddp-unused-parameters",
        r"Expected to have finished reduction in the prior iteration",
        CAUSE,
        "Some parameters of the model got no gradient, so that DDP waits for them.",
        "Let every parameter take part in the loss, or set find_unused_parameters=True.",
        "https://github.com/pytorch/pytorch/issues/43259",
    ),
    KnownError(
        "torch-ddp-shapes-differ",
        r"DDP expects same model across all ranks|appears not to match (?:strides|sizes) of the same param in process",
        CAUSE,
        "The model differs between ranks.",
        "Build the same model on every rank: same configuration, same code.",
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/reducer.cpp",
    ),
    KnownError(
        "torch-process-group-missing",
        r"Default process group has not been initialized",
        CAUSE,
        "The program used torch.distributed before init_process_group.",
        "Call init_process_group first, or start the program with a launcher.",
        "https://github.com/yangdongchao/AcademiCodec/issues/52",
    ),
    KnownError(
        "torch-backend-missing",
        r"""Distributed package doesn't have (?:NCCL|MPI|UCC|GLOO)|Invalid backend: ['"]?hccl""",
        CAUSE,
        "This build of PyTorch lacks the backend that the program asks for.",
        "Install a build that has it; for hccl, import torch_npu first.",
        "https://docs.pytorch.org/docs/stable/distributed.html",
    ),
    KnownError(
        "torch-checkpoint-mismatch",
        r"Error\(s\) in loading state_dict for",
        CAUSE,
        "The checkpoint does not fit the model.",
        "Compare the model's configuration with that of the checkpoint.",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
    ),
    KnownError(
        "torch-checkpoint-corrupt",
        (
            r"PytorchStreamReader failed|invalid load key, |unexpected EOF, expected \d+ more bytes|pickle data was truncated|"
            r"SafetensorError: Error while deserializing|Ran out of input"
        ),
        CAUSE,
        "A checkpoint, or another stored file, is damaged or incomplete.",
        "Delete it and take the one before, or download it again.",
        "https://github.com/CompVis/stable-diffusion/issues/93",
    ),
    KnownError(
        "torch-checkpoint-write-failed",
        r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+",
        CAUSE,
        "A checkpoint could not be written, mostly because the disk is full.",
        "Make room on the disk, or keep fewer checkpoints.",
        "https://github.com/hiyouga/LlamaFactory/issues/1223",
    ),
    KnownError(
        "torch-extension-build-failed",
        r"Error building extension '|Command '\['ninja'",
        CAUSE,
        "An extension of PyTorch could not be compiled.",
        "Read the compiler's output above; install a compiler and CUDA or CANN headers, or use an image with the extension built.",
        "https://docs.pytorch.org/docs/stable/cpp_extension.html",
    ),
    KnownError(
        "deepspeed-loss-scale",
        r"Current loss scale already at minimum",
        CAUSE,
        "The loss became infinite or not a number, and DeepSpeed gave up lowering the loss scale.",
        "Lower the learning rate, use bf16, and look for bad data.",
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/fp16/loss_scaler.py",
    ),
    KnownError(
        "deepspeed-batch-size",
        r"batch_size is not equal to micro_batch_per_gpu|Check batch related parameters",
        CAUSE,
        "DeepSpeed's batch sizes do not fit the number of ranks.",
        "Let train_batch_size be micro batch × accumulation steps × ranks.",
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py",
    ),
    KnownError(
        "ray-actor-died",
        (
            r"ray\.exceptions\.(?:RayActorError|ActorDiedError|WorkerCrashedError|OwnerDiedError|NodeDiedError)|"
            r"The actor died (?:unexpectedly|because)"
        ),
        CONSEQUENCE,
        "A process that Ray started has died.",
        "Look at that process's own output, in Ray's folder of logs.",
        "https://docs.ray.io/en/latest/ray-core/api/exceptions.html",
    ),
)
# What says little: any other entry of the same kind wins.
VAGUE: tuple[KnownError, ...] = (
    KnownError(
        "torch-distributed-failed",
        r"^torch\.distributed\.Dist\w{0,12}Error\b",
        CONSEQUENCE,
        "A call of torch.distributed failed; the line does not tell whether this rank or another one is at fault.",
        "Look at the rank that failed first.",
        "https://docs.pytorch.org/docs/stable/distributed.html",
    ),
)
# What a process also says that has ended for another reason: any other entry wins.
AFTERMATH: tuple[KnownError, ...] = (
    KnownError(
        "torch-process-group-left",
        r"^terminate called without an active exception",
        CAUSE,
        "The process ended while a thread written in C++ was still at work: mostly one of a process group that was not destroyed.",
        "End the program with torch.distributed.destroy_process_group() (Accelerate: accelerator.end_training()).",
        "https://github.com/pytorch/pytorch/issues/190489",
    ),
    KnownError(
        "torchrun-ends-ranks",
        r"Sending process \d+ closing signal SIG",
        CONSEQUENCE,
        "torchrun ends its other ranks: one has failed, or torchrun was told to end.",
        "Look at the output of the rank that it does not name in these lines.",
        "https://docs.pytorch.org/docs/stable/elastic/errors.html",
    ),
)
# What a launcher says of its processes: any other consequence wins, and its tracebacks are not those of the program.
REPORTS: tuple[KnownError, ...] = (
    KnownError(
        "lightning-child-failed",
        r"Child process with PID \d+ terminated with code",
        CONSEQUENCE,
        "Lightning reports that a rank failed, and ends the others.",
        "Look at the output of the rank that the line names.",
        "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/strategies/launchers/subprocess_script.py",
    ),
    KnownError(
        "torchrun-child-failed",
        (
            r"\bChildFailedError\b|failed \(exitcode: -?\d+\) local_rank: \d|"
            r"Signal \d+ \(SIG\w{1,8}\) received by PID"
        ),
        CONSEQUENCE,
        "torchrun, or a launcher upon it, reports that a worker failed; why stands in the worker's own output.",
        "Look at the output of the rank that torchrun calls root cause.",
        "https://docs.pytorch.org/docs/stable/elastic/errors.html",
    ),
    KnownError(
        "torchrun-stopped",
        r"^(?:torch\.distributed\.elastic\.multiprocessing\.api\.)?SignalException: Process \d+ got signal",
        CONSEQUENCE,
        "torchrun was told to end by a signal.",
        "Look for who sent it: the platform, or a failure elsewhere.",
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/api.py",
    ),
    KnownError(
        "torch-spawned-process-failed",
        r"^(?:torch\.multiprocessing\.spawn\.)?Process(?:Raised|Exited)Exception\b",
        CONSEQUENCE,
        "torch.multiprocessing.spawn reports that a process failed.",
        "Read the traceback that follows, or that process's own output.",
        "https://docs.pytorch.org/docs/stable/multiprocessing.html",
    ),
    KnownError(
        "deepspeed-child-failed",
        r"\[launch\.py:\d+:sigkill_handler\] ",
        CONSEQUENCE,
        "DeepSpeed's launcher reports that a rank failed, and ends the others; a negative return code is a signal's number.",
        "Look at the rank's own output; -9 is mostly memory of the host.",
        "https://github.com/deepspeedai/DeepSpeed/issues/3232",
    ),
    KnownError(
        "launcher-command-failed",
        r"^(?:subprocess\.)?CalledProcessError: Command ",
        CONSEQUENCE,
        "A command that this process started has failed, such as the program that a launcher runs.",
        "Read what the command itself said above.",
        "https://github.com/deepspeedai/DeepSpeed/issues/1581",
    ),
)
