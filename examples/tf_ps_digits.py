"""TensorFlow with parameter servers: the ps hold the variables, and the workers train them at the same time. Method tensorflow.

    ranklaunch simulate --nodes 2 --method tensorflow -- examples/tf_ps_digits.py --checkpoint digits

Arguments that give the script its place: --job_name (ps or worker), --task_index, --ps_hosts and --worker_hosts. Without them
it is the whole job: python examples/tf_ps_digits.py

Two measures keep workers from waiting for each other for ever. A worker's session uses only the ps and itself (device filters): by default
it would wait for all other workers, even for one that has ended. And worker 0, which initialises and saves, ends last.

It resumes where it was stopped, in the middle of an epoch too: each worker counts its batches on a ps, and worker 0 saves the
counts with the model.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read by the import below

import numpy as np
import tensorflow.compat.v1 as tf
from digits_data import load_digits

TEST_IMAGES = 360
HIDDEN = 64
MOST_WORKERS = 1000
COUNTERS = ("epochs", "last", "begun", "saved_by")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, as one container of a job.", allow_abbrev=False)
    parser.add_argument("--job_name", choices=("ps", "worker"), default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="", help="host:port of each ps, with commas between them")
    parser.add_argument("--worker_hosts", default="", help="host:port of each worker, with commas between them")
    parser.add_argument("--epochs", type=int, default=5, help="more than are in the checkpoint, unless an earlier start was interrupted")
    parser.add_argument("--save_steps", type=int, default=0, help="save after so many steps of worker 0 too")
    parser.add_argument("--batch_size", type=int, default=16, help="images per step and worker")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits"), help="folder; read at the start if one is there")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    tf.disable_eager_execution()
    workers = len(options.worker_hosts.split(","))
    server = make_server(options)
    if options.job_name == "ps":
        tell(f"ps {options.task_index} serves")
        server.join()  # never returns: the launcher ends this process
    tell(f"worker {options.task_index} of {workers}; ignored arguments: {unknown}")
    train(options, workers, server)


def make_server(options: argparse.Namespace) -> tf.train.Server | None:
    if not options.ps_hosts:
        return None
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")})
    return tf.train.Server(cluster, options.job_name, options.task_index)


class Model(NamedTuple):
    """Nodes of the graph.

    Variables on a ps: done: number of batches of each worker, in all runs. epochs: epochs that all workers have finished. last: number of
    epochs to train in all. begun, saved_by: worker 0's batches and the number of workers at the last save; `mark` sets both.
    """

    images: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    accuracy: tf.Tensor
    step: tf.Operation
    number: tf.Tensor  # a placeholder
    place: tf.Operation  # sets this worker's number of batches
    aim: tf.Operation  # sets the number of epochs to train
    arrive: tf.Operation  # sets the number of finished epochs
    mark: tf.Operation
    done: tf.Variable
    epochs: tf.Variable
    last: tf.Variable
    begun: tf.Variable
    saved_by: tf.Variable


def train(options: argparse.Namespace, workers: int, server: tf.train.Server | None) -> None:
    index, chief = options.task_index, options.task_index == 0
    images, labels, test_images, test_labels = load_data()
    each = len(labels) // workers // options.batch_size  # batches of an epoch, the same number for all workers
    images, labels = images[index::workers], labels[index::workers]
    with tf.device(placement(server, index)):
        model = make_model(options, workers)
    saver = tf.train.Saver(max_to_keep=1)
    if chief:
        for variable in tf.trainable_variables():
            tell(f"{variable.op.name} is on {variable.device or 'this machine'}")
    test = {model.images: test_images, model.labels: test_labels}
    with open_session(options, server, saver) as session:
        done, last = resume(session, model, options, workers)
        while done < last * each:
            epoch, begin = divmod(done, each)
            began, losses = time.monotonic(), []
            for feed in batches(model, images, labels, options.batch_size, epoch + 1)[begin:each]:
                losses.append(session.run((model.loss, model.step), feed)[0])
                done += 1
                if chief and options.save_steps and done % options.save_steps == 0:
                    save(session, model, saver, options)
            line = f"epoch {epoch + 1}/{last}  loss {np.mean(losses):.4f}  {time.monotonic() - began:.1f} s"
            tell(line + (f"  test accuracy {session.run(model.accuracy, test):.1%}" if chief else ""))
        if chief:
            while min(session.run(model.done)[:workers]) < last * each:
                time.sleep(0.05)
            session.run(model.arrive, {model.number: last})
            save(session, model, saver, options)
            tell(f"{sum(session.run(model.done)[:workers])} batches of all workers")


def resume(session: tf.Session, model: Model, options: argparse.Namespace, workers: int) -> tuple[int, int]:
    """Return the number of this worker's finished batches, and the number of epochs to train in all."""
    index = options.task_index
    done, epochs, last, begun, saved_by = session.run((model.done, model.epochs, model.last, model.begun, model.saved_by))
    own = int(done[index])
    if saved_by not in (0, workers):  # another number of workers: shares differ, so all resume from worker 0's place
        own = int(begun) * int(saved_by) // workers
        session.run(model.place, {model.number: own})
    if index == 0 and begun:
        other = f"; the checkpoint is of {saved_by} workers, and these are {workers}" if saved_by != workers else ""
        tell(f"resumed from {options.checkpoint} at epoch {epochs}, batch {own}{other}")
    if epochs >= last:
        last = epochs + options.epochs
        if index == 0:
            session.run(model.aim, {model.number: last})
    return own, int(last)


def save(session: tf.Session, model: Model, saver: tf.train.Saver, options: argparse.Namespace) -> None:
    """Save while the other workers go on. A batch between its step and its count is trained again after a resume."""
    options.checkpoint.mkdir(parents=True, exist_ok=True)
    session.run(model.mark)
    saver.save(session, str(options.checkpoint / "model"), model.begun)  # TensorFlow names the newest complete checkpoint in a file


def placement(server: tf.train.Server | None, index: int) -> object:
    """Return the placement: variables on the ps in turn, everything else on this worker."""
    if not server:
        return None
    return tf.train.replica_device_setter(cluster=server.server_def.cluster, worker_device=f"/job:worker/task:{index}")


def open_session(options: argparse.Namespace, server: tf.train.Server | None, saver: tf.train.Saver) -> tf.Session:
    """Open a session. Worker 0 initialises the variables, from a checkpoint if there is one; other workers wait until then."""
    master, config = "", tf.ConfigProto()
    if server:
        master = server.target
        config.device_filters.extend(["/job:ps", f"/job:worker/task:{options.task_index}"])
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=1)
    if options.task_index:
        return manager.wait_for_session(master, config, max_wait_secs=600)
    init = tf.global_variables_initializer()
    return manager.prepare_session(master, init, saver, str(options.checkpoint), config=config)


def make_model(options: argparse.Namespace, workers: int) -> Model:
    images = tf.placeholder(tf.float32, [None, 64])
    labels = tf.placeholder(tf.int64, [None])
    hidden = tf.nn.relu(layer("hidden", images, 64, HIDDEN))
    logits = layer("out", hidden, HIDDEN, 10)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    correct = tf.equal(tf.argmax(logits, axis=1), labels)
    done, epochs, last, begun, saved_by = (counter("done", [MOST_WORKERS]), *(counter(name) for name in COUNTERS))
    number = tf.placeholder(tf.int32, [])
    with tf.control_dependencies([tf.train.GradientDescentOptimizer(options.lr).minimize(loss)]):
        step = tf.scatter_add(done, [options.task_index], [1], use_locking=True).op
    return Model(
        images,
        labels,
        loss,
        tf.reduce_mean(tf.cast(correct, tf.float32)),
        step,
        number,
        tf.scatter_update(done, [options.task_index], [number]).op,
        tf.assign(last, number).op,
        tf.assign(epochs, number).op,
        tf.group(tf.assign(begun, done[0]), tf.assign(saved_by, workers)),
        done,
        epochs,
        last,
        begun,
        saved_by,
    )


def counter(name: str, shape: Sequence[int] = ()) -> tf.Variable:
    return tf.get_variable(name, shape, tf.int32, tf.zeros_initializer(), trainable=False)


def layer(name: str, inputs: tf.Tensor, size: int, outputs: int) -> tf.Tensor:
    weights = tf.get_variable(f"{name}_weights", [size, outputs], initializer=tf.glorot_uniform_initializer(seed=0))
    return tf.matmul(inputs, weights) + tf.get_variable(f"{name}_bias", [outputs], initializer=tf.zeros_initializer())


def batches(model: Model, images: np.ndarray, labels: np.ndarray, size: int, epoch: int) -> list[dict[tf.Tensor, np.ndarray]]:
    order = np.random.default_rng(epoch).permutation(len(labels))
    parts = (order[start : start + size] for start in range(0, len(order), size))
    return [{model.images: images[chosen], model.labels: labels[chosen]} for chosen in parts]


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    pixels, digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits))  # the same on all workers
    images, labels = pixels[order].astype(np.float32) / 16, digits[order]
    return images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES]


def tell(line: str) -> None:
    # print() writes a line and its newline separately; processes that share a pipe could write in between.
    print(line + "\n", end="", flush=True)


if __name__ == "__main__":
    main()
