"""Post-training by reinforcement learning on Ray, laid out as verl does: small, on CPUs, and
with no knowledge of its launcher.

The driver hands everything to a TaskRunner actor. A resource pool has one placement group per
node (STRICT_PACK) with a bundle for a trainer and one for a rollout. Trainers form a group of
torch.distributed (gloo) from RANK, WORLD_SIZE and MASTER_ADDR in their environments. In each
step rollouts sample with the weights of the trainers, and trainers update the weights by the
rewards.

STEPS: number of steps. KILLED_ROLLOUT, "RANK:STEP": this rollout kills itself by SIGKILL at
this step.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

import numpy as np
import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Place

ACTIONS, REWARDED = 6, 4
SAMPLES = 64  # per rollout and step
TRAINER, ROLLOUT = 0, 1  # bundles of a node


class Worker:
    """Base of the actors: their place in a worker group, from the environment."""

    def __init__(self) -> None:
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def host(self) -> str:
        return socket.gethostname()


class Trainer(Worker):
    """Policy gradient over one vector of logits, averaged over all trainers."""

    def __init__(self) -> None:
        super().__init__()
        import torch

        self.torch = torch
        torch.distributed.init_process_group("gloo")
        self.logits = torch.zeros(ACTIONS, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.logits], lr=2.0)

    def update(self, actions: Any, rewards: Any) -> None:
        advantages = self.torch.tensor(rewards - rewards.mean())
        log_probabilities = self.torch.log_softmax(self.logits, 0)[self.torch.tensor(actions)]
        self.optimizer.zero_grad()
        (-(advantages * log_probabilities).mean()).backward()
        self.torch.distributed.all_reduce(self.logits.grad)
        self.logits.grad /= self.world_size
        self.optimizer.step()

    def weights(self) -> Any:
        return self.logits.detach().numpy().copy()


class Rollout(Worker):
    """Samples of the current policy, with their rewards."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(self.rank)
        rank, _, step = os.environ.get("KILLED_ROLLOUT", "").partition(":")
        self.killed_at = int(step) if rank == str(self.rank) else 0

    def generate(self, step: int, weights: Any) -> tuple[Any, Any]:
        if step == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        probabilities = np.exp(weights - weights.max())
        actions = self.random.choice(ACTIONS, SAMPLES, p=probabilities / probabilities.sum())
        return actions, (actions == REWARDED).astype(np.float32)


@ray.remote(num_cpus=0)
def free_address() -> tuple[str, str]:
    """Return an address of this node, and a port that nobody uses there."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return ray.util.get_node_ip_address(), str(probe.getsockname()[1])


def resource_pool(nodes: int) -> list[PlacementGroup]:
    bundles = [{"CPU": 1}, {"CPU": 1}]
    groups = [placement_group(bundles, strategy="STRICT_PACK") for _ in range(nodes)]
    ray.get([group.ready() for group in groups])
    return groups


def worker_group(kind: type[Worker], pool: list[PlacementGroup], bundle: int) -> list[Any]:
    """Start one actor on each node."""
    places = [Place(group, placement_group_bundle_index=bundle) for group in pool]
    address, port = ray.get(free_address.options(scheduling_strategy=places[0]).remote())
    common = {"WORLD_SIZE": str(len(pool)), "MASTER_ADDR": address, "MASTER_PORT": port}
    return [
        ray.remote(kind)
        .options(
            name=f"{kind.__name__.lower()}_{rank}",
            num_cpus=1,
            scheduling_strategy=place,
            runtime_env={"env_vars": {**common, "RANK": str(rank), "LOCAL_RANK": "0"}},
        )
        .remote()
        for rank, place in enumerate(places)
    ]


def hosts(group: list[Any]) -> list[str]:
    return sorted(ray.get([worker.host.remote() for worker in group]))


@ray.remote(num_cpus=1)
class TaskRunner:
    """The controller: it holds the worker groups, and runs the loop."""

    def run(self, steps: int) -> float:
        pool = resource_pool(len(ray.nodes()))
        rollouts, trainers = (
            worker_group(Rollout, pool, ROLLOUT),
            worker_group(Trainer, pool, TRAINER),
        )
        print("trainers on", *hosts(trainers), "and rollouts on", *hosts(rollouts), flush=True)
        reward = 0.0
        for step in range(1, steps + 1):
            weights = ray.put(ray.get(trainers[0].weights.remote()))
            samples = ray.get([rollout.generate.remote(step, weights) for rollout in rollouts])
            ray.get([trainer.update.remote(*sample) for trainer, sample in zip(trainers, samples)])
            reward = float(np.mean([rewards for _, rewards in samples]))
            print(f"step {step}/{steps} reward {reward:.3f}", flush=True)
        return reward


def main() -> None:
    ray.init(runtime_env={"env_vars": {"TOKENIZERS_PARALLELISM": "true"}})
    runner = TaskRunner.remote()
    reward = ray.get(runner.run.remote(int(os.environ.get("STEPS", "12"))))
    print(f"reward at the end {reward:.3f}", flush=True)


if __name__ == "__main__":
    main()
