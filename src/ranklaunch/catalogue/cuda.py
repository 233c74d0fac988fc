"""NVIDIA GPUs: the CUDA runtime, its libraries and the driver."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "cuda-out-of-memory",
        r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|cuda runtime error \(2\)",
        CAUSE,
        "The memory of the GPU is exhausted.",
        "Use a smaller batch or shard the model further; check with nvidia-smi whether other processes hold memory.",
        "https://github.com/pytorch/pytorch/issues/18853",
    ),
    KnownError(
        "cuda-ecc-error",
        r"uncorrectable ECC error|CUDA_ERROR_ECC_UNCORRECTABLE",
        CAUSE,
        "The GPU's memory has an error that could not be corrected: its hardware is failing.",
        "Start again on another GPU or node, and have this one checked.",
        "https://github.com/vllm-project/vllm/issues/5222",
    ),
    KnownError(
        "cuda-xid",
        r"NVRM: Xid \(|GPU has fallen off the bus|Unable to determine the device handle for GPU",
        CAUSE,
        "The NVIDIA driver reports a fault of the GPU; the number after Xid says which.",
        "Start again on another node, and look the number up in NVIDIA's list of Xid errors.",
        "https://docs.nvidia.com/deploy/xid-errors/index.html",
    ),
    KnownError(
        "cuda-illegal-memory-access",
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS",
        CAUSE,
        "A kernel accessed memory that is not its own: a defect in the program or in a library.",
        "CUDA_LAUNCH_BLOCKING=1 makes the traceback name the right call; compute-sanitizer finds the access.",
        "https://github.com/vllm-project/vllm/issues/4108",
    ),
    KnownError(
        "cuda-device-assert",
        r"device-side assert triggered|\.cuh?:\d+: .{0,200}Assertion `",
        CAUSE,
        "A kernel refused a value, mostly a label or an index that is out of range.",
        "Read the assertion's text; check the number of classes and the size of the embedding against the data.",
        "https://github.com/layumi/Person_reID_baseline_pytorch/issues/372",
    ),
    KnownError(
        "cuda-launch-failure",
        r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|CUDA error: misaligned address|CUDA error: an illegal instruction",
        CAUSE,
        "A kernel failed on the GPU.",
        "CUDA_LAUNCH_BLOCKING=1 makes the traceback name the right call; if it comes back on this GPU only, have it checked.",
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
    ),
    KnownError(
        "cuda-no-kernel-image",
        r"no kernel image is available for execution",
        CAUSE,
        "PyTorch, or an extension of it, was built for other GPUs than this one.",
        "Install a build for this GPU's architecture, or build the extension with TORCH_CUDA_ARCH_LIST.",
        "https://github.com/pytorch/pytorch/issues/31285",
    ),
    KnownError(
        "cuda-driver-too-old",
        (
            r"(?<!CUDA initialization: )The NVIDIA driver on your system is too old|CUDA driver version is insufficient|"
            r"system has unsupported display driver|PTX was compiled with an unsupported toolchain"
        ),
        CAUSE,
        "The host's NVIDIA driver is older than what the image's CUDA needs.",
        "Update the driver, or use an image with an older CUDA.",
        "https://github.com/NVIDIA/nvidia-docker/issues/400",
    ),
    KnownError(
        "cuda-no-device",
        (
            r"(?<!CUDA initialization: )Found no NVIDIA driver on your system|"
            r"(?<!CUDA_ERROR_NO_DEVICE: )no CUDA-capable device is detected|No CUDA GPUs are available"
        ),
        CAUSE,
        "The process sees no GPU: the container has none, or CUDA_VISIBLE_DEVICES hides them.",
        "Check with nvidia-smi in the container; compare CUDA_VISIBLE_DEVICES and what the job asked for.",
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
    ),
    KnownError(
        "cuda-device-busy",
        r"CUDA-capable devices? (?:are|is) busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE",
        CAUSE,
        "The GPU is held by another process in exclusive mode, or is not healthy.",
        "Look for other processes with nvidia-smi, and at its compute mode.",
        "https://github.com/pytorch/pytorch/issues/2704",
    ),
    KnownError(
        "cuda-invalid-device",
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE",
        CAUSE,
        "The process asked for a GPU that it does not see: more ranks than GPUs, or CUDA_VISIBLE_DEVICES counted twice.",
        "Compare the number of ranks per node with the visible GPUs.",
        "https://github.com/pytorch/torchtitan/issues/423",
    ),
    KnownError(
        "cuda-nvlink-fabric",
        r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|uncorrectable NVLink error",
        CAUSE,
        "The node's NVLink fabric is not ready or has failed.",
        "Check that NVIDIA Fabric Manager runs on the host in the driver's version; use another node meanwhile.",
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
    ),
    KnownError(
        "cuda-forked",
        r"Cannot re-initialize CUDA in forked subprocess",
        CAUSE,
        "A process was forked after it had used CUDA.",
        "Use the start method spawn, or keep CUDA out of the parent and of data loading workers.",
        "https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",
    ),
    KnownError(
        "cuda-cublas-failed",
        (
            r"CUBLAS_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR)|CUDNN_STATUS_(?:NOT_INITIALIZED|"
            r"EXECUTION_FAILED|INTERNAL_ERROR)"
        ),
        CAUSE,
        "cuBLAS or cuDNN failed, often because no memory is left on the GPU, or after an index out of range.",
        "Leave memory free; CUDA_LAUNCH_BLOCKING=1 makes the traceback name the right call.",
        "https://docs.nvidia.com/cuda/cublas/index.html",
    ),
    KnownError(
        "torch-without-cuda",
        r"Torch not compiled with CUDA enabled",
        CAUSE,
        "The image has a build of PyTorch without CUDA.",
        "Install a build with CUDA.",
        "https://github.com/Comfy-Org/ComfyUI/pull/16438",
    ),
)
