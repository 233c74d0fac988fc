"""Open MPI, MPICH, and ssh, by which they start."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "ssh-denied",
        r"Permission denied \((?:publickey|password|gssapi|keyboard)|Host key verification failed|Authentication refused: bad ownership",
        CAUSE,
        "ssh to another host was refused.",
        "Check the keys, their owner and their modes (0600), and the known hosts.",
        "https://github.com/kubeflow/mpi-operator/issues/424",
    ),
    KnownError(
        "ssh-port-taken",
        r"Bind to port \d{1,5} on \S{1,64} failed: Address already in use",
        CAUSE,
        "Another program on this node listens at the port of the job's own sshd.",
        "RANKLAUNCH_SSHD_PORT names another, the same on every node; on the hosts' network, one that no other job has.",
        "https://github.com/openssh/openssh-portable/blob/V_9_2_P1/sshd.c",
    ),
    KnownError(
        "mpi-program-missing",
        (
            r"orted: (?:command )?not found|prted: (?:command )?not found|was unable to (?:find the specified executable|"
            r"launch the specified application)"
        ),
        CAUSE,
        "mpirun did not find a program on one of the hosts.",
        "Use the same image on every host; check PATH and the prefix of Open MPI there.",
        "https://github.com/open-mpi/ompi/blob/v4.1.6/orte/tools/orterun/help-orterun.txt",
    ),
    KnownError(
        "mpi-not-enough-slots",
        r"There are not enough slots available in the system",
        CAUSE,
        "The host file offers fewer slots than ranks were asked for.",
        "Compare slots in the host file with the number of ranks.",
        "https://github.com/h5py/h5py/issues/2627",
    ),
    KnownError(
        "mpi-run-as-root",
        r"mpirun has detected an attempt to run as root|prterun has detected an attempt to run as root",
        CAUSE,
        "Open MPI refuses to run as root.",
        "Set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or use another user.",
        "https://github.com/open-mpi/ompi/blob/v4.1.6/orte/tools/orterun/help-orterun.txt",
    ),
    KnownError(
        "mpi-daemon-lost",
        r"(?:ORTE|PRTE|PRRTE) has lost communication with",
        CONSEQUENCE,
        "mpirun lost the daemon of another host: that host or its container has ended, or the network failed.",
        "Look at what ended on the host that the lines below name.",
        "https://github.com/open-mpi/ompi/issues/6618",
    ),
    KnownError(
        "mpi-daemon-failed-at-launch",
        (
            r"(?:ORTE|PRTE) daemon has unexpectedly failed after launch|(?:ORTE|"
            r"PRTE) was unable to reliably start one or more daemons|A daemon died unexpectedly"
        ),
        CONSEQUENCE,
        (
            "A daemon of mpirun did not start on another host; mostly ssh or that host failed, else paths or the network "
            "between them are wrong."
        ),
        "Read the lines before this one: ssh says there why; then check the output of that host.",
        "https://github.com/open-mpi/ompi/blob/v4.1.6/orte/mca/errmgr/base/help-errmgr-base.txt",
    ),
    KnownError(
        "mpi-peer-connection-lost",
        (
            r"mca_btl_tcp_\w{1,40}\] (?:recv|send|readv|writev|remote peer|peer)|"
            r"btl_tcp\w{0,30}\.c:\d{1,5}:\w{1,60}\] .{0,60}failed|UCX +ERROR .{0,120}(?:reset by|timed out|Broken pipe|"
            r"Endpoint timeout)|failed to TCP connect to a peer MPI"
        ),
        CONSEQUENCE,
        "The connection to another rank broke: mostly that rank has died.",
        "Look at the rank that failed first.",
        "https://github.com/open-mpi/ompi/issues/1620",
    ),
    KnownError(
        "horovod-shut-down",
        r"Horovod has been shut down|\bHorovodInternalError\b",
        CONSEQUENCE,
        "Horovod ended because of a failure on some rank.",
        "Look at the rank that failed first.",
        "https://github.com/horovod/horovod/blob/master/horovod/common/common.h",
    ),
)
# What a launcher says of its processes: any other consequence wins, and its tracebacks are not those of the program.
REPORTS: tuple[KnownError, ...] = (
    KnownError(
        "mpi-abort",
        r"MPI_ABORT was invoked on rank|application called MPI_Abort",
        CONSEQUENCE,
        "A rank ended the whole job by MPI_Abort; why stands in that rank's own output.",
        "Look at what the rank that the line names said before.",
        "https://github.com/open-mpi/ompi/blob/8efebee745e15516a7f5f1f295df86c78014c76c/ompi/mpi/help-mpi-api.txt",
    ),
    KnownError(
        "mpi-rank-died",
        (
            r"\w noticed that (?:process rank|the job aborted)|\w has exited due to (?:process rank|a process)|"
            r"\w detected that one or more processes exited|BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES|"
            r"Primary job +terminated normally, but"
        ),
        CONSEQUENCE,
        "mpirun reports that a rank died; why stands in that rank's own output.",
        "Look at the output of the rank that the line names.",
        "https://github.com/open-mpi/ompi/blob/v4.1.6/orte/tools/orterun/help-orterun.txt",
    ),
)
