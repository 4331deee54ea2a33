//! Which dataset rows a run has used, so that no prompt is repeated while unused ones are left.

use crate::run::requests::prepared_case::PreparedCase;
use crate::run::requests::traffic_class::{MixAssignment, RowStride, TrafficClass};
use llmscen_core::dataset::Source;
use llmscen_core::load::Shape;
use llmscen_core::plan::Case;
use serde::{Deserialize, Serialize};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

/// Rows of an endless dataset that are reserved for a case with an unknown number of requests, so that the prompts of
/// later cases do not depend on the speed of the server.
const RESERVED_ROWS: u64 = 1_000_003;

/// Row usage of a run, per dataset.
#[derive(Default)]
pub struct RowUsage(Vec<DatasetUsage>);

/// Row usage of one dataset. Two datasets are the same if kind and file are; other settings may differ between cases.
struct DatasetUsage {
    key: DatasetKey,
    next: u64,
    sent: u64,
    repeated: u64,
    rows: Option<u64>,
    checks_answers: bool,
}

/// Kind and file of a dataset.
type DatasetKey = (Discriminant<Source>, Option<String>);

/// Counts the sent and the repeated sessions of a round per class. A session is repeated if its row, counted from the
/// first row of the run, exceeds the length of the dataset. `begun`: number of each session, and whether it was sent.
/// `last_cooldown`: the number of the last one of the cool-down, which takes the next rows of data whose length is
/// not known.
pub fn count_sent_rows(
    prepared: &PreparedCase,
    strides: &[RowStride],
    mut assignment: MixAssignment,
    begun: &[(u64, bool)],
    last_cooldown: Option<u64>,
) -> Vec<SentRows> {
    let mut sent = vec![SentRows::default(); prepared.classes.len()];
    let lengths: Vec<Option<u64>> = prepared
        .classes
        .iter()
        .map(|class| class.prompts.distinct())
        .collect();
    for (seq, was_sent) in begun {
        let (class, number) = assignment.find(*seq);
        let (Some(rows), Some(stride)) = (sent.get_mut(class), strides.get(class)) else {
            continue;
        };
        let row = stride.row(number);
        rows.next = rows.next.max(row.saturating_add(1));
        if *was_sent {
            rows.sent += 1;
            rows.repeated += u64::from(
                lengths
                    .get(class)
                    .copied()
                    .flatten()
                    .is_some_and(|length| row >= length),
            );
        }
    }
    let cooldown = begun.last().map(|(last, _)| last + 1).zip(last_cooldown);
    for seq in cooldown.into_iter().flat_map(|(from, last)| from..=last) {
        let (class, number) = assignment.find(seq);
        let Some((own, stride)) = prepared.classes.get(class).zip(strides.get(class)) else {
            continue;
        };
        let is_next = own.prompts.distinct().is_none() && !is_endless(own);
        if let Some(rows) = sent.get_mut(class).filter(|_| is_next) {
            rows.next = rows.next.max(stride.row(number).saturating_add(1));
        }
    }
    sent
}

/// The dataset rows that one class has sent in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRows {
    /// Sent sessions.
    pub sent: u64,
    /// Repeated sessions among them.
    pub repeated: u64,
    /// The row after the last one taken.
    pub next: u64,
}

impl SentRows {
    /// Adds the rows of another shard.
    pub fn add(&mut self, other: &SentRows) {
        self.sent += other.sent;
        self.repeated += other.repeated;
        self.next = self.next.max(other.next);
    }
}

fn dataset_key(class: &TrafficClass) -> DatasetKey {
    (
        discriminant(&class.case.dataset.source),
        class.case.dataset.path.clone(),
    )
}

/// Number of classes of a case that share the dataset of `class`.
fn sharing_classes(prepared: &PreparedCase, class: &TrafficClass) -> u64 {
    prepared
        .classes
        .iter()
        .filter(|other| dataset_key(other) == dataset_key(class))
        .count() as u64
}

/// Whether the dataset of a class is endless.
pub(crate) fn is_endless(class: &TrafficClass) -> bool {
    class.prompts.distinct().is_none() && is_generated(&class.case.dataset.source)
}

/// Whether a dataset of unknown length is endless. The length of a long file is merely not known yet.
fn is_generated(source: &Source) -> bool {
    match source {
        Source::Prompt(_)
        | Source::Random { .. }
        | Source::Prefix { .. }
        | Source::SpeedBenchmark { .. } => true,
        Source::Trace(_) | Source::Images(_) | Source::Audio(_) | Source::Video(_) => true,
        Source::Command(_) => false,
        Source::LineByLine
        | Source::Openqa
        | Source::Longalpaca
        | Source::Rows
        | Source::Messages
        | Source::Sharegpt => false,
        Source::Embeddings { .. } | Source::Rerank { .. } => false,
    }
}

impl RowUsage {
    fn usage(&mut self, class: &TrafficClass) -> &mut DatasetUsage {
        let key = dataset_key(class);
        let known = self.0.iter().position(|usage| usage.key == key);
        let index = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(DatasetUsage {
                key,
                next: 0,
                sent: 0,
                repeated: 0,
                rows: None,
                checks_answers: false,
            });
        }
        &mut self.0[index]
    }

    /// The rows that each class takes in the next round. A replay of arrivals from the dataset starts a new pass over
    /// it, so that each row keeps its arrival. Of n mix entries with the same dataset each takes every n-th row, or a
    /// separate range if the dataset is endless.
    pub fn strides(&mut self, case: &Case, prepared: &PreparedCase) -> Vec<RowStride> {
        let replayed = prepared
            .arrivals
            .as_ref()
            .filter(|_| matches!(case.load.shape, Shape::Replay { .. }) && case.trace.is_none());
        let pass = replayed.map_or(0, |arrivals| arrivals.len() as u64);
        let stride = |(index, class): (usize, &Arc<TrafficClass>)| {
            let next = self.usage(class).next;
            let from = if pass == 0 {
                next
            } else {
                next.next_multiple_of(pass)
            };
            let before = prepared
                .classes
                .iter()
                .take(index)
                .filter(|other| dataset_key(other) == dataset_key(class))
                .count() as u64;
            match is_endless(class) {
                true => RowStride {
                    from,
                    first: from.saturating_add(before * RESERVED_ROWS),
                    step: 1,
                },
                false => RowStride {
                    from,
                    first: from.saturating_add(before),
                    step: sharing_classes(prepared, class),
                },
            }
        };
        prepared.classes.iter().enumerate().map(stride).collect()
    }

    /// The first row of the next round, per class of a case. Shards agree on the greatest one.
    pub fn marks(&mut self, prepared: &PreparedCase) -> Vec<u64> {
        prepared
            .classes
            .iter()
            .map(|class| self.usage(class).next)
            .collect()
    }

    /// Counts the rows before these marks as used; `marks`: one per class of a case.
    pub fn advance(&mut self, prepared: &PreparedCase, marks: &[u64]) {
        for (class, mark) in prepared.classes.iter().zip(marks) {
            let usage = self.usage(class);
            usage.next = usage.next.max(*mark);
        }
    }

    /// Adds the rows that the classes of a round have sent. `planned`: the number of sessions, if the plan fixes it.
    pub fn add_round(
        &mut self,
        prepared: &PreparedCase,
        strides: &[RowStride],
        planned: Option<u64>,
        sent: &[SentRows],
    ) {
        for ((class, stride), sent) in prepared.classes.iter().zip(strides).zip(sent) {
            let reserved = match (&class.entry, is_endless(class)) {
                (None, endless) => planned.unwrap_or(if endless { RESERVED_ROWS } else { 0 }),
                (Some(_), true) => RESERVED_ROWS * sharing_classes(prepared, class),
                (Some(_), false) => 0,
            };
            let usage = self.usage(class);
            usage.next = usage
                .next
                .max(sent.next)
                .max(stride.from.saturating_add(reserved));
            usage.sent += sent.sent;
            usage.repeated += sent.repeated;
            usage.rows = class.prompts.distinct();
            usage.checks_answers = class.answers.is_some();
        }
    }

    /// Notes on prompts that were sent more than once.
    pub fn notes(&self) -> Vec<String> {
        let note = |DatasetUsage {
                        sent,
                        repeated,
                        rows,
                        checks_answers,
                        ..
                    }: &DatasetUsage| {
            let answers = if *checks_answers {
                " Answers to the same prompt are not independent: bounds of shares of answers \
                hold for these prompts only."
            } else {
                ""
            };
            format!(
                "{repeated} of {sent} prompts repeat earlier ones (dataset: {} rows); a prefix \
                 cache may serve them. Set `dataset.cache_bust: true` to prevent that.{answers}",
                rows.unwrap_or(0)
            )
        };
        self.0
            .iter()
            .filter(|usage| usage.repeated > 0)
            .map(note)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::dataset::Session;
    use llmscen_core::seed::Seed;
    use llmscen_datasets::Prompts;
    use llmscen_protocols::protocol;
    use llmscen_requests::render::Renderer;
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

    /// A prepared case with these sections and this number of dataset rows.
    fn prepared(sections: &str, rows: Option<u64>) -> (Case, PreparedCase) {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator }}\nload: {{ concurrency: 1, requests: 9 }}\n{sections}"
        );
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        };
        let case = load(&input).unwrap().plan.cases.remove(0);
        let protocol = protocol(case.target.api, None).unwrap();
        let class = |(index, class_case): (usize, Case)| {
            let renderer =
                Arc::new(Renderer::new(&class_case, |stream| protocol.body(stream)).unwrap());
            let entry = case.mix.get(index).cloned();
            Arc::new(TrafficClass {
                answers: None,
                entry,
                case: class_case,
                prompts: Arc::new(Rows(rows)),
                tokenizer: None,
                renderer,
            })
        };
        let classes = case
            .traffic_classes()
            .into_iter()
            .enumerate()
            .map(class)
            .collect();
        let prepared = PreparedCase {
            classes,
            protocol,
            markers: Default::default(),
            notes: Vec::new(),
            arrivals: None,
            conversations: false,
            routes: Vec::new(),
            stem: String::new(),
        };
        (case, prepared)
    }

    fn stride(from: u64, first: u64, step: u64) -> RowStride {
        RowStride { from, first, step }
    }

    /// Adds a round of this many sent requests. Returns the repeated ones of each class.
    fn round(
        row_usage: &mut RowUsage,
        (case, prepared): &(Case, PreparedCase),
        requests: u64,
    ) -> Vec<u64> {
        let strides = row_usage.strides(case, prepared);
        let begun: Vec<(u64, bool)> = (0..requests).map(|seq| (seq, true)).collect();
        let sent = count_sent_rows(
            prepared,
            &strides,
            MixAssignment::new(case, Seed(1), None),
            &begun,
            None,
        );
        row_usage.add_round(prepared, &strides, None, &sent);
        sent.iter().map(|rows| rows.repeated).collect()
    }

    #[test]
    fn a_case_takes_the_rows_after_those_of_the_case_before() {
        let plain = prepared("dataset: openqa", Some(20));
        let mut row_usage = RowUsage::default();
        assert_eq!(row_usage.strides(&plain.0, &plain.1), [stride(0, 0, 1)]);
        assert_eq!(round(&mut row_usage, &plain, 15), [0]);
        assert_eq!(row_usage.strides(&plain.0, &plain.1), [stride(15, 15, 1)]);
        assert_eq!(round(&mut row_usage, &plain, 15), [10]);
        assert_eq!(
            row_usage.notes(),
            [
                "10 of 30 prompts repeat earlier ones (dataset: 20 rows); a prefix cache may \
              serve them. Set `dataset.cache_bust: true` to prevent that."
            ]
        );
    }

    #[test]
    fn a_cooldown_takes_rows_of_data_of_unknown_length_alone() {
        for (rows, next) in [(None, 19), (Some(200), 15)] {
            let plain = prepared("dataset: openqa", rows);
            let mut row_usage = RowUsage::default();
            let strides = row_usage.strides(&plain.0, &plain.1);
            let begun: Vec<(u64, bool)> = (0..15).map(|seq| (seq, true)).collect();
            let assignment = MixAssignment::new(&plain.0, Seed(1), None);
            let sent = count_sent_rows(&plain.1, &strides, assignment, &begun, Some(18));
            assert_eq!((sent[0].sent, sent[0].next), (15, next));
        }
    }

    #[test]
    fn shards_start_after_the_rows_of_all() {
        let plain = prepared("dataset: openqa", Some(200));
        let sent = |numbers: &[u64]| {
            let mut row_usage = RowUsage::default();
            let strides = row_usage.strides(&plain.0, &plain.1);
            let begun: Vec<(u64, bool)> = numbers.iter().map(|&seq| (seq, true)).collect();
            let assignment = MixAssignment::new(&plain.0, Seed(1), None);
            let sent = count_sent_rows(&plain.1, &strides, assignment, &begun, None);
            row_usage.add_round(&plain.1, &strides, None, &sent);
            row_usage
        };
        let whole = sent(&[0, 1, 2, 3, 4, 5, 7]).marks(&plain.1);
        let mut shards = [sent(&[0, 2, 4]), sent(&[1, 3, 5, 7])];
        let marks = shards.each_mut().map(|shard| shard.marks(&plain.1));
        assert_eq!(marks, [vec![5], vec![8]]);
        for shard in &mut shards {
            shard.advance(&plain.1, &[8]);
            assert_eq!(shard.marks(&plain.1), whole);
            assert_eq!(shard.strides(&plain.0, &plain.1), [stride(8, 8, 1)]);
        }
    }

    #[test]
    fn entries_that_share_data_share_its_rows() {
        let mixed = prepared(
            "dataset: openqa\nmix: [{ name: a }, { name: b, dataset: { kind: random, tokens: 5 } }, { name: c }]",
            Some(40),
        );
        let mut row_usage = RowUsage::default();
        assert_eq!(
            row_usage.strides(&mixed.0, &mixed.1),
            [stride(0, 0, 2), stride(0, 0, 1), stride(0, 1, 2)]
        );
        assert_eq!(round(&mut row_usage, &mixed, 30), [0, 0, 0]);
        let mut assignment = MixAssignment::new(&mixed.0, Seed(1), None);
        let most = (0..30)
            .map(|seq| assignment.find(seq))
            .filter(|(class, _)| *class != 1)
            .map(|(class, n)| 2 * n + class as u64 / 2)
            .max();
        let from = most.unwrap() + 1;
        assert_eq!(
            row_usage.strides(&mixed.0, &mixed.1)[2],
            stride(from, from + 1, 2)
        );
    }

    #[test]
    fn an_endless_dataset_gives_each_entry_a_separate_range() {
        let data = "{ kind: random, tokens: 5 }";
        let mixed = prepared(
            &format!("dataset: {data}\nmix: [{{ name: a }}, {{ name: b }}]"),
            None,
        );
        let mut row_usage = RowUsage::default();
        assert_eq!(
            row_usage.strides(&mixed.0, &mixed.1),
            [stride(0, 0, 1), stride(0, RESERVED_ROWS, 1)]
        );
        assert_eq!(round(&mut row_usage, &mixed, 9), [0, 0]);
        let plain = prepared(&format!("dataset: {data}"), None);
        assert_eq!(
            row_usage.strides(&plain.0, &plain.1),
            [stride(2 * RESERVED_ROWS, 2 * RESERVED_ROWS, 1)]
        );
    }
}
