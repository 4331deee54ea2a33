//! Short names of cases: only what tells them apart.

use llmscen_core::labels::Scalar;
use llmscen_core::plan::STAGE;
use llmscen_core::report::CaseReport;

/// Swept fields that are a load. A chart over load has them on its axis.
const LOADS: [&str; 3] = ["load.concurrency", "load.rate", STAGE];

/// How the cases of a chart are named.
pub struct Names<'a>(Vec<Field<'a>>);

/// A swept field of which not all cases have the same value.
struct Field<'a> {
    path: &'a str,
    /// Each value and its short form.
    values: Vec<(&'a Scalar, String)>,
    /// Whether its values are names, such as those of engines and models.
    text: bool,
}

impl<'a> Names<'a> {
    /// Names of these cases.
    pub fn of(cases: &[&'a CaseReport]) -> Names<'a> {
        let mut paths: Vec<&str> = Vec::new();
        for (path, _) in cases.iter().flat_map(|case| &case.labels.0) {
            if !paths.contains(&path.as_str()) {
                paths.push(path);
            }
        }
        Names(paths.into_iter().filter_map(|path| Field::of(path, cases)).collect())
    }

    /// The same without the fields that are a load.
    pub fn without_load(self) -> Names<'a> {
        self.only(|field| !LOADS.contains(&field.path))
    }

    /// The fields whose values are names, which tell engines apart.
    pub fn engines(self) -> Names<'a> {
        self.only(|field| field.text && !LOADS.contains(&field.path))
    }

    /// All other fields.
    pub fn without_engines(self) -> Names<'a> {
        self.only(|field| !field.text)
    }

    fn only(mut self, wanted: fn(&Field<'a>) -> bool) -> Names<'a> {
        self.0.retain(wanted);
        self
    }

    /// `max_tokens=256, vllm:8000`: for a legend. Empty where the case has none of the fields.
    pub fn legend(&self, case: &CaseReport) -> String {
        self.words(case, |field| last(field.path).to_owned()).join(", ")
    }

    /// `c=96 · seqs=8`: for the title of a small panel.
    pub fn title(&self, case: &CaseReport) -> String {
        let shortened = |field: &Field| {
            let short = short_key(field.path);
            let alone = self.0.iter().filter(|other| short_key(other.path) == short).count() == 1;
            if alone && self.0.len() > 1 { short.to_owned() } else { last(field.path).to_owned() }
        };
        self.words(case, shortened).join(" · ")
    }

    fn words(&self, case: &CaseReport, key: impl Fn(&Field) -> String) -> Vec<String> {
        // A name explains itself; of several it must be said which is which.
        let sole = self.0.iter().filter(|field| field.text).count() == 1;
        let word = |field: &Field| {
            let value = case.labels.get(field.path)?;
            let short = field.values.iter().find(|(own, _)| *own == value).map(|(_, short)| short.as_str())?;
            Some(if field.text && sole { short.to_owned() } else { format!("{}={short}", key(field)) })
        };
        self.0.iter().filter_map(word).collect()
    }
}

impl<'a> Field<'a> {
    fn of(path: &'a str, cases: &[&'a CaseReport]) -> Option<Field<'a>> {
        let mut values: Vec<&Scalar> = Vec::new();
        for value in cases.iter().filter_map(|case| case.labels.get(path)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let missing = cases.iter().any(|case| case.labels.get(path).is_none());
        if values.len() < 2 && !missing {
            return None;
        }
        let whole: Vec<String> = values.iter().map(|value| value.to_string()).collect();
        let text = values.iter().all(|value| matches!(value, Scalar::Text(_)) && value.number().is_none());
        let short = if text { distinct(&whole) } else { whole };
        Some(Field { path, values: values.into_iter().zip(short).collect(), text })
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// The last word of a key: `seqs` for `max_num_seqs`.
fn short_key(path: &str) -> &str {
    match last(path) {
        "concurrency" => "c",
        key => key.rsplit('_').next().unwrap_or_default(),
    }
}

/// Names without the parts that all of them share: of addresses the host and port or the path, of paths and models what differs.
fn distinct(names: &[String]) -> Vec<String> {
    let bare = |name: &String| name.split_once("://").map_or(name.as_str(), |(_, rest)| rest).trim_end_matches('/').to_owned();
    let bare: Vec<String> = names.iter().map(bare).collect();
    let parts: Vec<Vec<&str>> = bare.iter().map(|name| name.split('/').collect()).collect();
    let least = parts.iter().map(Vec::len).min().unwrap_or(0);
    // At least one part of each name stays.
    let shared = |at: fn(&[&str], usize) -> Option<String>, room: usize| {
        (0..room).take_while(|&place| parts.windows(2).all(|pair| at(&pair[0], place) == at(&pair[1], place))).count()
    };
    let head = shared(|own, place| own.get(place).map(|part| (*part).to_owned()), least.saturating_sub(1));
    let from_end = |own: &[&str], place: usize| own.iter().rev().nth(place).map(|part| (*part).to_owned());
    let tail = shared(from_end, least.saturating_sub(1 + head));
    let rest = |own: &Vec<&str>| own[head..own.len() - tail].join("/");
    let short: Vec<String> = parts.iter().map(rest).collect();
    let unique = short.iter().enumerate().all(|(at, own)| !own.is_empty() && !short[..at].contains(own));
    if names.len() > 1 && unique { short } else { names.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::labels::Labels;

    fn case(labels: &[(&str, Scalar)]) -> CaseReport {
        let labels = Labels(labels.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect());
        CaseReport { id: "x".into(), labels, ..CaseReport::default() }
    }

    fn text(value: &str) -> Scalar {
        Scalar::Text(value.into())
    }

    fn short(names: &[&str]) -> Vec<String> {
        distinct(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn an_address_keeps_what_differs() {
        assert_eq!(short(&["http://a:8000/v1", "http://b:8001/v1/"]), ["a:8000", "b:8001"]);
        assert_eq!(short(&["http://a:8000/vllm/v1", "http://a:8000/sglang/v1"]), ["vllm", "sglang"]);
        assert_eq!(short(&["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B"]), ["Qwen2.5-7B", "Qwen2.5-72B"]);
        assert_eq!(short(&["simulator", "http://a:8000/v1"]), ["simulator", "a:8000/v1"]);
        assert_eq!(short(&["http://a", "https://a"]), ["http://a", "https://a"], "never the same name twice");
        assert_eq!(short(&["http://a/v1"]), ["http://a/v1"]);
    }

    #[test]
    fn names_hold_the_fields_that_vary_and_no_others() {
        let own = |users, seqs| {
            case(&[
                ("load.concurrency", Scalar::Int(users)),
                ("target.server.vars.max_num_seqs", Scalar::Int(seqs)),
                ("request.max_tokens", Scalar::Int(128)),
            ])
        };
        let cases = [own(1, 8), own(96, 8), own(96, 16)];
        let names = Names::of(&cases.iter().collect::<Vec<_>>());
        assert_eq!(names.title(&cases[1]), "c=96 · seqs=8");
        assert_eq!(names.legend(&cases[1]), "concurrency=96, max_num_seqs=8");
        assert_eq!(names.without_load().legend(&cases[1]), "max_num_seqs=8");
        let alone = Names::of(&[&cases[0], &cases[1]]);
        assert_eq!(alone.title(&cases[1]), "concurrency=96", "one field needs no abbreviation");
    }

    #[test]
    fn short_keys_are_never_the_same() {
        let own = |a, b| case(&[("request.max_tokens", Scalar::Int(a)), ("dataset.prompt_tokens", Scalar::Int(b))]);
        let cases = [own(1, 2), own(3, 4)];
        assert_eq!(Names::of(&cases.iter().collect::<Vec<_>>()).title(&cases[0]), "max_tokens=1 · prompt_tokens=2");
    }

    #[test]
    fn the_name_of_an_engine_needs_no_key() {
        let own = |url: &str, users| case(&[("target.url", text(url)), ("load.rate", text(users))]);
        let cases = [own("http://a:8000/v1", "8/s"), own("http://a:8001/v1", "16/s")];
        let all: Vec<&CaseReport> = cases.iter().collect();
        assert_eq!(Names::of(&all).title(&cases[1]), "a:8001 · rate=16/s");
        assert_eq!(Names::of(&all).engines().legend(&cases[0]), "a:8000");
        assert_eq!(Names::of(&all[..1]).legend(&cases[0]), "");
    }
}
