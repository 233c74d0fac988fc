"""NCCL, by itself and through PyTorch."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "nccl-cuda-out-of-memory",
        r"NCCL WARN Cuda failure (?:2 )?'out of memory'|^Cuda failure (?:2 )?'out of memory'|NCCL WARN Failed to CUDA (?:calloc|malloc)",
        CAUSE,
        "NCCL found no memory on the GPU for its buffers.",
        "Leave some of the GPU's memory free: use a smaller batch, or a lower NCCL_BUFFSIZE.",
        "https://github.com/NVIDIA/nccl/issues/1235",
    ),
    KnownError(
        "nccl-duplicate-gpu",
        r"Duplicate GPU detected",
        CAUSE,
        "Two ranks use the same GPU.",
        "Choose the GPU by LOCAL_RANK, and check CUDA_VISIBLE_DEVICES.",
        "https://github.com/verl-project/verl/issues/161",
    ),
    KnownError(
        "nccl-shared-memory",
        r"creating shared memory segment|failed to extend /dev/shm/nccl|posix_fallocate failed",
        CAUSE,
        "/dev/shm is too small or full, so that NCCL cannot use it.",
        "Give the container more shared memory (--shm-size, or an emptyDir of medium Memory at /dev/shm).",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    KnownError(
        "nccl-memory-registration",
        r"Call to ibv_reg_mr\w{0,16} failed",
        CAUSE,
        (
            "NCCL could not register memory for InfiniBand: the limit on locked memory is too low, or GPU memory cannot be "
            "shared with the adapter."
        ),
        "Raise the limit (ulimit -l unlimited); check nvidia-peermem on the host.",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    KnownError(
        "nccl-interface-not-found",
        (
            r"is neither AF_INET\(2\) nor AF_INET6\(10\)|no (?:NCCL_SOCKET_IFNAME |usable )?(?:socket )?interface found|"
            r"No IP interface found"
        ),
        CAUSE,
        "NCCL found no network interface that it may use.",
        "Check that NCCL_SOCKET_IFNAME names an interface of this container.",
        "https://github.com/NVIDIA/nccl/issues/1837",
    ),
    KnownError(
        "nccl-version-mismatch",
        r"[Mm]ismatched NCCL version",
        CAUSE,
        "The ranks use different versions of NCCL.",
        "Use the same image on every node.",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    KnownError(
        "nccl-collective-mismatch",
        r"NET/\w{1,8} : collective mismatch|Detected mismatch between collectives on ranks",
        CAUSE,
        "Ranks called different collective operations: the program takes different ways on different ranks.",
        "Find what differs between ranks; TORCH_DISTRIBUTED_DEBUG=DETAIL names the calls.",
        "https://github.com/NVIDIA/nccl/issues/531",
    ),
    KnownError(
        "nccl-communicator-aborted",
        r"NCCL communicator was aborted on rank",
        CONSEQUENCE,
        "NCCL's communicator was ended after a failure or a timeout; the line says which.",
        "Look at the rank that failed first.",
        "https://github.com/BinItAI/visdet/issues/14",
    ),
    KnownError(
        "nccl-collective-timeout",
        r"caught collective operation timeout: WorkNCCL|Timeout at NCCL work|Some NCCL operations have failed or timed out",
        CONSEQUENCE,
        "A collective operation took too long; mostly another rank has died, hangs or is late, but this rank may be the late one.",
        "Look at the rank that failed first, or that did not report this.",
        "https://github.com/pytorch/pytorch/issues/118369",
    ),
    KnownError(
        "nccl-heartbeat-timeout",
        r"Heartbeat monitor timed out|watchdog got stuck for \d+ seconds",
        CONSEQUENCE,
        "PyTorch's watchdog could not go on: a call of NCCL or CUDA hangs, mostly because another rank does not take part.",
        "Look at the rank that failed first or hangs.",
        "https://github.com/hiyouga/LlamaFactory/issues/6953",
    ),
    KnownError(
        "nccl-unique-id-timeout",
        r"is setting up NCCL communicator and retr(?:ie|ei)ving ncclUniqueId from",
        CONSEQUENCE,
        "The first rank of the group did not provide NCCL's address in time: it has died, is late, or cannot be reached.",
        "Look at the rank that the line names.",
        "https://github.com/zai-org/ChatGLM-6B/issues/1232",
    ),
    KnownError(
        "nccl-peer-connection-lost",
        (
            r"ncclRemoteError|remote process exited or there was a network error|socketProgress\w{0,6}: |"
            r"\bNet : (?:Connection closed|Call to )|Connection closed by remote peer|Socket recv failed while polling"
        ),
        CONSEQUENCE,
        "The connection to another rank broke; mostly that rank has died, rarely the network failed.",
        "Look at the rank that failed first; if there is none, check the network.",
        "https://github.com/NVIDIA/nccl/issues/2076",
    ),
    KnownError(
        "nccl-ib-completion-error",
        r"NET/IBP? ?: Got completion (?:from peer .{0,120})?with (?:status|error)",
        CONSEQUENCE,
        "InfiniBand gave up on a transfer; the peer may have died, or the link between the hosts is broken.",
        "Look at the rank that failed first; if there is none, check ports, cables and GID index (status 12: the peer did not answer).",
        "https://github.com/NVIDIA/nccl/issues/1814",
    ),
    KnownError(
        "nccl-connect-failed",
        (
            r"socketStartConnect: Connect to|Call to connect (?:to .{0,100})?(?:failed|returned)|socketPollConnect|"
            r"Call to ibv_modify_qp failed"
        ),
        CONSEQUENCE,
        "A connection to another rank was not accepted; that rank may have died, or the network does not let it through.",
        "Look at the rank that failed first; then check NCCL_SOCKET_IFNAME and the firewall between the hosts.",
        "https://github.com/NVIDIA/nccl/issues/975",
    ),
    KnownError(
        "nccl-cuda-failure",
        r"ncclUnhandledCudaError|NCCL WARN Cuda failure|^Cuda failure |unhandled cuda error",
        CAUSE,
        "A CUDA call that NCCL made failed on this GPU.",
        'Read the text after "Cuda failure"; check driver, GPU health and free memory.',
        "https://github.com/NVIDIA/nccl/issues/1410",
    ),
)
# What says little: any other entry of the same kind wins.
VAGUE: tuple[KnownError, ...] = (
    KnownError(
        "nccl-call-failed",
        r"NCCL error in: |DistBackendError\b|NCCL failure |ncclSystemError|ncclInternalError|ncclInvalid|ncclCommInitRank failed",
        CONSEQUENCE,
        "A call of NCCL failed; the line does not tell whether this rank or another one is at fault.",
        "Look at the rank that failed first; NCCL_DEBUG=WARN makes NCCL say more.",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
)
