//! What is drawn of one case beside its course over time. Whatever is empty is not drawn.

use crate::metric::Metric;
use crate::outcome::FailureKind;
use crate::report::Series;
use std::collections::BTreeMap;

/// The pictures of one case, as numbers. All rows are measured ones; none of them grows with the number of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pictures {
    /// The percentile spectrum of TTFT, ITL, TPOT, NTPOT and E2E: `(share, quantile)`, shares 0..1 ever denser towards 1,
    /// quantiles by nearest rank, the last point the maximum at `1 - 1/n`. Over ok rows.
    pub spectra: BTreeMap<Metric, Series>,
    /// Where the E2E latencies of ok requests lay over time, by when each was due; the first round.
    pub heat: Option<Heat>,
    /// Gaps between tokens by the place of the token in its reply, ascending.
    pub by_token: Vec<Band>,
    /// `(prompt tokens, service TTFT in ms)` of ok requests, at most a few thousand of them, evenly picked.
    pub prefill: Series,
    /// Single requests in the order in which they were due, at most a few hundred, evenly picked.
    pub waterfall: Vec<Bar>,
}

/// A histogram of a latency in each interval of time: the heat map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// Edges of the columns, seconds since the start of the round, ascending; one more than columns.
    pub times: Vec<f64>,
    /// Edges of the rows in milliseconds, ascending, equal steps of their logarithm; one more than rows.
    pub levels: Vec<f64>,
    /// Requests in each cell, column by column: `counts[column][row]`.
    pub counts: Vec<Vec<u32>>,
}

/// Quantiles of what lies in one step of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Band {
    /// From this place on; tokens are counted from 1, so the first gap is that before token 2.
    pub from: f64,
    /// To this place, itself included.
    pub to: f64,
    /// Values in it.
    pub n: u64,
    /// Quantiles in the metric's unit.
    pub p50: f64,
    /// Likewise.
    pub p90: f64,
    /// Likewise.
    pub p99: f64,
}

/// One request in time, seconds since the start of its round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bar {
    /// Its number.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// When it was due.
    pub intended: f64,
    /// When it was sent; None: never.
    pub sent: Option<f64>,
    /// Its first token.
    pub first_token: Option<f64>,
    /// Its end.
    pub end: f64,
    /// How it failed, if so.
    pub failure: Option<FailureKind>,
}
