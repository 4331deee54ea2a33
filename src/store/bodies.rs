//! The bodies of requests and responses, on their way from the run to requests.db.
//!
//! While a run goes on they are appended to a spool ([`spool`]), compressed, so that they do not gather in memory. When
//! requests.db has been written they lie there, and the spool goes.

pub mod spool;

pub use crate::store::bodies::spool::{Extent, Head, Packed, Spool};
use crate::store::error::StoreError;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::path::Path;

/// The bodies of a spool that are to be kept, by case, round and place; each is read when it is asked for.
pub struct Kept {
    reader: spool::Reader,
    heads: Vec<(Head, u64)>,
}

impl Kept {
    /// Opens a spool and chooses its samples.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: &Path) -> Result<Kept, StoreError> {
        let mut reader = spool::Reader::open(path)?;
        let mut heads = reader.heads()?;
        let mut samples: HashMap<(String, u32), BodySample> = HashMap::new();
        for (head, _) in heads.iter().filter(|(head, _)| head.sampled) {
            samples.entry((head.case.clone(), head.round)).or_default().wants(head);
        }
        heads.retain(|(head, _)| {
            !head.sampled || samples.get(&(head.case.clone(), head.round)).is_some_and(|picks| picks.keeps(head))
        });
        heads.sort_by(|(a, _), (b, _)| (&a.case, a.round, a.seq, a.turn).cmp(&(&b.case, b.round, b.seq, b.turn)));
        Ok(Kept { reader, heads })
    }

    /// Hands every request's bodies to `take`, in order.
    ///
    /// # Errors
    /// The file cannot be read, or `take` fails.
    pub fn each<E: From<StoreError>>(mut self, mut take: impl FnMut(&Head, &Packed) -> Result<(), E>) -> Result<(), E> {
        for (head, at) in &self.heads {
            if let Some(packed) = self.reader.bodies(*at)? {
                take(head, &packed)?;
            }
        }
        Ok(())
    }
}

/// The first measured requests of a round, by number.
const FIRST: usize = 10;
/// Requests that failed, by number.
const FAILED: usize = 20;
/// Measured requests that are drawn.
const DRAWN: usize = 20;

/// A sample of the requests of one round. Requests that it wanted for a while, and then not, are left out when it is chosen
/// again from those that it wanted.
#[derive(Debug, Default)]
pub struct BodySample {
    first: BTreeSet<(u64, u64, u32)>,
    failed: BTreeSet<(u64, u64, u32)>,
    drawn: BTreeSet<(u64, u64, u32)>,
}

impl BodySample {
    /// Takes a request into account; whether the sample wants it, as far as is known by now.
    pub fn wants(&mut self, head: &Head) -> bool {
        let (place, rank) = ((head.seq, head.turn), head.rank);
        let first = head.measured && lowest(&mut self.first, FIRST, (head.seq, place));
        let failed = head.failed && lowest(&mut self.failed, FAILED, (head.seq, place));
        let drawn = head.measured && lowest(&mut self.drawn, DRAWN, (rank, place));
        first | failed | drawn
    }

    /// Whether it is still wanted, now that all were taken into account.
    pub fn keeps(&self, head: &Head) -> bool {
        let by_number = (head.seq, head.seq, head.turn);
        self.first.contains(&by_number)
            || self.failed.contains(&by_number)
            || self.drawn.contains(&(head.rank, head.seq, head.turn))
    }
}

/// Whether the request is one of the `most` lowest by its rank.
fn lowest(chosen: &mut BTreeSet<(u64, u64, u32)>, most: usize, (rank, (seq, turn)): (u64, (u64, u32))) -> bool {
    let own = (rank, seq, turn);
    chosen.insert(own);
    chosen.len() <= most || chosen.pop_last() != Some(own)
}

/// A body in JSON text: a JSON document as it is, anything else as a string.
#[derive(Serialize)]
#[serde(untagged)]
enum BodyText<'a> {
    Document(&'a RawValue),
    Text(&'a str),
}

impl BodyText<'_> {
    fn of(body: &str) -> BodyText<'_> {
        serde_json::from_str(body).map_or(BodyText::Text(body), BodyText::Document)
    }
}

#[derive(Serialize)]
struct Response<'a> {
    status: Option<u16>,
    body: BodyText<'a>,
}

/// A request's body.
///
/// # Errors
/// Only where memory ends.
pub fn pack_request(body: &str) -> io::Result<Vec<u8>> {
    packed(&BodyText::of(body))
}

/// A response's status and body: `{"status": 200, "body": …}`.
///
/// # Errors
/// Only where memory ends.
pub fn pack_response(status: Option<u16>, body: &str) -> io::Result<Vec<u8>> {
    packed(&Response { status, body: BodyText::of(body) })
}

fn packed(text: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&serde_json::to_vec(text)?)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::seed::Seed;
    use std::io::Read;

    fn heads() -> Vec<Head> {
        let rank = |seq: u64| Seed(7).child(seq).0;
        (0..500).map(|seq| Head { seq, rank: rank(seq), measured: seq >= 30, failed: seq % 9 == 0, ..Head::default() }).collect()
    }

    /// What a sample of these keeps in the end, and how many it wanted for a while.
    fn kept(order: impl Iterator<Item = Head>) -> (Vec<u64>, usize) {
        let mut picks = BodySample::default();
        let wanted: Vec<Head> = order.filter(|head| picks.wants(head)).collect();
        let mut again = BodySample::default();
        wanted.iter().for_each(|head| _ = again.wants(head));
        let mut kept: Vec<u64> = wanted.iter().filter(|head| again.keeps(head)).map(|head| head.seq).collect();
        kept.sort();
        (kept, wanted.len())
    }

    #[test]
    fn the_sample_is_the_same_in_whatever_order_requests_end() {
        let (kept_forwards, _) = kept(heads().into_iter());
        let (kept_backwards, wanted) = kept(heads().into_iter().rev());
        assert_eq!(kept_forwards, kept_backwards);
        assert!(wanted > kept_backwards.len(), "some were wanted for a while only");
        assert!((40..=50).contains(&kept_forwards.len()), "{kept_forwards:?}");
        assert!((30..40).all(|seq| kept_forwards.contains(&seq)), "the first measured ones");
        assert!((0..20).map(|n| 9 * n).all(|seq| kept_forwards.contains(&seq)), "the first that failed, warm-up or not");
        assert!(kept_forwards.iter().any(|seq| *seq > 200 && seq % 9 != 0), "and some of the others");
    }

    fn text(packed: &[u8]) -> String {
        let mut text = String::new();
        flate2::read::ZlibDecoder::new(packed).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn documents_stay_as_they_were_sent_and_all_else_is_a_string() {
        assert_eq!(text(&pack_request(r#"{"b": 1.0, "a":[1e3]}"#).unwrap()), r#"{"b": 1.0, "a":[1e3]}"#);
        assert_eq!(text(&pack_request("{\"cut").unwrap()), r#""{\"cut""#);
        assert_eq!(text(&pack_response(Some(200), "data: {}\n\n").unwrap()), r#"{"status":200,"body":"data: {}\n\n"}"#);
        assert_eq!(text(&pack_response(Some(500), r#"{"error": "é"}"#).unwrap()), r#"{"status":500,"body":{"error": "é"}}"#);
    }
}
