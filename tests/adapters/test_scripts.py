"""What is known of a shell script before it runs, and how one that starts ranks itself is started."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.adapters.launchers.shared.scripts import shell
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

OTHERS = {
    "inner.sh": "torchrun --nnodes $1 --node_rank $NODE_RANK --master_addr $MASTER_ADDR t.py\n",
    "two.yaml": "num_machines: 2\nmachine_rank: 0\nmain_process_ip: n0\n",
    "three.yaml": "num_machines: 3\n",
}
SCRIPT = "#!/bin/bash\nset -e\nexport A=1\nexec torchrun --nnodes $NNODES \\\n --node_rank=$NODE_RANK"
SCRIPT += ' --master_addr $MASTER_ADDR --nproc_per_node 2 train.py "$@"\n'


def words(text: str, *args: str, env: dict[str, str] | None = None) -> list[str]:
    """Return each command as a line; ? stands for words that are not known, . for a part of one."""
    found = shell.commands(text, {"N": "2", "E": "", **(env or {})}, args)
    return [
        " ".join(f"<{word}>" if " " in word or not word else word for word in line.words)
        .replace("\0", "?")
        .replace("\1", ".")
        .replace("$(hostname)", "@")
        for line in found
    ]


@helpers.for_each(
    [
        ("a b # c", ["a b"]),
        ("a#b c", ["a#b c"]),
        ("# a\nb; c & d | e && f || g", ["b", "c", "d", "e", "f", "g"]),
        ("a 'b ; c' \"d | e\" f\\ g ''", ["a <b ; c> <d | e> <f g>"]),
        ("a 'b\nc'\nd", ["a b\nc", "d"]),
        ("cat <<E > x\ntorchrun a\nE\nb", ["cat", "b"]),
        ("cat <<-'E' && b\ntorchrun\n\tE\nc", ["cat", "b", "c"]),
        ("cat <<A <<B\n1\nA\n2\nB\nc", ["cat", "c"]),
        ("X=$((1<<2))\na", ["a"]),
        ("cat <<< torchrun; a 2>&1 >x &>y 3<z b", ["cat", "a b"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while ! a; do b; done; { c; }; (d)", ["a", "b", "c", "d"]),
        ("case $N in\n torchrun) a;;\n x|y) b\nesac\nc", ["a", "b", "c"]),
        ("f() { a; }\nfunction g { b; }\nf", ["a", "b", "f"]),
        ("a $(torchrun x; y) `torchrun z` $((1+1)) ${#N} ${N%x} $'x'", ["a ? ? . ? ? .", "torchrun x", "y", "torchrun z"]),
        ('a $(which b) `command -v /c/d` "$(which b 2>/dev/null)" $(hostname) `hostname -i` $(uname -n):1', ["a b /c/d b @ @ @:1"]),
        ("a <(torchrun x) b", ["a b"]),
        ("X=1 Y=2 a $X", ["a"]),
        ("X=1; Y=$X$N; a ${X}b \"$Y c\" '$X' \\$X", ["a 1b <12 c> $X $X"]),
        ('a $NOT ${NOT} "$NOT" ${E:-d} ${E-d} ${NOT-d e} ${NOT:-"d e"} ${N:-d} ${NOT:-${N}}', ["a d d e d e 2 2"]),
        ("a $RANDOM $PWD $? $$ x$HOSTNAME", ["a . . ? ? x@"]),
        (": ${X:=4}; a $X", [": 4", "a 4"]),
        ("L=(--x 1 # c\n '2 3'); L+=(4); a \"${L[@]}\" ${L[@]} $L", ["a --x 1 <2 3> 4 --x 1 2 3 4 --x 1 2 3 4"]),
        ("S='--x  1'; S+=' 2'; a $S \"$S\" y$S-z", ["a --x 1 2 <--x  1 2> y--x 1 2-z"]),
        ('a $1 "$@" $* $3 x', ["a p p <q r> p q r x"]),
        ("shift; a $1 $#", ["a ? ?"]),
        ("shift \u00b2; a $1", ["a ?"]),
        (f"a ${{{'9' * 5000}}}; shift {'9' * 5000}; a $1", ["a", "a ?"]),
        ("A=(1 2)\n" + 'A+=("${A[@]}")\n' * 60 + "a ${A[@]}; b", ["a ?", "b"]),  # of 2^61 values
        ("set -ex; a $1; set -- z; a $1", ["set -ex", "a p", "a ?"]),
        ("if b; then X=1; else X=2; fi; a $X", ["b", "a 2", "a 1", "a"]),
        ("X=1; if b; then X=1; fi; a $X", ["b", "a 1"]),
        ("X=1; if b; then X=$X$X; fi; a $X", ["b", "a 11", "a 1"]),
        ("[ b ] && X=1; a $X $X", ["[ b ]", "a 1 1", "a"]),
        ("if b; then X='c d'; fi; C=\"$X e\"; eval $C; $C", ["b", "c d e", "e", "c d e", "e"]),
        ('X="$(b)"; a "$X" $X y"$(b)"', ["b", "a . ? y.", "b"]),
        ("(X=1; a $X)", ["a 1"]),
        ("for X in 1 2; do a $X; done", ["a ?"]),
        ("X=1; read X Y; unset N; a $X $N", ["a ? ?"]),
        ("export X=1 Y; declare -i Z=2; a $X$Z", ["a 12"]),
        ("X=1; . ./env.sh; Y=3; a $X $N $Y", ["a ? ? 3"]),
        ('C=\'a $N "b c"\'; eval $C; eval "$(x)"; d $N', ["a 2 <b c>", "?", "d ?"]),
        ("eval \"a '$(x)' b; c '$?' d\"", ["a ? b", "c ? d"]),
        ("a 'open", ["a open"]),
        ("a ${open", ["a ?"]),
        ("a $(open", ["a ?", "open"]),
        ("", []),
    ]
)
def test_commands_of_a_script(text: str, expected: list[str]) -> None:
    assert words(text, "p", "q r") == expected


@pytest.mark.one_python
@helpers.for_each(
    [
        "(" * 50_000,
        "${a:-" * 25_000,
        "$(" * 50_000,
        "<<E " * 25_000,
        "eval " * 25_000,
        'X="$X$X";' * 500,
        "'" * 99_999,
        "\n<<E" * 9_999,
        "X=(" * 9_999,
        "case x in " * 9_999,
        "${a:-" * 9_999 + "}" * 9_999,
    ]
)
def test_no_text_is_too_much(text: str) -> None:
    assert sum(1 for _ in shell.commands(f"N=x;{text}", {}, ())) < 200_000


def plan(
    script: str | ValueError | None, *args: str, nodes: int = 1, slots: str = "2", node: int = 0, program: str = "run.sh", **env: str
) -> Plan:
    files = {f"{helpers.CWD}/{name}": text for name, text in {**OTHERS, "run.sh": script}.items()}
    return helpers.plan({**helpers.local(nodes, slots, node), **env}, *args, program=program, files=files)


@helpers.for_each(
    [
        ("torchrun train.py", "torchrun"),
        ("A=1 exec nohup torchrun train.py", "torchrun"),
        ("time env B=2 deepspeed --bind_cores_to_rank cifar10_deepspeed.py --deepspeed $@", "deepspeed"),
        ("cd x && accelerate launch train.py", "accelerate launch"),
        ("mpirun -np 4 python train.py", "mpirun"),
        ("python3 -m torch.distributed.launch train.py", "python -m torch.distributed.launch"),
        ('L="python -m torch.distributed.run"\n$L train.py', "python -m torch.distributed.run"),
        ("if true; then torchrun train.py; fi", "torchrun"),
        ("for i in 1 2; do torchrun train.py | tee log; done", "torchrun"),
        ("python train.py --deepspeed ds.json", ""),
        ("pip install deepspeed accelerate", ""),
        ("# torchrun train.py\npython train.py", ""),
        ("echo 'torchrun train.py'; echo torchrun train.py", ""),
        ("cat > run2.sh <<END\ntorchrun train.py\nEND\npython train.py", ""),
        ("which torchrun || pip install torch; python train.py", ""),
        ("accelerate env; python train.py", ""),
        ("mpirun --version | head -1\npython train.py", ""),
        ("torchrun -h > /dev/null || exit 1; timeout 5 mpirun -V; horovodrun --check-build; python train.py", ""),
        ("if accelerate launch --help; then python -m torch.distributed.run --help; fi; python train.py", ""),
        ("torchrun --version; torchrun train.py", "torchrun"),
        ("LAUNCHER=torchrun; python train.py --launcher $LAUNCHER", ""),
        ("case $X in torchrun) python train.py;; esac", ""),
        ("case $X in\n deepspeed|torchrun)\n python train.py;;\n torchrun|x) a\nesac", ""),
        ("case $X in\n a) torchrun x;;\nesac", "torchrun"),
    ]
)
def test_which_scripts_start_ranks_themselves(text: str, name: str) -> None:
    found = plan(text)
    assert (found.method, found.why) == (("plain", f"run.sh starts ranks itself ({name})") if name else ("torchrun", found.why))
    assert found.warnings == ()


@pytest.mark.parametrize("line", [("run.sh", "--lr", "1"), ("bash", "-e", "run.sh", "--lr", "1")])
def test_it_is_started_once_on_each_node_and_told_where_it_is(line: tuple[str, ...]) -> None:
    left = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "PET_NNODES": "9", "MASTER_ADDR": "old", "RANKLAUNCH_SECRET": "x"}
    found = plan(SCRIPT, *line[1:], nodes=2, node=1, slots="4,2", program=line[0], **left)
    (process,) = found.processes
    assert process.argv == (("bash", *line) if line[0] == "run.sh" else line)
    told = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "2", "GPUS_PER_NODE": "2", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
    assert told.items() <= process.env.items()
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & {*process.env}
    assert process.unset == ("LOCAL_RANK", "PET_NNODES", "RANK", "RANKLAUNCH_SECRET", "WORLD_SIZE")
    assert [wait.kind for wait in found.waits] == ["muster"]


def test_one_node_meets_within_it() -> None:
    assert plan(SCRIPT, RANKLAUNCH_MASTER_PORT="1234").processes[0].env["MASTER_ADDR"] == "127.0.0.1"
    assert plan(SCRIPT, RANKLAUNCH_MASTER_PORT="1234").processes[0].env["MASTER_PORT"] == "1234"


def test_what_the_script_itself_reads_stays_as_the_platform_has_it() -> None:
    found = plan(
        "torchrun --nnodes ${WORLD_SIZE:-1} --node_rank $RANK --master_addr=n0 t.py", nodes=2, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0"
    )
    assert found.processes[0].unset == ("LOCAL_RANK",)


EIGHT = "starts 8 ranks on this node, which has 4 slots, by RANKLAUNCH_SLOTS: write "


@helpers.for_each(
    [
        ("torchrun --nproc_per_node=8 t.py", f"`torchrun --nproc_per_node=8 t.py` {EIGHT}--nproc_per_node 4, in a script $NPROC_PER_NODE"),
        ("N=8; torchrun --nproc-per $N t.py --password x", f"`torchrun --nproc-per 8 t.py --password ***` {EIGHT}"),
        ("msrun --worker_num=8 --local_worker_num=8 t.py", EIGHT),
        ("msrun --worker_num 8 t.py", f"{EIGHT}--worker_num 4"),
        ("accelerate launch --num_processes 8 t.py", EIGHT),
        ("deepspeed --num_gpus 8 t.py", EIGHT),
        ("if a; then N=8; else N=16; fi; torchrun --nproc_per_node $N t.py", "starts 16 ranks on this node, which has 4 slots"),
        ("if a; then N=8; else N=4; fi; torchrun --nproc_per_node $N t.py", ""),
        ("torchrun --nproc_per_node=unknown t.py", "--nproc_per_node is 'unknown': torchrun takes a number, auto, gpu,"),
        ("torchrun --nproc_per_node gpu t.py", ""),
        ("torchrun --nproc_per_node 4 t.py", ""),
        ("torchrun --nproc_per_node $(count) t.py", ""),
        ("torchrun --nproc_per_node $NPROC_PER_NODE t.py", ""),
    ]
)
def test_more_ranks_than_the_node_has_slots_are_warned_of(text: str, said: str) -> None:
    found = plan(text, slots="4").warnings
    assert len(found) == bool(said)
    assert all(line.startswith("run.sh: `") and said in line for line in found), found


@helpers.for_each([("0,1,2,3", "which has 4 GPUs, by CUDA_VISIBLE_DEVICES"), ("0,1,2,3,4,5,6,7", "")])
def test_more_ranks_than_the_node_has_devices_are_warned_of(visible: str, said: str) -> None:
    files = {f"/dev/nvidia{i}": "" for i in range(8)} | {"/dev/nvidiactl": "", f"{helpers.CWD}/run.sh": "torchrun --nproc_per_node 8 t.py"}
    found = helpers.plan({"CUDA_VISIBLE_DEVICES": visible}, program="run.sh", files=files).warnings
    assert [said in line for line in found] == [True] * bool(said), found


@pytest.mark.parametrize("method", ["torchrun", "spawn", "deepspeed", "accelerate", "ranktable", "mpirun"])
def test_so_it_is_where_another_method_is_asked_for_and_that_is_said(method: str) -> None:
    found = plan(SCRIPT, RANKLAUNCH_METHOD=method)
    assert (found.method, len(found.processes)) == ("plain", 1)
    why = "run.sh starts ranks itself (torchrun), so it is started once on each node, by method plain, and not by RANKLAUNCH_METHOD="
    assert found.warnings == (f"{why}{method}",)


@pytest.mark.parametrize("method", ["plain", "pytorch"])
def test_methods_that_start_once_are_left(method: str) -> None:
    found = plan(SCRIPT, RANKLAUNCH_METHOD=method)
    assert (found.method, found.warnings) == (method, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torchrun train.py", "2 nodes, and run.sh starts torchrun, and without --nnodes each node would train alone: pass it $NNODES"),
        ("torchrun --nnodes=1 train.py", "and its --nnodes is 1"),
        ("torchrun --nnodes=${WORLD_SIZE:-1} train.py", "and its --nnodes is 1"),
        ("deepspeed --bind_cores_to_rank cifar10_deepspeed.py", "ranklaunch run --method deepspeed -- cifar10_deepspeed.py"),
        ("cd x && mpirun -np 4 python t.py", "of which one starts the ranks of all nodes"),
        ("torchrun --nnodes $N train.py", "without --node_rank each node would be node 0: pass it $NNODES"),
        ("torchrun --nnodes $N --node_rank 0 train.py", "its --node_rank is 0, where this is node 1"),
        ("torchrun --nnodes $N --node_rank $NODE_RANK train.py", "without --master_addr each node would wait for the others on itself"),
        (
            "torchrun --nnodes 2 --node_rank 1 --master_addr 127.0.0.1 t.py",
            "its --master_addr is 127.0.0.1, which",
        ),
        (
            "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $(hostname):29500 t.py",
            "its --rdzv_endpoint is $(hostname):29500, which",
        ),
        ("torchrun --nnodes 2 --rdzv-backend=c10d --rdzv-endpoint=localhost:1 t.py", "its --rdzv_endpoint is localhost:1, which"),
        ("torchrun --nnodes 2:4 --rdzv_backend c10d --rdzv_endpoint n0:29500 t.py", ""),
        ("torchrun --nnodes 3:4 --rdzv_backend c10d --rdzv_endpoint n0:29500 t.py", "its --nnodes is 3:4"),
        ("torchrun --nproc-per-node $(nproc) --master_port $((RANDOM + 1)) t.py --config $(c)", "without --nnodes"),
        ('torchrun --nproc-per-node "$X" "$(t)"', "without --nnodes"),
        ("torchrun --stand --nnodes 2 t.py", "with --standalone each node would train alone"),
        ("if [ $1 ]; then N=1; else N=3; fi; torchrun --nnodes $N t.py", "its --nnodes is 3"),
        ("if [ $1 ]; then N=1; else N=2; fi; torchrun --nnodes $N --node_rank 1 --master_addr n0 t.py", ""),
        ("$(which torchrun) t.py", "without --nnodes"),
        ("srun torchrun t.py", "without --nnodes"),
        ("bash inner.sh 1", "its --nnodes is 1"),
        ("bash inner.sh 2", ""),
        ("accelerate launch --config_file two.yaml --machine_rank $NODE_RANK t.py", ""),
        ("accelerate launch --config_file three.yaml t.py", "its --num_machines is 3"),
        ("accelerate launch --config_file two.yaml t.py", "its --machine_rank is 0"),
        ("accelerate launch --config_file none.yaml t.py", ""),
        (
            "msrun --worker_num=4 --local_worker_num=4 --master_addr n0 t.py",
            "its --worker_num and its --local_worker_num are both 4, which leaves no rank for another node",
        ),
        ("llamafactory-cli train c.yaml", ""),
        ("composer -n 2 t.py", ""),
        ("torchrun --nnodes $(count) train.py", ""),
        ("torchrun $ARGS train.py; eval $(x)", "without --nnodes"),
        (". env.sh; torchrun $ARGS train.py", ""),
        ('torchrun "$@"', ""),
        ("[ $NNODES = 1 ] && torchrun train.py", ""),
        ("[ $NNODES = 1 ] && eval 'cd x; torchrun train.py'", ""),
        ("[ $NNODES = 1 ] && eval 'cd x; cd y' && torchrun train.py", ""),
        ("eval 'cd x && torchrun train.py'", "without --nnodes"),
        ("if [ $NODE_RANK = 0 ]; then deepspeed train.py; fi", ""),
    ],
)
def test_where_each_node_would_train_alone_is_refused(text: str, said: str) -> None:
    if not said:
        assert plan(text, "--nnodes", "2", "--node_rank=1", "--master_addr=n0", "train.py", nodes=2, node=1, N="2").method == "plain"
        return
    with pytest.raises(ConfigError) as caught:
        plan(text, nodes=2, node=1, N="2")
    assert said in str(caught.value)
    assert plan(text, nodes=2, node=1, N="2", RANKLAUNCH_METHOD="plain").method == "plain"


@pytest.mark.parametrize("script", [None, "", ValueError("it is no text"), "torchrum train.py"])
def test_other_scripts_are_ranks(script: str | ValueError | None) -> None:
    assert plan(script).method == "torchrun"
