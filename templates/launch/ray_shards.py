# ray_shards.py: ray job submit --working-dir . -- python ray_shards.py chat.yaml s3://bench/runs
import os, subprocess, sys, uuid
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

SHARDS, CPUS = 8, 4  # change: number of shards (one per node) and cores of each
scenario, store = sys.argv[1:3]
run = ["llmscen", "run", scenario, "--shard", "auto", "--via", store, "--run", f"ray-{uuid.uuid4().hex}"]


@ray.remote(num_cpus=CPUS, max_retries=0)  # a lost shard is not replaced
def shard(index):
    return subprocess.call(run, env={**os.environ, "LLMSCEN_SHARD": str(index), "LLMSCEN_SHARDS": str(SHARDS)})


ray.init()
group = placement_group([{"CPU": CPUS}] * SHARDS, strategy="STRICT_SPREAD")
ray.get(group.ready())  # all nodes are there before the first shard starts
place = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i) for i in range(SHARDS)]
codes = ray.get([shard.options(scheduling_strategy=place[i]).remote(i) for i in range(SHARDS)])
sys.exit(codes[0] or max(codes))  # shard 0 has the verdict
