"""A TensorFlow job as many are written: worker 0 stops after a few steps and leaves, and worker 1 opens its session only then.
That asks for all workers, so it waits for worker 0 for ever. $GONE: file that worker 1 waits for."""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow.compat.v1 as tf

parser = argparse.ArgumentParser()
parser.add_argument("--task_index", type=int)
for name in ("ps_hosts", "worker_hosts", "job_name"):
    parser.add_argument(f"--{name}")
options = parser.parse_args()
tf.disable_eager_execution()
cluster = tf.train.ClusterSpec({"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")})
server = tf.train.Server(cluster, options.job_name, options.task_index)
print("ready", flush=True)
if options.job_name == "ps":
    server.join()
if options.job_name == "worker" and options.task_index:
    while not os.path.exists(os.environ["GONE"]):
        time.sleep(0.1)
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{options.task_index}")):
    step = tf.train.get_or_create_global_step()
    train = tf.assign_add(step, 1)
hooks = [tf.train.StopAtStepHook(num_steps=5)]
with tf.train.MonitoredTrainingSession(server.target, options.task_index == 0, hooks=hooks, save_summaries_steps=0) as session:
    while not session.should_stop():
        print(f"step {session.run(train)}", flush=True)
print("trained", flush=True)
