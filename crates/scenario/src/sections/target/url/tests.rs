use super::*;
use crate::Loaded;
use crate::tests::load_with;

#[test]
fn only_base_urls_are_completed() {
    for (api, url, complete_url) in [
        (
            Api::OpenaiChat,
            "http://h:8000",
            "http://h:8000/v1/chat/completions",
        ),
        (
            Api::OpenaiChat,
            "http://h:8000/",
            "http://h:8000/v1/chat/completions",
        ),
        (
            Api::OpenaiChat,
            "http://h:8000/v1",
            "http://h:8000/v1/chat/completions",
        ),
        (
            Api::OpenaiChat,
            "http://h:8000/v1/",
            "http://h:8000/v1/chat/completions",
        ),
        (
            Api::OpenaiChat,
            "https://h/openai/v1",
            "https://h/openai/v1/chat/completions",
        ),
        (
            Api::OpenaiChat,
            "https://u:p@h?a=1",
            "https://u:p@h/v1/chat/completions?a=1",
        ),
        (
            Api::OpenaiChat,
            "https://h/v1/?a=/v1",
            "https://h/v1/chat/completions?a=/v1",
        ),
        (
            Api::OpenaiCompletions,
            "http://[::1]:80",
            "http://[::1]:80/v1/completions",
        ),
        (Api::OpenaiResponses, "http://h/v1", "http://h/v1/responses"),
        (
            Api::OpenaiEmbeddings,
            "http://h/v1",
            "http://h/v1/embeddings",
        ),
        (Api::Rerank, "http://h", "http://h/v1/rerank"),
        (Api::Anthropic, "https://h/v1", "https://h/v1/messages"),
        (Api::Ollama, "http://h:11434", "http://h:11434/api/chat"),
        (
            Api::Ollama,
            "http://h:11434/api/",
            "http://h:11434/api/chat",
        ),
        (
            Api::Dashscope,
            "https://h/api/v1",
            "https://h/api/v1/services/aigc/text-generation/generation",
        ),
        (Api::Tgi, "http://h/", "http://h/generate_stream"),
    ] {
        assert_eq!(
            completed(url, api, true).as_deref(),
            Some(complete_url),
            "{api} {url}"
        );
        assert_eq!(completed(complete_url, api, true), None, "{complete_url}");
    }
    assert_eq!(
        completed("http://h", Api::Tgi, false).as_deref(),
        Some("http://h/generate")
    );
    for (api, url) in [
        (Api::OpenaiChat, "http://h/v1/completions"),
        (Api::OpenaiChat, "http://h/v1/messages"),
        (Api::OpenaiChat, "http://h/api/v3"),
        (Api::OpenaiChat, "http://h/foov1"),
        (Api::OpenaiChat, "h:8000"),
        (Api::Ollama, "http://h/v1"),
        (Api::Dashscope, "http://h/v1"),
        (Api::Tgi, "http://h/v1"),
        (Api::Custom, "http://h"),
        (Api::Custom, "http://h/v1"),
    ] {
        assert_eq!(completed(url, api, true), None, "{api} {url}");
    }
}

fn read(target: &str, rest: &str, env: &[(&str, &str)]) -> Loaded {
    let text = format!(
        "version: 1\nname: t\ntarget: {target}\nload: {{concurrency: 1, requests: \
        1}}\n{rest}\n"
    );
    load_with(&text, env, &[]).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
}

fn urls(loaded: &Loaded) -> Vec<&str> {
    let cases = loaded.plan.cases.iter();
    cases.flat_map(|case| case.target.urls()).collect()
}

fn notes(loaded: &Loaded) -> Vec<&str> {
    assert!(
        loaded.warnings.iter().all(|warning| warning.note),
        "{:?}",
        loaded.warnings
    );
    loaded
        .warnings
        .iter()
        .map(|warning| warning.message.as_str())
        .collect()
}

#[test]
fn plan_has_the_complete_url_with_one_note() {
    let loaded = read(
        "{url: \"http://u:${PW}@h:80/v1/\", model: m}",
        "dataset: openqa",
        &[("PW", "p4ss")],
    );
    assert_eq!(urls(&loaded), ["http://u:p4ss@h:80/v1/chat/completions"]);
    assert_eq!(
        notes(&loaded),
        ["target.url completed to http://u:[redacted]@h:80/v1/chat/completions"]
    );
    let resolved = &loaded.plan.resolved;
    assert!(
        resolved.contains("url: http://u:${PW}@h:80/v1/chat/completions\n"),
        "{resolved}"
    );
    let complete_url = read(
        "{url: \"${LLM}\", model: m}",
        "dataset: openqa",
        &[("LLM", "http://h")],
    );
    assert_eq!(
        (urls(&complete_url), notes(&complete_url).len()),
        (vec!["http://h/v1/chat/completions"], 1)
    );
    assert!(
        complete_url
            .plan
            .resolved
            .contains("url: http://h/v1/chat/completions\n"),
        "{}",
        complete_url.plan.resolved
    );
    // The slash is part of the variable, so only the cases can drop it.
    let slash = read(
        "{url: \"${LLM}\", model: m}",
        "dataset: openqa",
        &[("LLM", "http://h/")],
    );
    assert_eq!(
        (urls(&slash), notes(&slash).len()),
        (vec!["http://h/v1/chat/completions"], 1)
    );
}

#[test]
fn each_url_of_a_list_is_completed() {
    let listed = read(
        "{url: [\"http://${HOST}/v1/\", \"http://b/x\", \"http://c:1\"], model: m}",
        "dataset: openqa",
        &[("HOST", "a")],
    );
    assert_eq!(
        urls(&listed),
        [
            "http://a/v1/chat/completions",
            "http://b/x",
            "http://c:1/v1/chat/completions"
        ]
    );
    assert_eq!(notes(&listed).len(), 2);
    let again = read(
        "{url: [\"http://a\", \"http://c:1/v1\"], model: m}",
        "dataset: openqa",
        &[],
    );
    assert!(
        again
            .plan
            .resolved
            .contains("http://c:1/v1/chat/completions"),
        "{}",
        again.plan.resolved
    );
}

#[test]
fn each_case_of_a_matrix_completes_its_url() {
    let matrix = "dataset: openqa\nmatrix: {target.url: \
    [\"http://a\", \"http://b/v1\", \"http://c/x\"]}";
    let swept = read("{url: \"http://z\", model: m}", matrix, &[]);
    assert_eq!(
        urls(&swept),
        [
            "http://a/v1/chat/completions",
            "http://b/v1/chat/completions",
            "http://c/x"
        ]
    );
    assert_eq!(notes(&swept).len(), 2);
    let matrix = "dataset: openqa\nmatrix: {request.stream: [true, false]}";
    let tgi = read("{api: tgi, url: \"http://h\", model: m}", matrix, &[]);
    assert_eq!(
        urls(&tgi),
        ["http://h/generate_stream", "http://h/generate"]
    );
}

#[test]
fn path_that_depends_on_mix_entries_is_not_completed() {
    let mix = "mix: [{name: a, dataset: openqa, request: {stream: false}}, {name: \
    b, dataset: openqa, request: {stream: false}}]";
    let loaded = read("{api: tgi, url: \"http://h/\", model: m}", mix, &[]);
    assert_eq!(
        (urls(&loaded), loaded.warnings[0].note),
        (vec!["http://h/"], false)
    );
}
