"""Linux, the C library and the container."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "host-name-not-resolved",
        r"[Cc]ould not resolve host|Temporary failure in name resolution|Name or service not known|nodename nor servname provided",
        CAUSE,
        "The name of a host does not resolve; in Kubernetes it often does a little later.",
        "Let ranklaunch wait for the names, or check the service and the DNS of the job.",
        "https://github.com/kubeflow/mpi-operator/issues/386",
    ),
    KnownError(
        "exec-format-error",
        r"[Ee]xec format error",
        CAUSE,
        "A program is built for another kind of processor (x86 or ARM), or its first line is missing.",
        "Use an image for this machine's processor; begin a script with a line such as #!/bin/sh.",
        "https://man7.org/linux/man-pages/man2/execve.2.html",
    ),
    KnownError(
        "script-without-interpreter",
        r"^ranklaunch: cannot execute .{1,4096}: its first line does not say what runs it",
        CAUSE,
        "The program is a script, and its first line does not name the interpreter.",
        "Begin it with a line such as #!/bin/sh, or start it through its interpreter.",
        "https://man7.org/linux/man-pages/man2/execve.2.html",
    ),
    KnownError(
        "program-not-executed",
        r"^ranklaunch: cannot execute ",
        CAUSE,
        "The system refuses to start the program; why is at the end of the line.",
        "Correct that: an interpreter in the first line of a script that is not there, or one variable or argument above 128 kB.",
        "https://man7.org/linux/man-pages/man2/execve.2.html",
    ),
    KnownError(
        "kernel-out-of-memory",
        r"Out of memory: Killed process|Memory cgroup out of memory|oom-kill(?:er)? event|oom_kill event|invoked oom-killer|\boom-kill:",
        CAUSE,
        "The kernel killed a process because memory ran out.",
        "Give the job more memory, or use less: fewer data loading workers, less caching.",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html",
    ),
    KnownError(
        "memory-exhausted",
        r"Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator: (?:can't allocate|not enough) memory",
        CAUSE,
        "The host's memory, or the limit of this process, is exhausted.",
        "Give the job more memory, or use less: fewer data loading workers, smaller batches.",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
    ),
    KnownError(
        "too-many-open-files",
        r"Too many open files|received 0 items of ancdata",
        CAUSE,
        "The process ran out of file descriptors.",
        'Raise the limit (ulimit -n), use fewer data loading workers, or torch.multiprocessing.set_sharing_strategy("file_system").',
        "https://github.com/pytorch/pytorch/issues/973",
    ),
    KnownError(
        "too-many-processes",
        # Sockets and locks say that it is unavailable, too.
        r"can't start new thread|pthread_create failed|(?:\bfork: |retry: |Thread creation failed: |what\(\):  |"
        r"BlockingIOError: \[Errno 11\] )Resource temporarily unavailable",
        CAUSE,
        "No further process or thread could be started: a limit on their number is reached.",
        "Raise the limit on processes of the container, or use fewer threads (OMP_NUM_THREADS).",
        "https://man7.org/linux/man-pages/man2/fork.2.html",
    ),
    KnownError(
        "no-space-left",
        r"No space left on device",
        CAUSE,
        "A disk is full, or /dev/shm is.",
        "Make room where the program writes: checkpoints, caches, /tmp, /dev/shm.",
        "https://github.com/hiyouga/LlamaFactory/issues/5155",
    ),
    KnownError(
        "quota-exceeded",
        r"Disk quota exceeded",
        CAUSE,
        "The quota of the file system is used up.",
        "Delete what is no longer needed, or have the quota raised.",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
    ),
    KnownError(
        "read-only-file-system",
        r"Read-only file system",
        CAUSE,
        "The program writes to where it may only read.",
        "Let it write elsewhere, or mount the folder writable.",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
    ),
    KnownError(
        "file-system-lost",
        r"Stale file handle|Transport endpoint is not connected",
        CAUSE,
        "A mounted file system went away while the program used it.",
        "Have the mount and its server checked; start again.",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
    ),
    KnownError(
        "input-output-error",
        r"(?:\bfailed with |\[Errno 5\] |: )Input/output error",
        CAUSE,
        "The disk or the mounted file system failed to read or write.",
        "Check its free space and its health; start again on another node.",
        "https://github.com/pytorch/pytorch/issues/10577",
    ),
    KnownError(
        "segmentation-fault",
        (
            r"Fatal Python error: Segmentation fault|Signal: Segmentation fault \(11\)|Caught signal 11|"
            r"^(?:.{1,120}: line \d+: +\d+ )?Segmentation fault"
        ),
        CAUSE,
        "The process accessed memory that is not its own: a defect in compiled code.",
        "PYTHONFAULTHANDLER=1 shows where; look for packages that do not fit each other.",
        "https://docs.python.org/3/library/faulthandler.html",
    ),
    KnownError(
        "bus-error",
        r"Fatal Python error: Bus error|Signal: Bus error \(7\)|Caught signal 7|^(?:.{1,120}: line \d+: +\d+ )?Bus error",
        CAUSE,
        "Memory behind a file was not there: mostly /dev/shm is full, else a mapped file became shorter.",
        "Give the container more shared memory; check the file system.",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    KnownError(
        "illegal-instruction",
        (
            r"Fatal Python error: Illegal instruction|Signal: Illegal instruction|Caught signal 4|"
            r"^(?:.{1,120}: line \d+: +\d+ )?Illegal instruction"
        ),
        CAUSE,
        "A library uses instructions that this processor does not have.",
        "Use a build of the library for this processor.",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    KnownError(
        "heap-corrupted",
        r"double free or corruption|malloc\(\): |free\(\): invalid|corrupted size vs\. prev_size|\*\*\* stack smashing detected",
        CAUSE,
        "The process damaged its own memory: a defect in compiled code.",
        "Look for packages that do not fit each other, and for extensions of one's own.",
        "https://man7.org/linux/man-pages/man3/mallopt.3.html",
    ),
)
# What says little: any other entry of the same kind wins.
VAGUE: tuple[KnownError, ...] = (
    KnownError(
        "command-not-found",
        r": command not found$|\bsh: \d{1,6}: .{1,120}: not found$|executable file not found in \$PATH",
        CAUSE,
        "A program is not installed, or not on PATH.",
        "Install it in the image, or correct PATH.",
        "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html",
    ),
    KnownError(
        "process-killed",
        r"^(?:.{1,120}: line \d+: +\d+ )?Killed\b|^(?:.{1,120}: line \d+: +\d+ )?Terminated\b",
        CONSEQUENCE,
        "Somebody killed the process: the kernel for memory, the platform, or a launcher after a failure elsewhere.",
        "Look at the memory of the container first; then at who stops the job.",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
)
# Libraries that do not load. Like exceptions of Python, they count only where the program did not go on without.
LIBRARIES: tuple[KnownError, ...] = (
    KnownError(
        "ascend-library-missing",
        (
            r"^(?:ImportError|OSError): lib(?:ascendcl|ascend_hal|hccl|atb|ge_runner|graph|runtime|opapi|msprofiler|"
            r"nnopbase)\.so[.\d]{0,12}: cannot open shared object file"
        ),
        CAUSE,
        "A library of CANN or of the NPU driver is not found.",
        "Source CANN's set_env.sh before the job, and mount the driver's folder into the container.",
        "https://github.com/vllm-project/vllm-ascend/issues/152",
    ),
    KnownError(
        "static-tls-exhausted",
        r"cannot allocate memory in static TLS block",
        CAUSE,
        "Libraries were loaded in an order that leaves no room for one of them.",
        "Import the module that the line names first, or put its library into LD_PRELOAD.",
        "https://github.com/Ascend/pytorch/issues/7",
    ),
    KnownError(
        "glibc-too-old",
        r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,12}' not found",
        CAUSE,
        "A compiled library needs a newer C or C++ library than the image has.",
        "Use a build for this image's system, or an image with a newer one.",
        "https://github.com/intel/ipex-llm/issues/10517",
    ),
    KnownError(
        "shared-library-missing",
        r"^(?:ImportError|OSError): .{1,200}: cannot open shared object file|error while loading shared libraries: ",
        CAUSE,
        "A library that the program needs is not found.",
        "Install it, or add its folder to LD_LIBRARY_PATH.",
        "https://github.com/CannyLab/tsne-cuda/issues/126",
    ),
    KnownError(
        "symbol-missing",
        r"^(?:ImportError|OSError|RuntimeError): .{1,300}undefined symbol: |symbol lookup error: ",
        CAUSE,
        "Two compiled packages do not fit each other, such as an extension built for another version of PyTorch.",
        "Reinstall the package that the line names for the installed versions.",
        "https://man7.org/linux/man-pages/man8/ld.so.8.html",
    ),
)
