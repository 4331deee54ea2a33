//! The flags of `guidellm run` (0.8), and of `guidellm benchmark` before it.

use crate::import::line::{Flag, Takes, left, taken};
use Takes::{Many, Nothing, One};

const OUTPUT: &str = "every run is kept whole in a folder of its own; see `report.formats`";

/// Every flag.
pub(in crate::import) const FLAGS: &[&[Flag]] = &[
    &[
        left(&["--config", "--scenario", "-c"], One, "put what the file says on the command line, or into the scenario by hand"),
        left(&["--label", "-l"], One, "`description` holds a line"),
        taken(&["--backend"], One),
        taken(&["--profile"], One),
        taken(&["--constraint"], Many),
        taken(&["--tokenizer"], One),
        taken(&["--data"], One),
        left(&["--data-column-mapper"], One, "see `dataset.columns`"),
        left(&["--data-preprocessor", "--data-finalizer"], One, "what a row becomes is said by `dataset` and `request`"),
        left(&["--data-loader"], One, "rows are read as they are needed"),
        taken(&["--seed"], One),
        left(&["--output"], One, OUTPUT),
        left(&["--metrics"], One, "every metric is reported"),
        taken(&["--override"], Many),
        left(&["--disable-console", "--disable-console-outputs"], Nothing, "see `--quiet`"),
        left(&["--disable-console-interactive", "--disable-progress"], Nothing, "see `--progress`"),
    ],
    &[
        taken(&["--target"], One),
        taken(&["--model"], One),
        taken(&["--request-type", "--request-format"], One),
        left(&["--backend-type", "--backend-kwargs", "--backend-args"], One, "see `target`"),
        taken(&["--rate-type"], One),
        taken(&["--rate"], Many),
        taken(&["--processor"], One),
        left(&["--processor-args"], One, "a tokenizer.json says itself what it is"),
        left(&["--data-args", "--data-samples", "--data-num-workers", "--data-request-formatter"], One, "see `dataset`"),
        taken(&["--data-sampler"], One),
        taken(&["--max-seconds"], One),
        taken(&["--max-requests"], One),
        left(
            &["--max-errors", "--max-error-rate", "--max-global-error-rate"],
            One,
            "see `slo: [{ expr: \"error_rate < 1%\", abort: {} }]`",
        ),
        taken(&["--warmup", "--warmup-percent"], One),
        left(
            &["--cooldown", "--cooldown-percent"],
            One,
            "the last requests are measured to their end; the steady figures leave the tail out",
        ),
        taken(&["--rampup"], One),
        taken(&["--random-seed"], One),
        left(&["--over-saturation", "--detect-saturation"], Nothing, "see `load.stop_when_saturated`"),
        left(&["--output-path", "--output-dir", "--outputs", "--output-extras"], One, OUTPUT),
        left(&["--sample-requests"], One, "every request is a row of requests.parquet"),
        left(&["--display-scheduler-stats"], Nothing, "the self-audit is in every report"),
    ],
];
