//! The bodies of `tests/wire/spec`, written from API documentation, and invariants for all of them.

use crate::replay::{cut_up, decode};
use crate::{Events, Reply};
use llmscen_core::api::Api;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::request::Framing;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::fs;

/// One body; its file name is `API.NAME.sse|ndjson|json`.
#[derive(Clone, Debug)]
pub struct Spec {
    /// File name.
    pub name: String,
    /// API.
    pub api: Api,
    /// Framing.
    pub shape: Framing,
    /// Body.
    pub body: Vec<u8>,
}

impl Spec {
    /// Reads a body by its file name.
    pub fn of(name: &str) -> Spec {
        let shape = match name.rsplit('.').next().unwrap() {
            "sse" => Framing::Sse,
            "ndjson" => Framing::Ndjson,
            _ => Framing::Json,
        };
        let body = fs::read(format!(
            "{}/../../tests/wire/spec/{name}",
            env!("CARGO_MANIFEST_DIR")
        ))
        .unwrap();
        Spec {
            name: name.to_owned(),
            api: Api::parse(name.split('.').next().unwrap()).unwrap(),
            shape,
            body,
        }
    }

    /// Decodes it, in one piece and byte by byte.
    pub fn read(&self) -> (Events, Reply) {
        let whole = decode(self.api, self.shape, [&self.body[..]], None);
        assert_eq!(
            decode(self.api, self.shape, self.body.chunks(1), None),
            whole,
            "{}",
            self.name
        );
        whole
    }
}

/// The bodies of APIs that have neither recordings nor a table in `laws`.
pub fn all() -> Vec<Spec> {
    let files = fs::read_dir(format!(
        "{}/../../tests/wire/spec",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let bodies = names.iter().map(|name| Spec::of(name));
    bodies
        .filter(|spec| [Api::Dashscope, Api::Ollama, Api::Tgi].contains(&spec.api))
        .collect()
}

/// The end in one line: the finish reason, or kind, place and message.
pub fn end(reply: &Reply) -> String {
    match &reply.end {
        Ok(finish) => finish.reason.clone(),
        Err(failure) => format!("{} ({}): {}", failure.kind, failure.at, failure.message),
    }
}

#[test]
fn a_body_that_is_cut_anywhere_is_never_a_success() {
    for spec in all() {
        let last = spec.body.trim_ascii_end().len() - 1;
        for cut in 0..last {
            let (events, reply) = decode(spec.api, spec.shape, [&spec.body[..cut]], None);
            let kind = reply
                .end
                .expect_err(&format!("{} cut at {cut}", spec.name))
                .kind;
            let known = [
                FailureKind::Truncated,
                FailureKind::StreamError,
                FailureKind::Decode,
            ];
            assert!(known.contains(&kind), "{} cut at {cut}: {kind}", spec.name);
            assert!(
                kind != FailureKind::Decode || spec.shape == Framing::Json,
                "{} cut at {cut}",
                spec.name
            );
            let reset = Some(Failure::new(FailureKind::TimeoutRead, "silence"));
            let (same, broken) = decode(spec.api, spec.shape, [&spec.body[..cut]], reset);
            assert!(
                broken.end.is_err() && same.content <= events.content,
                "{} cut at {cut}",
                spec.name
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_split_of_any_body_changes_nothing(cuts in prop::collection::vec(any::<Index>(), 0..30)) {
        for spec in all() {
            let pieces = cut_up(&spec.body, &cuts);
            prop_assert_eq!(decode(spec.api, spec.shape, pieces, None), spec.read(), "{}", spec.name);
        }
    }

    #[test]
    fn pieces_of_bodies_and_garbage_never_panic(
        parts in prop::collection::vec((select(all()), any::<Index>(), 0usize..400,
            prop::collection::vec(any::<u8>(), 0..6)), 1..8),
        cuts in prop::collection::vec(any::<Index>(), 0..8),
    ) {
        let part = |(spec, from, length, garbage): &(Spec, Index, usize, Vec<u8>)| {
            let from = from.index(spec.body.len());
            [&spec.body[from..(from + length).min(spec.body.len())], garbage].concat()
        };
        let bytes: Vec<u8> = parts.iter().flat_map(part).collect();
        let Spec { api, shape, .. } = parts[0].0;
        prop_assert_eq!(decode(api, shape, cut_up(&bytes, &cuts), None), decode(api, shape, [&bytes[..]], None));
    }
}
