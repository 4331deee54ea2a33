//! Finish reasons of replies, and the words of different servers for the same reason.

/// Words for the same reason, each list after the word of OpenAI's chat API. Upper and lower case, `-` and `_` are
/// equal.
const SAME_REASON: [&[&str]; 4] = [
    &[
        "length",
        "max_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "limit",
        "model_length",
        "model_context_window_exceeded",
    ],
    &[
        "stop",
        "end_turn",
        "stop_sequence",
        "eos",
        "eos_token",
        "complete",
        "completed",
    ],
    &["tool_calls", "tool_call", "tool_use", "function_call"],
    &[
        "content_filter",
        "content_filtered",
        "safety",
        "refusal",
        "guardrail_intervened",
        "prohibited_content",
    ],
];

/// The selector of replies that end at a limit of their length.
pub const LENGTH: &str = "length";

/// Whether a selector matches a finish reason as the server sent it: the same word, or one of OpenAI's words for the
/// same reason.
pub fn matches(selector: &str, reason: &str) -> bool {
    let plain = || reason.to_lowercase().replace('-', "_");
    selector == reason
        || SAME_REASON
            .iter()
            .find(|words| words.first() == Some(&selector))
            .is_some_and(|words| words.contains(&plain().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_openai_match_those_of_other_servers() {
        for reason in [
            "length",
            "max_tokens",
            "MAX_TOKENS",
            "max_output_tokens",
            "model_length",
        ] {
            assert!(matches("length", reason), "{reason}");
            assert!(matches(reason, reason) && !matches("stop", reason));
        }
        for reason in ["stop", "end_turn", "eos_token", "STOP", "completed"] {
            assert!(matches("stop", reason) && !matches("length", reason));
        }
        assert!(matches("tool_calls", "tool_use") && matches("tool_calls", "tool-calls"));
        assert!(matches("content_filter", "SAFETY"));
        // Another word than that of OpenAI matches itself alone.
        assert!(!matches("max_tokens", "length") && !matches("max_tokens", "MAX_TOKENS"));
        assert!(!matches("length", "") && !matches("abort", "length"));
    }
}
