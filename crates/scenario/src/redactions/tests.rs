use crate::tests::load_with;
use crate::{Input, load, reload};
use std::path::Path;

fn secrets(sections: &str, env: &[(&str, &str)]) -> Vec<String> {
    let text = format!(
        "version: 1\nname: chat-team-blue\nload: {{concurrency: 1, requests: 1}}\n{sections}"
    );
    let loaded = load_with(&text, env, &[]);
    let plan = loaded
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan;
    assert!(
        plan.cases
            .iter()
            .all(|case| case.target.scenario_secrets == plan.secrets)
    );
    plan.secrets
        .iter()
        .map(|secret| secret.expose().to_owned())
        .collect()
}

#[test]
fn variables_that_are_sent_are_secrets_and_settings_are_not() {
    let sections = "target: {url: simulator, model: \"${MODEL}\"}\ndataset: {kind: prompt, \
        text: \"say ${SAID}\"}\nrequest: {max_tokens: \"${MOST}\", extra: {a: \"${TENANT}\", \
        b: \"${SHORT}\", c: \"${WORD}\", d: \"${FLAG}\", e: \"${MODEL}\", api_key: \
        literal-1}}\n";
    let env = [
        ("MODEL", "qwen2.5-7b-instruct"),
        ("SAID", "said-secret"),
        ("TENANT", "tenant-1"),
        ("SHORT", "abc-1"),
        ("WORD", "thinking"),
        ("FLAG", "true"),
        ("MOST", "1234567"),
    ];
    assert_eq!(
        secrets(sections, &env),
        ["literal-1", "said-secret", "tenant-1"]
    );
}

#[test]
fn urls_and_headers_are_secrets_unless_reports_show_the_same() {
    let sections = "target: {url: \"http://user-name:${PW}@h/v1/chat/completions?session=s-123456&v=1\", model: m, headers: {X-Team: team-blue, X-Other: team-green, Content-Type: application/json, Authorization: Bearer abcdef-1}, metrics: \"http://t0ken-of-page@h/metrics\"}\ndataset: {kind: prompt, text: x}\n";
    let base64 = ["dXNlci1uYW1lOnBhc3N3b3JkLTE=", "dDBrZW4tb2YtcGFnZQ=="];
    let mut known = vec![
        "abcdef-1",
        "Bearer abcdef-1",
        "password-1",
        "s-123456",
        "t0ken-of-page",
        "team-green",
        "user-name",
    ];
    known.extend(base64);
    known.sort_unstable();
    assert_eq!(secrets(sections, &[("PW", "password-1")]), known);
}

#[test]
fn key_within_a_model_name_is_not_redacted() {
    let sections = |key: &str| {
        format!(
            "target: {{url: simulator, model: m, api_key: {key}}}\ndataset: {{kind: prompt, text: x}}\n\
            matrix: {{target.model: [llama-cpp-7b, llama-cpp-13b]}}\n"
        )
    };
    assert_eq!(secrets(&sections("llama-cpp"), &[]), [""; 0]);
    assert_eq!(secrets(&sections("llama-cpp-key"), &[]), ["llama-cpp-key"]);
}

#[test]
fn swept_secrets_are_not_in_case_ids() {
    let text = "version: 1\nname: t\ntarget: {url: simulator, model: m}\ndataset: {kind: prompt, text: x}\n\
        load: {concurrency: 1, requests: 1}\nmatrix: {request.extra.t: [\"${A}\", plain], \
        target.url: [\"http://u:first-1@h/v1/chat/completions\", \"http://u:second-1@h/v1/chat/completions\"]}\n";
    let ids = |text: &str| {
        let env = [("A", "value-a-1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text.to_owned()),
            env: &env,
            set: &[],
        };
        let loaded = if text.contains("LLMSCEN_SECRET") {
            reload(&input)
        } else {
            load(&input)
        };
        let plan = loaded
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        (
            plan.cases
                .into_iter()
                .map(|case| case.id)
                .collect::<Vec<_>>(),
            plan.resolved,
        )
    };
    let (known, resolved) = ids(text);
    assert_eq!(known.len(), 4);
    assert!(
        known[0].starts_with("t=${A},url=http://u:[redacted]@h/v1/chat/completions"),
        "{known:?}"
    );
    for secret in ["value-a", "first-1", "second-1"] {
        assert!(
            !resolved.contains(secret) && !known.iter().any(|id| id.contains(secret)),
            "{secret}: {known:?} {resolved}"
        );
    }
    assert_eq!(
        ids(&resolved).0,
        known,
        "the stored plan has the same cases"
    );
}
/// Ids of the cases, the stored plan and its id.
fn read(text: &str, env: &[(&str, &str)], stored: bool) -> (Vec<String>, String, String) {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text.to_owned()),
        env: &env,
        set: &[],
    };
    let loaded = if stored { reload(&input) } else { load(&input) };
    let plan = loaded
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan;
    (
        plan.cases.into_iter().map(|case| case.id).collect(),
        plan.resolved,
        plan.id,
    )
}

const HEAD: &str = "version: 1\nname: t\nload: {concurrency: 1, requests: 1}\n";

#[test]
fn stored_plan_does_not_depend_on_current_variables() {
    for sections in [
        "target: {url: simulator, model: m}\ndataset: {kind: prompt, text: x}\nmatrix: \
        {request.extra.tenant: [\"${K2}\", b]}\n",
        "target: {url: simulator, model: m}\ndataset: {kind: prompt, text: \"say ${K2} to me\"}\n",
        "vars: {key: \"${K2}\"}\ntarget: {url: simulator, model: m}\ndataset: {kind: prompt, \
        text: \"{{ vars.key }}\"}\n",
        "target: {url: \"http://h/v1/chat/completions?session=${K2}\", model: m}\ndataset: \
        {kind: prompt, text: x}\n",
    ] {
        let known = read(&format!("{HEAD}{sections}"), &[("K2", "tenant-01")], false);
        assert!(
            !known.1.contains("tenant-01") && known.1.contains("${K2}"),
            "{}",
            known.1
        );
        for now in [
            &[][..],
            &[("K2", "x")],
            &[("K2", "tenant-02")],
            &[("K2", "12345678")],
        ] {
            assert_eq!(read(&known.1, now, true), known, "{now:?}");
        }
    }
}

#[test]
fn swept_secrets_are_not_shown() {
    let sections = "target: {url: simulator, model: m}\ndataset: {kind: prompt, text: x}\n\
        matrix: {request.extra.password: [planted-pw-1, planted-pw-2, 12345678]}\n";
    let known = read(&format!("{HEAD}{sections}"), &[], false);
    assert_eq!(
        known.0,
        ["", "#2", "#3"].map(|end| format!("password=[redacted]{end}"))
    );
    assert!(
        !["planted-pw", "12345678"]
            .iter()
            .any(|secret| known.1.contains(secret)),
        "{}",
        known.1
    );
    assert_eq!(read(&known.1, &[], true), known);
    assert_eq!(
        secrets(sections, &[]),
        ["12345678", "planted-pw-1", "planted-pw-2"]
    );
}

#[test]
fn versions_in_headers_are_not_secrets() {
    let sections = "target: {url: simulator, model: m, headers: \
    {anthropic-version: \"2023-06-01\", X-Title: gpt-4o-mini bench}}\ndataset: {kind: prompt, \
    text: x}\n";
    assert!(secrets(sections, &[]).is_empty());
}
