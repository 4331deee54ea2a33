//! A page of Prometheus text, parsed line by line.
//!
//! The text formats of Prometheus and OpenMetrics are read. Any other line is skipped. Timestamps and exemplars are
//! ignored, because the time of a value is the time of the request.

use std::borrow::Cow;
use std::collections::HashMap;

/// The type in a `# TYPE` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Histogram,
    Summary,
    Other,
}

/// One value of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// With `_total` or `_bucket`.
    pub name: &'a str,
    /// The text between the braces.
    pub labels: &'a str,
    /// May be infinite or NaN.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        pairs(self.labels)
            .find(|(label, _)| *label == name)
            .map(|(_, value)| value)
    }
}

/// A parsed page.
#[derive(Debug, Default)]
pub struct Page<'a> {
    /// In the order of the page.
    pub samples: Vec<Sample<'a>>,
    /// The first invalid line, and the number of invalid lines.
    pub invalid: Option<(&'a str, usize)>,
    kinds: HashMap<&'a str, Kind>,
    /// Indices of the samples by name.
    indices: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Page<'a> {
    /// Parses a page. A last line without a line feed is invalid, because it may be incomplete.
    pub fn parse(text: &'a str) -> Page<'a> {
        let mut page = Page::default();
        let mut rest = text;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest.as_bytes());
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            let line = line.trim_matches([' ', '\t', '\r']);
            rest = after.get(1..).unwrap_or_default();
            match line.strip_prefix('#') {
                Some(comment) if comment.trim() == "EOF" => break,
                Some(comment) => page.parse_comment(comment),
                None if line.is_empty() => {}
                None => match parse_sample(line).filter(|_| end.is_some()) {
                    Some(sample) => page.add(sample),
                    None => {
                        page.invalid = Some(
                            page.invalid
                                .map_or((line, 1), |(first, count)| (first, count + 1)),
                        )
                    }
                },
            }
        }
        page
    }

    /// Indices of the samples with this name.
    pub fn indices(&self, name: &str) -> &[usize] {
        self.indices.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether any name begins with `prefix`.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.indices.keys().any(|name| name.starts_with(prefix))
    }

    /// Whether the series is the creation time of another one (OpenMetrics `_created`).
    pub fn is_creation_time(&self, name: &str) -> bool {
        let counted = |base: &str| {
            matches!(
                self.kinds.get(base),
                Some(Kind::Counter | Kind::Histogram | Kind::Summary)
            )
        };
        name.strip_suffix("_created")
            .is_some_and(|base| counted(base) || counted(&format!("{base}_total")))
    }

    fn parse_comment(&mut self, comment: &'a str) {
        let mut words = comment.split_ascii_whitespace();
        if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next()) {
            let kind = match kind {
                "counter" => Kind::Counter,
                "histogram" => Kind::Histogram,
                "summary" => Kind::Summary,
                _ => Kind::Other,
            };
            self.kinds.insert(name, kind);
        }
    }

    fn add(&mut self, sample: Sample<'a>) {
        self.indices
            .entry(sample.name)
            .or_default()
            .push(self.samples.len());
        self.samples.push(sample);
    }
}

/// Parses `name{label="value",…} value [timestamp] [# exemplar]`; the name may be quoted inside the braces.
fn parse_sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find([' ', '\t', '{'])?;
    let (mut name, rest) = line.split_at(end);
    let rest = rest.trim_start_matches([' ', '\t']);
    let (mut labels, values) = match rest.strip_prefix('{') {
        Some(inner) => {
            let close = find_closing_brace(inner)?;
            (inner.get(..close)?.trim(), inner.get(close + 1..)?)
        }
        None => ("", rest),
    };
    if name.is_empty() {
        let quoted = labels.strip_prefix('"')?;
        let end = quoted.find('"')?;
        name = quoted.get(..end)?;
        labels = quoted.get(end + 1..)?.trim_start_matches([' ', '\t', ',']);
    }
    let invalid = |c: char| matches!(c, '=' | '"' | ',' | '}' | '#' | '\\');
    if name.is_empty()
        || name.contains(invalid)
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !labels_are_valid(labels)
    {
        return None;
    }
    let mut words = values.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    let after = words.next();
    let timestamp_valid = after.is_none_or(|word| {
        word.starts_with('#') || word.parse::<f64>().is_ok_and(|at| at.is_finite())
    });
    let exemplar_valid = after.is_some_and(|word| word.starts_with('#'))
        || words.next().is_none_or(|word| word.starts_with('#'));
    (timestamp_valid && exemplar_valid).then_some(Sample {
        name,
        labels,
        value,
    })
}

/// The offset of the closing brace outside quotes.
fn find_closing_brace(text: &str) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'}' && !quoted;
        quoted ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped && quoted;
        closes
    })
}

fn labels_are_valid(labels: &str) -> bool {
    let mut rest = labels;
    while !rest.is_empty() {
        match parse_pair(rest) {
            Some((_, _, after)) => rest = after,
            None => return false,
        }
    }
    true
}

/// The names and unescaped values of the labels between the braces.
pub fn pairs(labels: &str) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    raw_pairs(labels).map(|(name, value)| (name, unescape(value)))
}

/// The names and escaped values of the labels between the braces.
pub fn raw_pairs(labels: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = labels;
    std::iter::from_fn(move || {
        let (name, value, after) = parse_pair(rest)?;
        rest = after;
        Some((name, value))
    })
}

/// The first label, its escaped value, and the text after its comma.
fn parse_pair(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let name = name.trim().trim_matches('"');
    let value = rest.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = value.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    let after = value.get(end + 1..)?.trim_start();
    let next = match after.strip_prefix(',') {
        Some(next) => next.trim_start(),
        None if after.is_empty() => after,
        None => return None,
    };
    (!name.is_empty() && !name.contains([',', '"', '{', '}'])).then_some((
        name,
        value.get(..end)?,
        next,
    ))
}

fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        text.push(match chars.next() {
            Some('n') => '\n',
            Some(other) => other,
            None => '\\',
        });
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Vec<(&str, &str, f64)> {
        Page::parse(text)
            .samples
            .iter()
            .map(|sample| (sample.name, sample.labels, sample.value))
            .collect()
    }

    #[test]
    fn series_are_read_with_and_without_labels_stamps_and_exemplars() {
        let text = "# HELP vllm:x Text { with \"all\" kinds of things}\n# TYPE vllm:x gauge\n\
            vllm:x{engine=\"0\",model_name=\"a,b={c}\"} 2\n\
            bare 12.5\n  indented\t3\r\n\n\
            stamped{} +Inf -3982045\n\
            om_total{le=\"0.5\",} 17 1520879607.789 # {trace_id=\"a} b\"} 0.43 1520879607\n\
            om_bucket{le=\"1\"} 5 # {} 0.67\n\
            nan NaN\n-inf -Inf\nbig 1.7560473e+07\n\
            {\"dotted.name\", zone=\"eu\"} 4\n\
            spaced { a = \"1\" , b=\"2\" }  6\n\
            # UNIT om seconds\n# EOF\nafter_the_end 1\n";
        let read = values(text);
        assert!(read[6].2.is_nan());
        let rest: Vec<_> = read
            .into_iter()
            .filter(|(name, ..)| *name != "nan")
            .collect();
        assert_eq!(
            rest,
            [
                ("vllm:x", "engine=\"0\",model_name=\"a,b={c}\"", 2.0),
                ("bare", "", 12.5),
                ("indented", "", 3.0),
                ("stamped", "", f64::INFINITY),
                ("om_total", "le=\"0.5\",", 17.0),
                ("om_bucket", "le=\"1\"", 5.0),
                ("-inf", "", f64::NEG_INFINITY),
                ("big", "", 17_560_473.0),
                ("dotted.name", "zone=\"eu\"", 4.0),
                ("spaced", "a = \"1\" , b=\"2\"", 6.0),
            ]
        );
    }

    #[test]
    fn an_invalid_line_is_skipped() {
        let text = "good 1\nbad\nbad x\nbad 1 x\nbad 1 2 3\nbad{a=\"1} 1\nbad{a=1} 1\nbad{a=\"1\" \
            b=\"2\"} 1\nbad=2 1\n1bad 1\n{\"a\":1}\n<html>\nbad{=\"1\"} \
            1\nalso_good{a=\"\\\"}\\\\\"} 2\n";
        let page = Page::parse(text);
        assert_eq!(
            values(text),
            [("good", "", 1.0), ("also_good", "a=\"\\\"}\\\\\"", 2.0)]
        );
        assert_eq!(page.invalid, Some(("bad", 12)));
        assert_eq!(page.samples[1].label("a").as_deref(), Some("\"}\\"));
    }

    #[test]
    fn a_last_line_without_line_feed_is_invalid() {
        assert_eq!(values("a 1\nb 12"), [("a", "", 1.0)]);
        assert_eq!(Page::parse("a 1\nb 12").invalid, Some(("b 12", 1)));
        assert_eq!(Page::parse("a 1\n# EOF").invalid, None);
    }

    #[test]
    fn creation_times_are_recognized_by_the_types() {
        let text = "# TYPE a counter\n# TYPE b_total counter\n# TYPE c histogram\n# TYPE d \
        gauge\n# TYPE b_created gauge\n";
        let page = Page::parse(text);
        let names = [
            "a_created",
            "b_created",
            "c_created",
            "d_created",
            "e_created",
            "a",
        ];
        assert_eq!(
            names.map(|name| page.is_creation_time(name)),
            [true, true, true, false, false, false]
        );
    }

    fn escaped(value: &str) -> String {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    }

    proptest! {
        #[test]
        fn a_written_page_is_parsed(
            series in prop::collection::vec(
                ("[a-zA-Z_:][a-zA-Z0-9_:]{0,9}", prop::collection::vec(("[a-z_][a-z0-9_]{0,5}",
                    ".{0,8}|[\"\\\\,{}= \n#]{0,6}"), 0..4),
                 any::<f64>().prop_filter("a number", |value| !value.is_nan()), any::<Option<i64>>()),
                0..12,
            )
        ) {
            let mut text = String::new();
            for (name, labels, value, stamp) in &series {
                let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"",
                    escaped(value))).collect();
                let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
                let stamp = stamp.map_or(String::new(), |stamp| format!(" {stamp}"));
                text += &format!("{name}{labels} {value}{stamp}\n");
            }
            let page = Page::parse(&text);
            prop_assert_eq!(page.invalid, None);
            prop_assert_eq!(page.samples.len(), series.len());
            for (sample, (name, labels, value, _)) in page.samples.iter().zip(&series) {
                prop_assert_eq!((sample.name, sample.value), (name.as_str(), *value));
                let read: Vec<_> = pairs(sample.labels).map(|(name, value)| (name.to_owned(),
                    value.into_owned())).collect();
                prop_assert_eq!(&read, labels);
            }
        }

        #[test]
        fn any_text_is_accepted(text in "(.|\n){0,200}|[a-z{}\"=,# \n0-9\\\\]{0,200}") {
            let page = Page::parse(&text);
            for sample in &page.samples {
                prop_assert!(text.contains(sample.labels) && text.contains(sample.name));
                prop_assert!(pairs(sample.labels).count() <= sample.labels.len());
            }
        }
    }
}
