//! Formats numbers with their units, and escapes text for terminals and Markdown.

use llmscen_core::check::{Check, RequestSet};
use llmscen_core::escape::escape_controls;
use llmscen_core::metric::Metric;
use llmscen_core::units::Unit;

/// The text of a missing value.
pub const ABSENT: &str = "n/a";

/// A value closer to zero than this is a rounding error.
const ROUNDING_ERROR: f64 = 1e-9;

/// Three significant digits below 1000, whole numbers above; trailing zeros are kept, since they are significant.
pub fn number(value: f64) -> String {
    digits(value, 3)
}

/// A number rounded to `significant` digits; digits before the point are never cut.
fn digits(value: f64, significant: i32) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    if value.abs() < ROUNDING_ERROR {
        return "0".to_owned();
    }
    let places = (significant - 1 - magnitude(value, significant)).clamp(0, 12) as usize;
    let text = format!("{value:.places$}");
    let is_whole = text
        .parse::<f64>()
        .is_ok_and(|rounded| rounded == value && value.fract() == 0.0);
    if is_whole {
        format!("{value:.0}")
    } else {
        text
    }
}

/// The decimal exponent after rounding, so that 999.6 counts as 1000.
fn magnitude(value: f64, significant: i32) -> i32 {
    let raw = value.abs().log10().floor() as i32;
    let step = 10f64.powi(raw - significant + 1);
    ((value.abs() / step).round() * step * (1.0 + 1e-12))
        .log10()
        .floor() as i32
}

/// A duration given in milliseconds, in µs, ms or s by its size: `87.3 µs`, `87.3 ms`, `1.24 s`.
pub fn millis(value: f64) -> String {
    duration(value, 3)
}

fn duration(value: f64, significant: i32) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    let exponent = if value.abs() < ROUNDING_ERROR {
        0
    } else {
        magnitude(value, significant)
    };
    match exponent {
        3.. => format!("{} s", digits(value / 1e3, significant)),
        0..3 => format!("{} ms", digits(value, significant)),
        _ => format!("{} µs", digits(value * 1e3, significant)),
    }
}

/// A number, with a `k` from 10 000 on: `12.4k`.
pub fn thousands(value: f64) -> String {
    compact(value, 3)
}

fn compact(value: f64, significant: i32) -> String {
    if value.is_finite() && value.abs() >= 9999.5 {
        return format!("{}k", digits(value / 1e3, significant));
    }
    digits(value, significant)
}

/// A share as percent: `0.5%`.
pub fn percent(share: f64) -> String {
    format_unit(share, Unit::Share, 3)
}

/// A value in its unit.
pub fn value(value: f64, unit: Unit) -> String {
    format_unit(value, unit, 3)
}

/// A value that may be missing, in its unit.
pub fn optional(number: Option<f64>, unit: Unit) -> String {
    number.map_or_else(|| ABSENT.to_owned(), |number| value(number, unit))
}

fn format_unit(value: f64, unit: Unit, significant: i32) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    match unit {
        Unit::Millis => duration(value, significant),
        Unit::Seconds => duration(value * 1e3, significant),
        Unit::Share => format!(
            "{}%",
            trim_trailing_zeros(&digits(round_off(value * 100.0), significant))
        ),
        Unit::TokensPerSecond
        | Unit::RequestsPerSecond
        | Unit::ItemsPerSecond
        | Unit::SessionsPerSecond
        | Unit::SessionsPerHour => {
            format!("{} {}", compact(value, significant), unit.symbol())
        }
        Unit::Tokens | Unit::Watts | Unit::Joules | Unit::Megahertz | Unit::Celsius => {
            format!("{} {}", digits(value, significant), unit.symbol())
        }
        Unit::PerSecond => format!("{}{}", compact(value, significant), unit.symbol()),
        Unit::Bytes => bytes_in(value, significant),
        Unit::BytesPerSecond => format!("{}/s", bytes_in(value, significant)),
        Unit::Count | Unit::Cost => digits(value, significant),
    }
}

/// Removes the rounding error of a multiplication by 100: 0.07 becomes 7, not 7.000000000000001.
fn round_off(value: f64) -> f64 {
    (value * 1e10).round() / 1e10
}

fn trim_trailing_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A value with as many digits as it needs to differ from `limit`.
pub fn against(observed: Option<f64>, limit: f64, unit: Unit) -> String {
    let Some(observed) = observed else {
        return ABSENT.to_owned();
    };
    if observed.is_infinite() {
        return if observed > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    let shown = |value, significant| format_unit(value, unit, significant);
    let differs = |significant: &i32| {
        leading_number(&shown(observed, *significant))
            != leading_number(&shown(limit, *significant))
    };
    let significant = if observed == limit {
        3
    } else {
        (3..=15).find(differs).unwrap_or(15)
    };
    shown(observed, significant)
}

/// The number at the beginning of a text and the rest of it, so that `500.0 ms` and `500 ms` count as equal.
fn leading_number(text: &str) -> (Option<f64>, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-'))
        .unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

/// A count with its noun in the right number: `1 case`, `2 cases`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Bytes in a binary unit: `3.50 MiB`.
pub fn bytes(value: f64) -> String {
    bytes_in(value, 3)
}

fn bytes_in(value: f64, significant: i32) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = units
        .iter()
        .enumerate()
        .rev()
        .find(|(power, _)| value >= 1024f64.powi(*power as i32))
        .unwrap_or((0, &"B"));
    format!(
        "{} {}",
        digits(value / 1024f64.powi(step.0 as i32), significant),
        step.1
    )
}

/// The check as the scenario wrote it; `of scheduled` is added where failed requests count too, and `(default)` where
/// the scenario did not write it.
pub fn check_title(check: &Check) -> String {
    let suffix = match check.of {
        RequestSet::Ok if check.is_default => " (default)",
        RequestSet::Ok => "",
        RequestSet::Scheduled => " of scheduled",
    };
    format!("{}{suffix}", check.expr)
}

/// Whether the metric is computed from the number of output tokens.
pub fn depends_on_output_tokens(metric: Metric) -> bool {
    use Metric::*;
    matches!(
        metric,
        TokensPerEvent
            | Tpot
            | Ntpot
            | OutputTokens
            | DecodeTps
            | OutputTpsPerRequest
            | TotalTpsPerRequest
            | OutputTps
            | TotalTps
            | OutputTpsPerUser
            | OutputTpsPerGpu
            | TotalTpsPerGpu
            | OutputTpsSteady
            | OutputTpsWithDrain
            | TotalTpsWithDrain
            | CostPerMillionOutputTokens
            | CostPerMillionTokens
            | EnergyPerToken
            | Mfu
            | Mbu
    )
}

/// One line without control and bidirectional characters: text of a server must not move the cursor, break a table or
/// reorder text.
pub fn plain(text: &str) -> String {
    let visible = |c: char| {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}') {
            ' '
        } else {
            c
        }
    };
    let line = text
        .chars()
        .map(visible)
        .collect::<String>()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    escape_controls(&line, false).into_owned()
}

/// At most `max` characters of a text; the last one is `…` where the text was cut.
pub fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars()
        .take(max.saturating_sub(1))
        .chain(std::iter::once('…'))
        .collect()
}

/// A code span that is safe in a table cell: one line, a fence longer than any run of backticks in it, pipes escaped.
/// Empty for empty text, because Markdown has no empty code span.
pub fn code(text: &str) -> String {
    let text = plain(text);
    if text.is_empty() {
        return text;
    }
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') {
        " "
    } else {
        ""
    };
    format!("{fence}{pad}{}{pad}{fence}", text.replace('|', "\\|"))
}

fn longest_run(text: &str, repeated: char) -> usize {
    text.split(|c| c != repeated)
        .map(str::len)
        .max()
        .unwrap_or(0)
}

/// Text as Markdown in which only closed code spans are markup.
pub fn prose(text: &str) -> String {
    let text = plain(text);
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escape_markdown(&text);
    }
    let render = |(index, part): (usize, &&str)| {
        if index % 2 == 1 {
            code(part)
        } else {
            escape_markdown(part)
        }
    };
    parts.iter().enumerate().map(render).collect()
}

fn escape_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    for (index, &c) in chars.iter().enumerate() {
        let inside_word = |at: Option<usize>| {
            at.and_then(|at| chars.get(at))
                .is_some_and(|c| c.is_alphanumeric())
        };
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '_' if inside_word(index.checked_sub(1)) && inside_word(Some(index + 1)) => out.push(c),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '$' | '~' | '#' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// The text with a capital first letter.
pub(crate) fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

/// The longest folder in a legend, in characters.
const MAX_FOLDER: usize = 36;

/// The last two parts of a path, cut at their beginning to fit into a legend.
pub fn short_folder(folder: &str) -> String {
    let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let last = parts
        .get(parts.len().saturating_sub(2)..)
        .unwrap_or_default()
        .join("/");
    let long = last.chars().count().saturating_sub(MAX_FOLDER);
    if long > 0 {
        format!("…{}", last.chars().skip(long + 1).collect::<String>())
    } else {
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let table = [
            (0.0, "0"),
            (5.6e-17, "0"),
            (0.001234, "0.00123"),
            (0.5, "0.500"),
            (1.0, "1"),
            (8.734, "8.73"),
            (87.34, "87.3"),
            (999.4, "999"),
            (999.6, "1000"),
            (12345.6, "12346"),
            (-2.34567, "-2.35"),
            (f64::NAN, "n/a"),
            (f64::INFINITY, "n/a"),
        ];
        for (value, text) in table {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn units_follow_the_size() {
        let table = [
            (0.0, "0 ms"),
            (0.0873, "87.3 µs"),
            (0.9996, "1.00 ms"),
            (87.34, "87.3 ms"),
            (999.6, "1.00 s"),
            (1240.0, "1.24 s"),
        ];
        for (value, text) in table {
            assert_eq!(millis(value), text, "{value}");
        }
        assert_eq!(value(12_400.0, Unit::TokensPerSecond), "12.4k tok/s");
        assert_eq!(value(9_876.0, Unit::TokensPerSecond), "9876 tok/s");
        assert_eq!(value(1.5, Unit::Seconds), "1.50 s");
        assert_eq!(value(12.0, Unit::RequestsPerSecond), "12 req/s");
        assert_eq!(optional(None, Unit::Millis), "n/a");
        assert_eq!(
            (bytes(512.0), bytes(3.5 * 1024.0 * 1024.0)),
            ("512 B".to_owned(), "3.50 MiB".to_owned())
        );
    }

    #[test]
    fn a_share_is_written_in_percent() {
        let texts = [0.0, 0.07, 0.005, 0.9949, 1.0].map(percent);
        assert_eq!(texts, ["0%", "7%", "0.5%", "99.5%", "100%"]);
    }

    #[test]
    fn a_value_beyond_its_limit_never_looks_equal_to_it() {
        assert_eq!(against(Some(500.4), 500.0, Unit::Millis), "500.4 ms");
        assert_eq!(against(Some(500.0004), 500.0, Unit::Millis), "500.0004 ms");
        assert_eq!(against(Some(500.0), 500.0, Unit::Millis), "500 ms");
        assert_eq!(against(Some(0.98997), 0.99, Unit::Share), "98.997%");
        assert_eq!(
            against(Some(20_000.000001), 20_000.0, Unit::Millis),
            "20.000000001 s"
        );
        assert_eq!(against(Some(f64::INFINITY), 500.0, Unit::Millis), "∞");
        assert_eq!(against(None, 500.0, Unit::Millis), "n/a");
    }

    #[test]
    fn hostile_text_becomes_one_visible_line() {
        assert_eq!(plain("a\r\nb\t\u{1b}[31mc\u{0}\u{2028}d "), "a b [31mc d");
        assert_eq!(plain("a\u{202e}b\u{200f}"), r"a\u{202e}b\u{200f}");
        assert_eq!(
            (shorten("abcdef", 4), shorten("abcd", 4)),
            ("abc…".to_owned(), "abcd".to_owned())
        );
    }

    #[test]
    fn a_code_span_escapes_any_text() {
        let table = [
            ("plain", "`plain`"),
            ("a|b", "`a\\|b`"),
            ("a `b` c", "``a `b` c``"),
            ("``x", "``` ``x ```"),
            ("a\n| b |", "`a \\| b \\|`"),
            ("<img src=x>", "`<img src=x>`"),
            ("", ""),
            ("\u{0}\u{1b}", ""),
        ];
        for (text, span) in table {
            assert_eq!(code(text), span, "{text:?}");
        }
    }

    #[test]
    fn prose_keeps_words_and_closed_code_and_loses_markup() {
        let table = [
            ("output_tps of _x_", "output_tps of \\_x\\_"),
            ("needs `target.gpus`.", "needs `target.gpus`."),
            ("an open ` tick", "an open \\` tick"),
            (
                "<b> & *c* | $d$ [e](f)",
                "&lt;b> &amp; \\*c\\* \\| \\$d\\$ \\[e\\](f)",
            ),
            ("line\nbreak", "line break"),
        ];
        for (text, safe) in table {
            assert_eq!(prose(text), safe, "{text:?}");
        }
    }
}
