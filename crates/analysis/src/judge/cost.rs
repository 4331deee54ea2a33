//! Limits on costs. A cost is a constant divided by a throughput, so a ceiling of the cost is a floor of the
//! throughput.

use crate::judge::assessment::Assessment;
use crate::sample::Sample;
use llmscen_core::baseline::Figure;
use llmscen_core::check::relative::{ReferenceValue, Relative};
use llmscen_core::check::{Check, Subject};

/// A limit on a cost as a limit on its throughput.
pub(super) struct CostLimit {
    /// The limit on the throughput.
    pub check: Check,
    /// Cost × throughput.
    product: f64,
}

impl CostLimit {
    /// None for other metrics, and without a cost.
    pub fn of(check: &Check, sample: &Sample) -> Option<CostLimit> {
        let Subject::Metric { metric, tags, .. } = &check.subject else {
            return None;
        };
        let (throughput, _) = metric.cost_basis().filter(|_| tags.is_empty())?;
        let product = sample.scalars.get(metric)? * sample.scalars.get(&throughput)?;
        let relative = check.relative.as_ref().map(|relative| Relative {
            factor: 1.0 / relative.factor,
            known: relative.known.map(|known| invert(known, product)),
            ..relative.clone()
        });
        let check = Check {
            subject: Subject::Metric {
                metric: throughput,
                stat: None,
                tags: Vec::new(),
            },
            op: check.op.reciprocal(),
            limit: product / check.limit,
            relative,
            ..check.clone()
        };
        Some(CostLimit { check, product })
    }

    /// The assessment of the throughput as that of the cost.
    pub fn to_cost(&self, throughput: Assessment) -> Assessment {
        let cost = |rate: f64| self.product / rate;
        Assessment {
            observed: throughput.observed.map(cost),
            bound: throughput.bound.map(cost).filter(|bound| bound.is_finite()),
            ..throughput
        }
    }

    /// The figure of the throughput as that of the cost.
    pub fn to_cost_figure(&self, throughput: Figure) -> Figure {
        let cost = |rate: &Option<f64>| {
            rate.filter(|rate| *rate > 0.0)
                .map(|rate| self.product / rate)
        };
        Figure {
            value: self.product / throughput.value,
            low: throughput.high.iter().map(cost).collect(),
            high: throughput.low.iter().map(cost).collect(),
            ..throughput
        }
    }
}

/// A cost as the throughput that has it.
fn invert(cost: ReferenceValue, product: f64) -> ReferenceValue {
    let rate = |cost: f64| product / cost;
    ReferenceValue {
        value: rate(cost.value),
        low: cost.high.map(rate),
        high: cost.low.map(rate),
        ..cost
    }
}

#[cfg(test)]
mod tests;
