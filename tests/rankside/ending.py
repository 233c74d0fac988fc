"""Programs that end by sys.exit, by os._exit, by a signal or in C; shells that go on; and helpers whose failure is survived.

Each expectation was written before the first run; programs.py says how a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankside.expected import Program, raised

ENDING: Mapping[str, Sequence[Program]] = {
    "sys.exit with a text": [
        Program(
            "plain",
            1,
            [],
            """
            import sys

            sys.exit("no training data in /data")
            """,
        ),
        Program(
            "of a caught exception",
            1,
            [],
            """
            import sys

            try:
                {}["lr"]
            except KeyError as error:
                sys.exit(f"bad configuration: {error}")
            """,
        ),
        Program(
            "of several lines",
            1,
            [],
            """
            import sys

            sys.exit("usage:\\n  train.py DATA")
            """,
        ),
        Program(
            "an exception as the text",
            1,
            [],
            """
            import sys

            try:
                raise OSError("no space left")
            except OSError as error:
                sys.exit(error)
            """,
        ),
        Program(
            "of a worker",
            1,
            [],
            """
            import multiprocessing, sys

            worker = multiprocessing.get_context("fork").Process(target=sys.exit, args=("worker 3: no data",))
            worker.start()
            worker.join()
            if worker.exitcode:
                sys.exit("a worker failed")
            """,
        ),
        Program(
            "in a signal handler",
            1,
            [],
            """
            import os, signal, sys, time

            signal.signal(signal.SIGUSR1, lambda *_: sys.exit("preempted at step 3"))
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(60)
            """,
        ),
        Program(
            "raise SystemExit",
            1,
            [],
            """
            raise SystemExit("no training data")
            """,
        ),
    ],
    "sys.exit with a number": [
        Program(
            "while an exception is handled",
            3,
            [],
            """
            import sys, traceback

            def main():
                return {}["shard"]

            try:
                main()
            except Exception:
                traceback.print_exc()
                sys.exit(3)
            """,
        ),
        Program(
            "after an exception was handled",
            1,
            [],
            """
            import logging, sys

            failed = False
            try:
                raise ValueError("loss is nan")
            except ValueError:
                logging.exception("training failed")
                failed = True
            sys.exit(int(failed))
            """,
        ),
        Program(
            "argparse: an argument that does not fit the others",
            2,
            [],
            """
            import argparse

            parser = argparse.ArgumentParser()
            parser.add_argument("--data")
            if parser.parse_args([]).data is None:
                parser.error("--data is needed")
            """,
        ),
        Program(
            "argparse: a wrong choice",
            2,
            [],
            """
            import argparse

            parser = argparse.ArgumentParser()
            parser.add_argument("--precision", choices=["bf16", "fp32"])
            parser.parse_args(["--precision", "fp7"])
            """,
        ),
        Program(
            "a main that is wrapped as click does",
            2,
            [],
            """
            import sys

            class UsageError(Exception):
                exit_code = 2

            def command(function):
                def main():
                    try:
                        function()
                        sys.exit(0)
                    except UsageError as error:
                        print("Error:", error, file=sys.stderr)
                        sys.exit(error.exit_code)
                return main

            @command
            def train():
                raise UsageError("no such option: --lrr")

            train()
            """,
        ),
        Program(
            "a main that is wrapped as Hydra does",
            1,
            [],
            """
            import sys, traceback

            def run_and_report(function):
                try:
                    return function()
                except Exception as error:
                    print("Error executing job with overrides: []", file=sys.stderr)
                    traceback.print_exception(None, error, error.__traceback__)
                    sys.exit(1)

            def train():
                raise ValueError("loss is nan")

            run_and_report(train)
            """,
        ),
        Program(
            "a main that is wrapped as Typer does",
            1,
            [raised("ValueError", "loss is nan", function="train")],
            """
            import sys

            def pretty(kind, error, traceback):
                print("+- Traceback -+", file=sys.stderr)
                print(f"{kind.__name__}: {error}", file=sys.stderr)

            def run(function):
                sys.excepthook = pretty
                try:
                    function()
                except Exception as error:
                    error.__pretty__ = True
                    raise error

            def train():
                raise ValueError("loss is nan")

            run(train)
            """,
        ),
        Program(
            "minus one",
            255,
            [],
            """
            import sys

            sys.exit(-1)
            """,
        ),
        Program(
            "in a finally clause",
            7,
            [],
            """
            import sys

            try:
                raise ValueError("loss is nan")
            finally:
                sys.exit(7)
            """,
        ),
        Program(
            "the second of two: the first was caught",
            4,
            [],
            """
            import sys

            try:
                sys.exit(2)
            except SystemExit:
                sys.exit(4)
            """,
        ),
        Program(
            "raise SystemExit",
            3,
            [],
            """
            raise SystemExit(3)
            """,
        ),
    ],
    "os._exit": [
        Program(
            "plain",
            3,
            [],
            """
            import os

            os._exit(3)
            """,
        ),
        Program(
            "after a caught exception",
            1,
            [],
            """
            import os, sys, traceback

            try:
                raise ValueError("loss is nan")
            except ValueError:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            """,
        ),
        Program(
            "in another thread",
            8,
            [],
            """
            import os, threading

            threading.Thread(target=os._exit, args=(8,)).start()
            threading.Event().wait(60)
            """,
        ),
        Program(
            "in a signal handler",
            15,
            [],
            """
            import os, signal, time

            signal.signal(signal.SIGUSR1, lambda *_: os._exit(15))
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(60)
            """,
        ),
        Program(
            "after sys.exit was caught",
            6,
            [],
            """
            import os, sys

            try:
                sys.exit(2)
            except SystemExit:
                os._exit(6)
            """,
        ),
        Program(
            "of a child by os.fork, and the rank tells",
            1,
            [],
            """
            import os, sys

            pid = os.fork()
            if pid == 0:
                os._exit(9)
            code = os.waitpid(pid, 0)[1] >> 8
            sys.exit(f"the child ended with {code}")
            """,
        ),
    ],
    "a crash in C": [
        Program(
            "os.abort",
            "SIGABRT",
            [],
            """
            import os

            os.abort()
            """,
        ),
        Program(
            "a null pointer",
            "SIGSEGV",
            [],
            """
            import ctypes

            ctypes.string_at(0)
            """,
        ),
        Program(
            "a null pointer, with faulthandler",
            "SIGSEGV",
            [],
            """
            import ctypes, faulthandler

            faulthandler.enable()
            ctypes.string_at(0)
            """,
            same_output=False,
        ),
        Program(
            "std::terminate of C++, below PyTorch",
            "SIGABRT",
            [],
            """
            import ctypes
            import torch

            ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()
            """,
            needs=("torch",),
        ),
        Program(
            "abort of the C library after a caught exception",
            "SIGABRT",
            [],
            """
            import ctypes

            try:
                raise ValueError("sample skipped")
            except ValueError as error:
                print("skipped:", error, flush=True)
            ctypes.CDLL(None).abort()
            """,
        ),
        Program(
            "a bus error",
            "SIGBUS",
            [],
            """
            import mmap

            with open("data.bin", "wb+") as file:
                file.truncate(4096)
                data = mmap.mmap(file.fileno(), 4096)
                file.truncate(0)
                data[0]
            """,
        ),
    ],
    "SIGKILL": [
        Program(
            "of itself",
            "SIGKILL",
            [],
            """
            import os, signal

            os.kill(os.getpid(), signal.SIGKILL)
            """,
        ),
        Program(
            "of a child",
            "SIGKILL",
            [],
            """
            import os, signal, time

            rank = os.getpid()
            if os.fork() == 0:
                os.kill(rank, signal.SIGKILL)
                os._exit(0)
            time.sleep(60)
            """,
        ),
        Program(
            "while an exception is handled",
            "SIGKILL",
            [],
            """
            import os, signal, traceback

            try:
                raise ValueError("sample skipped")
            except ValueError:
                traceback.print_exc()
                os.kill(os.getpid(), signal.SIGKILL)
            """,
        ),
        Program(
            "after a thread has failed",
            "SIGKILL",
            [raised("OSError", "no space left", source="thread", thread="saver")],
            """
            import os, signal, threading

            def save():
                raise OSError("no space left")

            saver = threading.Thread(target=save, name="saver")
            saver.start()
            saver.join()
            os.kill(os.getpid(), signal.SIGKILL)
            """,
        ),
        Program(
            "a limit of processor time",
            "SIGKILL",
            [],
            """
            import resource

            resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
            while True:
                pass
            """,
        ),
    ],
    "Ctrl-C": [
        Program(
            "no handler",
            "SIGINT",
            [raised("KeyboardInterrupt", "", function="train")],
            """
            import os, signal, time

            def train():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)

            train()
            """,
        ),
        Program(
            "of another process",
            "SIGINT",
            [raised("KeyboardInterrupt", "")],
            """
            import os, signal, threading

            rank = os.getpid()
            if os.fork() == 0:
                os.kill(rank, signal.SIGINT)
                os._exit(0)
            threading.Event().wait(60)
            """,
        ),
        Program(
            "caught, and sys.exit",
            130,
            [],
            """
            import os, signal, sys, time

            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            except KeyboardInterrupt:
                print("saving", flush=True)
                sys.exit(130)
            """,
        ),
        Program(
            "caught, and the rank goes on",
            0,
            [],
            """
            import os, signal, time

            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            except KeyboardInterrupt:
                print("skipping this step")
            """,
        ),
        Program(
            "a handler that calls sys.exit",
            2,
            [],
            """
            import os, signal, sys, time

            signal.signal(signal.SIGINT, lambda *_: sys.exit(2))
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
            """,
        ),
        Program(
            "the system's default",
            "SIGINT",
            [],
            """
            import os, signal, time

            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
            """,
        ),
        Program(
            "below asyncio",
            "SIGINT",
            [raised("KeyboardInterrupt", "")],
            """
            import asyncio, os, signal

            async def main():
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(60)

            asyncio.run(main())
            """,
        ),
        Program(
            "while another exception is handled",
            "SIGINT",
            [raised("KeyboardInterrupt", "", links=(("context", "ValueError", "bad sample"),))],
            """
            import os, signal, time

            try:
                raise ValueError("bad sample")
            except ValueError:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            """,
        ),
    ],
    "a shell that goes on": [
        Program(
            "python -i",
            0,
            [raised("NameError", "name 'model' is not defined"), raised("ZeroDivisionError", "division by zero")],
            """
            import os, sys

            commands = os.open("commands", os.O_RDONLY)
            os.dup2(commands, 0)
            os.execv(sys.executable, [sys.executable, "-i", "start.py"])
            """,
            files={"start.py": "print(model)\n", "commands": "1 / 0\nprint('still here')\n"},
        ),
        Program(
            "python -i of a child",
            3,
            [raised("NameError", "name 'model' is not defined", by="child")],
            """
            import subprocess, sys

            with open("commands") as commands:
                sys.exit(subprocess.run([sys.executable, "-i", "start.py"], stdin=commands).returncode)
            """,
            files={"start.py": "print(model)\n", "commands": "exit(3)\n"},
        ),
        Program(
            "code.interact",
            0,
            [raised("ZeroDivisionError", "division by zero", optional=True)],
            """
            import code

            lines = iter(["1 / 0", "print('still here')"])

            def read(prompt):
                try:
                    return next(lines)
                except StopIteration:
                    raise EOFError

            code.interact(banner="", readfunc=read, exitmsg="")
            """,
        ),
        Program(
            "code.InteractiveConsole, and a failure behind it",
            1,
            [raised("NameError", None, optional=True), raised("ValueError", "loss is nan", function="main")],
            """
            import code

            def main():
                raise ValueError("loss is nan")

            console = code.InteractiveConsole({})
            console.push("model.train()")
            main()
            """,
        ),
        Program(
            "pdb.post_mortem, and the exception again",
            1,
            [raised("ValueError", "loss is nan", function="main")],
            """
            import pdb, sys

            def main():
                raise ValueError("loss is nan")

            try:
                main()
            except ValueError:
                pdb.post_mortem(sys.exc_info()[2])
                raise
            """,
            same_output=False,
        ),
        Program(
            "pdb.post_mortem, and the rank goes on",
            0,
            [],
            """
            import pdb, sys

            def main():
                raise ValueError("loss is nan")

            try:
                main()
            except ValueError:
                pdb.post_mortem(sys.exc_info()[2])
            """,
            same_output=False,
        ),
        Program(
            "forty mistakes: the first and the last are kept",
            0,
            [raised("ZeroDivisionError", "division by zero", times=16)],
            """
            import os, sys

            os.dup2(os.open("commands", os.O_RDONLY), 0)
            os.execv(sys.executable, [sys.executable, "-i", "-c", "pass"])
            """,
            files={"commands": "1 / 0\n" * 40},
        ),
    ],
    "a helper that fails and is survived": [
        Program(
            "python with a script",
            0,
            [raised("ValueError", "no GPU found", by="child", function="probe")],
            """
            import subprocess, sys

            done = subprocess.run([sys.executable, "probe.py"])
            print("probe ended with", done.returncode)
            """,
            files={"probe.py": "def probe():\n    raise ValueError('no GPU found')\n\nprobe()\n"},
        ),
        Program(
            "python -c",
            0,
            [raised("ModuleNotFoundError", "No module named 'flash_attn_9'", by="child")],
            """
            import subprocess, sys

            done = subprocess.run([sys.executable, "-c", "import flash_attn_9"], capture_output=True)
            print("with flash attention" if done.returncode == 0 else "without")
            """,
        ),
        Program(
            "sys.exit of a helper",
            0,
            [],
            """
            import subprocess, sys

            subprocess.run([sys.executable, "-c", "import sys; sys.exit(4)"])
            """,
        ),
        Program(
            "a helper with options that it does not know",
            0,
            [],
            """
            import subprocess, sys

            subprocess.run([sys.executable, "convert.py", "--fast"])
            """,
            files={"convert.py": "import argparse\nargparse.ArgumentParser().parse_args()\n"},
        ),
        Program(
            "a shell command",
            0,
            [],
            """
            import subprocess

            subprocess.run("exit 7", shell=True)
            subprocess.run(["false"])
            """,
        ),
        Program(
            "python -I",
            0,
            [],
            """
            import subprocess, sys

            subprocess.run([sys.executable, "-I", "-c", "1 / 0"])
            """,
        ),
        Program(
            "a helper that crashes",
            0,
            [],
            """
            import subprocess, sys

            subprocess.run([sys.executable, "-c", "import os; os.abort()"])
            """,
        ),
        Program(
            "below a shell",
            0,
            [raised("KeyError", "'tokenizer'", by="child")],
            """
            import os, sys

            os.system(f"cd / && {sys.executable} -c '{{}}[\\"tokenizer\\"]' || true")
            """,
        ),
        Program(
            "a helper and a failure of the rank",
            1,
            [raised("ValueError", "no GPU found", by="child"), raised("CalledProcessError", None, function="main")],
            """
            import subprocess, sys

            def main():
                subprocess.run([sys.executable, "-c", "raise ValueError('no GPU found')"], check=True)

            main()
            """,
        ),
        Program(
            "python without our environment",
            0,
            [],
            """
            import subprocess, sys

            subprocess.run([sys.executable, "-c", "1 / 0"], env={})
            """,
        ),
    ],
}
