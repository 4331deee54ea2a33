use crate::tests::load_with;
use crate::{Input, Loaded, load, reload};
use std::collections::BTreeMap;
use std::path::Path;

fn read(target: &str, env: &[(&str, &str)]) -> Loaded {
    load_with(&text(target), env, &[]).unwrap()
}

fn text(target: &str) -> String {
    format!(
        "version: 1\nname: t\nvars: {{key: \"${{API_KEY}}\"}}\ntarget: {target}\ndataset: \
        openqa\nload: {{concurrency: 1, requests: 1}}\n"
    )
}

#[test]
fn secrets_are_written_by_variable() {
    let target = "{url: \"http://u:${PW}@h/v1/chat/completions?api-key=${Q}&v=1\", model: a, \
    api_key: \"{{ vars.key }}\", headers: {Authorization: \"Bearer ${TOK}\", \
    X-Team: \"${TEAM}\", X-Plain: infra}}";
    let env = [
        ("API_KEY", "sk-1"),
        ("PW", "p4ss"),
        ("Q", "q5"),
        ("TOK", "t0k"),
        ("TEAM", "blue"),
    ];
    let loaded = read(target, &env);
    for secret in ["sk-1", "p4ss", "q5", "t0k", "blue"] {
        assert!(
            !loaded.plan.resolved.contains(secret),
            "{secret} in {}",
            loaded.plan.resolved
        );
    }
    for written in [
        "http://u:${PW}@h/v1/",
        "api_key: ${API_KEY}",
        "Authorization: Bearer ${TOK}",
        "X-Team: ${TEAM}",
        "X-Plain: infra",
        "api-key=${Q}&v=1",
    ] {
        assert!(
            loaded.plan.resolved.contains(written),
            "{written} not in {}",
            loaded.plan.resolved
        );
    }
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let literal_parts = read(
        "{url: \"${LLM}\", model: a}",
        &[("API_KEY", ""), ("LLM", "http://t0k@h/v1/x")],
    );
    assert!(
        literal_parts.plan.resolved.contains("url: ${LLM}"),
        "{}",
        literal_parts.plan.resolved
    );
}

#[test]
fn literal_secrets_get_a_variable_and_a_warning() {
    let loaded = read(
        "{url: \"http://u:p4ss@h/v1/chat/completions\", model: a, api_key: sk-1, headers: {X-Api-Key: k3y}}",
        &[("API_KEY", "")],
    );
    let resolved = &loaded.plan.resolved;
    assert!(
        !["sk-1", "k3y", "p4ss"]
            .iter()
            .any(|secret| resolved.contains(secret)),
        "{resolved}"
    );
    assert!(
        resolved.contains("url: http://u:${LLMSCEN_SECRET_1}@h/v1/chat/completions"),
        "{resolved}"
    );
    assert!(
        resolved.contains("api_key: ${LLMSCEN_SECRET_2}")
            && resolved.contains("X-Api-Key: ${LLMSCEN_SECRET_3}"),
        "{resolved}"
    );
    let warnings: Vec<_> = loaded
        .warnings
        .iter()
        .map(|warning| (warning.line, warning.message.as_str()))
        .collect();
    assert_eq!(
        warnings[1],
        (
            4,
            "`api_key` holds a secret in plain text; the stored plan uses ${LLMSCEN_SECRET_2}"
        )
    );
    let env: BTreeMap<String, String> = [("1", "p4ss"), ("2", "sk-1"), ("3", "k3y")]
        .iter()
        .map(|(n, v)| (format!("LLMSCEN_SECRET_{n}"), v.to_string()))
        .collect();
    let again = load(&Input {
        path: Path::new("p.yaml"),
        text: Some(resolved.clone()),
        env: &env,
        set: &[],
    })
    .unwrap();
    assert_eq!(again.plan, loaded.plan);
}

#[test]
fn a_stored_plan_needs_no_url() {
    let urls = "[\"${K_URL}\", \"http://h:2\"]";
    let env = [
        ("API_KEY", ""),
        ("K_URL", "http://al:hunter22@h:1/v1/chat/completions"),
    ];
    let loaded = read(&format!("{{url: {urls}, model: a}}"), &env);
    assert!(loaded.plan.resolved.contains("${K_URL}"));
    let again = crate::reload(&Input {
        path: Path::new("p.yaml"),
        text: Some(loaded.plan.resolved),
        env: &BTreeMap::new(),
        set: &[],
    })
    .unwrap();
    let urls: Vec<&str> = again.plan.cases[0].target.urls().collect();
    assert_eq!(urls, ["${K_URL}", "http://h:2/v1/chat/completions"]);
}

#[test]
fn every_url_of_a_list_is_stored_without_its_secrets() {
    let urls = "[\"http://al:hunter22@h:1/v1\", \"http://h:2/v1?key=Kq8w7e6r&v=1\"]";
    let loaded = read(&format!("{{url: {urls}, model: a}}"), &[("API_KEY", "")]);
    let resolved = &loaded.plan.resolved;
    for stored in [
        "http://al:${LLMSCEN_SECRET_1}@h:1/v1",
        "?key=${LLMSCEN_SECRET_2}",
    ] {
        assert!(resolved.contains(stored), "{resolved}");
    }
    assert!(!resolved.contains("hunter22") && !resolved.contains("Kq8w7e6r"));
}

#[test]
fn stored_plans_load_without_secrets_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, "x").unwrap();
    let target = format!(
        "{{url: \"https://h/v1/chat/completions\", model: a, api_key: \"${{K}}\", tls: {{ca: {}}}}}",
        ca.display()
    );
    let plan = read(&target, &[("API_KEY", ""), ("K", "sk-1")]).plan;
    drop(folder);
    let input = Input {
        path: Path::new("p.yaml"),
        text: Some(plan.resolved.clone()),
        env: &BTreeMap::new(),
        set: &[],
    };
    assert_eq!(load(&input).unwrap_err().len(), 2);
    let again = reload(&input).unwrap().plan;
    assert_eq!((again.id, again.resolved), (plan.id, plan.resolved));
}

#[test]
fn similar_keys_are_not_secrets() {
    let text = text("{url: simulator}")
        + "request: {max_tokens: 5, extra: {max_completion_tokens: 7, api_key: abc}}\n";
    let loaded = load_with(&text, &[], &[]).unwrap();
    assert!(
        loaded.plan.resolved.contains("max_completion_tokens: 7")
            && !loaded.plan.resolved.contains("abc"),
        "{}",
        loaded.plan.resolved
    );
}
#[test]
fn headers_that_may_be_secrets_are_replaced_with_a_warning() {
    let loaded = read(
        "{url: simulator, headers: {X-Team: team-blue, X-Key: key-of-mine}}",
        &[("API_KEY", "")],
    );
    let messages: Vec<&str> = loaded
        .warnings
        .iter()
        .map(|warning| warning.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "the value of `X-Team` may be a secret and is not stored; the stored plan uses ${LLMSCEN_SECRET_1}",
            "`X-Key` holds a secret in plain text; the stored plan uses ${LLMSCEN_SECRET_2}",
        ]
    );
}

fn read_command(server: &str, env: &[(&str, &str)]) -> Loaded {
    let text = format!(
        "version: 1\nname: t\ntarget:\n  url: http://127.0.0.1:9/v1/chat/completions\n  \
         model: m\n  api_key: sk-target\n  server: {{ ready: {{ log: up }}, {server} \
         }}\ndataset: openqa\nload: {{concurrency: 1, requests: 1}}\n"
    );
    load_with(&text, env, &[]).unwrap()
}

#[test]
fn secrets_in_commands_are_not_written() {
    for (server, written) in [
        (
            "command: s, args: {hf_token: hf_lit}",
            "hf_token: ${LLMSCEN_SECRET_2}",
        ),
        (
            "command: s, args: {api_key: [hf_lit]}",
            "- ${LLMSCEN_SECRET_2}",
        ),
        (
            "command: s, args: {access: sk-target}",
            "access: ${LLMSCEN_SECRET_2}",
        ),
        (
            "command: s --api-key hf_lit --port 9",
            "command: s --api-key ${LLMSCEN_SECRET_2} --port 9",
        ),
        (
            "command: s --api-key=hf_lit x",
            "command: s --api-key=${LLMSCEN_SECRET_2} x",
        ),
        ("command: [s, --hf-token, hf_lit]", "- ${LLMSCEN_SECRET_2}"),
        (
            "command: [s, --hf-token=hf_lit]",
            "- --hf-token=${LLMSCEN_SECRET_2}",
        ),
        (
            "command: [sh, -c, 'HF_TOKEN=hf_lit exec s']",
            "- HF_TOKEN=${LLMSCEN_SECRET_2} exec s",
        ),
        ("command: s --key hf'_'lit", "command: ${LLMSCEN_SECRET_2}"),
        ("command: s sk-target", "command: s ${LLMSCEN_SECRET_2}"),
        ("command: \"s --key ${V}\"", "command: s --key ${V}"),
        ("command: s, args: {x: \"${V}\", key: \"${V}\"}", "x: ${V}"),
    ] {
        let loaded = read_command(server, &[("V", "hf_lit")]);
        let resolved = &loaded.plan.resolved;
        assert!(
            !["hf_lit", "sk-target", "hf'"]
                .iter()
                .any(|secret| resolved.contains(secret)),
            "{server}: {resolved}"
        );
        assert!(resolved.contains(written), "{server}: {resolved}");
        assert_eq!(
            loaded.warnings.len(),
            1 + usize::from(written.contains("_2")),
            "{server}: {:?}",
            loaded.warnings
        );
    }
}

#[test]
fn commands_without_secrets_are_unchanged() {
    let loaded = read_command(
        "command: \"s --max-token 4096 --use-auth-token --port 9\", args: {token_limit: 64, a: b}",
        &[],
    );
    for written in [
        "command: s --max-token 4096 --use-auth-token --port 9",
        "token_limit: 64",
        "a: b",
    ] {
        assert!(
            loaded.plan.resolved.contains(written),
            "{}",
            loaded.plan.resolved
        );
    }
}
