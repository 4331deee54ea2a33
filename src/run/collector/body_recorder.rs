//! Keeps bodies: takes the secrets out of them, packs them and appends them to the spool, off the workers.

use crate::run::round::RoundInput;
use crate::store::StoreError;
use crate::store::bodies::{self, BodySample, Extent, Head, Packed, Spool, spool};
use llmscen_client::body_capture::{Copies, MOST};
use llmscen_client::redact::redactor_on;
use llmscen_client::route::Route;
use llmscen_core::artifacts::Bodies;
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::redact::Redactor;
use llmscen_core::seed::Seed;
use std::io;

/// What keeps the bodies of one round.
pub struct BodyRecorder {
    spool: Spool,
    case: String,
    round: u32,
    redactor: Redactor,
    seed: Seed,
    /// None: every body is kept.
    picks: Option<BodySample>,
    /// Only those of failed requests.
    only_failed: bool,
}

impl BodyRecorder {
    /// What keeps the bodies of a round that is sent on this route, if on any; None where none are kept.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub fn of(input: &RoundInput<'_>, route: Option<&Route>) -> Result<Option<BodyRecorder>, StoreError> {
        let picks = match input.bodies {
            Bodies::None => return Ok(None),
            Bodies::Sample => Some(BodySample::default()),
            Bodies::Failed | Bodies::All => None,
        };
        Ok(Some(BodyRecorder {
            spool: Spool::append(&input.folder.file(spool::FILE))?,
            case: input.case.id.clone(),
            round: input.round,
            redactor: route.map_or_else(|| Redactor::of(&input.case.target), |route| redactor_on(&input.case.target, route)),
            seed: input.seed.child("bodies"),
            picks,
            only_failed: input.bodies == Bodies::Failed,
        }))
    }

    /// Takes the bodies of a call.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub fn take(&mut self, outcome: &Outcome, copies: &Copies) -> Result<(), StoreError> {
        let mut head = self.head(outcome);
        if self.only_failed && !head.failed {
            return Ok(());
        }
        if self.picks.as_mut().is_some_and(|picks| !picks.wants(&head)) {
            return Ok(());
        }
        let packed = self.pack(&mut head, outcome.status, copies);
        let packed = packed.map_err(|error| StoreError::Encode { reason: error.to_string() })?;
        self.spool.add(&head, &packed)
    }

    /// Hands everything to the operating system.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.spool.flush()
    }

    fn head(&self, outcome: &Outcome) -> Head {
        Head {
            case: self.case.clone(),
            round: self.round,
            seq: outcome.seq,
            turn: outcome.turn,
            sampled: self.picks.is_some(),
            measured: outcome.phase == Phase::Measured,
            failed: outcome.end.is_err(),
            rank: self.seed.child(outcome.seq).child(u64::from(outcome.turn)).0,
            ..Head::default()
        }
    }

    fn pack(&self, head: &mut Head, status: Option<u16>, copies: &Copies) -> io::Result<Packed> {
        let redactor = self.redactor.and(&copies.own);
        let text = |bytes: &[u8]| redactor.clean(&String::from_utf8_lossy(bytes));
        let sent = copies.request.get(..MOST).unwrap_or(&copies.request);
        let mut packed = Packed { request: bodies::pack_request(&text(sent))?, response: Vec::new() };
        head.request = extent(copies.request.len() as u64, sent, &packed.request);
        let came = &copies.response;
        // A model in this process answers without a status.
        if status.is_some() || came.whole > 0 {
            packed.response = bodies::pack_response(status, &text(&came.bytes))?;
            head.response = Some(extent(came.whole, &came.bytes, &packed.response));
        }
        Ok(packed)
    }
}

fn extent(whole: u64, kept: &[u8], packed: &[u8]) -> Extent {
    Extent { whole, cut: (kept.len() as u64) < whole, packed: packed.len() as u32 }
}
