//! The bodies of requests and responses, on their way from the run to requests.db.
//!
//! While a run goes on they are appended to a spool ([`spool`]), compressed, so that they do not gather in memory. When
//! requests.db has been written they lie there, and the spool goes.

pub mod pack;
mod pick;
pub mod spool;

pub use pick::Picks;
pub use spool::{Extent, Head, Packed, Spool};

use super::error::StoreError;
use std::collections::HashMap;
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
        let mut samples: HashMap<(String, u32), Picks> = HashMap::new();
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
