#![no_main]

use llmscen_scenario::{Input, load};
use std::collections::BTreeMap;
use std::path::Path;

// Every text is a plan, the same one twice, or faults that can be shown.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
    let read = || load(&Input { path: Path::new("s.yaml"), text: Some(text.to_owned()), env: &env, set: &[] });
    match read() {
        // Each run with `cache_bust` draws a seed of its own.
        Ok(_) if text.contains("cache_bust") => {}
        Ok(loaded) => assert_eq!(read().map(|again| again.plan.id).ok(), Some(loaded.plan.id)),
        Err(faults) => {
            assert!(faults.iter().all(|fault| !fault.message().is_empty()));
            assert!(!faults.render(false, 100).is_empty());
        }
    }
});
