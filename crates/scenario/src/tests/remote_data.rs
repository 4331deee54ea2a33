//! Datasets of the hub by name, and files by their URL.

use super::{messages, owned, reloaded};
use crate::{Faults, Input, Loaded, Lookups, load_with};
use llmscen_core::remote_data::{DataPin, PinError, RemoteReference};
use std::collections::BTreeMap;
use std::path::Path;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn digest(end: &str) -> String {
    format!("{end:0>64}")
}

/// A hub with the splits `test` and `train`.
fn look_up(
    reference: &RemoteReference,
    env: &BTreeMap<String, String>,
) -> Result<DataPin, PinError> {
    assert!(!env.contains_key("OFFLINE"), "{reference} is looked up");
    let reference = match reference {
        RemoteReference::Hub(reference) => reference,
        RemoteReference::Url(_) => {
            return Ok(DataPin {
                commit: None,
                files: vec![("x.jsonl".into(), digest("c"))],
            });
        }
    };
    let available = || ["test", "train"].map(str::to_owned).to_vec();
    match (reference.file.as_deref(), reference.split.as_deref()) {
        (Some("down"), _) => Err(PinError::Failed(
            "cannot read URL: refused\n  do this".into(),
        )),
        (None, None) => Err(PinError::Ambiguous {
            part: "split",
            available: available(),
        }),
        (None, Some(split)) if !available().contains(&split.to_owned()) => Err(PinError::Unknown {
            part: "split",
            value: split.to_owned(),
            available: available(),
        }),
        (file, split) => Ok(DataPin {
            commit: Some(COMMIT.into()),
            files: vec![(
                file.or(split).unwrap_or_default().to_owned() + ".jsonl",
                digest("a"),
            )],
        }),
    }
}

fn loaded(text: &str, env: &[(&str, &str)]) -> Result<Loaded, Faults> {
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text.to_owned()),
        env: &owned(env),
        set: &[],
    };
    load_with(
        &input,
        Lookups {
            figures: |_, _| Err(String::new()),
            supports: |_| Ok(()),
            find_gpu: || None,
            pin_data: Some(look_up),
        },
    )
}

fn scenario(dataset: &str, more: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{url: simulator}}\ndataset: {{kind: rows, \
        {dataset}}}\nload: {{concurrency: 1, requests: 1}}\n{more}"
    )
}

#[test]
fn the_plan_pins_what_the_hub_has() {
    let text = scenario(
        "path: hub:org/qa, split: test, group: item.meta.topic",
        "matrix: {dataset.split: [test, train]}\n",
    );
    let plan = loaded(&text, &[]).unwrap().plan;
    let data: Vec<_> = plan
        .cases
        .iter()
        .map(|case| case.dataset.remote.clone().unwrap())
        .collect();
    let files: Vec<_> = data
        .into_iter()
        .map(|data| data.pin.unwrap().files)
        .collect();
    assert_eq!(
        files,
        [
            [("test.jsonl".to_owned(), digest("a"))],
            [("train.jsonl".to_owned(), digest("a"))]
        ]
    );
    let dataset = &plan.cases[1].dataset;
    assert_eq!(
        (dataset.group.as_deref(), dataset.path.as_deref()),
        (Some("meta.topic"), Some("hub:org/qa split=train"))
    );
    assert!(
        plan.resolved.contains(&format!("commit: {COMMIT}\n"))
            || plan.resolved.contains(&format!("commit: \"{COMMIT}\"\n")),
        "{}",
        plan.resolved
    );
    assert_eq!(plan, reloaded(&plan, &[]));
    let again = loaded(&plan.resolved, &[("OFFLINE", "1")]).unwrap().plan;
    assert_eq!(again, plan, "the stored plan looks up nothing");
    let moved = plan.resolved.replace(&digest("a"), &digest("b"));
    assert_ne!(loaded(&moved, &[]).unwrap().plan.id, plan.id);
}

#[test]
fn the_entries_of_a_mix_are_pinned() {
    let text = "version: 1\nname: t\ntarget: {url: simulator}\nload: {concurrency: 1, requests: \
    1}\nmix:\n- {name: a, dataset: {kind: rows, path: hub:org/qa/x}}\n- {name: b, dataset: {kind: \
    rows, path: hub:org/qa/x}}\n";
    let plan = loaded(text, &[]).unwrap().plan;
    let pinned = |entry: &llmscen_core::mix::MixEntry| {
        let data = entry.dataset.remote.as_ref().unwrap();
        data.pin.as_ref().unwrap().files[0].0.clone()
    };
    let files: Vec<String> = plan.cases[0].mix.iter().map(pinned).collect();
    assert_eq!(files, ["x.jsonl", "x.jsonl"]);
    assert_eq!(plan.resolved.matches("commit:").count(), 1);
}

#[test]
fn a_url_is_pinned_by_its_checksum() {
    let url = "https://example.org/data/x.jsonl";
    let plan = loaded(&scenario(&format!("path: \"{url}\""), ""), &[])
        .unwrap()
        .plan;
    let dataset = &plan.cases[0].dataset;
    assert_eq!(dataset.path.as_deref(), Some(url));
    let pin = dataset.remote.as_ref().unwrap().pin.clone().unwrap();
    assert_eq!(pin.files, [("x.jsonl".to_owned(), digest("c"))]);
    assert!(!plan.resolved.contains("commit:"), "{}", plan.resolved);
    let again = loaded(&plan.resolved, &[("OFFLINE", "1")]).unwrap().plan;
    assert_eq!(again, plan, "the stored plan looks up nothing");
    for (dataset, expected) in [
        (
            "path: \"https://user:pa55word-long@h/x\"",
            "this URL contains a secret",
        ),
        (
            "path: \"https://h/x?X-Amz-Signature=0a1b2c3d4e5f60718293\"",
            "this URL contains a secret",
        ),
        (
            "path: \"https://h/x\", split: test",
            "`split` has no effect",
        ),
    ] {
        let found = messages(loaded(&scenario(dataset, ""), &[]));
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{dataset}: {found:?}"
        );
    }
    for kind in ["trace", "images", "audio", "video"] {
        let text = scenario(&format!("path: \"{url}\""), "");
        let found = messages(loaded(
            &text.replace("kind: rows", &format!("kind: {kind}")),
            &[],
        ));
        assert!(
            found
                .iter()
                .any(|fault| fault.contains("does not read data of the hub or of a URL")),
            "{kind}: {found:?}"
        );
    }
    let pins = format!(
        "pins: {{\"{url}\": {{commit: {COMMIT}, files: {{x: {}}}}}}}\n",
        digest("a")
    );
    let found = messages(loaded(&scenario(&format!("path: \"{url}\""), &pins), &[]));
    assert!(found[0].contains("a commit of a URL"), "{found:?}");
}

#[test]
fn data_that_do_not_exist_are_errors_at_their_place() {
    for (dataset, expected) in [
        (
            "path: hub:org/qa, split: tets",
            "t.yaml:4:48 `hub:org/qa` has no split `tets`",
        ),
        (
            "path: hub:org/qa",
            "t.yaml:4:29 `hub:org/qa` has several splits",
        ),
        (
            "path: hub:org/qa/down",
            "t.yaml:4:29 cannot read URL: refused",
        ),
        (
            "path: hub:qa",
            "t.yaml:4:29 `hub:qa` is not a dataset of the hub",
        ),
        (
            "path: hub:org/qa/x, split: test",
            "t.yaml:4:43 `split` has no effect",
        ),
        ("path: hub:org/qa/x, group: topic", "t.yaml:4:50 "),
    ] {
        let found = messages(loaded(&scenario(dataset, ""), &[]));
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{dataset}: {found:?}"
        );
    }
    let text = scenario("path: hub:org/qa, split: tets", "");
    let page = loaded(&text, &[]).unwrap_err().render(false, 100);
    for part in ["did you mean `test`?", "Existing: `test` and `train`."] {
        assert!(page.contains(part), "{page}");
    }
    let text = scenario(
        "path: hub:org/qa, split: test",
        &format!(
            "pins: {{\"hub:org/qa split=test\": {{commit: {COMMIT}, files: {{../x: {}}}}}}}\n",
            digest("a")
        ),
    );
    let found = messages(loaded(&text, &[]));
    assert!(found[0].contains("not a path in a repository"), "{found:?}");
}
