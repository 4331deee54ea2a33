//! A server's own metrics: its page of Prometheus text, read through the run.

mod common;
mod fetch;
pub mod names;
pub(super) mod text;

pub(super) use fetch::Fetch;

use crate::source::{Source, Told};
use common::common;
use llmscen_core::signal::Signal;
use llmscen_core::target::Tls;
use llmscen_core::telemetry::{Scrape, Teller};
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::shown as address;
use names::FAMILIES;
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};
use text::Page;

/// The longest that a page is waited for, whatever the interval.
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters of a line that a note shows.
const SHOWN: usize = 80;

/// The metrics page of a target.
///
/// Series with a common name are told under it, in the signal's unit. All others, and those of which several became one, are
/// told under their own name with their labels as they were written; so nothing of the page is lost. What is no number is not
/// told. `up` is 1 where the page was read, and 0 where not.
#[derive(Debug)]
pub struct Prometheus {
    scrape: Scrape,
    fetch: Result<Fetch, String>,
    asked: Vec<String>,
    seen: Seen,
}

/// What all pages together had.
#[derive(Debug, Default)]
struct Seen {
    pages: u64,
    families: BTreeSet<usize>,
    told: BTreeSet<Signal>,
    unclear: BTreeSet<&'static str>,
    unread: Option<(String, usize)>,
}

impl Prometheus {
    /// The page of a target with these certificates, whose requests name the models `asked`. Settings that cannot be used show
    /// when it is asked.
    pub fn new(scrape: &Scrape, tls: &Tls, asked: Vec<String>) -> Prometheus {
        let fetch = Fetch::new(&scrape.url, &scrape.headers, tls, patience(scrape.interval));
        let fetch = fetch.map_err(|error| error.to_string());
        Prometheus { scrape: scrape.clone(), fetch, asked, seen: Seen::default() }
    }
}

/// How long a page of that interval is waited for.
pub(super) fn patience(interval: Nanos) -> Duration {
    Duration::from_nanos(interval.0).min(PATIENCE)
}

impl Source for Prometheus {
    fn teller(&self) -> Teller {
        Teller::Prometheus
    }

    fn interval(&self) -> Nanos {
        self.scrape.interval
    }

    fn sample(&mut self, _at: Instant, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), String> {
        let text = self.fetch.as_ref().map_err(String::clone).and_then(|fetch| fetch.page().map_err(|error| error.to_string()));
        let read = text.and_then(|text| {
            let page = series(&text)?;
            tell(Told::plain("up", 1.0));
            self.seen.page(&page, &self.asked, tell);
            Ok(())
        });
        read.map_err(|reason| {
            tell(Told::plain("up", 0.0));
            format!("{}: {reason}", address(&self.scrape.url))
        })
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen).notes(&address(&self.scrape.url))
    }
}

/// The page, if it has any series.
///
/// # Errors
/// What stands there instead.
pub(super) fn series(text: &str) -> Result<Page<'_>, String> {
    let page = Page::read(text);
    if !page.samples.is_empty() {
        return Ok(page);
    }
    Err(match page.unread {
        Some((line, _)) => format!("this is no Prometheus text: `{}`", shown(line)),
        None => "the page is empty".to_owned(),
    })
}

fn shown(line: &str) -> String {
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// Tells everything of a page that has no common name, and that is a number.
pub(super) fn others(page: &Page<'_>, whole: &HashSet<usize>, tell: &mut dyn FnMut(Told<'_>)) {
    for (place, sample) in page.samples.iter().enumerate() {
        if sample.value.is_finite() && !whole.contains(&place) && !page.is_birthday(sample.name) {
            tell(Told { name: sample.name, labels: sample.labels, device: None, value: sample.value });
        }
    }
}

impl Seen {
    /// Tells a page and keeps what was on it.
    fn page(&mut self, page: &Page<'_>, asked: &[String], tell: &mut dyn FnMut(Told<'_>)) {
        let common = common(page, asked, tell);
        others(page, &common.whole, tell);
        self.pages += 1;
        self.families.extend(common.families);
        self.told.extend(common.told);
        self.unclear.extend(common.unclear);
        if let (None, Some((line, count))) = (&self.unread, page.unread) {
            self.unread = Some((shown(line), count));
        }
    }

    fn notes(&self, url: &str) -> Vec<String> {
        if self.pages == 0 {
            return Vec::new();
        }
        let mut notes = missing(&self.families, &self.told);
        if self.families.is_empty() {
            notes.push(format!("{url} has none of the names that are known: its series stand under their own, server.* is null"));
        }
        notes.extend(self.unclear.iter().map(|name| {
            format!("{url} tells `{name}` of several models, and of none that is asked for: it stands under its own name")
        }));
        notes.extend(self.unread.iter().map(|(line, count)| {
            let lines = if *count == 1 { "a line that is" } else { "lines that are" };
            format!("{url} has {lines} no Prometheus text ({count} of them, the first `{line}`): passed over")
        }));
        notes
    }
}

/// What the servers of these [families](FAMILIES) did not tell: by name, where it has one there.
pub fn missing(families: &BTreeSet<usize>, told: &BTreeSet<Signal>) -> Vec<String> {
    let mut notes = Vec::new();
    for family in families.iter().filter_map(|&place| FAMILIES.get(place)) {
        let (mut absent, mut unknown) = (Vec::new(), Vec::new());
        for signal in Signal::ALL.iter().filter(|signal| signal.scope() == "server" && !told.contains(signal)) {
            match family.ways.iter().find(|(own, _)| own == signal) {
                Some((_, how)) => absent.push(format!("`{}` ({signal})", how.names().join("`, `"))),
                None => unknown.push(signal.name()),
            }
        }
        if !absent.is_empty() {
            notes.push(format!("{}'s page has no {}: null", family.name, absent.join(", no ")));
        }
        if !unknown.is_empty() && families.len() == 1 {
            notes.push(format!("{} does not tell {}: null", family.name, unknown.join(", ")));
        }
    }
    notes
}

/// The table of names as Markdown, for the documentation.
pub fn table() -> String {
    let mut table = String::new();
    for family in FAMILIES {
        table += &format!("\n### {}\n\n| signal | series, the best first |\n|---|---|\n", family.name);
        for signal in Signal::ALL {
            let ways = family.ways.iter().filter(|(own, _)| own == signal).map(|(_, how)| how.to_string());
            let ways: Vec<String> = ways.collect();
            if !ways.is_empty() {
                table += &format!("| `{signal}` | {} |\n", ways.join("; "));
            }
        }
    }
    table
}

#[cfg(test)]
mod tests;
