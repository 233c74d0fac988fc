"""Ascend NPUs: the runtime (ACL), the driver and torch_npu. Codes such as 507018 are those of CANN."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    # Memory and hardware of the device
    KnownError(
        "npu-out-of-memory",
        (
            r"NPU out of memory|(?:error code(?: is|:)|runtime result =|failed ?:) ?207001\b|(?:error code(?: is|:)|"
            r"runtime result =|failed ?:) ?207018\b"
        ),
        CAUSE,
        "The memory of the NPU is exhausted.",
        "Use a smaller batch or shard the model further; check with npu-smi whether other processes hold memory.",
        "https://github.com/xingchensong/TouchNet/issues/100",
    ),
    KnownError(
        "npu-memory-ecc-error",
        r"HBM MULTI BIT ECC ERROR|\bUCE ERROR\b|SUSPECT MEM ERROR",
        CAUSE,
        "The NPU's memory has an error that could not be corrected.",
        "Start again on another device or node, and have this one checked.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/core/npu/NPUException.cpp",
    ),
    KnownError(
        "npu-link-error",
        r"\b(?:HCCS|UB) LINK ERROR\b",
        CAUSE,
        "The link between NPUs of the node has failed.",
        "Start again on another node, and have this one checked.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/core/npu/NPUException.cpp",
    ),
    KnownError(
        "npu-suspect-remote-507057",
        r"SUSPECT REMOTE ERROR|error code(?: is|:) ?507057\b",
        CONSEQUENCE,
        "The runtime suspects that the failure arose on another device.",
        "Look at the rank that failed first.",
        "https://github.com/vllm-project/vllm-ascend/issues/10829",
    ),
    KnownError(
        "npu-force-stop",
        r"FORCE STOP\b",
        CONSEQUENCE,
        "The device's tasks were stopped on request, as part of handling a failure elsewhere.",
        "Look at the rank that failed first.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/core/npu/NPUException.cpp",
    ),
    # Codes of the runtime
    KnownError(
        "npu-task-scheduler-error-507001",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507001\b|(?:error code(?: is|:)|runtime result =|failed ?:) ?507010\b",
        CAUSE,
        "The task scheduler of the device reports an internal error or has stopped answering.",
        "Read what CANN's logs (plog) say before the line; if it comes back on this device only, have the device checked.",
        "https://github.com/vllm-project/vllm-ascend/issues/116",
    ),
    KnownError(
        "npu-soc-version-507008",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507008\b",
        CAUSE,
        "The driver does not tell which chip this is: it is missing, damaged or not visible in the container.",
        "Check that npu-smi works in the container, and that driver and CANN fit each other.",
        "https://github.com/PaddlePaddle/PaddleOCR/issues/16162",
    ),
    KnownError(
        "npu-model-execution-507011",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507011\b",
        CAUSE,
        "The device could not execute the model.",
        "Read what CANN's logs (plog) say before the line.",
        "https://github.com/vllm-project/vllm-ascend/issues/7676",
    ),
    KnownError(
        "npu-dma-error-507013",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507013\b",
        CAUSE,
        "A copy inside the device failed in its hardware.",
        "If it comes back on this device only, have the device checked; else look for an access beyond a tensor's end.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/core/npu/NPUErrorCodes.h",
    ),
    KnownError(
        "npu-aicore-timeout-507014",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507014\b|(?:error code(?: is|:)|runtime result =|failed ?:) ?507034\b",
        CAUSE,
        "An operator ran too long on an AI core.",
        "Find the operator in CANN's logs (plog); ASCEND_LAUNCH_BLOCKING=1 makes the traceback name the right call.",
        "https://github.com/hw-native-sys/PTOAS/pull/726",
    ),
    KnownError(
        "npu-aicore-exception-507015",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507015\b|The aicore execution is abnormal",
        CAUSE,
        "An operator failed on an AI core, mostly by an access outside of a tensor.",
        "ASCEND_LAUNCH_BLOCKING=1 makes the traceback name the right call; check indices and shapes there.",
        "https://github.com/tile-ai/tilelang-ascend/issues/82",
    ),
    KnownError(
        "npu-aicpu-exception-507018",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?50701[78]\b|The aicpu execution is abnormal",
        CAUSE,
        "An operator failed on an AI CPU, mostly because of a value that it does not take, such as an index out of range.",
        "ASCEND_LAUNCH_BLOCKING=1 makes the traceback name the right call; check its arguments.",
        "https://github.com/hiyouga/LlamaFactory/issues/4372",
    ),
    KnownError(
        "npu-internal-task-507049",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507049\b|(?:error code(?: is|:)|runtime result =|failed ?:) ?507050\b",
        CAUSE,
        "A task inside an operation failed on the device.",
        "Read what CANN's logs (plog) say before the line; ASCEND_LAUNCH_BLOCKING=1 makes the traceback name the right call.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/core/npu/NPUErrorCodes.h",
    ),
    KnownError(
        "npu-device-start-507033",
        r"error code(?: is|:) ?507033\b|Failed to start the device\.",
        CAUSE,
        "The device did not start, mostly because CANN's packages do not fit driver or chip, or an earlier job still holds the device.",
        "Check with npu-smi what runs on the device, and that driver, CANN and its operator package fit each other.",
        "https://github.com/vllm-project/vllm-ascend/issues/4284",
    ),
    KnownError(
        "npu-vector-core-exception-507035",
        r"error code(?: is|:) ?507035\b|The vector core execution is abnormal",
        CAUSE,
        "An operator failed on a vector core, mostly by an access outside of a tensor.",
        "ASCEND_LAUNCH_BLOCKING=1 makes the traceback name the right call; check indices and shapes there.",
        "https://github.com/Ascend/pytorch/issues/66",
    ),
    KnownError(
        "npu-driver-error-507899",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507899\b",
        CAUSE,
        "The driver of the NPU reports an internal error.",
        "Check that npu-smi shows the device as healthy and visible in the container; reset it or use another node if not.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/core/npu/NPUErrorCodes.h",
    ),
    KnownError(
        "npu-connection-to-device-507901",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507901\b",
        CAUSE,
        "The connection between host and device broke: the device was reset or has failed.",
        "Check its health with npu-smi; use another node if it does not come back.",
        "https://github.com/hw-native-sys/simpler/issues/2239",
    ),
    # Start and installation
    KnownError(
        "npu-visible-devices-wrong",
        r"set ASCEND_RT_VISIBLE_DEVICES:.{0,80} error",
        CAUSE,
        "ASCEND_RT_VISIBLE_DEVICES names a device that the container does not have.",
        "Number the devices from 0 as the container sees them, or leave the variable to ranklaunch.",
        "https://github.com/gpustack/gpustack/issues/3352",
    ),
    KnownError(
        "npu-driver-interface",
        r"\bdcmi (?:model|module) initialized? failed|\bdcmi module initialize failed",
        CAUSE,
        "The container cannot talk to the NPU driver: the device is held by another container, or the driver is not mounted.",
        "End the other container, or mount /dev/davinci*, /dev/davinci_manager, /dev/hisi_hdc and the driver's folder.",
        "https://github.com/vllm-project/vllm-ascend/issues/632",
    ),
    KnownError(
        "npu-operator-failed",
        r"call aclnn\w{1,60} failed|\bERR01007 OPS feature not supported",
        CAUSE,
        "An operator could not be called on the NPU: no kernel for it is installed, or it does not take these shapes or types.",
        "Read the lines below; check that CANN's operator package for this chip is installed.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/docs/zh/user_guide/troubleshooting/troubleshooting_cases/operator_called_error.md",
    ),
    KnownError(
        "cann-compiler-init-500001",
        r"(?:error code(?: is|:)|result =) ?500001\b",
        CAUSE,
        "CANN's operator compiler did not start, mostly because a Python package that it needs is missing in the image.",
        "Install numpy, decorator, sympy, cffi, protobuf, attrs, pyyaml, scipy, psutil and absl-py; source CANN's set_env.sh.",
        "https://github.com/Ascend/pytorch/issues/7",
    ),
)
# What says little: any other entry of the same kind wins.
VAGUE: tuple[KnownError, ...] = (
    KnownError(
        "npu-wait-timeout-107020",
        r"error code(?: is|:) ?(?:107019|107020)\b",
        CONSEQUENCE,
        "A wait for a task of the device timed out; mostly another rank has died or is late, but the task itself may hang.",
        "Look at the rank that failed first; then at HCCL's own messages near the line.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/utils/_error_code.py",
    ),
    KnownError(
        "npu-stream-timeout-507046",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?50704[67]\b",
        CONSEQUENCE,
        "The device did not finish its tasks in time; mostly it waits for another rank, but an operator may hang.",
        "Look at the rank that failed first; then at HCCL's own messages near the line.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/core/npu/NPUErrorCodes.h",
    ),
    KnownError(
        "npu-task-timeout-507048",
        r"(?:error code(?: is|:)|runtime result =|failed ?:) ?507048\b|The execution of the internal task times out",
        CONSEQUENCE,
        "A task inside an operation timed out; in a collective operation that is a wait for another rank, else an operator hangs.",
        "Look at the rank that failed first; then at HCCL's own messages near the line.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/docs/zh/user_guide/troubleshooting/troubleshooting_cases/HCCL_timeout.md",
    ),
    KnownError(
        "npu-device-unavailable-207004",
        r"error code(?: is|:) ?(?:207004|107001)\b",
        CAUSE,
        "The device does not exist in this container, or cannot be used.",
        "Check with npu-smi which devices the container has; compare the number of ranks with it.",
        "https://github.com/gpustack/gpustack/issues/3352",
    ),
    KnownError(
        "hccl-call-failed",
        r"\bHCCL (?:function )?error\b|[Hh]cclCommInitRootInfo\w{0,8} fail|OPS function error: Hccl|DIST call hccl api failed",
        CONSEQUENCE,
        "A call of HCCL failed; its code does not tell whether this rank or another one is at fault.",
        "Read the lines below this one, and look at the rank that failed first.",
        "https://github.com/vllm-project/vllm-ascend/issues/672",
    ),
    KnownError(
        "npu-driver-call-failed",
        r"\bdrvRet(?:Code)? ?= ?[1-9]",
        CONSEQUENCE,
        (
            "The NPU driver refused a call; its code does not tell whether the device has failed, or its tasks were ended "
            "after a failure elsewhere."
        ),
        "Look at the rank that failed first; then check with npu-smi that the device is healthy and visible in the container.",
        "https://github.com/gpustack/gpustack/issues/3352",
    ),
)
