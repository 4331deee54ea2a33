//! Which rows of which data a run has used, so that no prompt is sent twice while there are others.

use crate::run::prepare::PreparedCase;
use crate::run::requests::traffic_class::{MixAssignment, RowStride, TrafficClass};
use llmscen_core::dataset::Source;
use llmscen_core::load::Shape;
use llmscen_core::plan::Case;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

/// A case whose number of prompts is not known beforehand takes so many of data without end, whatever it sends: the prompts
/// of the cases after it do not depend on how fast the server is.
const UNKNOWN_LENGTH: u64 = 1_000_003;

/// The books of a run.
#[derive(Default)]
pub struct RowUsage(Vec<DatasetUsage>);

/// One kind of data from one file, whatever else differs between the cases that use it.
struct DatasetUsage {
    data: (Discriminant<Source>, Option<String>),
    next: u64,
    sent: u64,
    repeated: u64,
    rows: Option<u64>,
}

/// The sessions of a round that were sent, and those among them whose row the run had sent before, by class: the row, counted
/// from the run's first one on, is beyond the data's length. `begun`: the sessions by number, and whether they were sent.
pub fn count_sent_rows(
    prepared: &PreparedCase,
    strides: &[RowStride],
    mut places: MixAssignment,
    begun: &[(u64, bool)],
) -> Vec<SentRows> {
    let mut sent = vec![SentRows::default(); prepared.classes.len()];
    let lengths: Vec<Option<u64>> = prepared.classes.iter().map(|class| class.prompts.distinct()).collect();
    for (seq, was_sent) in begun {
        let (class, number) = places.place(*seq);
        let (Some(own), Some(stride)) = (sent.get_mut(class), strides.get(class)) else { continue };
        let row = stride.row(number);
        own.next = own.next.max(row.saturating_add(1));
        if *was_sent {
            own.sent += 1;
            own.repeated += u64::from(lengths.get(class).copied().flatten().is_some_and(|rows| row >= rows));
        }
    }
    sent
}

/// What one class of a round has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentRows {
    /// Sessions.
    pub sent: u64,
    /// Those among them that were repeats.
    pub repeated: u64,
    /// The row after the last one that was taken.
    pub next: u64,
}

/// What a class's rows are taken from.
fn data(class: &TrafficClass) -> (Discriminant<Source>, Option<String>) {
    (discriminant(&class.case.dataset.source), class.case.dataset.path.clone())
}

/// Lines of a case that take rows of the same data.
fn sharers(prepared: &PreparedCase, class: &TrafficClass) -> u64 {
    prepared.classes.iter().filter(|other| data(other) == data(class)).count() as u64
}

/// Whether a class's data has no end.
fn boundless(class: &TrafficClass) -> bool {
    class.prompts.distinct().is_none() && endless(&class.case.dataset.source)
}

/// Whether prompts without a known number have no end; those of a long file merely have not come to theirs yet.
fn endless(source: &Source) -> bool {
    match source {
        Source::Prompt(_) | Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. } => true,
        Source::Trace(_) | Source::Images(_) => true,
        Source::Command(_) => false,
        Source::LineByLine | Source::Openqa | Source::Longalpaca | Source::Rows | Source::Messages | Source::Sharegpt => false,
        Source::Embeddings { .. } | Source::Rerank { .. } => false,
    }
}

impl RowUsage {
    fn account(&mut self, class: &TrafficClass) -> &mut DatasetUsage {
        let data = data(class);
        let known = self.0.iter().position(|account| account.data == data);
        let index = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(DatasetUsage { data, next: 0, sent: 0, repeated: 0, rows: None });
        }
        &mut self.0[index]
    }

    /// The rows that each class takes in the next round. A replay of the data's own arrivals keeps each row with its arrival:
    /// it begins a new pass over the data. Entries of a mix that share data share its rows, whatever they send: each takes
    /// every n-th, or a stretch of its own where the data has no end.
    pub fn strides(&mut self, case: &Case, prepared: &PreparedCase) -> Vec<RowStride> {
        let replayed =
            prepared.arrivals.as_ref().filter(|_| matches!(case.load.shape, Shape::Replay { .. }) && case.trace.is_none());
        let pass = replayed.map_or(0, |arrivals| arrivals.len() as u64);
        let stride = |(index, class): (usize, &Arc<TrafficClass>)| {
            let next = self.account(class).next;
            let from = if pass == 0 { next } else { next.next_multiple_of(pass) };
            let before = prepared.classes.iter().take(index).filter(|other| data(other) == data(class)).count() as u64;
            match boundless(class) {
                true => RowStride { from, first: from.saturating_add(before * UNKNOWN_LENGTH), step: 1 },
                false => RowStride { from, first: from.saturating_add(before), step: sharers(prepared, class) },
            }
        };
        prepared.classes.iter().enumerate().map(stride).collect()
    }

    /// Books what the classes of a round sent along their strides; `planned` is its number of sessions, where that was known
    /// beforehand.
    pub fn book(&mut self, prepared: &PreparedCase, strides: &[RowStride], planned: Option<u64>, sent: &[SentRows]) {
        for ((class, stride), own) in prepared.classes.iter().zip(strides).zip(sent) {
            let reserved = match (&class.entry, boundless(class)) {
                (None, endless) => planned.unwrap_or(if endless { UNKNOWN_LENGTH } else { 0 }),
                (Some(_), true) => UNKNOWN_LENGTH * sharers(prepared, class),
                (Some(_), false) => 0,
            };
            let account = self.account(class);
            account.next = account.next.max(own.next).max(stride.from.saturating_add(reserved));
            account.sent += own.sent;
            account.repeated += own.repeated;
            account.rows = class.prompts.distinct();
        }
    }

    /// What a reader must know of prompts that were sent more than once.
    pub fn notes(&self) -> Vec<String> {
        let repeats = self.0.iter().filter(|account| account.repeated > 0);
        let say = |account: &DatasetUsage| {
            let DatasetUsage { sent, repeated, .. } = account;
            format!("{repeated} of {sent} prompts were repeats: the data has {} rows", account.rows.unwrap_or(0))
        };
        repeats.map(say).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::prompt::Session;
    use llmscen_core::seed::Seed;
    use llmscen_datasets::Prompts;
    use llmscen_protocols::protocol;
    use llmscen_scenario::render::Renderer;
    use llmscen_scenario::{Input, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    struct Rows(Option<u64>);

    impl Prompts for Rows {
        fn session(&self, _seq: u64) -> Option<Session> {
            None
        }

        fn len(&self) -> Option<u64> {
            self.0
        }

        fn dropped(&self) -> u64 {
            0
        }
    }

    /// A prepared case of these sections whose data has so many rows.
    fn prepared(sections: &str, rows: Option<u64>) -> (Case, PreparedCase) {
        let text =
            format!("version: 1\nname: t\ntarget: {{ url: simulator }}\nload: {{ concurrency: 1, requests: 9 }}\n{sections}");
        let input = Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] };
        let case = load(&input).unwrap().plan.cases.remove(0);
        let protocol = protocol(case.target.api, None).unwrap();
        let class = |(index, own): (usize, Case)| {
            let renderer = Arc::new(Renderer::new(&own, |stream| protocol.body(stream)).unwrap());
            let entry = case.mix.get(index).cloned();
            Arc::new(TrafficClass { entry, case: own, prompts: Arc::new(Rows(rows)), tokenizer: None, renderer })
        };
        let classes = case.lines().into_iter().enumerate().map(class).collect();
        let (notes, stem) = (Vec::new(), String::new());
        (case, PreparedCase { classes, protocol, notes, arrivals: None, conversations: false, route: None, stem })
    }

    fn stride(from: u64, first: u64, step: u64) -> RowStride {
        RowStride { from, first, step }
    }

    /// Books so many requests, all of them sent, and tells the repeats of each class.
    fn round(row_usage: &mut RowUsage, (case, prepared): &(Case, PreparedCase), requests: u64) -> Vec<u64> {
        let strides = row_usage.strides(case, prepared);
        let begun: Vec<(u64, bool)> = (0..requests).map(|seq| (seq, true)).collect();
        let sent = count_sent_rows(prepared, &strides, MixAssignment::new(case, Seed(1), None), &begun);
        row_usage.book(prepared, &strides, None, &sent);
        sent.iter().map(|own| own.repeated).collect()
    }

    #[test]
    fn a_case_takes_the_rows_behind_those_of_the_case_before() {
        let plain = prepared("dataset: openqa", Some(20));
        let mut row_usage = RowUsage::default();
        assert_eq!(row_usage.strides(&plain.0, &plain.1), [stride(0, 0, 1)]);
        assert_eq!(round(&mut row_usage, &plain, 15), [0]);
        assert_eq!(row_usage.strides(&plain.0, &plain.1), [stride(15, 15, 1)]);
        assert_eq!(round(&mut row_usage, &plain, 15), [10]);
        assert_eq!(row_usage.notes(), ["10 of 30 prompts were repeats: the data has 20 rows"]);
    }

    #[test]
    fn entries_that_share_data_share_its_rows() {
        let mixed = prepared(
            "dataset: openqa\nmix: [{ name: a }, { name: b, dataset: { kind: random, tokens: 5 } }, { name: c }]",
            Some(40),
        );
        let mut row_usage = RowUsage::default();
        assert_eq!(row_usage.strides(&mixed.0, &mixed.1), [stride(0, 0, 2), stride(0, 0, 1), stride(0, 1, 2)]);
        assert_eq!(round(&mut row_usage, &mixed, 30), [0, 0, 0]);
        let mut deal = MixAssignment::new(&mixed.0, Seed(1), None);
        let most =
            (0..30).map(|seq| deal.place(seq)).filter(|place| place.0 != 1).map(|(class, n)| 2 * n + class as u64 / 2).max();
        let from = most.unwrap() + 1;
        assert_eq!(row_usage.strides(&mixed.0, &mixed.1)[2], stride(from, from + 1, 2));
    }

    #[test]
    fn data_without_an_end_gives_each_entry_a_stretch_of_its_own() {
        let data = "{ kind: random, tokens: 5 }";
        let mixed = prepared(&format!("dataset: {data}\nmix: [{{ name: a }}, {{ name: b }}]"), None);
        let mut row_usage = RowUsage::default();
        assert_eq!(row_usage.strides(&mixed.0, &mixed.1), [stride(0, 0, 1), stride(0, UNKNOWN_LENGTH, 1)]);
        assert_eq!(round(&mut row_usage, &mixed, 9), [0, 0]);
        let plain = prepared(&format!("dataset: {data}"), None);
        assert_eq!(row_usage.strides(&plain.0, &plain.1), [stride(2 * UNKNOWN_LENGTH, 2 * UNKNOWN_LENGTH, 1)]);
    }
}
