"""What is known of a shell script before it runs, and how one that starts ranks itself is started."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.adapters.launchers.shared.own_launcher import KINDS, MENTIONS
from ranklaunch.adapters.launchers.shared.scripts import shell
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

SCRIPT = '#!/bin/bash\nset -e\nexport A=1\nexec torchrun --nnodes $NNODES \\\n  --nproc_per_node 2 train.py "$@"\n'


def words(text: str, *args: str, env: dict[str, str] | None = None) -> list[str]:
    """Return each command as a line; ? stands for text that is not known."""
    found = shell.commands(text, {"N": "2", "E": "", **(env or {})}, args)
    return [" ".join(f"<{word}>" if " " in word or not word else word for word in line.words).replace("\0", "?") for line in found]


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
        ("a $(torchrun x; y) `torchrun z` $((1+1)) ${#N} ${N%x} $'x'", ["a ? ? ? ? ? ?"]),
        ("a <(torchrun x) b", ["a b"]),
        ("X=1 Y=2 a $X", ["a"]),
        ("X=1; Y=$X$N; a ${X}b \"$Y c\" '$X' \\$X", ["a 1b <12 c> $X $X"]),
        ('a $NOT ${NOT} "$NOT" ${E:-d} ${E-d} ${NOT-d e} ${NOT:-"d e"} ${N:-d} ${NOT:-${N}}', ["a d d e d e 2 2"]),
        ("a $RANDOM $PWD $? $$ x$HOSTNAME", ["a ? ? ? ? x?"]),
        (": ${X:=4}; a $X", [": 4", "a 4"]),
        ("L=(--x 1 # c\n '2 3'); L+=(4); a \"${L[@]}\" ${L[@]} $L", ["a --x 1 <2 3> 4 --x 1 2 3 4 --x 1 2 3 4"]),
        ("S='--x  1'; S+=' 2'; a $S \"$S\" y$S-z", ["a --x 1 2 <--x  1 2> y--x 1 2-z"]),
        ('a $1 "$@" $* $3 x', ["a p p <q r> p q r x"]),
        ("shift; a $1 $#", ["a ? ?"]),
        ("shift \u00b2; a $1", ["a ?"]),
        (f"a ${{{'9' * 5000}}}; shift {'9' * 5000}; a $1", ["a", "a ?"]),
        ("A=(1 2)\n" + 'A+=("${A[@]}")\n' * 60 + "a ${A[@]}; b", ["a ?", "b"]),  # of 2^61 values
        ("set -ex; a $1; set -- z; a $1", ["set -ex", "a p", "a ?"]),
        ("if b; then X=1; else X=2; fi; a $X", ["b", "a ?"]),
        ("X=1; if b; then X=1; fi; a $X", ["b", "a ?"]),
        ("[ b ] && X=1; a $X", ["[ b ]", "a ?"]),
        ("(X=1; a $X)", ["a 1"]),
        ("for X in 1 2; do a $X; done", ["a ?"]),
        ("X=1; read X Y; unset N; a $X $N", ["a ? ?"]),
        ("export X=1 Y; declare -i Z=2; a $X$Z", ["a 12"]),
        ("X=1; . ./env.sh; Y=3; a $X $N $Y", ["a ? ? 3"]),
        ('C=\'a $N "b c"\'; eval $C; eval "$(x)"; d $N', ["a 2 <b c>", "?", "d ?"]),
        ("eval \"a '$(x)' b; c '$?' d\"", ["a ? b", "c ? d"]),
        ("a 'open", ["a open"]),
        ("a ${open", ["a ?"]),
        ("a $(open", ["a ?"]),
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
    return helpers.plan({**helpers.local(nodes, slots, node), **env}, *args, program=program, files={f"{helpers.CWD}/run.sh": script})


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
    found = plan("torchrun --nnodes ${WORLD_SIZE:-1} --node_rank $RANK t.py", nodes=2, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")
    assert found.processes[0].unset == ("LOCAL_RANK",)


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
        ("torchrun train.py", "2 nodes, and run.sh starts torchrun, and without --nnodes each node would train alone: give it"),
        ("torchrun --nnodes=1 train.py", "and its --nnodes is 1"),
        ("torchrun --nnodes=${WORLD_SIZE:-1} train.py", "and its --nnodes is 1"),
        ("deepspeed --bind_cores_to_rank cifar10_deepspeed.py", "ranklaunch run --method deepspeed -- cifar10_deepspeed.py"),
        ("cd x && mpirun -np 4 python t.py", "of which one starts the ranks of all nodes"),
        ("torchrun --nnodes $N train.py", ""),
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
        assert plan(text, "--nnodes", "2", "train.py", nodes=2, N="2").method == "plain"
        return
    with pytest.raises(ConfigError) as caught:
        plan(text, nodes=2)
    assert said in str(caught.value)
    assert plan(text, nodes=2, RANKLAUNCH_METHOD="plain").method == "plain"


@pytest.mark.parametrize("script", [None, "", ValueError("it is no text"), "torchrum train.py"])
def test_other_scripts_are_ranks(script: str | ValueError | None) -> None:
    assert plan(script).method == "torchrun"


@helpers.for_each([*KINDS])
def test_names_of_launchers_are_looked_for(name: str) -> None:
    assert MENTIONS.search(name)
