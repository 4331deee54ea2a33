//! The stored bodies of requests and responses.
//!
//! During a run, compressed bodies are appended to a spool file ([`spool`]), so that they do not accumulate in
//! memory. At the end they are copied to requests.db, and the spool is removed.

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

/// The bodies of a spool that are copied to requests.db, sorted by case, round, request and turn.
pub struct SpooledBodies {
    reader: spool::Reader,
    heads: Vec<(Head, u64)>,
}

impl SpooledBodies {
    /// Opens a spool and selects its samples.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: &Path) -> Result<SpooledBodies, StoreError> {
        let mut reader = spool::Reader::open(path)?;
        let mut heads = reader.heads()?;
        let mut samples: HashMap<(String, u32), BodySample> = HashMap::new();
        for (head, _) in heads.iter().filter(|(head, _)| head.sampled) {
            samples
                .entry((head.case.clone(), head.round))
                .or_default()
                .add(head);
        }
        heads.retain(|(head, _)| {
            !head.sampled
                || samples
                    .get(&(head.case.clone(), head.round))
                    .is_some_and(|sample| sample.contains(head))
        });
        heads.sort_by(|(a, _), (b, _)| {
            (&a.case, a.round, a.seq, a.turn).cmp(&(&b.case, b.round, b.seq, b.turn))
        });
        Ok(SpooledBodies { reader, heads })
    }

    /// Calls `visit` with the bodies of every request, in order.
    ///
    /// # Errors
    /// The file cannot be read, or `visit` fails.
    pub fn for_each<E: From<StoreError>>(
        mut self,
        mut visit: impl FnMut(&Head, &Packed) -> Result<(), E>,
    ) -> Result<(), E> {
        for (head, at) in &self.heads {
            if let Some(packed) = self.reader.bodies(*at)? {
                visit(head, &packed)?;
            }
        }
        Ok(())
    }
}

/// Sample size: the first measured requests of a round, by number.
const FIRST: usize = 10;
/// Sample size: the first failed requests, by number.
const FAILED: usize = 20;
/// Sample size: random measured requests.
const RANDOM: usize = 20;

/// A sample of the requests of one round. Requests enter in any order, so some belong to the sample only for a while;
/// they are left out by a second pass over the requests that were added.
#[derive(Debug, Default)]
pub struct BodySample {
    first: BTreeSet<RankedRequest>,
    failed: BTreeSet<RankedRequest>,
    random: BTreeSet<RankedRequest>,
}

/// A request by its rank in a part of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankedRequest {
    rank: u64,
    seq: u64,
    turn: u32,
}

impl RankedRequest {
    fn by_number(head: &Head) -> RankedRequest {
        RankedRequest {
            rank: head.seq,
            seq: head.seq,
            turn: head.turn,
        }
    }

    fn by_random_rank(head: &Head) -> RankedRequest {
        RankedRequest {
            rank: head.rank,
            seq: head.seq,
            turn: head.turn,
        }
    }
}

impl BodySample {
    /// Adds a request. Whether it belongs to the sample of the requests so far.
    pub fn add(&mut self, head: &Head) -> bool {
        let first =
            head.measured && insert_lowest(&mut self.first, FIRST, RankedRequest::by_number(head));
        let failed =
            head.failed && insert_lowest(&mut self.failed, FAILED, RankedRequest::by_number(head));
        let random = head.measured
            && insert_lowest(
                &mut self.random,
                RANDOM,
                RankedRequest::by_random_rank(head),
            );
        first | failed | random
    }

    /// Whether a request belongs to the sample after all requests were added.
    pub fn contains(&self, head: &Head) -> bool {
        let by_number = RankedRequest::by_number(head);
        self.first.contains(&by_number)
            || self.failed.contains(&by_number)
            || self.random.contains(&RankedRequest::by_random_rank(head))
    }
}

/// Keeps the `size` requests of the lowest rank. Whether `request` is one of them.
fn insert_lowest(
    lowest: &mut BTreeSet<RankedRequest>,
    size: usize,
    request: RankedRequest,
) -> bool {
    lowest.insert(request);
    lowest.len() <= size || lowest.pop_last() != Some(request)
}

/// A body as JSON: a JSON document unchanged, anything else as a string.
#[derive(Serialize)]
#[serde(untagged)]
enum BodyText<'a> {
    Document(&'a RawValue),
    Text(&'a str),
}

impl BodyText<'_> {
    fn new(body: &str) -> BodyText<'_> {
        serde_json::from_str(body).map_or(BodyText::Text(body), BodyText::Document)
    }
}

#[derive(Serialize)]
struct Response<'a> {
    status: Option<u16>,
    body: BodyText<'a>,
}

/// Compresses the body of a request.
///
/// # Errors
/// Out of memory.
pub fn pack_request(body: &str) -> io::Result<Vec<u8>> {
    compress(&BodyText::new(body))
}

/// Compresses status and body of a response: `{"status": 200, "body": …}`.
///
/// # Errors
/// Out of memory.
pub fn pack_response(status: Option<u16>, body: &str) -> io::Result<Vec<u8>> {
    compress(&Response {
        status,
        body: BodyText::new(body),
    })
}

fn compress(text: &impl Serialize) -> io::Result<Vec<u8>> {
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
        (0..500)
            .map(|seq| Head {
                seq,
                rank: rank(seq),
                measured: seq >= 30,
                failed: seq % 9 == 0,
                ..Head::default()
            })
            .collect()
    }

    /// The final sample, and the number of requests that belonged to it for a while.
    fn sampled(order: impl Iterator<Item = Head>) -> (Vec<u64>, usize) {
        let mut first_pass = BodySample::default();
        let added: Vec<Head> = order.filter(|head| first_pass.add(head)).collect();
        let mut second_pass = BodySample::default();
        added.iter().for_each(|head| _ = second_pass.add(head));
        let mut sample: Vec<u64> = added
            .iter()
            .filter(|head| second_pass.contains(head))
            .map(|head| head.seq)
            .collect();
        sample.sort();
        (sample, added.len())
    }

    #[test]
    fn the_sample_does_not_depend_on_the_order_of_the_ends() {
        let (forwards, _) = sampled(heads().into_iter());
        let (backwards, added) = sampled(heads().into_iter().rev());
        assert_eq!(forwards, backwards);
        assert!(
            added > backwards.len(),
            "some belong to it only for a while"
        );
        assert!((40..=50).contains(&forwards.len()), "{forwards:?}");
        assert!(
            (30..40).all(|seq| forwards.contains(&seq)),
            "the first measured ones"
        );
        assert!(
            (0..20).map(|n| 9 * n).all(|seq| forwards.contains(&seq)),
            "the first that failed, warm-up or not"
        );
        assert!(
            forwards.iter().any(|seq| *seq > 200 && seq % 9 != 0),
            "and some of the others"
        );
    }

    fn text(packed: &[u8]) -> String {
        let mut text = String::new();
        flate2::read::ZlibDecoder::new(packed)
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn documents_are_unchanged_and_all_else_is_a_string() {
        assert_eq!(
            text(&pack_request(r#"{"b": 1.0, "a":[1e3]}"#).unwrap()),
            r#"{"b": 1.0, "a":[1e3]}"#
        );
        assert_eq!(text(&pack_request("{\"cut").unwrap()), r#""{\"cut""#);
        assert_eq!(
            text(&pack_response(Some(200), "data: {}\n\n").unwrap()),
            r#"{"status":200,"body":"data: {}\n\n"}"#
        );
        assert_eq!(
            text(&pack_response(Some(500), r#"{"error": "é"}"#).unwrap()),
            r#"{"status":500,"body":{"error": "é"}}"#
        );
    }
}
