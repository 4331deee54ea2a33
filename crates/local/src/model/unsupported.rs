//! What models ask for that is not computed.

/// Why a sliding window is refused, in a sentence that begins with its key; None where it covers all positions. Attention is
/// computed over the whole context alone.
pub fn window_reason(window: u64, positions: u64) -> Option<String> {
    (window > 0 && window < positions).then(|| {
        format!(
            "is {window} of {positions} positions, and attention in a sliding window is not supported; use a model without one, or \
             measure a server"
        )
    })
}

/// Why a scaling of the rotary positions is refused, in a sentence that begins with its key.
pub fn scaling_reason(kind: &str, supported: &str) -> String {
    format!(
        "is `{kind}`, and this scaling of rotary positions is not supported; supported are {supported}; measure a server instead"
    )
}
