"""Programs with exceptions that nobody catches: in the main thread, in others, in worker processes; and what hooks make of them.

Each expectation was written before the first run; programs.py says how a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankside.expected import Program, raised

RAISING: Mapping[str, Sequence[Program]] = {
    "an exception in the main thread": [
        Program(
            "plain",
            1,
            [raised("ValueError", "loss is nan", function="train_step", links=(), in_library=False)],
            """
            def train_step(step):
                if step == 3:
                    raise ValueError("loss is nan")

            def main():
                for step in range(10):
                    train_step(step)

            if __name__ == "__main__":
                main()
            """,
        ),
        Program(
            "with a cause",
            1,
            [raised("RuntimeError", "bad configuration", function="load", links=(("cause", "KeyError", "'lr'"),))],
            """
            def load(config):
                try:
                    return config["lr"]
                except KeyError as error:
                    raise RuntimeError("bad configuration") from error

            load({})
            """,
        ),
        Program(
            "while another was handled",
            1,
            [raised("FileNotFoundError", "...", function="save", links=(("context", "ZeroDivisionError", "division by zero"),))],
            """
            def save():
                open("/nowhere/checkpoint.pt", "wb")

            try:
                1 / 0
            except ZeroDivisionError:
                save()
            """,
        ),
        Program(
            "in a function that a library calls",
            1,
            [raised("TypeError", "no tensor in shard", function="decode", in_library=False)],
            """
            import json

            def decode(record):
                raise TypeError("no tensor in shard")

            json.loads('{"shard": 1}', object_hook=decode)
            """,
        ),
        Program(
            "in a library",
            1,
            [raised("JSONDecodeError", "Expecting value: line 1 column 1 (char 0)", function="read", in_library=True)],
            """
            import json

            def read(text):
                return json.loads(text)

            read("not json")
            """,
        ),
        Program(
            "a group",
            1,
            [raised("ExceptionGroup", "two shards failed (2 sub-exceptions)", function="check")],
            """
            def check():
                raise ExceptionGroup("two shards failed", [OSError("shard 1"), ValueError("shard 2")])

            check()
            """,
            since=(3, 11),
        ),
        Program(
            "a very long message",
            1,
            [raised("RuntimeError", "xxxxxxxxxxxxxxxxxxxx...")],
            """
            raise RuntimeError("x" * 1_000_000)
            """,
        ),
        Program(
            "a message in Chinese",
            1,
            [raised("ValueError", "\u635f\u5931\u4e3a NaN \U0001f680")],
            """
            raise ValueError("\\u635f\\u5931\\u4e3a NaN \\U0001f680")
            """,
        ),
        Program(
            "a file name that is not UTF-8",
            1,
            [raised("FileNotFoundError", "[Errno 2] No such file or directory: ...")],
            """
            open("/data/caf\\udce9")
            """,
        ),
        Program(
            "an exception that cannot be printed",
            1,
            [raised("ShardError", None, function="read")],
            """
            class ShardError(Exception):
                def __str__(self):
                    return "shard " + self.shard

            def read():
                raise ShardError

            read()
            """,
        ),
        Program(
            "a module with a syntax error",
            1,
            [raised("SyntaxError", None, links=())],
            """
            import model
            """,
            files={"model.py": "class Model:\n    def forward(self:\n        pass\n"},
        ),
        Program(
            "a module that is missing",
            1,
            [raised("ModuleNotFoundError", "No module named 'flash_attn_9'", function="attention")],
            """
            def attention():
                import flash_attn_9

            attention()
            """,
        ),
        Program(
            "an assertion without a message",
            1,
            [raised("AssertionError", "")],
            """
            assert 1 + 1 == 3
            """,
        ),
        Program(
            "endless recursion",
            1,
            [raised("RecursionError", "maximum recursion depth exceeded...", function="visit")],
            """
            def visit(node):
                return visit(node) + 1

            visit(1)
            """,
        ),
        Program(
            "a hundred causes",
            1,
            [raised("OSError", "try 99")],
            """
            def connect(tries):
                try:
                    if tries:
                        connect(tries - 1)
                finally:
                    raise OSError(f"try {tries}")

            connect(99)
            """,
        ),
        Program(
            "of a signal handler",
            1,
            [raised("RuntimeError", "preempted", function="preempted")],
            """
            import os, signal, time

            def preempted(number, frame):
                raise RuntimeError("preempted")

            signal.signal(signal.SIGUSR1, preempted)
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(60)
            """,
        ),
        Program(
            "no subclass of Exception",
            1,
            [raised("StopTraining", "patience is over")],
            """
            class StopTraining(BaseException):
                pass

            try:
                raise StopTraining("patience is over")
            except Exception:
                print("not reached")
            """,
        ),
        Program(
            "a breakpoint that was forgotten",
            1,
            [raised("BdbQuit", "")],
            """
            def main():
                breakpoint()
                print("step 1")

            main()
            """,
            same_output=False,
        ),
        Program(
            "in a main with PyTorch's @record",
            1,
            [raised("ValueError", "loss is nan", function="main")],
            """
            from torch.distributed.elastic.multiprocessing.errors import record

            @record
            def main():
                raise ValueError("loss is nan")

            main()
            """,
            needs=("torch",),
        ),
    ],
    "an exception in another thread": [
        Program(
            "the rank goes on",
            0,
            [raised("OSError", "no space left", source="thread", thread="saver", function="save")],
            """
            import threading

            def save():
                raise OSError("no space left")

            saver = threading.Thread(target=save, name="saver")
            saver.start()
            saver.join()
            print("trained")
            """,
        ),
        Program(
            "the main thread notices",
            1,
            [raised("OSError", "no space left", source="thread", thread="saver")],
            """
            import sys, threading

            done = []

            def save():
                raise OSError("no space left")
                done.append(True)

            saver = threading.Thread(target=save, name="saver")
            saver.start()
            saver.join()
            if not done:
                sys.exit(1)
            """,
        ),
        Program(
            "the main thread times out",
            1,
            [raised("KeyError", "'shard'", source="thread"), raised("TimeoutError", "no batch", source="main", function="train")],
            """
            import queue, threading

            batches = queue.Queue()

            def load():
                batches.put({}["shard"])

            def train():
                loader = threading.Thread(target=load, daemon=True)
                loader.start()
                loader.join()
                if batches.empty():
                    raise TimeoutError("no batch")

            train()
            """,
        ),
        Program(
            "a thread pool hands it over",
            1,
            [raised("ValueError", "bad image 17", source="main", function="load")],
            """
            from concurrent.futures import ThreadPoolExecutor

            def load(number):
                if number == 17:
                    raise ValueError("bad image 17")
                return number

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(load, range(20)))
            """,
        ),
        Program(
            "a thread pool keeps it",
            0,
            [],
            """
            from concurrent.futures import ThreadPoolExecutor

            def upload():
                raise ConnectionError("no route to the log server")

            with ThreadPoolExecutor(1) as pool:
                pool.submit(upload)
            """,
        ),
        Program(
            "sys.exit in a thread ends the thread alone",
            0,
            [],
            """
            import sys, threading

            thread = threading.Thread(target=lambda: sys.exit(3))
            thread.start()
            thread.join()
            """,
        ),
        Program(
            "a timer",
            0,
            [raised("ZeroDivisionError", "division by zero", source="thread", function="report")],
            """
            import threading

            def report():
                return 100 / 0

            timer = threading.Timer(0.01, report)
            timer.start()
            timer.join()
            """,
        ),
        Program(
            "two threads",
            1,
            [
                raised("OSError", "shard 0", source="thread", thread="loader-0"),
                raised("OSError", "shard 1", source="thread", thread="loader-1"),
            ],
            """
            import sys, threading

            def load(number):
                raise OSError(f"shard {number}")

            for number in range(2):
                loader = threading.Thread(target=load, args=(number,), name=f"loader-{number}")
                loader.start()
                loader.join()
            sys.exit("both loaders died")
            """,
        ),
        Program(
            "forty threads: the first and the last are kept",
            0,
            [raised("OSError", "shard ...", source="thread", times=16)],
            """
            import threading

            def load(number):
                raise OSError(f"shard {number}")

            for number in range(40):
                loader = threading.Thread(target=load, args=(number,))
                loader.start()
                loader.join()
            """,
        ),
        Program(
            "started without the module threading",
            0,
            [raised("ValueError", "no heartbeat", source="thread", optional=True)],
            """
            import _thread, os, time

            def beat():
                try:
                    raise ValueError("no heartbeat")
                finally:
                    open("beaten", "w").close()

            _thread.start_new_thread(beat, ())
            while not os.path.exists("beaten"):
                time.sleep(0.01)
            time.sleep(0.1)
            """,
            same_output=False,
        ),
    ],
    "a worker process by fork": [
        Program(
            "multiprocessing.Process, and its parent gives up",
            1,
            [raised("ValueError", "bad shard 3", source="process", by="child", function="work")],
            """
            import multiprocessing, sys

            def work(shard):
                raise ValueError(f"bad shard {shard}")

            if __name__ == "__main__":
                worker = multiprocessing.get_context("fork").Process(target=work, args=(3,))
                worker.start()
                worker.join()
                sys.exit(worker.exitcode)
            """,
        ),
        Program(
            "multiprocessing.Process, survived",
            0,
            [raised("ValueError", "bad shard 3", source="process", by="child")],
            """
            import multiprocessing

            def work(shard):
                raise ValueError(f"bad shard {shard}")

            worker = multiprocessing.get_context("fork").Process(target=work, args=(3,))
            worker.start()
            worker.join()
            print("worker ended with", worker.exitcode)
            """,
        ),
        Program(
            "a pool hands it over",
            1,
            [raised("ValueError", "bad shard 3", source="main", links=(("cause", "RemoteTraceback", None),))],
            """
            import multiprocessing

            def work(shard):
                if shard == 3:
                    raise ValueError(f"bad shard {shard}")

            with multiprocessing.get_context("fork").Pool(2) as pool:
                pool.map(work, range(5))
            """,
        ),
        Program(
            "os.fork",
            1,
            [raised("KeyError", "'shard'", source="main", by="child", function="work"), raised("RuntimeError", "worker ended with 256")],
            """
            import os

            def work():
                return {}["shard"]

            pid = os.fork()
            if pid == 0:
                work()
            status = os.waitpid(pid, 0)[1]
            raise RuntimeError(f"worker ended with {status}")
            """,
        ),
        Program(
            "an executor whose worker is killed",
            1,
            [raised("BrokenProcessPool", "A process in the process pool was terminated...")],
            """
            import multiprocessing, os, signal
            from concurrent.futures import ProcessPoolExecutor

            def work(shard):
                os.kill(os.getpid(), signal.SIGKILL)

            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
                pool.submit(work, 3).result()
            """,
        ),
        Program(
            "a worker that calls sys.exit",
            3,
            [],
            """
            import multiprocessing, sys

            worker = multiprocessing.get_context("fork").Process(target=sys.exit, args=(3,))
            worker.start()
            worker.join()
            sys.exit(worker.exitcode)
            """,
        ),
        Program(
            "a thread of a worker",
            0,
            [raised("OSError", "socket closed", source="thread", by="child", thread="sender")],
            """
            import multiprocessing, threading

            def send():
                raise OSError("socket closed")

            def work():
                sender = threading.Thread(target=send, name="sender")
                sender.start()
                sender.join()

            worker = multiprocessing.get_context("fork").Process(target=work)
            worker.start()
            worker.join()
            """,
        ),
        Program(
            "a worker of a worker",
            0,
            [raised("ValueError", "deep", source="process", by="child", function="inner")],
            """
            import multiprocessing

            fork = multiprocessing.get_context("fork")

            def run(function):
                worker = fork.Process(target=function)
                worker.start()
                worker.join()

            def inner():
                raise ValueError("deep")

            run(lambda: run(inner))
            """,
        ),
        Program(
            "a worker that a signal kills",
            1,
            [raised("RuntimeError", "worker ended with -9")],
            """
            import multiprocessing, os, signal

            worker = multiprocessing.get_context("fork").Process(target=lambda: os.kill(os.getpid(), signal.SIGKILL))
            worker.start()
            worker.join()
            raise RuntimeError(f"worker ended with {worker.exitcode}")
            """,
        ),
    ],
    "a worker process by spawn": [
        Program(
            "multiprocessing.Process, and its parent raises",
            1,
            [
                raised("ValueError", "bad shard 3", source="process", by="child", function="work"),
                raised("RuntimeError", "worker ended with 1", source="main", function="main"),
            ],
            """
            import multiprocessing

            def work(shard):
                raise ValueError(f"bad shard {shard}")

            def main():
                worker = multiprocessing.get_context("spawn").Process(target=work, args=(3,))
                worker.start()
                worker.join()
                if worker.exitcode:
                    raise RuntimeError(f"worker ended with {worker.exitcode}")

            if __name__ == "__main__":
                main()
            """,
        ),
        Program(
            "without the guard of __main__",
            1,
            [
                raised("RuntimeError", None, source="main", by="child"),  # "An attempt has been made to start a new process before ..."
                raised("AssertionError", "worker failed", source="main"),
            ],
            """
            import multiprocessing

            def work():
                print("work")

            worker = multiprocessing.get_context("spawn").Process(target=work)
            worker.start()
            worker.join()
            assert worker.exitcode == 0, "worker failed"
            """,
        ),
        Program(
            "torch.multiprocessing.spawn",
            1,
            [raised("ProcessRaisedException", None)],
            """
            import torch.multiprocessing

            def train(index):
                raise ValueError("no image 17")

            if __name__ == "__main__":
                torch.multiprocessing.spawn(train, nprocs=1)
            """,
            needs=("torch",),
        ),
        Program(
            "an executor hands it over",
            1,
            [raised("ValueError", "bad shard 3", links=(("cause", "_RemoteTraceback", None),))],
            """
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            def work(shard):
                raise ValueError(f"bad shard {shard}")

            if __name__ == "__main__":
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                    pool.submit(work, 3).result()
            """,
        ),
        Program(
            "an executor whose workers cannot start",
            1,
            [raised("BrokenProcessPool", None)],
            """
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            def prepare():
                raise OSError("no device")

            if __name__ == "__main__":
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=prepare) as pool:
                    pool.submit(print, 3).result()
            """,
        ),
        Program(
            "the fork server",
            0,
            [raised("ValueError", "bad shard 3", source="process", by="child", function="work")],
            """
            import multiprocessing

            def work(shard):
                raise ValueError(f"bad shard {shard}")

            if __name__ == "__main__":
                worker = multiprocessing.get_context("forkserver").Process(target=work, args=(3,))
                worker.start()
                worker.join()
            """,
        ),
        Program(
            "a pool that goes on",
            0,
            [],
            """
            import multiprocessing

            def work(shard):
                if shard == 3:
                    raise ValueError(f"bad shard {shard}")

            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    for result in [pool.apply_async(work, (shard,)) for shard in range(5)]:
                        try:
                            result.get()
                        except ValueError as error:
                            print("skipped:", error)
            """,
        ),
        Program(
            "a function that cannot be sent",
            1,
            [raised("PicklingError", None, function="main", in_library=True)],
            """
            import multiprocessing

            work = lambda: print("work")

            def main():
                multiprocessing.get_context("spawn").Process(target=work).start()

            if __name__ == "__main__":
                main()
            """,
        ),
    ],
    "a DataLoader worker": [
        Program(
            "a data set raises",
            1,
            [raised("ValueError", "Caught ValueError in DataLoader worker process 0....")],
            """
            import torch.utils.data

            class Images(torch.utils.data.Dataset):
                def __len__(self):
                    return 4

                def __getitem__(self, index):
                    raise ValueError(f"no image {index}")

            if __name__ == "__main__":
                for batch in torch.utils.data.DataLoader(Images(), num_workers=1):
                    print(batch)
            """,
            needs=("torch",),
        ),
        Program(
            "killed",
            1,
            [raised("RuntimeError", "DataLoader worker (pid...")],
            """
            import os, signal
            import torch.utils.data

            class Images(torch.utils.data.Dataset):
                def __len__(self):
                    return 4

                def __getitem__(self, index):
                    os.kill(os.getpid(), signal.SIGKILL)

            if __name__ == "__main__":
                for batch in torch.utils.data.DataLoader(Images(), num_workers=1):
                    print(batch)
            """,
            needs=("torch",),
            same_output=False,
        ),
        Program(
            "os._exit",
            1,
            [raised("RuntimeError", "DataLoader worker (pid...")],
            """
            import os
            import torch.utils.data

            class Images(torch.utils.data.IterableDataset):
                def __iter__(self):
                    os._exit(7)

            if __name__ == "__main__":
                for batch in torch.utils.data.DataLoader(Images(), num_workers=1):
                    print(batch)
            """,
            needs=("torch",),
            same_output=False,
        ),
        Program(
            "a segmentation fault",
            1,
            [raised("RuntimeError", "DataLoader worker (pid...")],
            """
            import ctypes
            import torch.utils.data

            class Images(torch.utils.data.Dataset):
                def __len__(self):
                    return 4

                def __getitem__(self, index):
                    return ctypes.string_at(0)

            if __name__ == "__main__":
                for batch in torch.utils.data.DataLoader(Images(), num_workers=1):
                    print(batch)
            """,
            needs=("torch",),
            same_output=False,
        ),
        Program(
            "sys.exit",
            1,
            [raised("RuntimeError", "DataLoader worker (pid...")],
            """
            import sys
            import torch.utils.data

            class Images(torch.utils.data.Dataset):
                def __len__(self):
                    return 4

                def __getitem__(self, index):
                    sys.exit(3)

            if __name__ == "__main__":
                for batch in torch.utils.data.DataLoader(Images(), num_workers=1):
                    print(batch)
            """,
            needs=("torch",),
            same_output=False,
        ),
        Program(
            "killed and survived",
            0,
            [],
            """
            import os, signal
            import torch.utils.data

            parent = os.getpid()

            class Images(torch.utils.data.Dataset):
                def __len__(self):
                    return 4

                def __getitem__(self, index):
                    if torch.utils.data.get_worker_info():
                        os.kill(os.getpid(), signal.SIGKILL)
                    return index

            def batches(workers):
                return list(torch.utils.data.DataLoader(Images(), num_workers=workers))

            if __name__ == "__main__":
                try:
                    batches(1)
                except RuntimeError:
                    print("once more without workers:", batches(0))
            """,
            needs=("torch",),
            same_output=False,
        ),
    ],
    "an asyncio task": [
        Program(
            "the main task",
            1,
            [raised("ConnectionError", "no parameter server", function="connect")],
            """
            import asyncio

            async def connect():
                await asyncio.sleep(0)
                raise ConnectionError("no parameter server")

            async def main():
                await connect()

            asyncio.run(main())
            """,
        ),
        Program(
            "a task that is awaited",
            1,
            [raised("ValueError", "bad batch", function="load")],
            """
            import asyncio

            async def load():
                raise ValueError("bad batch")

            async def main():
                task = asyncio.create_task(load())
                await asyncio.sleep(0)
                await task

            asyncio.run(main())
            """,
        ),
        Program(
            "a task that nobody asks",
            0,
            [],
            """
            import asyncio, gc

            async def upload():
                raise OSError("no log server")

            async def main():
                asyncio.create_task(upload())
                await asyncio.sleep(0.01)
                gc.collect()

            asyncio.run(main())
            """,
        ),
        Program(
            "gather keeps them",
            0,
            [],
            """
            import asyncio

            async def load(number):
                raise ValueError(f"bad batch {number}")

            async def main():
                print(await asyncio.gather(load(1), load(2), return_exceptions=True))

            asyncio.run(main())
            """,
        ),
        Program(
            "a group of tasks",
            1,
            [raised("ExceptionGroup", "unhandled errors in a TaskGroup (1 sub-exception)")],
            """
            import asyncio

            async def load():
                raise ValueError("bad batch")

            async def main():
                async with asyncio.TaskGroup() as group:
                    group.create_task(load())

            asyncio.run(main())
            """,
            since=(3, 11),
        ),
        Program(
            "a wait that is too long",
            1,
            [raised("TimeoutError", None)],
            """
            import asyncio

            async def main():
                await asyncio.wait_for(asyncio.Event().wait(), 0.05)

            asyncio.run(main())
            """,
        ),
        Program(
            "a loop in a thread",
            4,
            [raised("ValueError", "bad batch", source="thread", function="load")],
            """
            import asyncio, sys, threading

            async def load():
                raise ValueError("bad batch")

            loader = threading.Thread(target=lambda: asyncio.run(load()))
            loader.start()
            loader.join()
            sys.exit(4)
            """,
        ),
        Program(
            "a loop whose handler ends the process",
            5,
            [],
            """
            import asyncio, os

            def give_up(loop, context):
                print("loop:", context["message"], flush=True)
                os._exit(5)

            async def main():
                loop = asyncio.get_running_loop()
                loop.set_exception_handler(give_up)
                loop.call_soon(lambda: 1 / 0)
                await asyncio.sleep(60)

            asyncio.run(main())
            """,
        ),
    ],
    "a hook that logs": [
        Program(
            "sys.excepthook logs to a file",
            1,
            [raised("ValueError", "loss is nan", function="main")],
            """
            import logging, sys

            logging.basicConfig(filename="train.log")

            def log(kind, error, traceback):
                logging.critical("uncaught", exc_info=(kind, error, traceback))

            def main():
                raise ValueError("loss is nan")

            sys.excepthook = log
            main()
            """,
        ),
        Program(
            "sys.excepthook swallows all",
            1,
            [raised("ValueError", "loss is nan")],
            """
            import sys

            sys.excepthook = lambda *_: None
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "sys.excepthook calls the one before",
            1,
            [raised("KeyError", "'shard'", links=())],
            """
            import sys

            before = sys.excepthook

            def hook(kind, error, traceback):
                print("rank 1 failed:", kind.__name__)
                before(kind, error, traceback)

            sys.excepthook = hook
            {}["shard"]
            """,
        ),
        Program(
            "sys.excepthook fails itself",
            1,
            [raised("ValueError", "loss is nan"), raised("FileNotFoundError", None, optional=True)],
            """
            import sys

            def hook(kind, error, traceback):
                open("/nowhere/crash.log", "w").write(str(error))

            sys.excepthook = hook
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "a decorator that logs and raises again",
            1,
            [raised("ValueError", "loss is nan", function="main")],
            """
            import functools, logging

            def catch(function):
                @functools.wraps(function)
                def run(*args):
                    try:
                        return function(*args)
                    except Exception:
                        logging.getLogger("train").exception("in %s", function.__name__)
                        raise
                return run

            @catch
            def main():
                raise ValueError("loss is nan")

            main()
            """,
        ),
        Program(
            "threading.excepthook logs to a file",
            0,
            [raised("OSError", "no space left", source="thread", thread="saver")],
            """
            import logging, threading

            logging.basicConfig(filename="train.log")
            threading.excepthook = lambda args: logging.error("in %s: %s", args.thread.name, args.exc_value)

            def save():
                raise OSError("no space left")

            saver = threading.Thread(target=save, name="saver")
            saver.start()
            saver.join()
            """,
        ),
        Program(
            "faulthandler writes to a file",
            1,
            [raised("ValueError", "loss is nan")],
            """
            import faulthandler

            faulthandler.enable(open("crash.log", "w"))
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "sys.excepthook is put back",
            1,
            [raised("ValueError", "loss is nan")],
            """
            import sys

            before, sys.excepthook = sys.excepthook, lambda *_: None
            sys.excepthook = before
            assert sys.excepthook is before
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "sys.excepthook is taken away",
            1,
            [raised("ValueError", "loss is nan")],
            """
            import sys

            del sys.excepthook
            raise ValueError("loss is nan")
            """,
        ),
    ],
    "a hook that ends the process": [
        Program(
            "sys.excepthook calls os._exit",
            5,
            [raised("ValueError", "loss is nan", function="main")],
            """
            import os, sys

            def give_up(kind, error, traceback):
                print("giving up:", error, flush=True)
                os._exit(5)

            def main():
                raise ValueError("loss is nan")

            sys.excepthook = give_up
            main()
            """,
        ),
        Program(
            "threading.excepthook calls os._exit",
            6,
            [raised("OSError", "no space left", source="thread", thread="saver")],
            """
            import os, threading

            def give_up(args):
                os._exit(6)

            def save():
                raise OSError("no space left")

            threading.excepthook = give_up
            threading.Thread(target=save, name="saver").start()
            threading.Event().wait(60)
            """,
        ),
        Program(
            "sys.excepthook kills the process",
            "SIGKILL",
            [raised("ValueError", "loss is nan")],
            """
            import os, signal, sys

            sys.excepthook = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "sys.excepthook aborts",
            "SIGABRT",
            [raised("ValueError", "loss is nan")],
            """
            import os, sys

            sys.excepthook = lambda *_: os.abort()
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "sys.excepthook hides the failure",
            0,
            [raised("ValueError", "loss is nan")],
            """
            import os, sys

            sys.excepthook = lambda *_: os._exit(0)
            raise ValueError("loss is nan")
            """,
        ),
    ],
    "an atexit handler": [
        Program(
            "takes long after an exception",
            1,
            [raised("ValueError", "loss is nan")],
            """
            import atexit, time

            atexit.register(time.sleep, 1)
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "never ends, and another process kills it",
            "SIGKILL",
            [raised("ValueError", "loss is nan")],
            """
            import atexit, os, signal, time

            rank = os.getpid()
            if os.fork() == 0:
                while not os.path.exists("hangs"):
                    time.sleep(0.01)
                os.kill(rank, signal.SIGKILL)
                os._exit(0)

            def hang():
                open("hangs", "w").close()
                time.sleep(600)

            atexit.register(hang)
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "prints an exception that was caught",
            0,
            [],
            """
            import atexit, traceback

            caught = []
            atexit.register(lambda: traceback.print_exception(type(caught[0]), caught[0], caught[0].__traceback__))
            try:
                raise ValueError("sample skipped")
            except ValueError as error:
                caught.append(error)
            """,
        ),
        Program(
            "prints another exception after one that ended the rank",
            1,
            [raised("ValueError", "loss is nan")],
            """
            import atexit, traceback

            def close():
                try:
                    raise ConnectionError("no log server")
                except ConnectionError:
                    traceback.print_exc()

            atexit.register(close)
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "calls os._exit",
            9,
            [raised("ValueError", "loss is nan")],
            """
            import atexit, os

            atexit.register(os._exit, 9)
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "raises, and the rank succeeds",
            0,
            [raised("OSError", "no log server", source="main", optional=True)],
            """
            import atexit

            def close():
                raise OSError("no log server")

            atexit.register(close)
            """,
        ),
    ],
    "a thread that outlives the main thread": [
        Program(
            "for a second",
            1,
            [raised("ValueError", "loss is nan", source="main")],
            """
            import threading, time

            threading.Thread(target=time.sleep, args=(1,)).start()
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "and calls os._exit",
            4,
            [raised("ValueError", "loss is nan", source="main")],
            """
            import os, threading, time

            def watch():
                main = threading.main_thread()
                while main.is_alive():
                    time.sleep(0.01)
                os._exit(4)

            threading.Thread(target=watch).start()
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "and raises as well",
            1,
            [raised("ValueError", "loss is nan", source="main"), raised("OSError", "main thread is gone", source="thread", thread="watch")],
            """
            import threading, time

            def watch():
                main = threading.main_thread()
                while main.is_alive():
                    time.sleep(0.01)
                raise OSError("main thread is gone")

            threading.Thread(target=watch, name="watch").start()
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "without an end, and another process kills it",
            "SIGKILL",
            [raised("ValueError", "loss is nan", source="main")],
            """
            import os, signal, threading, time

            rank = os.getpid()
            if os.fork() == 0:
                while not os.path.exists("hangs"):
                    time.sleep(0.01)
                os.kill(rank, signal.SIGKILL)
                os._exit(0)

            def watch():
                main = threading.main_thread()
                while main.is_alive():
                    time.sleep(0.01)
                open("hangs", "w").close()
                threading.Event().wait()

            threading.Thread(target=watch).start()
            raise ValueError("loss is nan")
            """,
        ),
        Program(
            "of an executor",
            1,
            [raised("ValueError", "loss is nan", source="main")],
            """
            import time
            from concurrent.futures import ThreadPoolExecutor

            pool = ThreadPoolExecutor(1)
            pool.submit(time.sleep, 0.5)
            raise ValueError("loss is nan")
            """,
        ),
    ],
}
