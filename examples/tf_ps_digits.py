"""TensorFlow with parameter servers: the variables are on the ps, the workers train on them at the same time. Method tensorflow.

    ranklaunch simulate --nodes 2 --method tensorflow -- examples/tf_ps_digits.py --checkpoint digits

What the script is told about its container: --job_name (ps or worker), --task_index, --ps_hosts and --worker_hosts. Without any of
them it is the whole job: python examples/tf_ps_digits.py

Two things keep workers from waiting for each other for ever. Each asks for the ps and itself alone (device filters): without them a
session also wants every other worker, even one that has already ended. And worker 0, which initialises and saves, ends last.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import that reads it

import numpy as np
import tensorflow.compat.v1 as tf
from digits_data import load_digits

TEST_IMAGES = 360
HIDDEN = 64


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, as one container of a job.", allow_abbrev=False)
    parser.add_argument("--job_name", choices=("ps", "worker"), default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="", help="host:port of each ps, with commas between them")
    parser.add_argument("--worker_hosts", default="", help="host:port of each worker, with commas between them")
    parser.add_argument("--epochs", type=int, default=5, help="epochs of this start, on top of those in the checkpoint")
    parser.add_argument("--batch_size", type=int, default=16, help="images per step and worker")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits"), help="folder; read at the start if one is there")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    tf.disable_eager_execution()
    workers = len(options.worker_hosts.split(","))
    server = make_server(options)
    if options.job_name == "ps":
        tell(f"ps {options.task_index} serves")
        server.join()  # never returns: whoever started it ends it
    tell(f"worker {options.task_index} of {workers}; ignored arguments: {unknown}")
    train(options, workers, server)


def make_server(options: argparse.Namespace) -> tf.train.Server | None:
    if not options.ps_hosts:
        return None
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")})
    return tf.train.Server(cluster, options.job_name, options.task_index)


class Model(NamedTuple):
    """Nodes of the graph. epochs and finished count on a ps: epochs of all starts, workers that are through with this one."""

    images: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    accuracy: tf.Tensor
    step: tf.Operation
    epochs: tf.Variable
    finished: tf.Variable
    finish: tf.Operation
    count_epochs: tf.Operation


def train(options: argparse.Namespace, workers: int, server: tf.train.Server | None) -> None:
    index, chief = options.task_index, options.task_index == 0
    images, labels, test_images, test_labels = load_data()
    images, labels = images[index::workers], labels[index::workers]
    with tf.device(placement(server, index)):
        model = make_model(options)
    saver = tf.train.Saver(max_to_keep=1)
    if chief:
        for variable in tf.trainable_variables():
            tell(f"{variable.op.name} is on {variable.device or 'this machine'}")
    test = {model.images: test_images, model.labels: test_labels}
    with open_session(options, server, saver) as session:
        done = session.run(model.epochs)
        if chief and done:
            tell(f"resumed from {options.checkpoint} at epoch {done}")
        last = done + options.epochs
        for epoch in range(done + 1, last + 1):
            began = time.monotonic()
            losses = [session.run((model.loss, model.step), feed)[0] for feed in batches(model, images, labels, options.batch_size, epoch)]
            line = f"epoch {epoch}/{last}  loss {np.mean(losses):.4f}  {time.monotonic() - began:.1f} s"
            tell(line + (f"  test accuracy {session.run(model.accuracy, test):.1%}" if chief else ""))
        session.run(model.finish)
        if chief:
            while session.run(model.finished) < workers:
                time.sleep(0.05)
            session.run(model.count_epochs)
            saver.save(session, str(options.checkpoint / "model"), model.epochs)


def placement(server: tf.train.Server | None, index: int) -> object:
    """Variables on the ps, by turns; everything else here."""
    if not server:
        return None
    return tf.train.replica_device_setter(cluster=server.server_def.cluster, worker_device=f"/job:worker/task:{index}")


def open_session(options: argparse.Namespace, server: tf.train.Server | None, saver: tf.train.Saver) -> tf.Session:
    """Worker 0 initialises the variables, from the checkpoint if there is one; the others wait for that."""
    master, config = "", tf.ConfigProto()
    if server:
        master = server.target
        config.device_filters.extend(["/job:ps", f"/job:worker/task:{options.task_index}"])
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=1)
    if options.task_index:
        return manager.wait_for_session(master, config, max_wait_secs=600)
    init = tf.global_variables_initializer()
    return manager.prepare_session(master, init, saver, str(options.checkpoint), config=config)


def make_model(options: argparse.Namespace) -> Model:
    images = tf.placeholder(tf.float32, [None, 64])
    labels = tf.placeholder(tf.int64, [None])
    hidden = tf.nn.relu(layer("hidden", images, 64, HIDDEN))
    logits = layer("out", hidden, HIDDEN, 10)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    correct = tf.equal(tf.argmax(logits, axis=1), labels)
    epochs = tf.get_variable("epochs", [], tf.int32, tf.zeros_initializer(), trainable=False)
    finished = tf.get_variable("finished", [], tf.int32, tf.zeros_initializer(), trainable=False)
    with tf.control_dependencies([tf.assign(finished, 0)]):
        count_epochs = tf.assign_add(epochs, options.epochs).op
    return Model(
        images,
        labels,
        loss,
        tf.reduce_mean(tf.cast(correct, tf.float32)),
        tf.train.GradientDescentOptimizer(options.lr).minimize(loss),
        epochs,
        finished,
        tf.assign_add(finished, 1, use_locking=True).op,
        count_epochs,
    )


def layer(name: str, inputs: tf.Tensor, size: int, outputs: int) -> tf.Tensor:
    weights = tf.get_variable(f"{name}_weights", [size, outputs], initializer=tf.glorot_uniform_initializer(seed=0))
    return tf.matmul(inputs, weights) + tf.get_variable(f"{name}_bias", [outputs], initializer=tf.zeros_initializer())


def batches(model: Model, images: np.ndarray, labels: np.ndarray, size: int, epoch: int) -> Iterator[dict[tf.Tensor, np.ndarray]]:
    order = np.random.default_rng(epoch).permutation(len(labels))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield {model.images: images[chosen], model.labels: labels[chosen]}


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    pixels, digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits))  # the same on all workers
    images, labels = pixels[order].astype(np.float32) / 16, digits[order]
    return images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES]


def tell(line: str) -> None:
    # print() writes a line and its end in two pieces, and where processes share a pipe, others would write in between.
    print(line + "\n", end="", flush=True)


if __name__ == "__main__":
    main()
