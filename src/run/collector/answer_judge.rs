//! Checks answers after their requests have ended, on the thread of the collector.

use crate::run::requests::traffic_class::TrafficClass;
use llmscen_client::redact::target_redactor;
use llmscen_client::route::Route;
use llmscen_core::expect::{CheckedAnswer, Truths};
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_protocols::Message;
use llmscen_requests::answers::{Answer, AnswerChecker};
use std::sync::Arc;

/// The checks of one round.
pub struct AnswerJudge {
    /// Per traffic class; None: its answers are not checked.
    checkers: Vec<Option<Arc<AnswerChecker>>>,
    redactor: Redactor,
    /// Failed answers of the measured requests whose text is stored.
    kept: u32,
}

impl AnswerJudge {
    /// The checks of these classes; None if there are none.
    pub fn new(
        classes: &[Arc<TrafficClass>],
        case: &Case,
        routes: &[Route],
    ) -> Option<AnswerJudge> {
        let checkers: Vec<_> = classes.iter().map(|class| class.answers.clone()).collect();
        checkers.iter().any(Option::is_some).then(|| AnswerJudge {
            checkers,
            redactor: target_redactor(&case.target, routes),
            kept: 0,
        })
    }

    /// Checks the answer to a request; None if the request failed, or if its class has no checks.
    pub fn check(
        &mut self,
        outcome: &Outcome,
        message: &Message,
        truths: &Truths,
    ) -> Option<CheckedAnswer> {
        let checker = self.checkers.get(truths.class)?.as_ref()?;
        outcome.end.as_ref().ok()?;
        let counted = outcome
            .counted
            .output
            .filter(|_| !outcome.counted.approximate);
        let answer = Answer {
            text: &message.content,
            tool_calls: &message.tool_calls,
            tokens: outcome.usage.output.or(counted),
            max_tokens: outcome.max_tokens,
        };
        let mut checked = checker.check(answer, truths);
        if let Some(failed) = &mut checked.failed {
            let redactor = self.redactor.with_headers(&truths.headers);
            failed.reason = redactor.redact_truncated(&failed.reason);
            let is_kept = checker.reads_text() && outcome.phase == Phase::Measured;
            if is_kept && self.kept < checker.keep() {
                self.kept += 1;
                checked.text = Some(text_to_store(message, &redactor));
            }
        }
        Some(checked)
    }
}

/// The beginning of the answer and its tool calls, without secrets.
fn text_to_store(message: &Message, redactor: &Redactor) -> String {
    let mut text = message.content.clone();
    if !message.tool_calls.is_null() {
        text.push_str(&message.tool_calls.to_string());
    }
    let mut text = redactor.redact_truncated(&text);
    text.truncate(text.floor_char_boundary(CheckedAnswer::MAX_TEXT));
    text
}
