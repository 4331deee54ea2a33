//! The token counts of one reply, from the server's report, the local tokenizer and the events that arrived. Every
//! figure about output tokens follows from it; docs/reference/metrics.md, "Tokens".

use crate::report::TokenSource;

/// The counts of one reply; None is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenAccount {
    /// Output tokens by the server's report, reasoning among them: what a provider bills.
    pub billed: Option<u64>,
    /// Reasoning tokens among them.
    pub reasoning: Option<u64>,
    /// Whether the reasoning arrived, and not only a summary of it.
    pub reasoning_received: bool,
    /// Output tokens by the local tokenizer.
    pub counted: Option<u64>,
    /// Token events.
    pub events: u64,
}

impl TokenAccount {
    /// Reasoning tokens that the server billed and did not send; None where it reports no reasoning tokens. At most
    /// `billed − events`: each event has at least one token.
    pub fn hidden(&self) -> Option<u64> {
        let (billed, reasoning) = (self.billed?, self.reasoning?);
        Some(match self.reasoning_received {
            true => 0,
            false => reasoning.min(billed.saturating_sub(self.events)),
        })
    }

    /// Output tokens that arrived, and the source of this count: `billed − hidden`. Without a usable report it is the
    /// count of the tokenizer, or that of the events where the tokenizer finds fewer: an event carries at least one
    /// token.
    pub fn visible(&self) -> Option<(u64, TokenSource)> {
        let has_text = self.events > 0 || self.counted.is_some_and(|tokens| tokens > 0);
        let reported = self
            .billed
            .map(|billed| billed.saturating_sub(self.hidden().unwrap_or(0)))
            .filter(|visible| *visible > 0 || !has_text);
        match (reported, self.counted) {
            (Some(visible), _) => Some((visible, TokenSource::Usage)),
            (None, Some(counted)) if counted >= self.events => {
                Some((counted, TokenSource::Tokenizer))
            }
            (None, _) => (self.events > 0).then_some((self.events, TokenSource::Events)),
        }
    }

    /// `|server − tokenizer| ÷ tokenizer` of the tokens that arrived; None without both counts.
    pub fn mismatch(&self) -> Option<f64> {
        let counted = self.counted.filter(|tokens| *tokens > 0)? as f64;
        match self.visible()? {
            (visible, TokenSource::Usage) => Some((visible as f64 - counted).abs() / counted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(billed: Option<u64>, counted: Option<u64>, events: u64) -> TokenAccount {
        TokenAccount {
            billed,
            counted,
            events,
            ..TokenAccount::default()
        }
    }

    #[test]
    fn reasoning_is_hidden_only_where_none_arrived() {
        let hidden = TokenAccount {
            reasoning: Some(1000),
            ..account(Some(1020), None, 20)
        };
        assert_eq!(hidden.hidden(), Some(1000));
        assert_eq!(hidden.visible(), Some((20, TokenSource::Usage)));
        let received = TokenAccount {
            reasoning_received: true,
            ..hidden
        };
        assert_eq!(
            (received.hidden(), received.visible()),
            (Some(0), Some((1020, TokenSource::Usage)))
        );
        assert_eq!(account(Some(1020), None, 20).hidden(), None);
    }

    #[test]
    fn a_report_that_leaves_nothing_for_the_text_is_not_used() {
        let all_reasoning = TokenAccount {
            reasoning: Some(30),
            ..account(Some(24), None, 20)
        };
        assert_eq!(all_reasoning.hidden(), Some(4));
        assert_eq!(all_reasoning.visible(), Some((20, TokenSource::Usage)));
        let document = TokenAccount {
            reasoning: Some(24),
            ..account(Some(24), Some(7), 0)
        };
        assert_eq!(document.visible(), Some((7, TokenSource::Tokenizer)));
        assert_eq!(
            account(Some(0), None, 0).visible(),
            Some((0, TokenSource::Usage)),
            "an empty reply has no tokens"
        );
    }

    #[test]
    fn events_count_where_the_text_has_fewer_tokens() {
        let source = |counted, events| account(None, counted, events).visible();
        assert_eq!(source(Some(25), 20), Some((25, TokenSource::Tokenizer)));
        assert_eq!(source(Some(1), 64), Some((64, TokenSource::Events)));
        assert_eq!(source(None, 64), Some((64, TokenSource::Events)));
        assert_eq!(source(Some(0), 0), Some((0, TokenSource::Tokenizer)));
        assert_eq!(source(None, 0), None);
    }

    #[test]
    fn the_mismatch_compares_what_arrived() {
        assert_eq!(account(Some(102), Some(100), 90).mismatch(), Some(0.02));
        let hidden = TokenAccount {
            reasoning: Some(900),
            ..account(Some(1000), Some(100), 90)
        };
        assert_eq!(hidden.mismatch(), Some(0.0));
        assert_eq!(account(None, Some(100), 90).mismatch(), None);
        assert_eq!(account(Some(5), Some(0), 0).mismatch(), None);
    }
}
