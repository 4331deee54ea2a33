//! The signals: `server.waiting.max`, `gpu.power.mean`.

use super::cursor::Cursor;
use super::{CheckError, stat};
use crate::suggest::{list, near};
use llmscen_core::check::Subject;
use llmscen_core::metric::Stat;
use llmscen_core::signal::{Form, Signal};
use std::ops::Range;

/// Whether a word is what stands before the point in the name of a signal.
pub(super) fn scope(word: &str) -> bool {
    Signal::ALL.iter().any(|signal| signal.scope() == word)
}

/// Reads what follows the scope.
pub(super) fn read(cursor: &mut Cursor<'_>, scope: &str, at: Range<usize>) -> Result<Subject, CheckError> {
    let own = || Signal::ALL.iter().filter(|signal| signal.scope() == scope).map(|signal| signal.name());
    let exist = || format!("Signals of `{scope}` are {}.", list(own(), "and"));
    if !cursor.eat('.') {
        let error = CheckError::new(at, format!("`{scope}` has several signals"), "which of them?");
        return Err(error.help(exist()));
    }
    let (name, name_at) = cursor.word();
    let full = format!("{scope}.{name}");
    let Some(signal) = Signal::parse(&full) else {
        let short = || own().filter_map(|name| name.split_once('.').map(|(_, name)| name));
        let meant = near(name, short()).or_else(|| short().find(|own| !name.is_empty() && own.contains(name)));
        let label = meant.map_or("does not exist".to_owned(), |meant| format!("did you mean `{scope}.{meant}`?"));
        return Err(CheckError::new(cursor.visible(name_at), format!("unknown signal `{full}`"), label).help(exist()));
    };
    if cursor.peek() == Some('{') {
        let start = *cursor;
        cursor.until(&['}']);
        let error = CheckError::new(start.visible(start.here()), format!("`{signal}` has no tags"), "is of the case as a whole");
        return Err(error.help(format!("Write for example `{signal}.{}`.", usual(signal))));
    }
    if !cursor.eat('.') {
        let error = CheckError::new(at.start..name_at.end, format!("`{signal}` has many values"), "needs a statistic");
        return Err(error.help(format!("Write for example `{signal}.{}`. {}", usual(signal), stats(signal))));
    }
    let (word, stat_at) = cursor.stat();
    match Stat::parse(word) {
        Some(stat) if known(signal, stat) => Ok(Subject::Signal { signal, stat }),
        Some(stat) => {
            let error = CheckError::new(stat_at, format!("`{signal}` has no `{stat}`"), "a histogram does not know it");
            Err(error.help(stats(signal)))
        }
        None => Err(stat::unknown(cursor, word, stat_at)),
    }
}

/// Whether a signal of its form has a statistic: a histogram knows how many values fell between two bounds, and their sum.
fn known(signal: Signal, stat: Stat) -> bool {
    signal.form() != Form::Histogram || matches!(stat, Stat::Quantile(_) | Stat::Mean | Stat::Count)
}

fn usual(signal: Signal) -> &'static str {
    if signal.form() == Form::Histogram { "p95" } else { "max" }
}

fn stats(signal: Signal) -> String {
    let others = if signal.form() == Form::Histogram { "`mean` and `count`" } else { "`mean`, `min`, `max`, `count` and `sd`" };
    format!("Its statistics are `p0` to `p100`, {others}.")
}

/// A multiple of another run's figure, on the right of a signal; it begins where the cursor is.
pub(super) fn no_multiple(cursor: &Cursor<'_>, signal: Signal) -> CheckError {
    let at = cursor.rest().unwrap_or_else(|| cursor.visible(cursor.here()));
    let error = CheckError::new(at, "a signal has no relative limit", format!("`{signal}` is compared as a point"));
    error.help("Its samples follow each other, so no test tells two runs apart by them: write a number.")
}

#[cfg(test)]
mod tests {
    use super::super::{parse, parse_subject, parse_value};
    use super::*;

    #[test]
    fn signals_are_read_in_their_units() {
        for (text, name, stat, limit) in [
            ("server.kv_cache_usage.max < 95%", "server.kv_cache_usage", Stat::Max, 0.95),
            ("gpu.power.mean < 300 W", "gpu.power", Stat::Mean, 300.0),
            ("process.memory.max < 8 GiB", "process.memory", Stat::Max, 8.0 * 1024.0 * 1024.0 * 1024.0),
            ("server.ttft.p95 < 500ms", "server.ttft", Stat::Quantile(0.95), 500.0),
            ("server.ttft.p95 < 0.5s", "server.ttft", Stat::Quantile(0.95), 500.0),
            ("server.waiting.p99 < 10", "server.waiting", Stat::Quantile(0.99), 10.0),
            ("gpu.temperature.max < 85C", "gpu.temperature", Stat::Max, 85.0),
            ("gpu.temperature.max < 85 °C", "gpu.temperature", Stat::Max, 85.0),
            ("host.net_in.mean < 1 GB/s", "host.net_in", Stat::Mean, 1e9),
            ("gpu.clock.min > 1000 MHz", "gpu.clock", Stat::Min, 1000.0),
            ("server.preemptions.max == 0 /s", "server.preemptions", Stat::Max, 0.0),
            ("server.ttft.count >= 100", "server.ttft", Stat::Count, 100.0),
        ] {
            let found = parse(text).unwrap();
            let wanted = Subject::Signal { signal: Signal::parse(name).unwrap(), stat };
            assert_eq!((found.subject, found.limit), (wanted, limit), "{text}");
        }
        let own = parse_subject("server.waiting.max").unwrap();
        assert_eq!((own.to_string().as_str(), parse_value("12", &own)), ("server.waiting.max", Ok(12.0)));
    }

    #[test]
    fn every_mistake_is_pointed_at() {
        for (text, underlined, message, label) in [
            ("server.wating.max < 9", "wating", "unknown signal `server.wating`", "did you mean `server.waiting`?"),
            ("server.cache.max < 9%", "cache", "unknown signal `server.cache`", "did you mean `server.kv_cache_usage`?"),
            ("gpu.fan.max < 9", "fan", "unknown signal `gpu.fan`", "does not exist"),
            ("server < 9", "server", "`server` has several signals", "which of them?"),
            ("gpu.power < 300W", "gpu.power", "`gpu.power` has many values", "needs a statistic"),
            ("gpu.power.avg < 300W", "avg", "unknown statistic `avg`", "did you mean `mean`?"),
            ("gpu.power{gpu=1}.max < 9W", "{", "`gpu.power` has no tags", "is of the case as a whole"),
            ("server.ttft.max < 9ms", "max", "`server.ttft` has no `max`", "a histogram does not know it"),
            ("gpu.power.max < 9kg", "kg", "`kg` is not a unit for `gpu.power`", "expected `W`"),
            (
                "gpu.power.max < 1.1 * baseline",
                "1.1 * baseline",
                "a signal has no relative limit",
                "`gpu.power` is compared as a point",
            ),
            ("gpu.power.max < baseline", "baseline", "a signal has no relative limit", "`gpu.power` is compared as a point"),
            ("server.", ".", "unknown signal `server.`", "does not exist"),
        ] {
            let error = parse(text).unwrap_err();
            let told = (&text[error.range.clone()], error.message.as_str(), error.label.as_str());
            assert_eq!(told, (underlined, message, label), "{text}");
        }
        let help = parse("gpu.fan.max < 9").unwrap_err().help.unwrap();
        assert!(help.starts_with("Signals of `gpu` are `gpu.utilization`, ") && help.contains("`gpu.throttled`"), "{help}");
    }
}
