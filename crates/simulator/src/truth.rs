//! The truth log: the times of the simulator's writes, for comparison with the client's timestamps.

use llmscen_core::units::Nanos;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of records; the oldest is dropped first.
const KEPT: usize = 65_536;

/// One write of generated tokens to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Write {
    /// The time before the write call. No client can receive the bytes earlier.
    pub at: Nanos,
    /// The time after the write call.
    pub done: Nanos,
    /// Tokens written so far, over all choices. 1 for embeddings and scores.
    pub tokens: u64,
    /// The choice of the last of these tokens, from 0.
    pub choice: u32,
}

/// How a request ended on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Complete.
    Done,
    /// Rejected with this status.
    Status(u16),
    /// Reset on purpose.
    Reset,
    /// Ended early on purpose.
    Truncated,
    /// An error was reported inside the response, on purpose.
    StreamError,
    /// The client disconnected first.
    Disconnected,
}

/// The record of one request. Times are nanoseconds since the origin of its [`Truth`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Number in order of arrival, from 0: the n in `chatcmpl-sim-n` and the ids of other APIs.
    pub number: u64,
    /// Id of the response, and value of its `x-request-id` header.
    pub id: String,
    /// The `x-request-id` header of the request, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Path of the endpoint.
    pub path: &'static str,
    /// Time when the request was read completely.
    pub received_at: Nanos,
    /// Time before the write call with status and headers.
    pub headers_at: Option<Nanos>,
    /// Writes with generated tokens, in order.
    pub writes: Vec<Write>,
    /// Number of writes that were delayed, at least in part, because the socket was full.
    pub blocked: u64,
    /// Time before the last write, or when the disconnection was detected.
    pub end_at: Option<Nanos>,
    /// How it ended; None while in flight.
    pub end: Option<End>,
}

/// The record of a request in flight, shared between the server's thread and the readers of the log.
#[derive(Clone, Debug)]
pub(super) struct Entry(Arc<Mutex<Record>>);

impl Entry {
    /// The locked record. Writes are made under the lock, so that a record is up to date once its bytes are received.
    pub(super) fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy, if it is the record with that number.
    fn record(&self, number: u64) -> Option<Record> {
        let record = self.lock();
        (record.number == number).then(|| record.clone())
    }

    /// Sets the end, unless it is already set.
    pub(super) fn end(&self, end: End, at: Nanos) {
        let mut record = self.lock();
        if record.end.is_none() {
            (record.end, record.end_at) = (Some(end), Some(at));
        }
    }
}

/// A log of the requests of one server; clones share it.
///
/// It takes 32 bytes per write of the last 65,536 requests that [`Truth::take_ended`] has not removed. [`Truth::off`]
/// keeps nothing.
#[derive(Clone, Debug)]
pub struct Truth {
    origin: Instant,
    log: Option<Arc<Mutex<VecDeque<Entry>>>>,
}

impl Truth {
    /// A log with times since `origin`.
    pub fn since(origin: Instant) -> Truth {
        Truth {
            origin,
            log: Some(Arc::default()),
        }
    }

    /// A disabled log.
    pub fn off() -> Truth {
        Truth {
            origin: Instant::now(),
            log: None,
        }
    }

    /// The origin of its times.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// The current record of a request.
    pub fn get(&self, number: u64) -> Option<Record> {
        let found = self.entries(|log| {
            log.iter()
                .find_map(|entry| entry.record(number))
                .into_iter()
                .collect()
        });
        found.into_iter().next()
    }

    /// All current records, in order of arrival.
    pub fn all(&self) -> Vec<Record> {
        self.entries(|log| log.iter().map(|entry| entry.lock().clone()).collect())
    }

    /// Removes and returns the records of ended requests, in order of arrival.
    pub fn take_ended(&self) -> Vec<Record> {
        self.entries(|log| {
            let (ended, running) = log.drain(..).partition(|entry| entry.lock().end.is_some());
            *log = running;
            let ended: VecDeque<Entry> = ended;
            ended.iter().map(|entry| entry.lock().clone()).collect()
        })
    }

    /// Starts the record of a request.
    pub(super) fn open(
        &self,
        (number, id): (u64, &str),
        request_id: Option<&str>,
        path: &'static str,
        received_at: Nanos,
    ) -> Entry {
        let record = Record {
            number,
            id: id.to_owned(),
            request_id: request_id.map(str::to_owned),
            path,
            received_at,
            headers_at: None,
            writes: Vec::new(),
            blocked: 0,
            end_at: None,
            end: None,
        };
        let entry = Entry(Arc::new(Mutex::new(record)));
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.len() == KEPT {
                log.pop_front();
            }
            log.push_back(entry.clone());
        }
        entry
    }

    fn entries(&self, read: impl FnOnce(&mut VecDeque<Entry>) -> Vec<Record>) -> Vec<Record> {
        self.log
            .as_ref()
            .map(|log| read(&mut log.lock().unwrap_or_else(PoisonError::into_inner)))
            .unwrap_or_default()
    }
}

/// Writes records as JSON Lines, one object per line.
pub fn write_jsonl(records: &[Record], mut to: impl io::Write) -> io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut to, record)?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_of_json() {
        let truth = Truth::since(Instant::now());
        let entry = truth.open((3, "cmpl-sim-3"), Some("mine"), "/v1/completions", Nanos(5));
        entry.lock().writes.push(Write {
            at: Nanos(7),
            done: Nanos(8),
            tokens: 1,
            choice: 0,
        });
        entry.end(End::Status(500), Nanos(9));
        entry.end(End::Disconnected, Nanos(10));
        let mut text = Vec::new();
        write_jsonl(&truth.all(), &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"number\":3,\"id\":\"cmpl-sim-3\",\"request_id\":\"mine\",\"path\":\"/v1/completions\",\"received_at\":5,\"headers_at\":null,\"writes\":[{\"at\":7,\"done\":8,\"tokens\":1,\"choice\":0}],\"blocked\":0,\"end_at\":9,\"end\":{\"status\":500}}\n"
        );
    }

    #[test]
    fn ended_requests_are_taken_once_and_old_ones_forgotten() {
        let truth = Truth::since(Instant::now());
        let entries: Vec<Entry> = (0..3)
            .map(|number| truth.open((number, ""), None, "", Nanos(0)))
            .collect();
        entries[1].end(End::Done, Nanos(1));
        assert_eq!(
            truth
                .take_ended()
                .iter()
                .map(|record| record.number)
                .collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(truth.take_ended(), []);
        assert_eq!(
            (truth.get(1), truth.get(2).map(|record| record.end)),
            (None, Some(None))
        );
        (3..3 + KEPT as u64).for_each(|number| drop(truth.open((number, ""), None, "", Nanos(0))));
        assert_eq!((truth.all().len(), truth.get(2)), (KEPT, None));
        assert_eq!(Truth::off().all(), []);
    }
}
