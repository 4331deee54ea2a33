//! The output length that requests ask a server for.

use crate::dataset::{DatasetSpec, Source};
use crate::plan::Case;
use crate::quantity::Quantity;
use crate::request::RequestSpec;
use serde_json::Value;

/// The output length that a request asks for, beyond the limit `max_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedLength {
    /// Exactly `max_tokens`: the request has `ignore_eos`, or a minimum of the same length.
    Exact,
    /// At least this number of tokens: `min_tokens`.
    AtLeast(u64),
}

impl Case {
    /// The output length that the requests of a group ask for; None: a reply may be as short as the model decides.
    pub fn requested_length(&self, group: Option<&str>) -> Option<RequestedLength> {
        requested_length(self.request_for_group(group), self.dataset_for_group(group))
    }
}

fn requested_length(request: &RequestSpec, dataset: &DatasetSpec) -> Option<RequestedLength> {
    // Servers report the tokens of all choices as one number.
    if request.choices().is_some_and(|choices| choices > 1) {
        return None;
    }
    let from_data = match &dataset.source {
        Source::SpeedBenchmark { .. } => true,
        Source::Trace(trace) => trace.match_output_length,
        _ => false,
    };
    if from_data || request.body_field("ignore_eos") == Some(&Value::Bool(true)) {
        return Some(RequestedLength::Exact);
    }
    let least = request.body_field("min_tokens")?;
    // A template may have the same text for both.
    let limits = ["max_tokens", "max_completion_tokens"];
    if limits
        .iter()
        .any(|limit| request.body_field(limit) == Some(least))
    {
        return Some(RequestedLength::Exact);
    }
    let least = least.as_u64().filter(|least| *least > 0)?;
    let limit = request.max_tokens.as_ref().and_then(Quantity::constant);
    Some(match limit == Some(least) {
        true => RequestedLength::Exact,
        false => RequestedLength::AtLeast(least),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::TraceSpec;
    use serde_json::{Map, json};

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    fn of(sampling: Value, extra: Value, template: Option<Value>) -> Option<RequestedLength> {
        let request = RequestSpec {
            template,
            max_tokens: Some(Quantity::fixed(64)),
            sampling: fields(sampling),
            extra: fields(extra),
            ..RequestSpec::default()
        };
        requested_length(&request, &DatasetSpec::new(Source::Prompt("x".into())))
    }

    #[test]
    fn a_length_is_requested_by_ignore_eos_or_a_minimum() {
        let (exact, none) = (Some(RequestedLength::Exact), json!({}));
        assert_eq!(of(json!({}), json!({}), None), None);
        assert_eq!(of(json!({ "ignore_eos": true }), none.clone(), None), exact);
        assert_eq!(of(json!({ "ignore_eos": false }), none.clone(), None), None);
        assert_eq!(of(json!({ "min_tokens": 64 }), none.clone(), None), exact);
        assert_eq!(
            of(json!({ "min_tokens": 16 }), none.clone(), None),
            Some(RequestedLength::AtLeast(16))
        );
        assert_eq!(of(json!({ "min_tokens": 0 }), none.clone(), None), None);
        let choices = json!({ "ignore_eos": true, "n": 2 });
        assert_eq!(of(choices, none, None), None);
    }

    #[test]
    fn extra_overrides_the_template_and_the_template_the_fields() {
        let (exact, asked) = (Some(RequestedLength::Exact), json!({ "ignore_eos": true }));
        assert_eq!(of(json!({}), asked.clone(), None), exact);
        assert_eq!(
            of(asked.clone(), json!({ "ignore_eos": false }), None),
            None
        );
        assert_eq!(of(asked.clone(), json!({ "ignore_eos": null }), None), None);
        let template = json!({ "sampling_params": { "ignore_eos": true } });
        assert_eq!(of(json!({}), json!({}), Some(template)), exact);
        let template = json!({ "ignore_eos": false });
        assert_eq!(of(asked, json!({}), Some(template)), None);
        let text = "{{ case.max_tokens }}";
        let template = json!({ "max_tokens": text, "min_tokens": text });
        assert_eq!(of(json!({}), json!({}), Some(template)), exact);
    }

    #[test]
    fn datasets_may_request_their_own_lengths() {
        let request = RequestSpec::default();
        let of = |source| requested_length(&request, &DatasetSpec::new(source));
        let log = |match_output_length| {
            Source::Trace(TraceSpec {
                match_output_length,
                ..TraceSpec::default()
            })
        };
        assert_eq!(of(log(true)), Some(RequestedLength::Exact));
        assert_eq!(of(log(false)), None);
        assert_eq!(
            of(Source::SpeedBenchmark { long: false }),
            Some(RequestedLength::Exact)
        );
    }
}
