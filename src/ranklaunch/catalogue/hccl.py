"""HCCL, the library by which Ascend NPUs work together. Codes such as EI0006 are those of CANN."""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError

ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "hccl-port-in-use",
        r"\bEJ0003\b|\bEI0019\b|\bEI0020\b|listen on ip\[.{0,80}\] and specific port\[\d+\] fail",
        CAUSE,
        "A port that HCCL listens on is taken, by another process on the same device or by what an earlier job left behind.",
        (
            "End the other process; where several processes share a device on purpose, set HCCL_NPU_SOCKET_PORT_RANGE and "
            "HCCL_HOST_SOCKET_PORT_RANGE."
        ),
        "https://www.hiascend.com/document/detail/en/canncommercial/850/commlib/hcclug/hcclug_000035.html",
    ),
    KnownError(
        "hccl-invalid-environment-ei0001",
        r"\bEI0001\b",
        CAUSE,
        "An environment variable of HCCL has a value outside of what is allowed; the line names it.",
        "Correct or remove the variable.",
        "https://www.hiascend.com/document/detail/zh/CANNCommunityEdition/81RC1alpha001/devguide/hccl/hcclug/hcclug_000028.html",
    ),
    KnownError(
        "hccl-notify-timeout-ei0002",
        r"\bEI0002\b|The wait execution of the Notify register times out",
        CONSEQUENCE,
        (
            "This rank waited in vain for another one within a collective operation; mostly that rank has died or is much "
            "slower, rarely the link between them is broken."
        ),
        "Look at the rank that failed first, or that reports no EI0002. If all are healthy but uneven, raise HCCL_EXEC_TIMEOUT.",
        "https://www.hiascend.com/document/detail/zh/canncommercial/83RC1/hccl/hcclug/hcclug_000031.html",
    ),
    KnownError(
        "hccl-invalid-operator-argument-ei0003",
        r"\bEI0003\b",
        CAUSE,
        "A collective operation was called with an argument that HCCL does not take.",
        "Correct the call that the line names.",
        "https://www.hiascend.com/doc_center/source/zh/CANNCommunityEdition/81RC1beta1/maintenref/troubleshooting/atlaserrorcode_15_0240.html",
    ),
    KnownError(
        "hccl-invalid-rank-table-ei0004",
        r"\bEI0004\b|The ranktable or rank is invalid",
        CAUSE,
        "The rank table, or this rank's number in it, is invalid; the line says what of it.",
        "Compare the rank table with the devices of the job and the numbers of its ranks.",
        "https://www.hiascend.com/document/detail/zh/CANNCommunityEdition/83RC1/hccl/hcclug/hcclug_000033.html",
    ),
    KnownError(
        "hccl-inconsistent-arguments-ei0005",
        r"\bEI0005\b|\[ParameterConflict\]|The arguments for collective communication are inconsistent",
        CAUSE,
        (
            "Two ranks called different collective operations, or the same one with other sizes: the program takes different "
            "ways on different ranks."
        ),
        "Find what differs between the two ranks that the line names: data, batch size, branches that depend on the rank.",
        "https://www.hiascend.com/document/detail/en/canncommercial/850/commlib/hcclug/hcclug_000051.html",
    ),
    KnownError(
        "hccl-socket-timeout-ei0006",
        r"\bEI0006\b|Getting socket times out|\[LinkEstablish\]wait socket establish timeout",
        CONSEQUENCE,
        ("Another rank did not connect in time; mostly it has died, hangs or starts late, rarely the network or its TLS setting is wrong."),
        (
            "Look at the rank that failed first, or that does not report EI0006. If all are healthy but start unevenly, "
            "raise HCCL_CONNECT_TIMEOUT."
        ),
        "https://www.hiascend.com/document/detail/en/CANNCommunityEdition/900/API/hcclug/hcclug_000025.html",
    ),
    KnownError(
        "hccl-allocation-failed-ei0007",
        r"\bEI0007\b|\bEI0011\b",
        CAUSE,
        "HCCL could not get memory or another resource of the device.",
        "Leave HCCL more of the device's memory, or lower HCCL_BUFFSIZE; end what else runs on the device.",
        "https://gitcode.com/tanghaoran7/hcomm_gitcode/blob/master/docs/en/error_codes/README.md",
    ),
    KnownError(
        "hccl-inconsistent-versions-ei0008",
        r"\bEI0008\b|The CANN versions are inconsistent",
        CAUSE,
        "The nodes have different versions of CANN.",
        "Use the same image on every node.",
        "https://www.hiascend.com/document/detail/zh/CANNCommunityEdition/81RC1alpha002/devguide/hccl/hcclug/hcclug_000037.html",
    ),
    KnownError(
        "hccl-transport-ei0009",
        r"\bEI0009\b|\bTransport init error\. Reason",
        CONSEQUENCE,
        (
            "A connection to another rank could not be set up; mostly that rank has failed, else the network or the setting "
            "of one of the two is wrong."
        ),
        "Look at the rank that failed first; then check the devices' network with hccn_tool.",
        "https://www.hiascend.com/doc_center/source/zh/CANNCommunityEdition/81RC1beta1/maintenref/troubleshooting/atlaserrorcode_15_0240.html",
    ),
    KnownError(
        "hccl-p2p-ei0010",
        r"\bEI0010\b",
        CONSEQUENCE,
        "Devices of one node could not reach each other; another rank's device may be lost, or the link between the devices broken.",
        "Look at the rank that failed first; then check the devices' health with npu-smi.",
        "https://www.hiascend.com/doc_center/source/zh/CANNCommunityEdition/81RC1beta1/maintenref/troubleshooting/atlaserrorcode_15_0240.html",
    ),
    KnownError(
        "hccl-transfer-error-ei0013",
        r"\bEI0012\b|\bEI0013\b|\bEI0018\b",
        CONSEQUENCE,
        "A transfer between devices failed while it ran; the peer may have died, or the link between them is broken.",
        "Look at the rank that failed first; if there is none, have the link and the devices checked.",
        "https://gitcode.com/tanghaoran7/hcomm_gitcode/blob/master/docs/en/error_codes/README.md",
    ),
    KnownError(
        "hccl-rank-table-check-ei0014",
        r"\bEI0014\b|\bEI0017\b|\[RanktableCheck\]errNo",
        CAUSE,
        "The rank table does not fit the devices of the job; the line says which field.",
        "Correct the field, or let the platform or ranklaunch write the rank table.",
        "https://www.hiascend.com/document/detail/zh/CANNCommunityEdition/900beta1/commlib/hcclug/hcclug_000042.html",
    ),
    KnownError(
        "hccl-rank-missing-ei0015",
        r"\bEI0015\b",
        CONSEQUENCE,
        "Not all ranks joined while HCCL collected the cluster's information.",
        "Look at the rank that failed first or did not start; then check the network between the hosts.",
        "https://gitcode.com/tanghaoran7/hcomm_gitcode/blob/master/docs/en/error_codes/README.md",
    ),
    KnownError(
        "hccl-configuration-ei0016",
        r"\bEI0016\b",
        CAUSE,
        "HCCL refuses its configuration; the line says which part of it.",
        "Correct what the line names.",
        "https://gitcode.com/tanghaoran7/hcomm_gitcode/blob/master/docs/en/error_codes/README.md",
    ),
    KnownError(
        "hccl-rank-table-unreadable",
        r"is not a valid real path",
        CAUSE,
        "The rank table's file is missing or may not be read.",
        "Check RANK_TABLE_FILE and the rights of the file in the container.",
        "https://www.hiascend.com/document/detail/zh/canncommercial/850/commlib/hcclug/hcclug_000041.html",
    ),
    KnownError(
        "hccp-still-running-ej0001",
        r"\bEJ0001\b|Failed to initialize the HCCP process",
        CAUSE,
        "The communication process of the device could not start, mostly because that of an earlier job still runs.",
        "End what is left of the earlier job, wait ten seconds and start again.",
        "https://github.com/hiyouga/LlamaFactory/issues/3839",
    ),
    KnownError(
        "hccl-watchdog-timeout",
        r"Watchdog caught collective operation timeout: WorkHCCL",
        CONSEQUENCE,
        "A collective operation took too long; mostly another rank has died or is late, but this rank may be the late one.",
        "Look at the rank that failed first, or that did not report this.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/torch_npu/csrc/distributed/ProcessGroupHCCL.cpp",
    ),
    KnownError(
        "hccl-connection-failed",
        r"(?:HCCL function error: |HCCL error |hcclCommInitRootInfo).{0,160}error code is (?:9|1[1-4]|21)\b|hcclRet -> (?:9|1[1-4]|21)\b",
        CONSEQUENCE,
        (
            "HCCL reports a timeout or a failed connection to another rank (codes 9, 11 to 14, 21); the peer may have died, "
            "or the network is broken."
        ),
        "Look at the rank that failed first; then check the network between the hosts and that of the devices.",
        "https://github.com/Ascend/pytorch/blob/9e73e708ab9350d203475609f36f8a43f6a0c2ab/third_party/hccl/inc/hccl/hccl_types.h",
    ),
)
