//! What transformers computes on the same weights (tests/real/local).

use super::*;
use serde_json::Value;
use std::path::PathBuf;

/// Of the largest logit of a step.
const TOLERANCE: f32 = 1e-4;

/// The folders with a reference: those of the repository, or those that `TINY_MODELS` names.
fn folders() -> Vec<PathBuf> {
    let own = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/local").to_owned();
    let all = std::fs::read_dir(std::env::var("TINY_MODELS").unwrap_or_else(|_| own())).unwrap();
    let mut all: Vec<PathBuf> =
        all.map(|entry| entry.unwrap().path()).filter(|path| path.join("expected.json").exists()).collect();
    all.sort();
    all
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn it_agrees_with_transformers() {
    let folders = folders();
    assert_eq!(folders.len(), 3);
    for folder in folders {
        let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let (mut model, loaded) = Model::load(folder.to_str().unwrap(), &local(), Seed(0)).unwrap();
        let prompt = model.encode(expected["prompt"].as_str().unwrap(), true).unwrap();
        assert_eq!(prompt, ids(&expected["ids"]));
        assert_eq!(model.chat(&expected["messages"]).unwrap().as_deref(), expected["chat"].as_str());
        let tokens = ids(&expected["tokens"]);
        let ask = Ask { ignore_eos: true, logits: true, ..greedy(prompt, tokens.len() as u64) };
        let told = work(&mut model, &[ask]).remove(0);
        assert_eq!(told.tokens, tokens, "{}", loaded.architecture);
        assert_eq!(Some(told.text.as_str()), expected["text"].as_str());
        let logits = told.logits.unwrap();
        let mut worst = 0f32;
        for (step, truth) in expected["logits"].as_object().unwrap() {
            let at = step.parse::<usize>().unwrap() * model.vocabulary();
            let truth: Vec<f32> = truth.as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap() as f32).collect();
            let own = &logits[at..at + truth.len()];
            let largest = truth.iter().fold(0f32, |most, logit| most.max(logit.abs()));
            let off = own.iter().zip(&truth).fold(0f32, |most, (own, truth)| most.max((own - truth).abs()));
            worst = worst.max(off / largest);
        }
        assert!(worst < TOLERANCE, "{}: {worst:e}", loaded.architecture);
    }
}
