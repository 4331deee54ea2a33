//! The digest by which shards check that they have the same plan and data.

use llmscen_core::units::Nanos;
use sha2::{Digest, Sha256};

/// Requests compared at the beginning of a case, and as many more over its plan.
const COMPARED: u64 = 32;
/// Where the plan of a case has no end, the later requests are spread up to this number.
const OPEN_END: u64 = 4096;

/// A SHA-256 over the plan id, the version, and some requests of each case. It differs for another file, tokenizer,
/// template, seed or build.
#[derive(Clone, Debug)]
pub struct PlanDigest {
    pub(super) plan_id: String,
    pub(super) version: String,
    hash: Sha256,
}

/// One request for the digest.
#[derive(Clone, Copy, Debug)]
pub struct ComparedRequest<'a> {
    /// Number of the request.
    pub seq: u64,
    /// Scheduled send time, if the plan has one.
    pub due: Option<Nanos>,
    /// Rendered body.
    pub body: &'a [u8],
}

impl PlanDigest {
    /// The digest of a plan without requests.
    pub fn new(plan_id: &str, version: &str) -> PlanDigest {
        let mut digest = PlanDigest {
            plan_id: plan_id.to_owned(),
            version: version.to_owned(),
            hash: Sha256::new(),
        };
        digest.add_bytes(b"plan", plan_id.as_bytes());
        digest.add_bytes(b"version", version.as_bytes());
        digest
    }

    /// Begins a case.
    pub fn add_case(&mut self, id: &str) {
        self.add_bytes(b"case", id.as_bytes());
    }

    /// Adds a request of the case.
    pub fn add_request(&mut self, request: &ComparedRequest<'_>) {
        self.hash.update(request.seq.to_le_bytes());
        // One more than any time, so that "none" is no time.
        let due = request.due.map_or(u64::MAX, |due| due.0);
        self.hash.update(due.to_le_bytes());
        self.add_bytes(b"body", request.body);
    }

    /// The digest in hexadecimal.
    pub fn finish(&self) -> String {
        let bytes = self.hash.clone().finalize();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The length precedes the bytes, so that two texts cannot be divided differently.
    fn add_bytes(&mut self, kind: &[u8], bytes: &[u8]) {
        self.hash.update(kind);
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }
}

/// The numbers of the requests that the digest covers: 0..32 and 32 more spread over the plan, ascending.
pub fn compared_numbers(planned: Option<u64>) -> Vec<u64> {
    let end = planned.unwrap_or(OPEN_END);
    let first = COMPARED.min(end);
    let rest = end - first;
    let later = COMPARED.min(rest);
    let spread = (1..=later).map(|step| {
        let place = u128::from(rest) * u128::from(step) / u128::from(later);
        first + place as u64 - 1
    });
    (0..first).chain(spread).collect()
}
