//! `templates/launch/` and docs/how-to/several-machines.md: the templates are valid, the page shows them as they are, and the environment of each
//! engine gives the shard.

use crate::lab::*;
use crate::shards::{DATA, Simulator, assert_received_once, expect_codes, finish_all, scenario};
use serde_yaml::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PAGE: &str = include_str!("../../docs/how-to/several-machines.md");

fn template(name: &str) -> PathBuf {
    Path::new(ROOT).join("templates/launch").join(name)
}

pub fn template_text(name: &str) -> String {
    std::fs::read_to_string(template(name)).unwrap()
}

/// Whether a tool is missing. A test that needs it is then skipped, but for CI, which installs them all.
pub fn is_missing(tool: &str, found: bool) -> bool {
    if !found {
        let required = std::env::var_os("LLMSCEN_TEST_TOOLS").is_some_and(|word| word == "all");
        assert!(!required, "{tool} is missing; .ci/run installs it");
        println!("SKIPPED: no {tool}; see .ci/run for what to install");
    }
    !found
}

/// Whether a command runs and succeeds.
pub fn succeeds(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A Python that has these modules: that of the tests, or any other.
pub fn python_with(modules: &str) -> Option<PathBuf> {
    let named = std::env::var_os("LLMSCEN_PYTHON").map(PathBuf::from);
    let own = Path::new(ROOT).join("target/python/bin/python3");
    let known = named.into_iter().chain([own, PathBuf::from("python3")]);
    let import = format!("import {modules}");
    known
        .into_iter()
        .find(|python| succeeds(python, &["-c", &import]))
}

#[test]
fn the_page_shows_every_template_as_it_is() {
    let mut names: Vec<String> = std::fs::read_dir(template(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 8, "{names:?}");
    for name in names {
        let text = template_text(&name);
        let shown = PAGE.split("\n```").any(|block| {
            block
                .split_once('\n')
                .is_some_and(|(_, code)| format!("{code}\n") == text)
        });
        assert!(
            shown,
            "docs/how-to/several-machines.md has no block equal to templates/launch/{name}"
        );
        assert!(
            PAGE.contains(&format!("(../../templates/launch/{name})")),
            "docs/how-to/several-machines.md has no link to templates/launch/{name}"
        );
    }
}

#[test]
fn scripts_have_no_syntax_errors() {
    for name in [
        "slurm.sbatch",
        "slurm-array.sbatch",
        "slurm-merge-later.sbatch",
        "mpi.sh",
        "by-hand.sh",
    ] {
        let path = template(name);
        assert!(succeeds("bash", &["-n", path.to_str().unwrap()]), "{name}");
    }
    let compile = format!(
        "import ast; ast.parse(open({:?}).read())",
        template("ray_shards.py")
    );
    assert!(succeeds("python3", &["-c", &compile]), "ray_shards.py");
}

/// The documents of kubernetes.yaml: the scenario and the job.
fn kubernetes() -> (String, Value) {
    use serde::Deserialize;
    let text = template_text("kubernetes.yaml");
    let documents: Vec<Value> = serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect();
    let [plan, job] = <[Value; 2]>::try_from(documents).expect("a ConfigMap and a Job");
    (plan["data"]["chat.yaml"].as_str().unwrap().to_owned(), job)
}

/// The value of a variable of the container.
fn variable<'a>(job: &'a Value, name: &str) -> &'a Value {
    let variables = container(job)["env"].as_sequence().unwrap();
    variables
        .iter()
        .find(|entry| entry["name"] == name)
        .expect(name)
}

fn container(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn kubernetes_accepts_the_job() {
    let python = python_with("kubernetes_validate");
    if is_missing("kubernetes-validate", python.is_some()) {
        return;
    }
    let file = template("kubernetes.yaml");
    // Jobs fail by exit code without further fields since 1.29. The newest version is the default.
    for version in ["1.29", ""] {
        let mut command = Command::new(python.as_ref().unwrap());
        command.args(["-m", "kubernetes_validate", "--strict"]);
        if !version.is_empty() {
            command.args(["-k", version]);
        }
        let output = command.arg(&file).output().unwrap();
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{version}: {said:?}");
        assert_eq!(
            said.concat().matches("passed for resource").count(),
            2,
            "{said:?}"
        );
    }
}

#[test]
fn the_job_follows_the_rules_that_no_schema_has() {
    let (_, job) = kubernetes();
    let spec = &job["spec"];
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Never");
    let shards = variable(&job, "LLMSCEN_SHARDS")["value"].as_str().unwrap();
    for field in ["completions", "parallelism"] {
        assert_eq!(spec[field].as_u64().unwrap().to_string(), shards, "{field}");
    }
    assert_eq!(spec["completionMode"], "Indexed");
    for rule in spec["podFailurePolicy"]["rules"].as_sequence().unwrap() {
        let codes = &rule["onExitCodes"];
        let zero = codes["values"].as_sequence().unwrap().contains(&0.into());
        assert!(
            codes["operator"] != "In" || !zero,
            "0 is not allowed with In"
        );
    }
    let container = container(&job);
    assert_eq!(
        container["resources"]["requests"],
        container["resources"]["limits"]
    );
}

/// Two pods run the container's command with the environment that the job gives them.
#[test]
fn pods_of_the_job_run_its_command() {
    let lab = Lab::new();
    let (plan, job) = kubernetes();
    lab.file("chat.yaml", plan);
    lab.llmscen(&["validate", "chat.yaml"]).expect(0);
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    let load = format!("{DATA}load: {{ rate: 30/s, requests: 20 }}\n");
    lab.file("chat.yaml", scenario(&server.url, &load));
    let store = lab.path().join("store");
    std::fs::create_dir_all(&store).unwrap();
    let args: Vec<String> = container(&job)["args"]
        .as_sequence()
        .unwrap()
        .iter()
        .map(|arg| match arg.as_str().unwrap() {
            "/plan/chat.yaml" => "chat.yaml".to_owned(),
            "s3://bench/runs" => format!("file://{}", store.display()),
            "$(RUN)" => "5e1f".to_owned(),
            arg => arg.to_owned(),
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let pod = |index: &str| {
        let mut command = lab.command(&args);
        command
            .env("JOB_COMPLETION_INDEX", index)
            .env("LLMSCEN_SHARDS", "2");
        command.spawn().unwrap()
    };
    expect_codes(&finish_all(["0", "1"].map(pod).into()), &[0, 0]);
    let folder = std::fs::read_dir(lab.path().join("reports/t"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.join("results.json").exists() && !path.is_symlink());
    assert_received_once("pods", server.received(), &folder.expect("a run folder"));

    let alone = lab
        .command(&args)
        .env("JOB_COMPLETION_INDEX", "0")
        .output()
        .unwrap();
    let ran = Ran::of(alone).expect(2);
    assert!(ran.err.contains("LLMSCEN_SHARDS"), "{}", ran.err);
}

/// The page's commands that wait for the job, with a kubectl whose job ends with this condition.
#[test]
fn the_wait_for_the_job_ends_with_its_verdict() {
    let commands = PAGE
        .split("```bash\n")
        .find(|block| block.starts_with("kubectl apply"))
        .and_then(|block| block.split("```").next())
        .unwrap();
    for (conditions, code) in [
        ("SuccessCriteriaMet Complete", 0),
        ("FailureTarget Failed", 1),
    ] {
        let lab = Lab::new();
        // The first answers come before the end.
        let kubectl = "#!/bin/bash\n[ $1 = get ] || exit 0\n\
            echo x >>count\nread -r -a types <<<\"CONDITIONS\"\n\
            lines=$(wc -l <count)\necho \"${types[@]:0:lines-1}\"\n"
            .replace("CONDITIONS", conditions);
        let kubectl = lab.file("tools/kubectl", kubectl);
        std::fs::set_permissions(kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
        script(&lab, &commands.replace("sleep 5", "sleep 0.01")).expect(code);
    }
}

/// A shard without the others names their numbers after `--wait`: its own place and the number of shards are known.
#[test]
fn each_engine_gives_number_and_count_by_its_variables() {
    let named: [(&str, &[(&str, &str)]); 8] = [
        (
            "by hand",
            &[("LLMSCEN_SHARD", "1"), ("LLMSCEN_SHARDS", "3")],
        ),
        (
            "Kubernetes",
            &[("JOB_COMPLETION_INDEX", "1"), ("LLMSCEN_SHARDS", "3")],
        ),
        (
            "Slurm",
            &[
                ("SLURM_PROCID", "1"),
                ("SLURM_STEP_NUM_TASKS", "3"),
                ("SLURM_JOB_ID", "7"),
                ("SLURM_STEP_ID", "0"),
            ],
        ),
        (
            "Slurm array",
            // A batch script has a process number, too.
            &[
                ("SLURM_PROCID", "0"),
                ("SLURM_ARRAY_JOB_ID", "7"),
                ("SLURM_ARRAY_TASK_ID", "6"),
                ("SLURM_ARRAY_TASK_MIN", "5"),
                ("SLURM_ARRAY_TASK_MAX", "7"),
                ("SLURM_ARRAY_TASK_COUNT", "3"),
                ("SLURM_ARRAY_TASK_STEP", "1"),
            ],
        ),
        (
            "Nomad",
            &[("NOMAD_ALLOC_INDEX", "1"), ("LLMSCEN_SHARDS", "3")],
        ),
        (
            "Open MPI",
            &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "3")],
        ),
        ("MPICH", &[("PMI_RANK", "1"), ("PMI_SIZE", "3")]),
        ("torchrun", &[("RANK", "1"), ("WORLD_SIZE", "3")]),
    ];
    let elsewhere = Lab::new();
    let server = Simulator::start(&elsewhere, "target.simulator.alpha=5ms");
    for (engine, variables) in named {
        let lab = Lab::new();
        let load = format!("{DATA}load: {{ rate: 30/s, requests: 20 }}\n");
        lab.file("s.yaml", scenario(&server.url, &load));
        std::fs::create_dir_all(lab.path().join("store")).unwrap();
        let via = format!("file://{}/store", lab.path().display());
        let args = [
            "run", "s.yaml", "--shard", "auto", "--via", &via, "--wait", "1s",
        ];
        // Slurm also names the attempt.
        let key: &[&str] = if engine.starts_with("Slurm") {
            &[]
        } else {
            &["--run", "k"]
        };
        let mut command = lab.command(&[&args, key].concat());
        command.envs(variables.iter().copied());
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, 3, "{engine}: {}", ran.err);
        let known = ["1 of 3 shards joined", "missing: 0, 2"];
        assert!(
            known.iter().all(|words| ran.err.contains(words)),
            "{engine}: {}",
            ran.err
        );
    }
}

#[test]
fn nomad_s_job_parses_and_agrees_with_itself() {
    let python = python_with("hcl2");
    if is_missing("python-hcl2", python.is_some()) {
        return;
    }
    let script = "import hcl2, json, sys; print(json.dumps(hcl2.load(open(sys.argv[1]))))";
    let output = Command::new(python.unwrap())
        .args(["-c", script])
        .arg(template("nomad.hcl"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = job.to_string();
    for known in [
        "\"count\":\"${var.shards}\"",
        "\"LLMSCEN_SHARDS\":\"${var.shards}\"",
        "\"attempts\":0",
    ] {
        assert!(text.contains(known), "{known}: {text}");
    }
}

/// A folder like a user's: the scenario, and the binary on the path.
fn bench(server: &Simulator) -> Lab {
    let lab = Lab::new();
    let load = format!("{DATA}load: {{ rate: 30/s, requests: 20 }}\n");
    lab.file("bench/chat.yaml", scenario(&server.url, &load));
    std::fs::create_dir_all(lab.path().join("store")).unwrap();
    lab
}

/// Runs a script in `bench` with the binary and `tools` on the path.
fn script(lab: &Lab, text: &str) -> Ran {
    let script = lab.file("bench/script.sh", text);
    let binary = Path::new(env!("CARGO_BIN_EXE_llmscen")).parent().unwrap();
    let path = format!(
        "{}/tools:{}:/usr/bin:/bin",
        lab.path().display(),
        binary.display()
    );
    let output = Command::new("bash")
        .arg(script)
        .current_dir(lab.path().join("bench"))
        .env_clear()
        .env("HOME", lab.path())
        .env("PATH", path)
        // mpirun refuses root otherwise.
        .envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran::of(output)
}

/// The only run folder below `bench/reports`.
fn run_folder(lab: &Lab) -> PathBuf {
    let found = std::fs::read_dir(lab.path().join("bench/reports/t"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| !path.is_symlink());
    found.expect("a run folder")
}

#[test]
fn by_hand_runs_where_ssh_leads() {
    let own = Lab::new();
    let server = Simulator::start(&own, "target.simulator.alpha=5ms");
    let lab = bench(&server);
    // Both machines are this one.
    let ssh = lab.file("tools/ssh", "#!/bin/bash\ncd\nexec bash -c \"$2\"\n");
    std::fs::set_permissions(ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let store = format!("file://{}/store", lab.path().display());
    let ran = script(
        &lab,
        &template_text("by-hand.sh").replace("s3://bench/runs", &store),
    )
    .expect(0);
    for shard in ["shard 0 on load-a: exit 0", "shard 1 on load-b: exit 0"] {
        assert!(ran.out.contains(shard), "{}", ran.out);
    }
    assert_received_once("by hand", server.received(), &run_folder(&lab));
}

#[test]
fn mpirun_starts_the_shards() {
    if is_missing("mpirun (openmpi-bin)", succeeds("mpirun", &["--version"])) {
        return;
    }
    let own = Lab::new();
    let server = Simulator::start(&own, "target.simulator.alpha=5ms");
    let lab = bench(&server);
    lab.file("bench/hosts", "localhost slots=3\n");
    let store = format!("file://{}/store", lab.path().display());
    let text = template_text("mpi.sh")
        .replace("file:///scratch/me/runs", &store)
        .replace("-np 8", "-np 3")
        .replace("ppr:1:node", "ppr:3:node");
    script(&lab, &text).expect(0);
    assert_received_once("mpirun", server.received(), &run_folder(&lab));
}
