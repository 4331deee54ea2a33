//! Stores bodies: removes secrets, compresses them and appends them to the spool, on the thread of the collector.

use crate::store::bodies::{self, BodySample, Extent, Head, Packed, Spool, spool};
use crate::store::{RunDir, StoreError};
use llmscen_client::body_capture::{CapturedExchange, MAX_BODY_BYTES};
use llmscen_client::redact::target_redactor;
use llmscen_client::route::Route;
use llmscen_core::artifacts::Bodies;
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_core::seed::Seed;
use llmscen_requests::render::describe_form;
use std::io;

/// Stores the bodies of one round.
pub struct BodyRecorder {
    spool: Spool,
    case: String,
    round: u32,
    redactor: Redactor,
    seed: Seed,
    /// None: no sampling.
    sample: Option<BodySample>,
    /// Whether only bodies of failed requests are stored.
    only_failed: bool,
}

impl BodyRecorder {
    /// The recorder of a round with this seed and these routes; None if no bodies are stored.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub fn new(
        case: &Case,
        round: u32,
        seed: Seed,
        bodies: Bodies,
        folder: &RunDir,
        routes: &[Route],
    ) -> Result<Option<BodyRecorder>, StoreError> {
        let sample = match bodies {
            Bodies::None => return Ok(None),
            Bodies::Sample => Some(BodySample::default()),
            Bodies::Failed | Bodies::All => None,
        };
        Ok(Some(BodyRecorder {
            spool: Spool::append(&folder.file(spool::FILE))?,
            case: case.id.clone(),
            round,
            redactor: target_redactor(&case.target, routes),
            seed: seed.child("bodies"),
            sample,
            only_failed: bodies == Bodies::Failed,
        }))
    }

    /// Stores the bodies of a request, if they are wanted.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub fn record(
        &mut self,
        outcome: &Outcome,
        copies: &CapturedExchange,
    ) -> Result<(), StoreError> {
        let mut head = self.head(outcome);
        if self.only_failed && !head.failed {
            return Ok(());
        }
        if self
            .sample
            .as_mut()
            .is_some_and(|sample| !sample.add(&head))
        {
            return Ok(());
        }
        let packed = self.pack(&mut head, outcome, copies);
        let packed = packed.map_err(|error| StoreError::Encode {
            reason: error.to_string(),
        })?;
        self.spool.add(&head, &packed)
    }

    /// Passes all buffered data to the operating system.
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
            sampled: self.sample.is_some(),
            measured: outcome.phase == Phase::Measured,
            failed: outcome.end.is_err(),
            rank: self
                .seed
                .child(outcome.seq)
                .child(u64::from(outcome.turn))
                .0,
            ..Head::default()
        }
    }

    fn pack(
        &self,
        head: &mut Head,
        outcome: &Outcome,
        copies: &CapturedExchange,
    ) -> io::Result<Packed> {
        let redactor = self.redactor.with_headers(&copies.call_headers);
        let text = |bytes: &[u8]| redactor.redact_truncated(&String::from_utf8_lossy(bytes));
        let sent = copies
            .request
            .get(..MAX_BODY_BYTES)
            .unwrap_or(&copies.request);
        let mut headers = copies.call_headers.iter();
        let content_type = headers.find(|(name, _)| name == "content-type");
        let form = content_type.and_then(|(_, value)| describe_form(value, &copies.request));
        let request = form.map_or_else(|| text(sent), |form| redactor.redact_truncated(&form));
        let mut packed = Packed {
            request: bodies::pack_request(&request)?,
            response: Vec::new(),
        };
        head.request = extent(copies.request.len() as u64, sent, &packed.request);
        let received = &copies.response;
        // A local model responds without a status.
        if outcome.status.is_some() || received.total_bytes > 0 {
            // Events have their audio as text.
            let is_audio = !outcome.streamed
                && outcome
                    .audio
                    .as_ref()
                    .is_some_and(|audio| audio.first.is_some());
            let response = match is_audio {
                true => format!("({} bytes of audio)", received.total_bytes),
                false => text(&received.bytes),
            };
            packed.response = bodies::pack_response(outcome.status, &response)?;
            head.response = Some(extent(
                received.total_bytes,
                &received.bytes,
                &packed.response,
            ));
        }
        Ok(packed)
    }
}

fn extent(length: u64, kept: &[u8], packed: &[u8]) -> Extent {
    Extent {
        length,
        cut: (kept.len() as u64) < length,
        packed: packed.len() as u32,
    }
}
