use super::*;
use llmscen_core::api_key::ApiKey;
use llmscen_core::manifest::Part;
use llmscen_core::redact::Secret;
use llmscen_core::sample::Counts;
use llmscen_scenario::Input;
use std::collections::BTreeMap;
use std::path::Path;

fn plan(url: &str) -> Plan {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ url: \"{url}\", model: qwen2.5, timeouts: {{ event: 5s, total: 1s }} }}\n\
         dataset: {{ kind: prompt, text: x }}\nload: {{ concurrency: 1, requests: 9 }}\n"
    );
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan
}

const URL: &str = "http://127.0.0.1:8000/v1/chat/completions";

fn failures(all: &[(FailureKind, Option<u16>, &str, u64)]) -> Vec<CaseReport> {
    let one =
        |&(kind, status, message, count): &(FailureKind, Option<u16>, &str, u64)| FailureExample {
            kind,
            count,
            status,
            message: message.into(),
            at: String::new(),
        };
    let counts = Counts {
        scheduled: 9,
        ..Counts::default()
    };
    vec![CaseReport {
        id: "base".into(),
        failures: all.iter().map(one).collect(),
        counts,
        ..CaseReport::default()
    }]
}

fn of(url: &str, failure: (FailureKind, Option<u16>, &str), served: &[&str]) -> String {
    let mut manifest = Manifest::default();
    manifest.served.insert(
        url.into(),
        served.iter().map(|name| (*name).to_owned()).collect(),
    );
    let (kind, status, message) = failure;
    hints(
        &plan(url),
        &manifest,
        &failures(&[(kind, status, message, 1)]),
        RunVerdict::Error,
    )
    .join(" | ")
}

#[test]
fn each_cause_has_its_hint() {
    use FailureKind::{Decode, Http4xx, Http5xx, Http429, StreamError, TimeoutRead, TimeoutTotal};
    let no_usage = "help: set request.extra: { stream_options: null }, and the server no longer gets the field";
    let body = "help: the server rejects the request body; preview it with: llmscen plan FILE";
    let proxy = "help: a proxy or load balancer answered, not the model server; check its upstream";
    let key = "help: the server requires authentication; set target.api_key: \"${OPENAI_API_KEY}\"";
    let both = "help: lower request.max_tokens or filter prompts with dataset.prompt_tokens";
    let table = [
        ((Http4xx, Some(401), "401: Unauthorized"), key),
        ((Http4xx, Some(403), "403: no"), key),
        (
            (Http4xx, Some(302), "302: moved to https://h/v2/chat."),
            "help: the server redirects to https://h/v2/chat; set target.url to that address",
        ),
        (
            (Http4xx, Some(302), "302: found"),
            "help: the server redirects to another address; set target.url to that address",
        ),
        (
            (
                Http4xx,
                Some(400),
                "400: This model's maximum context length is 4096 tokens, you requested 5000 (904 \
                in the messages, 4096 in the completion)",
            ),
            both,
        ),
        (
            (Http4xx, Some(400), "400: max_tokens is too large: 9000"),
            "help: lower request.max_tokens",
        ),
        (
            (
                Http4xx,
                Some(400),
                "400: the prompt is too long: 9000 tokens",
            ),
            "help: filter prompts with dataset.prompt_tokens",
        ),
        ((Http4xx, Some(400), "400: no such sampler"), ""),
        (
            (
                Http4xx,
                Some(400),
                "400: property 'stream_options' is unsupported",
            ),
            no_usage,
        ),
        (
            (
                Http4xx,
                Some(422),
                "422: Unexpected fields in the request: {'stream_options'}",
            ),
            no_usage,
        ),
        (
            (
                Http5xx,
                Some(500),
                "500: got an unexpected keyword argument 'stream_options'",
            ),
            no_usage,
        ),
        (
            (
                StreamError,
                Some(200),
                "Unknown parameter: 'stream_options'.",
            ),
            no_usage,
        ),
        ((StreamError, Some(200), "engine died"), ""),
        (
            (TimeoutRead, Some(200), "no event for 5s (only heartbeats)"),
            "help: raise target.timeouts.event (5 s) if healthy replies pause that long",
        ),
        ((TimeoutRead, Some(200), "no byte for 5s"), ""),
        ((Http4xx, Some(413), "413: too big"), body),
        ((Http4xx, Some(422), "422: missing field"), body),
        (
            (Http429, Some(429), "429: slow down"),
            "help: rate limit; lower load.concurrency or load.rate, or enable request.retry",
        ),
        ((Http5xx, Some(502), "502: Bad Gateway"), proxy),
        ((Http5xx, Some(504), "504: Gateway Timeout"), proxy),
        ((Http5xx, Some(500), "500: out of memory"), ""),
        (
            (Decode, Some(200), "content type `text/html` is not one"),
            "help: this is a web page, not an API; check host and path in target.url",
        ),
        (
            (TimeoutTotal, Some(200), "not done within 1s"),
            "help: raise target.timeouts.total (1 s), or lower the load",
        ),
    ];
    for (failure, hint) in table {
        assert_eq!(of(URL, failure, &[]), hint, "{failure:?}");
    }
}

#[test]
fn a_key_that_the_server_refused_is_not_asked_for_again() {
    let mut plan = plan(URL);
    plan.cases
        .iter_mut()
        .for_each(|case| case.target.api_key = Some(ApiKey::Fixed(Secret::new("sk-1"))));
    let hints = hints(
        &plan,
        &Manifest::default(),
        &failures(&[(FailureKind::Http4xx, Some(401), "401: no", 9)]),
        RunVerdict::Error,
    );
    assert_eq!(
        hints,
        ["help: the server refused the key of target.api_key; check the key and its permissions"]
    );
}

#[test]
fn a_case_that_its_warm_up_stopped_has_the_hint_and_a_redirect_is_not_quoted() {
    let of = |status, message: &str| {
        let failed = AllFailed {
            status,
            message: message.into(),
            reason: "Found".into(),
            ..AllFailed::default()
        };
        let part = Part {
            case: "base".into(),
            ending: Some(EarlyStop::AllFailed(failed)),
            ..Part::default()
        };
        let manifest = Manifest {
            parts: vec![part],
            ..Manifest::default()
        };
        hints(&plan(URL), &manifest, &failures(&[]), RunVerdict::Error)
    };
    let help =
        "help: the server requires authentication; set target.api_key: \"${OPENAI_API_KEY}\"";
    assert_eq!(of(401, "no key"), ["Server message: no key.", help]);
    let moved = "the server redirects to http://h/v2; redirects are not followed";
    assert_eq!(
        of(302, moved),
        ["help: the server redirects to http://h/v2; set target.url to that address"]
    );
}

#[test]
fn a_404_names_the_models_that_are_served_or_the_usual_path() {
    let of =
        |url, words, served: &[&str]| of(url, (FailureKind::Http4xx, Some(404), words), served);
    let model = "404: The model `qwen2.5` does not exist.";
    assert_eq!(
        of(URL, model, &["a", "b"]),
        "help: served models: a, b (from GET /v1/models); set target.model"
    );
    let seven = ["1", "2", "3", "4", "5", "6", "7"];
    assert_eq!(
        of(URL, model, &seven),
        "help: served models: 1, 2, 3, 4, 5 and 2 more (from GET /v1/models); set target.model"
    );
    assert_eq!(
        of(URL, model, &[]),
        "help: the server does not serve this model; set target.model"
    );
    let path = |url, usual| {
        assert_eq!(
            of(url, "404: Not Found", &[]),
            format!("help: POST {usual}")
        )
    };
    path(
        "http://127.0.0.1:8000/v1/chat",
        "/v1/chat does not exist; did you mean http://127.0.0.1:8000/v1/chat/completions?",
    );
    path(
        "http://u:p@h/llm/v1/chat",
        "/llm/v1/chat does not exist; did you mean http://h/llm/v1/chat/completions?",
    );
    path(
        URL,
        "/v1/chat/completions does not exist on this server; check target.url and target.api",
    );
    let known = "help: POST /v1/chat/completions does not exist on this server; check target.url \
    and target.api. Served models: a (from GET /v1/models).";
    assert_eq!(of(URL, "404: Not Found", &["a"]), known);
}

#[test]
fn a_cause_is_shown_once_and_a_run_that_passed_needs_no_help() {
    let failed = [
        (FailureKind::Http429, Some(429), "429: later", 2),
        (FailureKind::TimeoutTotal, None, "late", 9),
        (FailureKind::Connect, None, "refused", 99),
    ];
    let of = |verdict| {
        hints(
            &plan(URL),
            &Manifest::default(),
            &[failures(&failed), failures(&failed)].concat(),
            verdict,
        )
    };
    let all = of(RunVerdict::Fail);
    assert!(
        all.len() == 2
            && all[0].starts_with("help: raise target.timeouts.total")
            && all[1].starts_with("help: rate limit"),
        "{all:?}"
    );
    assert_eq!(of(RunVerdict::Pass), Vec::<String>::new());
}
