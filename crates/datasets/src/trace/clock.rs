//! Timestamps of logs, in nanoseconds.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A decimal number in units of 10^-`digits`, every digit of it kept: `1700000000.25` seconds (9) or `12.5` milliseconds
/// (6) as nanoseconds. Digits beyond nanoseconds are cut.
pub fn decimal(text: &str, digits: usize) -> Option<i128> {
    let text = text.trim();
    let scale = 10i128.pow(u32::try_from(digits).ok()?);
    if text.contains(['e', 'E']) {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && number.abs() < 1e18)?;
        return Some((number * scale as f64).round() as i128);
    }
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(rest) {
        return None;
    }
    let whole = i128::from(whole.parse::<u64>().ok()?);
    let rest: String = rest.chars().chain(std::iter::repeat('0')).take(digits).collect();
    let value = whole * scale + if digits == 0 { 0 } else { rest.parse::<i128>().ok()? };
    Some(if negative { -value } else { value })
}

/// A date with a time of day, RFC 3339 or with a blank for its `T`, since the Unix epoch; UTC where it names no offset.
pub fn date(text: &str) -> Option<i128> {
    let (day, time) = text.trim().split_once([' ', 'T', 't'])?;
    let zone = if time.contains(['Z', 'z', '+', '-']) { "" } else { "Z" };
    OffsetDateTime::parse(&format!("{day}T{time}{zone}"), &Rfc3339).ok().map(OffsetDateTime::unix_timestamp_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_every_digit() {
        assert_eq!(decimal("1700000000.123456789", 9), Some(1_700_000_000_123_456_789));
        assert_eq!(decimal("27482", 6), Some(27_482_000_000));
        assert_eq!(decimal(" 1.5 ", 6), Some(1_500_000));
        assert_eq!((decimal("-1.5", 9), decimal("1.7e9", 9)), (Some(-1_500_000_000), Some(1_700_000_000_000_000_000)));
        assert_eq!(["", ".", "1,5", "x", "1.2.3", "inf", "1e999", "NaN"].map(|text| decimal(text, 9)), [None; 8]);
    }

    #[test]
    fn dates_of_every_log_are_read() {
        let known = Some(1_700_158_546_680_590_000);
        assert_eq!(date("2023-11-16 18:15:46.6805900"), known);
        assert_eq!(date("2023-11-16T18:15:46.68059Z"), known);
        assert_eq!(date("2023-11-16 20:15:46.680590+02:00"), known);
        assert_eq!(["2023-11-16", "18:15:46", "2023-13-01 00:00:00", ""].map(date), [None; 4]);
    }
}
