"""MindSpore and msrun."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "mindspore-node-registered-twice",
        r"Reason: Repeated registration node",
        CAUSE,
        ("A worker joined a scheduler that already has one of its number: the scheduler is that of another job, or one of an earlier job."),
        "End the other job, or choose another MS_SCHED_PORT.",
        "https://github.com/mindspore-ai/mindspore/blob/a54b91e6178d4acf979966b412bc895fc9d42823/mindspore/ccsrc/distributed/cluster/topology/compute_graph_node.cc",
    ),
    KnownError(
        "mindspore-cluster-timeout",
        # Both stand in every good start too, the first with "retry(1/1200)" behind it, the other as "try to reconnect".
        r"Topology build timed out(?!\.?, retry\()|Failed to register the compute graph node",
        CONSEQUENCE,
        "The processes of MindSpore's cluster did not all come together in time; some have died, are late or were never started.",
        "Look at the worker that failed first; compare MS_WORKER_NUM, MS_SCHED_HOST and MS_SCHED_PORT on all nodes.",
        "https://github.com/mindspore-ai/mindspore/blob/a54b91e6178d4acf979966b412bc895fc9d42823/mindspore/ccsrc/distributed/cluster/cluster_context.cc",
    ),
    KnownError(
        "mindspore-node-lost",
        r"The total number of timed out node is|The node: \S{1,60} is timed out",
        CONSEQUENCE,
        "MindSpore's scheduler no longer hears from a worker: that worker has ended.",
        "Look at the log of the worker that the line names first.",
        "https://github.com/mindspore-ai/mindspore/blob/a54b91e6178d4acf979966b412bc895fc9d42823/mindspore/ccsrc/distributed/cluster/topology/meta_server_node.cc",
    ),
    KnownError(
        "mindspore-device-memory",
        r"Malloc device memory failed|Out of Memory!!! Request memory size",
        CAUSE,
        "MindSpore got no memory on the device: another process holds it, or the batch is too large.",
        "End other processes on the device, or use a smaller batch.",
        "https://www.mindspore.cn/docs/en/master/faq/implement_problem.html",
    ),
)
# What a launcher says of its processes: any other consequence wins, and its tracebacks are not those of the program.
REPORTS: tuple[KnownError, ...] = (
    KnownError(
        "msrun-worker-failed",
        (
            r"_api\.py:\d+\] (?:There's worker exits with exception|Worker process \d+ exit with exception|"
            r"Scheduler process \d+ exit with exception|Time out nodes are)"
        ),
        CONSEQUENCE,
        "msrun reports that a process failed; why stands in that process's own log.",
        "Look at the log of the worker that failed first (worker_N.log).",
        "https://github.com/candle-org/MindAct/issues/1893",
    ),
)
