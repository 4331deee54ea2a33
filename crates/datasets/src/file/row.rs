//! One row by column.

use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

/// A row, and the names of its columns where the scenario gives them.
pub struct Row<'a> {
    fields: Map<String, Value>,
    columns: &'a BTreeMap<String, String>,
    /// The table knows texts only: what looks like a number may be meant as a text.
    loose: bool,
}

impl<'a> Row<'a> {
    /// A row of JSON, Parquet or plain text.
    pub fn new(fields: Map<String, Value>, columns: &'a BTreeMap<String, String>) -> Row<'a> {
        Row { fields, columns, loose: false }
    }

    /// A record of CSV. A cell that is written as JSON would write a number is one.
    pub fn of_record<'c>(
        header: &[String],
        cells: impl Iterator<Item = &'c str>,
        columns: &'a BTreeMap<String, String>,
    ) -> Row<'a> {
        let cell = |cell: &str| {
            let number = serde_json::from_str::<Number>(cell).ok().filter(|number| number.to_string() == cell);
            number.map_or_else(|| cell.into(), Value::Number)
        };
        Row { fields: header.iter().cloned().zip(cells.map(cell)).collect(), columns, loose: true }
    }

    /// The first of these fields that is there and not null, and its name in the file. The scenario may name the column of
    /// any of them; then nothing else is looked at.
    pub fn get(&self, names: &[&str]) -> Option<(String, &Value)> {
        let own = self.named(names);
        let hit = |path: &str| at(&self.fields, path).filter(|value| !value.is_null()).map(|value| (path.to_owned(), value));
        own.map_or_else(|| names.iter().find_map(|name| hit(name)), |path| hit(path))
    }

    fn named(&self, names: &[&str]) -> Option<&'a String> {
        names.iter().find_map(|name| self.columns.get(*name))
    }

    /// What is said of a row without any of these fields.
    pub fn lacks(&self, names: &[&str]) -> String {
        let own = self.named(names);
        let wanted = own.map_or_else(|| names.join("` or `"), String::clone);
        let seen: Vec<&str> = self.fields.keys().map(String::as_str).collect();
        let null = if at(&self.fields, &wanted).is_some() { "nothing in " } else { "no " };
        format!("the row has {null}`{wanted}` (it has: {})", seen.join(", "))
    }

    /// A text that must be there, unchanged.
    pub fn text(&self, names: &[&str]) -> Result<String, String> {
        self.text_if(names)?.ok_or_else(|| self.lacks(names))
    }

    /// A text that may be there.
    pub fn text_if(&self, names: &[&str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((_, Value::Number(number))) if self.loose => Ok(Some(number.to_string())),
            Some((name, _)) => Err(format!("`{name}` is not a text")),
        }
    }

    /// A whole number that may be there.
    pub fn count_if(&self, names: &[&str]) -> Result<Option<u64>, String> {
        let Some((name, value)) = self.get(names).filter(|(_, value)| !self.is_empty_cell(value)) else { return Ok(None) };
        count(value).map(Some).ok_or_else(|| format!("`{name}` is not a whole number"))
    }

    /// A list that may be there, or a text that holds one as JSON: some tables cannot hold lists.
    pub fn list_if(&self, names: &[&str]) -> Result<Option<(String, Vec<Value>)>, String> {
        match self.get(names).filter(|(_, value)| !self.is_empty_cell(value)) {
            None => Ok(None),
            Some((name, Value::Array(list))) => Ok(Some((name, list.clone()))),
            Some((name, Value::String(text))) if text.trim_start().starts_with('[') => match serde_json::from_str(text) {
                Ok(list) => Ok(Some((name, list))),
                Err(error) => Err(format!("`{name}` is {}", reason(&error))),
            },
            Some((name, _)) => Err(format!("`{name}` is not a list")),
        }
    }

    /// Whether a value is an empty cell of a record, which has no other way to say that there is none.
    fn is_empty_cell(&self, value: &Value) -> bool {
        self.loose && *value == ""
    }

    /// The row as it is, and the fields that the scenario gives columns by their own names.
    pub fn into_fields(mut self) -> Map<String, Value> {
        let named: Vec<(String, Value)> =
            self.columns.iter().filter_map(|(name, path)| Some((name.clone(), at(&self.fields, path)?.clone()))).collect();
        self.fields.extend(named);
        self.fields
    }
}

/// The value in a column: by the whole name, or step by step along the dots.
fn at<'v>(fields: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (head, rest) = path.split_once('.')?;
    rest.split('.').try_fold(fields.get(head)?, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    })
}

/// A whole number, also one that is written as a text or with a fraction of zero.
pub fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// What serde_json says, without its own line and column.
pub fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let cut = text.rfind(" at line ").unwrap_or(text.len());
    format!("not JSON ({})", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row<'a>(value: &Value, columns: &'a BTreeMap<String, String>) -> Row<'a> {
        Row::new(value.as_object().unwrap().clone(), columns)
    }

    #[test]
    fn columns_name_fields_by_their_path_and_the_row_keeps_its_own_names() {
        let columns = BTreeMap::from([("prompt".to_owned(), "meta.turns.0.q".to_owned()), ("x".to_owned(), "a.b".to_owned())]);
        let row = row(&json!({ "meta": { "turns": [{ "q": " Why? " }] }, "a.b": 3, "prompt": "not this" }), &columns);
        assert_eq!(row.text(&["prompt", "text"]).unwrap(), " Why? ");
        assert_eq!(row.text(&["question", "prompt"]).unwrap(), " Why? ", "any of the names may be given a column");
        let fields = row.into_fields();
        assert_eq!((&fields["prompt"], &fields["x"]), (&json!(" Why? "), &json!(3)));
        assert_eq!(fields["meta"]["turns"][0]["q"], " Why? ");
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_named() {
        let none = BTreeMap::new();
        let own = row(&json!({ "id": 1, "query": [], "nil": null, "n": "7", "list": "[1, 2]", "bad": "[1" }), &none);
        assert_eq!(own.text(&["question"]).unwrap_err(), "the row has no `question` (it has: id, query, nil, n, list, bad)");
        assert!(own.text(&["nil"]).unwrap_err().starts_with("the row has nothing in `nil`"));
        assert_eq!(own.text(&["id"]).unwrap_err(), "`id` is not a text");
        assert_eq!(own.count_if(&["query"]).unwrap_err(), "`query` is not a whole number");
        assert_eq!((own.count_if(&["n"]), own.count_if(&["nil"])), (Ok(Some(7)), Ok(None)));
        assert_eq!(own.list_if(&["list"]).unwrap().unwrap().1, [1, 2]);
        assert!(own.list_if(&["bad"]).unwrap_err().starts_with("`bad` is not JSON ("));
        assert_eq!(own.list_if(&["n"]).unwrap_err(), "`n` is not a list");
        let columns = BTreeMap::from([("question".to_owned(), "q".to_owned())]);
        assert_eq!(
            row(&json!({ "question": "x" }), &columns).text(&["question"]).unwrap_err(),
            "the row has no `q` (it has: question)"
        );
    }

    #[test]
    fn cells_are_numbers_where_they_are_written_like_one_and_texts_where_one_is_asked_for() {
        let (none, header) = (BTreeMap::new(), ["a", "b", "c", "d"].map(str::to_owned));
        let row = Row::of_record(&header, ["128", "007", "1.5", "1.50"].into_iter(), &none);
        assert_eq!((row.count_if(&["a"]), row.text(&["a"])), (Ok(Some(128)), Ok("128".to_owned())));
        let fields = Value::Object(row.into_fields());
        assert_eq!(fields, json!({ "a": 128, "b": "007", "c": 1.5, "d": "1.50" }));
    }

    #[test]
    fn counts_are_whole_numbers_only() {
        let values = [json!(3), json!(3.0), json!(" 3 "), json!(3.5), json!(-1), json!("x"), json!(true)];
        assert_eq!(values.each_ref().map(count), [Some(3), Some(3), Some(3), None, None, None, None]);
    }
}
