//! Hints on failed requests: one sentence per cause, the most frequent first.

mod refused_fields;

#[cfg(test)]
mod tests;

use http::Uri;
use llmscen_core::early_stop::{AllFailed, EarlyStop};
use llmscen_core::manifest::Manifest;
use llmscen_core::outcome::FailureKind;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::{CaseReport, FailureExample, RunVerdict};
use std::collections::BTreeMap;

/// Maximum number of hints in a headline.
const MAX_HINTS: usize = 3;
/// Maximum number of models that a hint names.
const MAX_NAMES: usize = 5;

/// The hints of a run; a run that passed has none.
pub fn hints(
    plan: &Plan,
    manifest: &Manifest,
    cases: &[CaseReport],
    verdict: RunVerdict,
) -> Vec<String> {
    let with_plan = cases
        .iter()
        .filter_map(|report| Some((report, plan.cases.iter().find(|case| case.id == report.id)?)));
    let with_plan: Vec<(&CaseReport, &Case)> = with_plan.collect();
    let mut counted: Vec<(String, u64)> = Vec::new();
    for (report, case) in with_plan.iter().filter(|_| verdict != RunVerdict::Pass) {
        for failure in report
            .failures
            .iter()
            .chain(&stopped_by(&report.id, manifest))
        {
            let Some(hint) = hint(failure, case, &manifest.served) else {
                continue;
            };
            match counted.iter_mut().find(|(known, _)| *known == hint) {
                Some((_, count)) => *count += failure.count,
                None => counted.push((hint, failure.count)),
            }
        }
    }
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    server_message(manifest)
        .into_iter()
        .chain(counted.into_iter().map(|(hint, _)| hint).take(MAX_HINTS))
        .collect()
}

/// The failure that stopped a case. It may have been in the warm-up, which a report does not count.
fn stopped_by(case: &str, manifest: &Manifest) -> Option<FailureExample> {
    let ending = manifest
        .parts
        .iter()
        .filter(|part| part.case == case)
        .find_map(|part| part.ending.as_ref())?;
    let EarlyStop::AllFailed(AllFailed {
        status, message, ..
    }) = ending
    else {
        return None;
    };
    Some(FailureExample {
        kind: FailureKind::from_status(*status),
        count: 0,
        status: Some(*status),
        message: message.clone(),
        at: String::new(),
    })
}

/// The message of the server that ended a case, if it adds something to the status.
fn server_message(manifest: &Manifest) -> Option<String> {
    // The message of a redirect is that of llmscen, and its hint names the address.
    let failed = manifest.parts.iter().find_map(|part| match &part.ending {
        Some(EarlyStop::AllFailed(failed)) if !(300..=399).contains(&failed.status) => Some(failed),
        _ => None,
    })?;
    let message = &failed.message;
    let is_empty = message.ends_with("an empty body") || !message.contains(char::is_alphanumeric);
    if is_empty || message.eq_ignore_ascii_case(&failed.reason) {
        return None;
    }
    Some(format!(
        "Server message: {}.",
        message.trim_end_matches('.')
    ))
}

/// The hint for one failure. `served`: the models of each target, by its URL without secrets.
pub fn hint(
    failure: &FailureExample,
    case: &Case,
    served: &BTreeMap<String, Vec<String>>,
) -> Option<String> {
    let message = failure.message.to_lowercase();
    let help = match (failure.kind, failure.status) {
        (FailureKind::TimeoutTotal, _) => {
            let total = case.target.timeouts.total.secs();
            format!("raise target.timeouts.total ({total} s), or lower the load")
        }
        (FailureKind::Decode, _) if message.contains("text/html") => {
            "this is a web page, not an API; check host and path in target.url".to_owned()
        }
        (FailureKind::TimeoutRead, _) if message.starts_with("no event for") => {
            let event = case.target.timeouts.event?.secs();
            format!("raise target.timeouts.event ({event} s) if healthy replies pause that long")
        }
        (FailureKind::StreamError, _) => refused_fields::hint(&message, case)?,
        (FailureKind::TimeoutRead | FailureKind::Truncated | FailureKind::Decode, _) => {
            return None;
        }
        (_, Some(401 | 403)) if case.target.aws().is_some() => {
            "AWS refused the signature or its permissions; compare service and region of target.aws \
             with the service in target.url, and check the keys, their expiry, the policy of their \
             account, and the clock of this machine"
                .to_owned()
        }
        (_, Some(401 | 403)) if case.target.obtained_keys().is_some() => {
            "the server refused the key that target.api_key.command printed; check its account \
             and its permissions, and set `every` to less than the key is valid"
                .to_owned()
        }
        (_, Some(401 | 403)) if case.target.api_key.is_some() => {
            "the server refused the key of target.api_key; check the key and its permissions"
                .to_owned()
        }
        (_, Some(401 | 403)) => {
            r#"the server requires authentication; set target.api_key: "${OPENAI_API_KEY}""#
                .to_owned()
        }
        (_, Some(404)) => not_found_hint(&message, case, served),
        (_, Some(300..=399)) => match location(&failure.message) {
            Some(location) => {
                format!("the server redirects to {location}; set target.url to that address")
            }
            None => {
                "the server redirects to another address; set target.url to that address".to_owned()
            }
        },
        (_, Some(400)) => match context_length_hint(&message) {
            Some(help) => help.to_owned(),
            None => refused_fields::hint(&message, case)?,
        },
        (_, Some(500 | 501)) => refused_fields::hint(&message, case)?,
        (_, Some(413 | 422)) => {
            let refused = refused_fields::hint(&message, case);
            let other = "the server rejects the request body; preview it with: llmscen plan FILE";
            refused.unwrap_or_else(|| other.to_owned())
        }
        (_, Some(429)) => {
            "rate limit; lower load.concurrency or load.rate, or enable request.retry".to_owned()
        }
        (_, Some(502..=504)) => {
            "a proxy or load balancer answered, not the model server; check its upstream".to_owned()
        }
        _ => return None,
    };
    Some(format!("help: {help}"))
}

/// The hint for a 404, which concerns the model or the path.
fn not_found_hint(message: &str, case: &Case, served: &BTreeMap<String, Vec<String>>) -> String {
    let redactor = case.target.redactor();
    let listed = |url: &&str| {
        let names = served.get(&redactor.redact_truncated(url));
        names.filter(|names| !names.is_empty())
    };
    let lacks_model = |url: &&str| {
        let models = &case.target.models;
        listed(url).is_some_and(|names| models.iter().any(|model| !names.contains(&model.name)))
    };
    let mut urls = case.target.urls();
    // Of several servers, one without the model is the likely cause.
    let Some(url) = urls.clone().find(lacks_model).or_else(|| urls.next()) else {
        return "check target.url and target.model".to_owned();
    };
    let served = listed(&url);
    let names = served.map(|names| list_names(names));
    let names_model = |name: &str| name.len() > 2 && message.contains(&name.to_lowercase());
    let is_about_model = message.contains("model")
        || case
            .target
            .models
            .iter()
            .any(|model| names_model(&model.name));
    match (is_about_model, names) {
        (true, Some(names)) => {
            format!("served models: {names} (from GET /v1/models); set target.model")
        }
        (true, None) => "the server does not serve this model; set target.model".to_owned(),
        (false, names) => {
            let path = suggest_path(url, case);
            let end = if path.ends_with('?') { "" } else { "." };
            let names = names
                .map(|names| format!("{end} Served models: {names} (from GET /v1/models)."))
                .unwrap_or_default();
            format!("{path}{names}")
        }
    }
}

fn list_names(names: &[String]) -> String {
    let some = names
        .iter()
        .take(MAX_NAMES)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}

/// Suggests the usual path of the protocol, with host and prefix of this URL.
fn suggest_path(url: &str, case: &Case) -> String {
    let usual = case.target.api.path(case.request.stream);
    let Ok(uri) = url.parse::<Uri>() else {
        return "check target.url".to_owned();
    };
    let path = uri.path();
    let host = uri.authority().map_or("", |authority| {
        authority.as_str().rsplit('@').next().unwrap_or_default()
    });
    let prefix = path
        .rfind("/v1")
        .filter(|_| usual.starts_with("/v1"))
        .and_then(|at| path.get(..at))
        .unwrap_or_default();
    match usual.is_empty() || path == format!("{prefix}{usual}") {
        true => {
            format!("POST {path} does not exist on this server; check target.url and target.api")
        }
        false => {
            format!(
                "POST {path} does not exist; did you mean {}://{host}{prefix}{usual}?",
                uri.scheme_str().unwrap_or("http")
            )
        }
    }
}

/// The address in the message of a failure.
fn location(message: &str) -> Option<&str> {
    let address = |word: &&str| {
        word.starts_with("http://") || word.starts_with("https://") || word.starts_with('/')
    };
    message
        .split(|c: char| c.is_whitespace() || "()\"'`<>,;".contains(c))
        .find(address)
        .map(|word| word.trim_end_matches('.'))
}

/// The hint for a message about the context length; None for other messages.
fn context_length_hint(message: &str) -> Option<&'static str> {
    let phrases = [
        "context length",
        "context window",
        "context_length",
        "maximum context",
        "max_model_len",
        "too long",
    ];
    let output = message.contains("max_tokens") || message.contains("max_completion_tokens");
    let prompt = ["prompt", "input", "messages"]
        .iter()
        .any(|word| message.contains(word));
    if !(phrases.iter().any(|phrase| message.contains(phrase))
        || output && message.contains("too large"))
    {
        return None;
    }
    Some(match (output, prompt) {
        (true, false) => "lower request.max_tokens",
        (false, true) if !message.contains("completion") => {
            "filter prompts with dataset.prompt_tokens"
        }
        _ => "lower request.max_tokens or filter prompts with dataset.prompt_tokens",
    })
}
