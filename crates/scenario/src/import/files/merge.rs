//! Makes scenarios of the tests of a plan file.
//!
//! What all tests share is the scenario, and what differs between them is its matrix. Only this module knows how tests are
//! written; the translations only make a list of them.

use crate::import::draft::{Account, Converted, Head, name, set, write};
use crate::import::files::{ImportedFile, NamedScenario, Spec, Test};
use crate::import::flags::ImportError;
use crate::schema_table::Kind;
use crate::sections::scenario::SCENARIO;
use serde_json::{Map, Value};

/// The sections that a matrix may vary.
const VARIED: [&str; 4] = ["target/", "request/", "dataset/", "load/"];

/// The values of a case by path; `/` separates its keys.
type Leaves = Vec<(String, Value)>;

/// Tests that one scenario can hold.
struct Group {
    key: (String, Leaves),
    names: Vec<String>,
    rows: Vec<Leaves>,
    accounts: Accounts,
}

pub(super) fn merge(
    spec: &Spec,
    title: &str,
    tests: Vec<Test>,
) -> Result<ImportedFile, ImportError> {
    let count = tests.len();
    let mut accounts = Accounts::default();
    let mut defaults: Vec<String> = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    for Test { name, group, draft } in tests {
        let converted: Converted = draft.complete();
        accounts.add(&converted.accounts);
        for default in converted.defaults {
            if !defaults.contains(&default) {
                defaults.push(default);
            }
        }
        let mut tree = converted.tree;
        let matrix = tree.shift_remove("matrix");
        tree.shift_remove("name");
        let (varied, fixed): (Leaves, Leaves) = leaves(&tree)
            .into_iter()
            .partition(|(path, value)| is_swept(path, value));
        let key = (group, fixed);
        let index = match groups.iter().position(|known| known.key == key) {
            Some(index) => index,
            None => {
                groups.push(Group {
                    key,
                    names: Vec::new(),
                    rows: Vec::new(),
                    accounts: Accounts::default(),
                });
                groups.len() - 1
            }
        };
        if let Some(group) = groups.get_mut(index) {
            group.names.push(name);
            group.accounts.add(&converted.accounts);
            group.rows.extend(points(matrix.as_ref(), varied));
        }
    }
    let several = groups.len() > 1;
    let scenarios = groups.into_iter().map(|mut group| {
        let first = group.names.first().filter(|_| several);
        let suffix = first.map_or_else(String::new, |first| name(first, ""));
        let called = name(&format!("{title} {suffix}"), spec.name);
        let mut head = Head {
            source: spec.source,
            unit: "field",
            release: spec.release,
            accounts: &std::mem::take(&mut group.accounts).list(),
            defaults: &defaults,
        }
        .text();
        if count > 1 {
            head.push_str(&format!("# Tests: {}\n", group.names.join(", ")));
        }
        let mut tree = scenario(group);
        set(&mut tree, "name", Value::from(called));
        let yaml = write(&head, tree)?;
        Ok(NamedScenario { suffix, yaml })
    });
    Ok(ImportedFile {
        format: spec.name,
        scenarios: scenarios.collect::<Result<_, ImportError>>()?,
        accounts: accounts.list(),
        tests: count,
    })
}

/// The scenario of a group: shared values, and a matrix of the others.
fn scenario(group: Group) -> Map<String, Value> {
    let Group {
        key: (_, fixed),
        mut rows,
        ..
    } = group;
    let mut unique: Vec<Leaves> = Vec::new();
    rows.retain(|row| {
        let is_new = !unique.contains(row);
        if is_new {
            unique.push(row.clone());
        }
        is_new
    });
    let value = |row: &Leaves, path: &str| {
        let found = row.iter().find(|(known, _)| known == path);
        found.map(|(_, value)| value.clone())
    };
    let mut paths: Vec<String> = Vec::new();
    for (path, _) in rows.iter().flatten() {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    let (same, differing): (Vec<String>, Vec<String>) = paths.into_iter().partition(|path| {
        let first = rows.first().and_then(|row| value(row, path));
        rows.iter().all(|row| value(row, path) == first)
    });
    let mut tree = Map::new();
    let first = rows.first().cloned().unwrap_or_default();
    for (path, value) in fixed
        .iter()
        .chain(first.iter().filter(|(path, _)| same.contains(path)))
    {
        set(&mut tree, path, value.clone());
    }
    if differing.is_empty() {
        return tree;
    }
    if differing
        .iter()
        .any(|path| path.starts_with("target/server/"))
    {
        set(&mut tree, "target/server/per_case", Value::from(true));
    }
    let column =
        |path: &String| -> Option<Vec<Value>> { rows.iter().map(|row| value(row, path)).collect() };
    let columns: Vec<Option<Vec<Value>>> = differing.iter().map(column).collect();
    for (path, column) in differing.iter().zip(&columns) {
        if let Some(first) = column.iter().flatten().next() {
            // The matrix overrides this value in each case.
            set(&mut tree, path, first.clone());
        }
    }
    let matrix = match columns.into_iter().collect::<Option<Vec<_>>>() {
        Some(columns) => axes(&differing, columns),
        None => {
            let row = |row: &Leaves| {
                let own = differing.iter();
                let own = own.filter_map(|path| Some((dotted(path), value(row, path)?)));
                Value::Object(own.collect())
            };
            Map::from_iter([("include".to_owned(), rows.iter().map(row).collect())])
        }
    };
    tree.insert("matrix".to_owned(), Value::Object(matrix));
    tree
}

/// Lists of values: an axis for each path whose values are combined with all others, and `zip` for the rest.
fn axes(paths: &[String], mut columns: Vec<Vec<Value>>) -> Map<String, Value> {
    let mut paths: Vec<String> = paths.iter().map(|path| dotted(path)).collect();
    let mut found = Map::new();
    let mut at = 0;
    while at < paths.len() {
        let own = distinct(&columns[at]);
        let others: Vec<usize> = (0..paths.len()).filter(|other| *other != at).collect();
        let count = columns[at].len();
        let rest = |row: usize| -> Vec<&Value> {
            others.iter().map(|&other| &columns[other][row]).collect()
        };
        let mut kept: Vec<usize> = Vec::new();
        for row in 0..count {
            if !kept.iter().any(|&known| rest(known) == rest(row)) {
                kept.push(row);
            }
        }
        // Rows are distinct, so as many rows as combinations are all combinations.
        if own.len() * kept.len() == count && (own.len() < count || paths.len() == 1) {
            found.insert(paths.remove(at), Value::Array(own));
            columns.remove(at);
            for column in &mut columns {
                *column = kept.iter().map(|&row| column[row].clone()).collect();
            }
        } else {
            at += 1;
        }
    }
    let mut matrix = Map::new();
    match (paths.as_slice(), columns.as_slice()) {
        ([], _) => {}
        ([path], [column]) => {
            matrix.insert(path.clone(), Value::Array(column.clone()));
        }
        _ => {
            let zip = paths.into_iter().zip(columns);
            let zip = zip.map(|(path, column)| (path, Value::Array(column)));
            matrix.insert("zip".to_owned(), Value::Object(zip.collect()));
        }
    }
    matrix.extend(found);
    matrix
}

fn distinct(values: &[Value]) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    for value in values {
        if !seen.contains(value) {
            seen.push(value.clone());
        }
    }
    seen
}

/// The values of a scenario by path: what a matrix can vary one by one, everything else as a whole.
fn leaves(tree: &Map<String, Value>) -> Leaves {
    fn collect(prefix: &str, tree: &Map<String, Value>, found: &mut Leaves) {
        for (key, value) in tree {
            let path = format!("{prefix}{key}");
            let block = matches!(
                SCENARIO.kind_at(&dotted(&path)),
                Some(Kind::Block(_) | Kind::Over(_) | Kind::Map(_))
            );
            match value {
                Value::Object(inner) if block => collect(&format!("{path}/"), inner, found),
                _ => found.push((path, value.clone())),
            }
        }
    }
    let mut found = Leaves::new();
    collect("", tree, &mut found);
    found
}

/// A path as the matrix writes it.
fn dotted(path: &str) -> String {
    path.replace('/', ".")
}

fn is_swept(path: &str, value: &Value) -> bool {
    // The path of a key with a dot would not be that key.
    if path.contains('.') {
        return false;
    }
    VARIED.iter().any(|section| path.starts_with(section))
        && !matches!(value, Value::Object(_) | Value::Array(_) | Value::Null)
        && SCENARIO.kind_at(&dotted(path)).is_some_and(Kind::is_scalar)
}

/// The cases of one test: the points of its own matrix.
fn points(matrix: Option<&Value>, values: Leaves) -> Vec<Leaves> {
    let mut axes: Vec<Vec<Leaves>> = Vec::new();
    let lists = |map: &Map<String, Value>| {
        let lists = map.iter().filter_map(|(path, values)| {
            Some((path.replace('.', "/"), values.as_array()?.clone()))
        });
        lists.collect::<Vec<_>>()
    };
    if let Some(Value::Object(matrix)) = matrix {
        for (path, values) in lists(matrix) {
            let one = |value| vec![(path.clone(), value)];
            axes.push(values.into_iter().map(one).collect());
        }
        if let Some(Value::Object(zip)) = matrix.get("zip") {
            let zip = lists(zip);
            let rows = zip
                .iter()
                .map(|(_, values)| values.len())
                .min()
                .unwrap_or(0);
            let row = |row: usize| {
                zip.iter()
                    .map(|(path, values)| (path.clone(), values[row].clone()))
                    .collect()
            };
            axes.push((0..rows).map(row).collect());
        }
    }
    axes.into_iter().fold(vec![values], |points, axis| {
        let with = |point: &Leaves, more: &Leaves| {
            let mut point = point.clone();
            for (path, value) in more {
                match point.iter_mut().find(|(known, _)| known == path) {
                    Some((_, old)) => *old = value.clone(),
                    None => point.push((path.clone(), value.clone())),
                }
            }
            point
        };
        points
            .iter()
            .flat_map(|point| {
                axis.iter()
                    .map(|more| with(point, more))
                    .collect::<Vec<_>>()
            })
            .collect()
    })
}

/// The fields of all tests: those with the same result once, with all their values.
#[derive(Default)]
struct Accounts(Vec<(String, Vec<String>, Account)>);

/// Values that are shown of a field.
const SHOWN: usize = 4;

impl Accounts {
    fn add(&mut self, accounts: &[Account]) {
        for account in accounts {
            let (field, value) = match account.flag.split_once(' ') {
                Some((field, value)) => (field.to_owned(), Some(value.to_owned())),
                None => (account.flag.clone(), None),
            };
            let same = self.0.iter_mut().find(|(known, _, known_account)| {
                *known == field
                    && known_account.keys == account.keys
                    && known_account.note == account.note
            });
            match same {
                Some((_, values, _)) => {
                    values.extend(value.filter(|value| !values.contains(value)));
                }
                None => self
                    .0
                    .push((field, value.into_iter().collect(), account.clone())),
            }
        }
    }

    fn list(self) -> Vec<Account> {
        let joined = |(field, values, account): (String, Vec<String>, Account)| {
            let mut flag = field;
            if !values.is_empty() {
                flag.push(' ');
                flag.push_str(&values[..values.len().min(SHOWN)].join(" | "));
                if values.len() > SHOWN {
                    flag.push_str(" | …");
                }
            }
            Account { flag, ..account }
        };
        self.0.into_iter().map(joined).collect()
    }
}
