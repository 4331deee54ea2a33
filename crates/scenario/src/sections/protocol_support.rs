//! What a protocol can say, and what it must: the fields of `request` held against the case's protocol.

use crate::fault::{Mistake, Review};
use crate::sections::request::FIELDS;
use crate::sections::{Draft, local};
use crate::suggest::list;
use crate::tree::{Node, Span};
use llmscen_core::api::Api;

/// Datasets that say themselves how long each output shall be.
const LONG: [&str; 3] = ["speed_benchmark", "speed_benchmark_long", "trace"];

/// Files the fields that the protocol has no place for, and those that it cannot do without.
pub(crate) fn check(draft: &Draft<'_>, api: Api, template: Option<&Node>, review: &mut Review) {
    for field in FIELDS.iter().filter(|field| !speaks(api, field)) {
        if let Some(entry) = draft.entry(&format!("request.{field}")) {
            review.push(draft.also_api(unsaid(api, field, entry.key_at), "this protocol"));
        }
    }
    if !api.generates() {
        streamed(draft, api, review);
    }
    local::fits(draft, api, review);
    if matches!(api, Api::Anthropic | Api::Local) {
        limited(draft, api, template, review);
    }
}

/// Whether the protocol has a place for a field. In a body of one's own only a length makes sense: it is drawn here.
fn speaks(api: Api, field: &str) -> bool {
    api.place(field).is_some() || api == Api::Custom && field == "max_tokens"
}

fn unsaid(api: Api, field: &str, at: Span) -> Mistake {
    if api == Api::Custom {
        let mistake = Mistake::new(at, format!("`{field}` has no place in `api: custom`"), "belongs into the template");
        let help = "Write it into `request.template`; only `max_tokens` is drawn here, for its `{{ case.max_tokens }}`.";
        return mistake.help(help);
    }
    let known: Vec<&str> = FIELDS.into_iter().filter(|field| speaks(api, field)).collect();
    let takes = if known.is_empty() { "none of these fields".to_owned() } else { list(known, "and") };
    let mistake = Mistake::new(at, format!("{api} has no `{field}`"), "cannot be said in this protocol");
    mistake.help(format!("It takes {takes}; `extra` puts anything into the body."))
}

fn streamed(draft: &Draft<'_>, api: Api, review: &mut Review) {
    let asked = draft.written("request.stream").filter(|_| draft.flag("request.stream") == Some(true));
    if let Some(entry) = asked.filter(|_| !draft.swept("target.api")) {
        let mistake = Mistake::new(entry.key_at, format!("{api} has no stream"), "nothing is generated");
        review.push(draft.also_api(mistake, "this protocol").help("Remove it: a whole response is asked for."));
    }
}

fn limited(draft: &Draft<'_>, api: Api, template: Option<&Node>, review: &mut Review) {
    let key = "max_tokens";
    let said = draft.get("request.max_tokens").is_some()
        || template.is_some_and(|body| body.entry(key).is_some())
        || draft.get("request.extra.max_tokens").is_some()
        || draft.text("dataset.kind").is_some_and(|kind| LONG.contains(&kind.as_ref()));
    if !said && let Some(entry) = draft.entry("target.api") {
        let mistake = Mistake::new(entry.value.at, format!("{api} needs `request.{key}`"), "`max_tokens` is missing");
        let local = "A reply would be as long as the model has room";
        let why = if api == Api::Local { local } else { "Its servers refuse a request without a limit" };
        review.push(mistake.help(format!("{why}; for example `max_tokens: 256`.")));
    }
}
