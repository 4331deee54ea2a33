"""Reads a run as JSON from stdin and logs it with the wandb client; prints the location of each run."""
import json
import os
import sys

try:
    import wandb
except ImportError:
    sys.exit("the wandb client is not installed: pip install wandb")

run = json.load(sys.stdin)
os.environ.setdefault("WANDB_SILENT", "true")


def log_run(entry, job_type, files):
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
    location = handle.url or handle.dir
    handle.finish(exit_code=0)
    print(location)


for case in run["cases"]:
    log_run(case, "case", [])
log_run(run["whole"], "run", run["files"])
