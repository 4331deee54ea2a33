//! Shards on a real Slurm cluster of four nodes, which tests/real/slurm_cluster.sh starts on this machine.

use crate::lab::*;
use crate::launch::{is_missing, succeeds, template_text};
use crate::shards::{
    DATA, Simulator, assert_received_once, assert_same_requests, files, scenario, until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The ports of the daemons are fixed: one cluster at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A running cluster, and a folder that its nodes share.
struct Cluster {
    script: Child,
    lab: Lab,
    _one: MutexGuard<'static, ()>,
}

impl Cluster {
    /// None where Slurm is not installed, or the tests do not run as root.
    fn start() -> Option<Cluster> {
        let tools = ["slurmctld", "slurmd", "munged", "srun"];
        let found = tools
            .iter()
            .all(|tool| succeeds("sh", &["-c", &format!("command -v {tool}")]));
        if is_missing(
            "Slurm (slurmctld, slurmd, slurm-client, munge), or not root",
            found && rustix::process::geteuid().is_root(),
        ) {
            return None;
        }
        let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let lab = Lab::new();
        let mut script =
            Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/slurm_cluster.sh"))
                .arg(lab.path().join("slurm"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
        let mut line = String::new();
        BufReader::new(script.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "the cluster starts");
        std::fs::create_dir_all(lab.path().join("store")).unwrap();
        Some(Cluster {
            script,
            lab,
            _one: one,
        })
    }

    /// A command of Slurm in the shared folder, with the binary on the path.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_llmscen")).parent().unwrap();
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.lab.path())
            .env_clear()
            .env("HOME", self.lab.path())
            .env("USER", "root")
            .env("PATH", format!("{}:/usr/bin:/bin", binary.display()))
            .env("SLURM_CONF", self.lab.path().join("slurm/slurm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> Ran {
        Ran::of(self.command(program, args).output().unwrap())
    }

    fn via(&self) -> String {
        format!("file://{}/store", self.lab.path().display())
    }

    /// srun of four shards of `chat.yaml`, one per node.
    fn srun(&self, srun: &[&str], llmscen: &[&str]) -> Command {
        let via = self.via();
        let shards = ["-N4", "-n4"];
        let own = [
            "llmscen",
            "run",
            "chat.yaml",
            "--shard",
            "auto",
            "--via",
            &via,
        ];
        self.command("srun", &[&shards, srun, &own, llmscen].concat())
    }

    /// Submits a template with these replacements; the job's number.
    fn submit(&self, name: &str, changes: &[(&str, &str)]) -> String {
        let mut text = template_text(name);
        let via = self.via();
        let common = [
            ("file:///scratch/$USER/runs", via.as_str()),
            ("--cpus-per-task=4", "--cpus-per-task=1"),
            ("--mem=64G ", ""),
        ];
        for (own, instead) in common.iter().chain(changes) {
            text = text.replace(own, instead);
        }
        self.lab.file(name, text);
        let ran = self.run("sbatch", &["--parsable", name]).expect(0);
        ran.out.trim().to_owned()
    }

    /// Waits for the end of the jobs with this name; their greatest exit code.
    fn exit_code(&self, job: &str) -> i32 {
        until("ended", || {
            self.run("squeue", &["--noheader", "--jobs", job])
                .out
                .trim()
                .is_empty()
        });
        let shown = self
            .run("scontrol", &["--oneliner", "show", "job", job])
            .expect(0)
            .out;
        let code = |line: &str| {
            line.split("ExitCode=")
                .nth(1)?
                .split(':')
                .next()?
                .parse()
                .ok()
        };
        shown.lines().filter_map(code).max().expect("an exit code")
    }

    /// The run folder of the only run.
    fn folder(&self) -> PathBuf {
        let found = std::fs::read_dir(self.lab.path().join("reports/t"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        found
            .filter(|path| !path.is_symlink())
            .max()
            .expect("a run folder")
    }

    /// Waits for the start of round 0.
    fn wait_for_round(&self) {
        let store = self.lab.path().join("store");
        until("started", || {
            files(&store).iter().any(|path| path.ends_with("go/0"))
        });
        std::thread::sleep(Duration::from_secs(3));
    }

    /// The process of a shard: the task of srun with this number.
    fn process(&self, shard: &str) -> Pid {
        let wanted = [
            format!("SLURM_CONF={}/slurm/slurm.conf", self.lab.path().display()),
            format!("SLURM_PROCID={shard}"),
        ];
        let is_shard = |process: &Path| {
            let read = |name| std::fs::read_to_string(process.join(name)).unwrap_or_default();
            let variables = read("environ");
            let has = |variable: &String| variables.split('\0').any(|own| own == variable);
            let command = read("cmdline");
            let program = command.split_once("\0run\0").map(|(program, _)| program);
            program.is_some_and(|program| program.ends_with("llmscen")) && wanted.iter().all(has)
        };
        let process = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(Result::ok)
            .filter(|entry| is_shard(&entry.path()))
            .find_map(|entry| entry.file_name().to_str()?.parse().ok());
        Pid::from_raw(process.expect("a process of the shard")).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Its input ends, so it stops the daemons.
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

fn long(url: &str) -> String {
    scenario(
        url,
        &format!("{DATA}load: {{ rate: 40/s, duration: 60s }}\n"),
    )
}

#[test]
fn srun_of_four_shards_is_the_run_of_one_process() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let alone = Lab::new();
    let text = |url: &str| {
        scenario(
            url,
            &format!(
                "{DATA}load: {{ rate: 60/s, duration: 3s, warmup: 300ms }}\nslo: [ttft.max < 1us]\n"
            ),
        )
    };
    let own = Simulator::start(&alone, "target.simulator.alpha=5ms");
    alone.run(&text(&own.url)).expect(1);
    let server = Simulator::start(&cluster.lab, "target.simulator.alpha=5ms");
    cluster.lab.file("chat.yaml", text(&server.url));
    // The greatest code of the tasks is that of shard 0: an objective failed.
    let ran = Ran::of(
        cluster
            .srun(&["--kill-on-bad-exit=1"], &[])
            .output()
            .unwrap(),
    )
    .expect(1);
    let folder = cluster.folder();
    assert_same_requests(
        "srun",
        &alone.path().join("out"),
        &folder,
        &["intended_ns", "bytes_out", "usage_prompt"],
    );
    assert_received_once("srun", server.received(), &folder);
    assert!(ran.out.contains("FAIL"), "{}", ran.out);
}

#[test]
fn the_templates_run() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    for (name, tasks) in [
        ("slurm.sbatch", ("--nodes=8", "--nodes=4")),
        ("slurm-array.sbatch", ("--array=0-7", "--array=0-3")),
        ("slurm-merge-later.sbatch", ("--nodes=64", "--nodes=4")),
    ] {
        let server = Simulator::start(&cluster.lab, "target.simulator.alpha=5ms");
        let load = format!("{DATA}load: {{ rate: 40/s, requests: 40 }}\nslo: [ttft.max < 1us]\n");
        cluster.lab.file("chat.yaml", scenario(&server.url, &load));
        let job = cluster.submit(name, &[tasks]);
        let later = name == "slurm-merge-later.sbatch";
        assert_eq!(cluster.exit_code(&job), i32::from(!later), "{name}");
        let folder = if later {
            let merge = (job.parse::<u32>().unwrap() + 1).to_string();
            assert_eq!(cluster.exit_code(&merge), 1, "the merge has the verdict");
            cluster.lab.path().join(format!("reports/chat/{job}.0"))
        } else {
            cluster.folder()
        };
        assert_received_once(name, server.received(), &folder);
        let _ = std::fs::remove_dir_all(cluster.lab.path().join("reports"));
    }
}

#[test]
fn scancel_drains_and_reports() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let server = Simulator::start(&cluster.lab, "target.simulator.alpha=5ms");
    cluster.lab.file("chat.yaml", long(&server.url));
    let job = cluster.submit("slurm.sbatch", &[("--nodes=8", "--nodes=4")]);
    cluster.wait_for_round();
    cluster.run("scancel", &[&job]).expect(0);
    let folder = cluster.folder();
    until("reported", || folder.join("results.json").exists());
    cluster.exit_code(&job);
    let results: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("results.json")).unwrap())
            .unwrap();
    assert_eq!(results["interrupted"], true);
    assert_eq!(results["exit_code"], 130);
    assert_received_once("scancel", server.received(), &folder);
}

#[test]
fn a_killed_shard_ends_the_run_with_or_without_kill_on_bad_exit() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    for bad_exit in ["--kill-on-bad-exit=0", "--kill-on-bad-exit=1"] {
        let server = Simulator::start(&cluster.lab, "target.simulator.alpha=5ms");
        cluster.lab.file("chat.yaml", long(&server.url));
        let run = cluster
            .srun(&[bad_exit], &["--run", bad_exit.trim_start_matches('-')])
            .spawn()
            .unwrap();
        let store = cluster
            .lab
            .path()
            .join("store")
            .join(bad_exit.trim_start_matches('-'));
        until("started", || store.join("go/0").exists());
        std::thread::sleep(Duration::from_secs(3));
        kill_process(cluster.process("2"), Signal::KILL).unwrap();
        let ran = finish(run);
        // Slurm's code is the greatest: 137 of the killed one.
        assert_ne!(ran.code, 0, "{bad_exit}");
        if bad_exit.ends_with('0') {
            let results = std::fs::read_to_string(cluster.folder().join("results.json")).unwrap();
            let results: serde_json::Value = serde_json::from_str(&results).unwrap();
            assert_eq!(results["exit_code"], 4, "{}", ran.err);
            let reasons = results["cases"][0]["audit"]["reasons"].to_string();
            assert!(reasons.contains("shard 2"), "{reasons}");
        } else {
            // srun terminates the others with a signal: what was measured can be merged.
            let url = format!("file://{}", store.display());
            let merged = cluster.run("llmscen", &["merge", &url, "--output", "merged"]);
            assert_eq!(merged.code, 130, "{merged:?}");
        }
        let _ = std::fs::remove_dir_all(cluster.lab.path().join("reports"));
    }
}

#[test]
fn a_shard_that_never_starts_is_named() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let server = Simulator::start(&cluster.lab, "target.simulator.alpha=5ms");
    cluster.lab.file("chat.yaml", long(&server.url));
    // Task 3 of the array is not there: the others wait for it in vain.
    let job = cluster.submit(
        "slurm-array.sbatch",
        &[
            ("--array=0-7", "--array=0-3"),
            ("--wait 30m", "--wait 3s"),
            (
                "exec llmscen",
                "[ $SLURM_ARRAY_TASK_ID = 3 ] && exit 0\nexec llmscen",
            ),
        ],
    );
    assert_eq!(cluster.exit_code(&job), 3);
    let said =
        std::fs::read_to_string(cluster.lab.path().join(format!("slurm-{job}_0.out"))).unwrap();
    assert!(
        said.contains("3 of 4 shards joined") && said.contains("missing: 3"),
        "{said}"
    );
}
