use crate::{Input, Loaded, load, reload};
use llmscen_core::local::{Device, Dtype, Local};
use llmscen_core::target::TargetLocation;
use std::collections::BTreeMap;
use std::path::Path;

fn text(target: &str, request: &str, load: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {target}\nrequest: {request}\ndataset: {{kind: random, \
        tokens: 5}}\nload: {load}\n"
    )
}

fn read(text: String, path: &Path) -> Result<Loaded, Vec<String>> {
    let loaded = load(&Input {
        path,
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    });
    loaded.map_err(|faults| {
        faults
            .iter()
            .map(|fault| fault.message().to_owned())
            .collect()
    })
}

fn faults(target: &str, request: &str, load: &str) -> Vec<String> {
    read(text(target, request, load), Path::new("t.yaml"))
        .map(|_| ())
        .unwrap_err()
}

const ONE: &str = "{concurrency: 1, requests: 1}";
const TINY: &str = "{api: local, model: 'random:tiny'}";

fn spec(target: &str, request: &str, load: &str) -> Local {
    let loaded = read(text(target, request, load), Path::new("t.yaml")).unwrap();
    let again = loaded.plan.resolved.clone();
    assert_eq!(
        read(again, Path::new("plan.yaml")).unwrap().plan,
        loaded.plan
    );
    let TargetLocation::Local(spec) = loaded.plan.cases[0].target.location.clone() else {
        panic!("not local")
    };
    spec
}

#[test]
fn local_model_needs_only_its_name() {
    let plain = Local {
        batch: 1,
        ..Local::default()
    };
    assert_eq!(spec(TINY, "{max_tokens: 4}", ONE), plain);
    let full =
        "{api: local, model: 'random:tiny', local: {index: 0, dtype: bf16, threads: 3, batch: 8}}";
    let own = Local {
        device: Device::Cpu,
        index: 0,
        dtype: Dtype::Bf16,
        threads: Some(3),
        batch: 8,
        logits: true,
    };
    assert_eq!(
        spec(
            full,
            "{max_tokens: 4, min_p: 0.1, keep: {logits: true}}",
            ONE
        ),
        own
    );
    assert_eq!(
        spec(TINY, "{max_tokens: 4}", "{static: {batch: 6, rounds: 2}}").batch,
        6
    );
}

#[test]
fn model_folder_is_absolute_and_provides_its_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("models/a");
    std::fs::create_dir_all(&model).unwrap();
    for name in ["config.json", "tokenizer.json"] {
        std::fs::write(model.join(name), "{}").unwrap();
    }
    let path = model.canonicalize().unwrap().display().to_string();
    let swept = text("{api: local}", "{max_tokens: 4}", ONE)
        + "matrix: {target.model: [models/a, 'random:tiny']}\n";
    let plan = read(swept, &folder.path().join("s.yaml")).unwrap().plan;
    let names = |of: &llmscen_core::plan::Plan| {
        of.cases
            .iter()
            .map(|case| case.target.models[0].name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&plan), [path.as_str(), "random:tiny"]);
    assert_eq!(
        (
            plan.cases[0].dataset.tokenizer.as_deref(),
            plan.cases[1].dataset.tokenizer.as_deref()
        ),
        (Some(&*path), Some("random:tiny"))
    );
    let ids = |of: &llmscen_core::plan::Plan| {
        of.cases
            .iter()
            .map(|case| case.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&plan), ["model=a", "model=random:tiny"]);
    let again = read(plan.resolved.clone(), Path::new("/elsewhere/plan.yaml"))
        .unwrap()
        .plan;
    assert_eq!(again, plan);
    let alone = text("{api: local, model: models/a}", "{max_tokens: 4}", ONE);
    let plan = read(alone, &folder.path().join("s.yaml")).unwrap().plan;
    let again = read(plan.resolved.clone(), Path::new("/elsewhere/plan.yaml"))
        .unwrap()
        .plan;
    assert_eq!((names(&again), &again.id), (vec![path.clone()], &plan.id));
    drop(folder);
    let input = Input {
        path: Path::new("/elsewhere/plan.yaml"),
        text: Some(plan.resolved.clone()),
        env: &BTreeMap::new(),
        set: &[],
    };
    assert_eq!(
        names(&reload(&input).unwrap().plan),
        names(&plan),
        "a stored plan is read without its models"
    );
}

#[test]
fn server_keys_and_unknown_models_are_errors() {
    let four = "{max_tokens: 4}";
    assert_eq!(
        faults(TINY, "{}", ONE),
        ["local needs `request.max_tokens`"]
    );
    assert_eq!(
        faults("{api: local}", four, ONE),
        ["`target` needs `model`"]
    );
    assert_eq!(
        faults("{api: local, model: 'random:big'}", four, ONE),
        ["unknown model `random:big`"]
    );
    assert_eq!(
        faults("{api: local, model: nowhere}", four, ONE),
        ["`nowhere` not found"]
    );
    assert_eq!(
        faults("{api: local, model: src}", four, ONE),
        ["`src` is not a model"]
    );
    assert_eq!(
        faults("{api: local, model: {'random:tiny': 1, b: 2}}", four, ONE),
        ["`api: local` runs one model at a time"]
    );
    let target = "{api: local, model: 'random:tiny', url: 'http://h/', tls: {insecure: true}}";
    assert_eq!(
        faults(target, four, ONE),
        [
            "`url` has no effect with `api: local`",
            "`insecure` has no effect with `api: local`"
        ]
    );
    let request = "{max_tokens: 4, n: 2, stream: false, retry: {max: 1}}";
    let known = [
        "local has no `n`",
        "`stream: false` has no effect with `api: local`",
        "`retry` has no effect with `api: local`",
    ];
    assert_eq!(faults(TINY, request, ONE), known);
    let batch = "{api: local, model: 'random:tiny', local: {batch: 2}}";
    assert_eq!(
        faults(batch, four, "{static: {batch: 4, rounds: 1}}"),
        ["two batch sizes"]
    );
    let index = "{api: local, model: 'random:tiny', local: {device: cpu, index: 5}}";
    assert_eq!(
        faults(index, four, ONE),
        ["`index` has no effect with `device: cpu`"]
    );
    let extra = "{max_tokens: 4, extra: {frequency_penalty: 0.5, top_k: 3}}";
    assert_eq!(
        faults(TINY, extra, ONE),
        ["a local model does not use `frequency_penalty`"]
    );
    let many = "{api: local, model: 'random:tiny', local: {threads: 1024}}";
    let warnings = read(text(many, four, ONE), Path::new("t.yaml"))
        .unwrap()
        .warnings;
    assert!(
        warnings[0].message.starts_with("1024 threads share "),
        "{warnings:?}"
    );
    let server = "{url: simulator, local: {batch: 2}}";
    let known = ["`local` needs `api: local`", "`keep` needs `api: local`"];
    assert_eq!(faults(server, "{keep: {logits: true}}", ONE), known);
}

#[test]
fn unset_variable_causes_no_further_errors() {
    let unset = ["environment variable `NO_SUCH_HOME` is not set"];
    assert_eq!(
        faults(
            "{api: local, model: '${NO_SUCH_HOME}/tiny-llama'}",
            "{max_tokens: 4}",
            ONE
        ),
        unset
    );
    let by =
        |target: &str| text(target, "{max_tokens: 4}", ONE) + "vars: {home: '${NO_SUCH_HOME}'}\n";
    let told = |target: &str| {
        read(by(target), Path::new("t.yaml"))
            .map(|_| ())
            .unwrap_err()
    };
    assert_eq!(
        told("{api: local, model: '{{ vars.home }}/tiny-llama'}"),
        unset
    );
    assert_eq!(
        told(
            "{url: simulator, tls: {ca: '${NO_SUCH_HOME}/ca.pem', key: \
            '${NO_SUCH_HOME}/${NO_SUCH_HOME}x'}}"
        ),
        unset
    );
}

#[test]
fn keep_is_shared_by_all_mix_entries() {
    let mix = |keep: &str| {
        text(TINY, "{max_tokens: 4}", ONE)
            + &format!("mix: [{{name: a, request: {{{keep}}}}}, {{name: b}}]\n")
    };
    assert!(read(mix(""), Path::new("t.yaml")).is_ok());
    let told = read(mix("keep: {logits: true}"), Path::new("t.yaml"))
        .map(|_| ())
        .unwrap_err();
    assert_eq!(told, ["entries of a mix share `keep`"]);
}
