"""Reads a run as JSON from stdin and logs it with the wandb client; prints where each run is kept."""
import json
import os
import sys

try:
    import wandb
except ImportError:
    sys.exit("this Python has no client: pip install wandb")

run = json.load(sys.stdin)
os.environ.setdefault("WANDB_SILENT", "true")


def tell(entry, job_type, files):
    handle = wandb.init(
        project=run["project"],
        entity=run["entity"],
        mode=run["mode"],
        dir=run["dir"],
        name=entry["name"],
        group=run["run_id"],
        job_type=job_type,
        tags=run["tags"] + [run["verdict"]],
        config=dict(entry["params"]),
        save_code=False,
        settings=wandb.Settings(console="off", x_disable_stats=True, disable_git=True),
    )
    handle.summary.update(dict(entry["metrics"]))
    handle.summary["verdict"] = run["verdict"]
    if files:
        artifact = wandb.Artifact("llmscen-" + run["run_id"], type="report")
        for name, path in files:
            artifact.add_file(path, name=name)
        handle.log_artifact(artifact)
    place = handle.url or handle.dir
    handle.finish(exit_code=0)
    print(place)


for case in run["cases"]:
    tell(case, "case", [])
tell(run["whole"], "run", run["files"])
