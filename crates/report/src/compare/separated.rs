//! The comparison as values between commas or tabs, for a spreadsheet: plain numbers in the metric's unit.

use crate::compare::labels;
use llmscen_core::compare::{Comparison, Contrast};
use llmscen_core::foreign::cell;

const HEAD: [&str; 24] = [
    "case",
    "metric",
    "unit",
    "better",
    "run",
    "base",
    "base_low",
    "base_high",
    "base_n",
    "value",
    "low",
    "high",
    "n",
    "ratio",
    "ratio_low",
    "ratio_high",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "p_adjusted",
    "effect",
    "magnitude",
    "finding",
];

/// One row a comparison; `delimiter` is a comma or a tab. Values that do not exist are empty.
pub fn separated(comparison: &Comparison, delimiter: u8) -> String {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    let rows = comparison.contrasts.iter().map(|contrast| row(comparison, contrast));
    // Writing into memory does not fail.
    let head = std::iter::once(HEAD.map(str::to_owned));
    head.chain(rows).for_each(|row| drop(writer.write_record(row.iter().map(|text| cell(text).into_owned()))));
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn row(comparison: &Comparison, own: &Contrast) -> [String; 24] {
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let ends = |bounds: Option<(f64, f64)>| [number(bounds.map(|own| own.0)), number(bounds.map(|own| own.1))];
    let ([base_low, base_high], [low, high]) = (ends(own.base.bounds), ends(own.other.bounds));
    let span = |span: Option<llmscen_core::compare::Span>| {
        [number(span.map(|own| own.value)), number(span.map(|own| own.low)), number(span.map(|own| own.high))]
    };
    let ([ratio, ratio_low, ratio_high], [difference, difference_low, difference_high]) = (span(own.ratio), span(own.difference));
    [
        own.case.clone(),
        own.measure.to_string(),
        own.measure.metric.unit().symbol().replace('%', "share"),
        if own.measure.metric.higher_is_better() { "higher" } else { "lower" }.to_owned(),
        labels::label(comparison, own.run).to_owned(),
        number(own.base.value),
        base_low,
        base_high,
        own.base.n.to_string(),
        number(own.other.value),
        low,
        high,
        own.other.n.to_string(),
        ratio,
        ratio_low,
        ratio_high,
        difference,
        difference_low,
        difference_high,
        number(own.p),
        number(own.p_adjusted),
        number(own.effect.map(|effect| effect.value())),
        own.effect.map(|effect| effect.magnitude().name()).unwrap_or_default().to_owned(),
        own.finding.name().to_lowercase(),
    ]
}
