//! `profile_restful_api.py`: requests over HTTP, after `sglang.bench_serving`.

use crate::import::bench_serving::{self, Script};
use crate::import::draft::Draft;
use crate::import::line::{Flag, Takes, taken};
use crate::import::text::per_second;
use crate::import::{ImportError, serving};
use Takes::{Nothing, One};

/// Every flag.
pub(super) const FLAGS: &[&[Flag]] = &[
    bench_serving::FLAGS,
    &[
        taken(&["--model-path"], One),
        taken(&["--multi"], Nothing),
        taken(&["--request-rate-range"], One),
        taken(&["--disable-warmup"], Nothing),
    ],
];

const SCRIPT: Script = Script { name: "lmdeploy-restful", seed: 1, length: None };

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    draft.put("name", SCRIPT.name);
    bench_serving::target(draft)?;
    bench_serving::request(draft, &SCRIPT)?;
    bench_serving::dataset(draft, &SCRIPT, "--dataset-path")?;
    if draft.has("--tokenizer") {
        draft.note("--model-path", "`--tokenizer` takes its place");
    } else {
        draft.carry("--model-path", "dataset/tokenizer");
    }
    draft.fill("--num-prompts", "load/requests", 1000);
    serving::load(draft)?;
    if draft.has("--multi") {
        let rates = rates(draft)?;
        draft.one_or_axis("load/rate", rates.into_iter().map(per_second).collect());
        draft.account("--multi", &["matrix/load.rate"]);
        draft.account("--request-rate-range", &["matrix/load.rate"]);
        draft.note("--request-rate", "`--multi` takes the rates of --request-rate-range");
    } else {
        draft.note("--request-rate-range", "it goes with --multi");
    }
    draft.fill("--disable-warmup", "load/warmup", 1);
    draft.account("--disable-warmup", &["load/warmup"]);
    Ok(())
}

/// `START,STOP,STEP` without the stop, or a list of any other length.
fn rates(draft: &Draft) -> Result<Vec<f64>, ImportError> {
    let given = draft.numbers("--request-rate-range")?;
    Ok(match if given.is_empty() { vec![2.0, 34.0, 2.0] } else { given }.as_slice() {
        [start, stop, step] if *step > 0.0 => {
            std::iter::successors(Some(*start), |rate| Some(rate + step)).take_while(|rate| rate < stop).collect()
        }
        list => list.to_vec(),
    })
}
