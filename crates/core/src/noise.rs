//! How a figure of a baseline varies from run to run.

use serde::Serialize;

/// The figures that are shown of every case; those of its own objectives follow.
pub const USUAL: [&str; 9] =
    ["ttft.p50", "ttft.p95", "ttft.p99", "tpot.p50", "tpot.p95", "e2e.p95", "request_throughput", "output_tps", "error_rate"];

/// One figure of one case. Sizes are shares of the base, or of all requests where the figure is a share itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// Case id.
    pub case: String,
    /// `ttft.p95`, `goodput(ttft < 500ms)`.
    #[serde(rename = "metric")]
    pub figure: String,
    /// Whether it is a share: its sizes are then percentage points.
    pub share: bool,
    /// Runs that have it.
    pub runs: usize,
    /// Its mean over the runs, in the metric's unit: geometric, unless it is a share.
    pub mean: f64,
    /// Standard deviation between the runs.
    pub sd: f64,
    /// The least change that one run more shows beside those runs, in four of five cases.
    #[serde(rename = "least_change_1_run")]
    pub one: Option<f64>,
    /// The same for three runs a side.
    #[serde(rename = "least_change_3_runs")]
    pub three: Option<f64>,
    /// The same for five runs a side.
    #[serde(rename = "least_change_5_runs")]
    pub five: Option<f64>,
    /// Runs a side that show a change of 5 %; None: more than 100.
    #[serde(rename = "runs_for_5_percent")]
    pub needed: Option<usize>,
}
