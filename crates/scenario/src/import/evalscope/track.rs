//! The trackers of `evalscope perf`.

use crate::import::draft::Draft;

/// Names that evalscope's own project has at every tracker.
const PROJECT: &str = "perf_benchmark";

/// `--visualizer`, or a key alone, which older releases take for it.
pub(super) fn track(draft: &mut Draft) {
    let alone = if draft.has("--wandb-api-key") { Some("wandb".to_owned()) } else { None };
    match draft.text("--visualizer").or(alone).as_deref() {
        Some("wandb") => {
            draft.put("report/track/wandb/project", PROJECT);
            draft.account("--visualizer", &["report/track/wandb"]);
            if draft.has("--wandb-api-key") {
                draft.refer("report/track/wandb/api_key", "${WANDB_API_KEY}");
                draft.account("--wandb-api-key", &["report/track/wandb/api_key"]);
                draft.note("--wandb-api-key", "the value is not written down: set WANDB_API_KEY");
            }
        }
        Some(other) => {
            let why = format!("llmscen has no tracker for {other}; `report.track` has MLflow and Weights & Biases");
            draft.note("--visualizer", why);
            draft.note("--wandb-api-key", "--visualizer names another tracker");
        }
        None => {}
    }
}
