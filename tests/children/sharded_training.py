"""Training as MaxText lays it out on JAX: small, and with no knowledge of its launcher.

All devices are one mesh, data x fsdp. Parameters and the state of the optimizer are sharded
over fsdp, the batch over both. Every process saves the shards of its devices after each step,
and a start goes on behind the last step that all processes have saved.

CHECKPOINTS: folder of the checkpoints. STEPS: number of steps. FAILURE, "PROCESS:STEP": this
process raises at this step, in a start that has found no checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTH, HIDDEN, BATCH = 16, 32, 64
LEARNING_RATE, MOMENTUM = 0.05, 0.9
State = dict[str, jax.Array]  # parameters and momenta
SHAPES = {"up": (WIDTH, HIDDEN), "down": (HIDDEN, 1)}
SPECS = {"up": PartitionSpec(None, "fsdp"), "down": PartitionSpec("fsdp", None)}


def initial(name: str) -> np.ndarray:
    """Return a parameter or a momentum ("up.momentum") before the first step, whole."""
    parameter, _, state = name.partition(".")
    if state:
        return np.zeros(SHAPES[parameter], np.float32)
    shape = SHAPES[parameter]
    values = np.random.default_rng(len(parameter)).standard_normal(shape) / np.sqrt(shape[0])
    return values.astype(np.float32)


def batch(step: int) -> np.ndarray:
    """Return the rows of a step: features and the target."""
    features = np.random.default_rng(1000 + step).standard_normal((BATCH, WIDTH))
    target = np.tanh(features[:, :4].sum(1, keepdims=True))
    return np.concatenate([features, target], 1).astype(np.float32)


def loss_of(parameters: State, rows: jax.Array) -> jax.Array:
    hidden = jnp.tanh(rows[:, :WIDTH] @ parameters["up"])
    return jnp.mean((hidden @ parameters["down"] - rows[:, WIDTH:]) ** 2)


def train_step(state: State, rows: jax.Array) -> tuple[State, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)({name: state[name] for name in SHAPES}, rows)
    after = {}
    for name, gradient in gradients.items():
        after[f"{name}.momentum"] = MOMENTUM * state[f"{name}.momentum"] + gradient
        after[name] = state[name] - LEARNING_RATE * after[f"{name}.momentum"]
    return after, loss


class Checkpoints:
    """One file of shards per process and step; the file `latest` names the last complete step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.latest = folder, folder / "latest"

    def step(self) -> int:
        return int(self.latest.read_text()) if self.latest.exists() else 0

    def save(self, step: int, state: State) -> None:
        shards = {}
        for name, array in state.items():
            for shard in array.addressable_shards:
                shards[self.key(name, shard.index)] = np.asarray(shard.data)
        np.savez(self.file(step), **shards)
        multihost_utils.sync_global_devices(f"saved {step}")
        if jax.process_index() == 0:
            written = self.folder / "latest.new"
            written.write_text(str(step))
            written.replace(self.latest)

    def restore(self, step: int, shardings: dict[str, NamedSharding]) -> State:
        saved = np.load(self.file(step))

        def restored(name: str, sharding: NamedSharding) -> jax.Array:
            shape = SHAPES[name.partition(".")[0]]
            return jax.make_array_from_callback(
                shape,
                sharding,
                lambda index: saved[self.key(name, index)],
            )

        return {name: restored(name, sharding) for name, sharding in shardings.items()}

    def file(self, step: int) -> Path:
        return self.folder / f"step_{step}_process_{jax.process_index()}.npz"

    @staticmethod
    def key(name: str, index: tuple[slice, ...]) -> str:
        return f"{name} {[part.indices(1 << 30)[0] for part in index]}"


def main() -> None:
    jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()).reshape(jax.process_count(), -1), ("data", "fsdp"))
    shardings = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}
    shardings.update({f"{name}.momentum": shardings[name] for name in SHAPES})
    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    step_fn = jax.jit(
        train_step,
        in_shardings=(shardings, rows),
        out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())),
        donate_argnums=0,
    )
    checkpoints, steps = (
        Checkpoints(Path(os.environ["CHECKPOINTS"])),
        int(os.environ.get("STEPS", "8")),
    )
    begun = int(multihost_utils.broadcast_one_to_all(np.int32(checkpoints.step())))
    if begun:
        state = checkpoints.restore(begun, shardings)
    else:
        state = {name: jax.device_put(initial(name), place) for name, place in shardings.items()}
    print(
        "mesh",
        dict(mesh.shape),
        "of",
        jax.process_count(),
        "processes, after step",
        begun,
        flush=True,
    )
    process, _, failing = os.environ.get("FAILURE", "").partition(":")
    for step in range(begun + 1, steps + 1):
        if not begun and process == str(jax.process_index()) and step == int(failing):
            msg = f"loss of step {step} is not finite"
            raise FloatingPointError(msg)
        whole = batch(step)
        sharded = jax.make_array_from_callback(whole.shape, rows, whole.__getitem__)
        state, loss = step_fn(state, sharded)
        print(f"step {step}/{steps} loss {float(loss):.6f}", flush=True)
        checkpoints.save(step, state)


if __name__ == "__main__":
    main()
