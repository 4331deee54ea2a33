//! `request.retry` and `request.cancel`: what a request may do besides succeed.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::values::duration::{SPAN, duration};
use crate::values::quantity::{QUANTITY, quantity};
use crate::values::retry_on::{CAUSES, causes};
use crate::values::share::{SHARE, share};
use crate::values::wait::{WAIT, wait};
use llmscen_core::request::{Cancel, Departure, Retry};

pub(super) static RETRY: Block = Block {
    doc: "What is tried once more. Only before any content came; the clock and the total timeout run on, and the slot is held.",
    short: None,
    fields: &[
        field("on", Kind::Leaf(&CAUSES), "The statuses and the kinds of failure that are tried again.")
            .default("[429, 503]")
            .example("[429, 503, connect, timeout_connect]"),
        field(
            "honor",
            Kind::Choice(&[("retry-after", "As long as the response's `Retry-After` says"), ("nothing", "`wait` alone")], &[]),
            "How long to wait, where the response says it.",
        )
        .default("retry-after")
        .example("nothing"),
        field("max", Kind::Whole(1, 100), "Attempts after the first at the most.").default("2").example("5"),
        field(
            "wait",
            Kind::Leaf(&SPAN),
            "The wait before the second attempt. It doubles with every further one; by the seed, between a half and the whole of it is waited.",
        )
        .default("1s")
        .example("250ms"),
    ],
};

pub(super) static CANCEL: Block = Block {
    doc: "Users who leave before their answer is complete: the connection is closed, or the stream reset. They are `abandoned`, which is no error.",
    short: None,
    fields: &[
        field("share", Kind::Leaf(&SHARE), "The share of the requests, drawn by the seed.").required().example("5%"),
        field("after", Kind::Leaf(&WAIT), "They leave so long after the request was sent: a duration or a distribution.")
            .example("2s"),
        field("tokens", Kind::Leaf(&QUANTITY), "They leave after so many token events: a number or a distribution.")
            .example("20"),
    ],
};

/// A block that a matrix alone brings about has no defaults and not all that it needs: without this it would do nothing.
fn stands(draft: &Draft<'_>, path: &str, key: &str, review: &mut Review) -> Option<()> {
    draft.get(path)?;
    if draft.get(&format!("{path}.{key}")).is_none() {
        let mistake = Mistake::new(draft.place("matrix"), format!("the matrix sweeps a `{path}` that is not there"), "sweeps it");
        review.push(mistake.help("Write it into `request`, with what all cases have in common."));
        return None;
    }
    Some(())
}

/// What is tried once more. Files one that is only swept.
pub(super) fn retry(draft: &Draft<'_>, review: &mut Review) -> Option<Retry> {
    stands(draft, "request.retry", "on", review)?;
    let (statuses, kinds) = draft.get("request.retry.on").and_then(causes)?;
    Some(Retry {
        statuses,
        kinds,
        honor: draft.text("request.retry.honor").as_deref() == Some("retry-after"),
        max: draft.count("request.retry.max").and_then(|n| u32::try_from(n).ok())?,
        wait: draft.get("request.retry.wait").and_then(duration)?,
    })
}

/// Who leaves. Files a departure that has no time, or two, or that cannot be seen.
pub(super) fn cancel(draft: &Draft<'_>, stream: bool, review: &mut Review) -> Option<Cancel> {
    stands(draft, "request.cancel", "share", review)?;
    let (after, tokens) = (draft.entry("request.cancel.after"), draft.entry("request.cancel.tokens"));
    let when = match (after, tokens) {
        (Some(after), None) => wait(&after.value).map(Departure::After),
        (None, Some(tokens)) => {
            if !stream {
                let mistake =
                    Mistake::new(tokens.key_at, "a response that is not streamed shows no tokens", "nobody could leave");
                review.push(mistake.help("Write `after`, or ask for a stream."));
            }
            quantity(&tokens.value).map(Departure::Tokens)
        }
        (Some(after), Some(tokens)) => {
            let mistake = Mistake::new(tokens.key_at, "users leave by the clock or by tokens", "say one of them");
            review.push(mistake.also(after.key_at, "or this one"));
            None
        }
        (None, None) => {
            let mistake = Mistake::new(draft.place("request.cancel"), "when do these users leave?", "has no `after` or `tokens`");
            review.push(mistake.help("For example `{ share: 5%, after: 2s }` or `{ share: 5%, tokens: 20 }`."));
            None
        }
    };
    Some(Cancel { share: draft.get("request.cancel.share").and_then(share)?, when: when? })
}
