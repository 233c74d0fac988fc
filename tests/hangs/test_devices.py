"""What nvidia-smi and npu-smi say. The texts have the form that their manuals show; none of them was run here."""

from __future__ import annotations

import pytest

from ranklaunch.hangs.devices import ascend, nvidia
from ranklaunch.hangs.sample import Device

NPU_SMI = """
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.6        40                0    / 0             |
| 0                         | 0000:C1:00.0  | 97          0    / 0          33849/ 65536         |
+===========================+===============+====================================================+
| 1     310P3               | OK            | NA          37                0    / 0             |
| 0       1                 | 0000:01:00.0  | 0           1592 / 21527                           |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 2291          | python                   | 31000                   |
+===========================+===============+====================================================+
"""


def test_npus() -> None:
    assert ascend(NPU_SMI) == [Device(97.0, 33849.0), Device(0.0, 1592.0)]


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("97, 70123, 655.31, 700.00, 43", Device(97.0, 70123.0, 655.31 / 700, 43.0)),
        ("0, 4, [N/A], [N/A], [Not Supported]", Device(0.0, 4.0)),
        ("[N/A], 4, 60.1, 700.00, 0", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", None),
    ],
)
def test_gpus(line: str, device: Device | None) -> None:
    assert nvidia(f"{line}\n") == ([device] if device else [])


def test_what_is_no_table() -> None:
    assert ascend("") == ascend("dcmi model initialized failed, because the device is used. ret is -8020") == nvidia("") == []
