//! Makes scenarios of the tests of a plan file.
//!
//! What all tests share is the scenario. What differs in the target is a variant, what differs in the requests is a
//! workload, and the loads of a test are a ladder. Only this module knows how tests are written; the translations
//! only make a list of them.

use crate::import::draft::{Account, Head, name, set, write};
use crate::import::files::{ImportedFile, NamedScenario, Spec, Test};
use crate::import::flags::ImportError;
use llmscen_scenario::document::{KeyKind, is_patchable, key_kind};
use serde_json::{Map, Value, json};

/// The values of a case by path; `/` separates its keys.
type Leaves = Vec<(String, Value)>;

/// A case of a test.
#[derive(Clone, PartialEq)]
struct Row {
    /// Names of the variant and of the workload.
    names: [Option<String>; 2],
    leaves: Leaves,
}

impl Row {
    fn get(&self, path: &str) -> Option<&Value> {
        let found = self.leaves.iter().find(|(known, _)| known == path);
        found.map(|(_, value)| value)
    }
}

/// Tests that one scenario can hold.
struct Group {
    key: (String, Leaves),
    names: Vec<String>,
    rows: Vec<Row>,
    accounts: Accounts,
}

/// `title`: the name of the file. `more`: what the name of the scenario has beside it. `rest`: the parts of the file
/// that are in no test.
pub(super) fn merge(
    spec: &Spec,
    [title, more]: [&str; 2],
    tests: Vec<Test>,
    rest: &[Account],
) -> Result<ImportedFile, ImportError> {
    let count = tests.len();
    let mut accounts = Accounts::default();
    let mut defaults: Vec<String> = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    for test in tests {
        let converted = test.draft.complete();
        accounts.add(&converted.accounts);
        for default in converted.defaults {
            if !defaults.contains(&default) {
                defaults.push(default);
            }
        }
        let mut tree = converted.tree;
        let matrix = tree.shift_remove("matrix");
        tree.shift_remove("name");
        let (varied, fixed): (Leaves, Leaves) = leaves(&tree).into_iter().partition(|(path, _)| {
            let section = path.split('/').next().unwrap_or_default();
            is_patchable(section)
        });
        let key = (test.group, fixed);
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
            let named = |name: String| Some(name).filter(|name| !name.is_empty());
            let names = match test.parts {
                Some(parts) => parts.map(named),
                None => [None, named(test.name.clone())],
            };
            group.accounts.add(&converted.accounts);
            group.names.push(test.name);
            let points = points(matrix.as_ref(), varied).into_iter();
            group.rows.extend(points.map(|leaves| Row {
                names: names.clone(),
                leaves,
            }));
        }
    }
    accounts.add(rest);
    let several = groups.len() > 1;
    let scenarios = groups.into_iter().map(|mut group| {
        let first = match group.key.0.as_str() {
            "" => group.names.first().cloned().unwrap_or_default(),
            named => named.to_owned(),
        };
        let suffix = match several {
            true => name(&first, ""),
            false => String::new(),
        };
        let mut own = std::mem::take(&mut group.accounts);
        own.add(rest);
        let only = match group.names.as_slice() {
            [only] if !only.is_empty() => Some(only.clone()),
            _ => None,
        };
        let mut tree = scenario(group);
        let place = ["workloads", "variants", "matrix"]
            .into_iter()
            .find(|key| tree.contains_key(*key));
        own.name_tests(place.unwrap_or("name"));
        accounts.name_tests(place.unwrap_or("name"));
        let called = match only.filter(|_| !several) {
            Some(only) => name(&format!("{only} {more}"), spec.name),
            None => name(&format!("{title} {more} {suffix}"), spec.name),
        };
        set(&mut tree, "name", Value::from(called));
        let head = Head {
            source: spec.source,
            unit: "field",
            release: spec.release,
            accounts: &own.list(),
            defaults: &defaults,
        }
        .text();
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

/// Stands for the key that has the names of the tests, until they are written.
pub(super) const NAMED: &str = "(name)";

/// The paths of loads that a ladder may have.
const LEVELS: [&str; 2] = ["load/concurrency", "load/rate"];

/// The scenario of a group: shared values, and the cells of the others.
fn scenario(group: Group) -> Map<String, Value> {
    let Group {
        key: (_, fixed),
        mut rows,
        ..
    } = group;
    for path in ["load/requests", "load/sessions"] {
        relate_to_users(path, &mut rows);
    }
    let mut unique: Vec<Row> = Vec::new();
    for row in rows {
        // Tests with two names that differ only in what has no counterpart stay two.
        if !unique.contains(&row) {
            unique.push(row);
        }
    }
    let rows = unique;
    let mut paths: Vec<&str> = Vec::new();
    for (path, _) in rows.iter().flat_map(|row| &row.leaves) {
        if !paths.contains(&path.as_str()) {
            paths.push(path);
        }
    }
    let (same, differing): (Vec<&str>, Vec<&str>) = paths.into_iter().partition(|path| {
        let first = rows.first().and_then(|row| row.get(path));
        rows.iter().all(|row| row.get(path) == first)
    });
    let mut tree = Map::new();
    let shared = rows.first().into_iter().flat_map(|row| &row.leaves);
    let shared = shared.filter(|(path, _)| same.contains(&path.as_str()));
    for (path, value) in fixed.iter().chain(shared) {
        set(&mut tree, path, value.clone());
    }
    if differing.is_empty() && rows.len() == 1 {
        return tree;
    }
    // Named tests keep their names, unless they are steps of a ladder.
    let is_named = |row: &Row| row.names.iter().any(Option::is_some);
    let plain = !rows.iter().any(is_named) || differing.iter().all(|path| LEVELS.contains(path));
    if let Some(matrix) = axes(&differing, &rows).filter(|_| plain) {
        for path in differing {
            // The matrix overrides this value in each case.
            if let Some(first) = rows.first().and_then(|row| row.get(path)) {
                set(&mut tree, path, first.clone());
            }
        }
        tree.insert("matrix".to_owned(), Value::Object(matrix));
        return tree;
    }
    cells(&mut tree, &differing, &rows);
    tree
}

/// Writes ten requests or sessions per user as `10x`, where every case has the same multiple.
fn relate_to_users(path: &str, rows: &mut [Row]) {
    let multiple = |row: &Row| {
        let (requests, users) = (row.get(path)?, row.get("load/concurrency")?);
        let (requests, users) = (
            requests.as_u64()?,
            users.as_u64().filter(|users| *users > 0)?,
        );
        (requests % users == 0).then_some(requests / users)
    };
    let Some(first) = rows.first().and_then(multiple) else {
        return;
    };
    let differ = rows.iter().any(|row| row.get(path) != rows[0].get(path));
    if !differ || rows.iter().any(|row| multiple(row) != Some(first)) {
        return;
    }
    for (_, value) in rows
        .iter_mut()
        .flat_map(|row| &mut row.leaves)
        .filter(|(known, _)| known == path)
    {
        *value = json!(format!("{first}x"));
    }
}

/// A list of values for each path, where the cases are all combinations of them.
fn axes(paths: &[&str], rows: &[Row]) -> Option<Map<String, Value>> {
    let mut matrix = Map::new();
    let mut cells = 1usize;
    for path in paths {
        let column: Option<Vec<Value>> = rows.iter().map(|row| row.get(path).cloned()).collect();
        let values = distinct(&column?);
        if values.iter().any(|value| !is_swept(path, value)) {
            return None;
        }
        cells = cells.checked_mul(values.len())?;
        matrix.insert(dotted(path), ladder(values));
    }
    // Rows are distinct, so as many rows as combinations are all combinations.
    (cells == rows.len()).then_some(matrix)
}

/// A list, or powers of two times the first value.
fn ladder(values: Vec<Value>) -> Value {
    let numbers: Option<Vec<u64>> = values.iter().map(Value::as_u64).collect();
    match numbers.as_deref() {
        Some([first, .., last]) if values.len() > 2 => {
            let numbers = numbers.iter().flatten();
            let doubles = numbers
                .enumerate()
                .all(|(step, number)| Some(*number) == first.checked_shl(step as u32));
            match doubles {
                true => json!({ "doubling": [first, last] }),
                false => Value::Array(values),
            }
        }
        _ => Value::Array(values),
    }
}

/// Named variants and workloads, and the matrix of their cells.
fn cells(tree: &mut Map<String, Value>, differing: &[&str], rows: &[Row]) {
    let level = LEVELS
        .into_iter()
        .find(|level| is_ladder(level, differing, rows));
    let varied = differing
        .iter()
        .copied()
        .filter(|path| Some(*path) != level);
    let (target, others): (Vec<&str>, Vec<&str>) =
        varied.partition(|path| path.starts_with("target/"));
    let named = rows.iter().all(|row| row.names[0].is_some());
    let parts = match named || target.is_empty() {
        true => [target, others],
        // A test with one name is one variant, whatever it changes.
        false => [[target, others].concat(), Vec::new()],
    };
    // The name of each row's variant and workload.
    let mut chosen: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    for (index, (section, paths)) in ["variants", "workloads"]
        .into_iter()
        .zip(&parts)
        .enumerate()
    {
        let of_part = if named { index } else { 1 };
        let twins = (named || index == 0) && has_twins(rows, of_part);
        if paths.is_empty() && !twins {
            continue;
        }
        let mut patches: Vec<(Leaves, String)> = Vec::new();
        let mut wanted_names: Vec<Option<&String>> = Vec::new();
        for row in rows {
            let own: Leaves = paths
                .iter()
                .filter_map(|path| Some(((*path).to_owned(), row.get(path)?.clone())))
                .collect();
            let mut known = patches.iter().zip(&wanted_names);
            let name = row.names[of_part].as_ref();
            let known =
                known.find(|((known, _), other)| *known == own && (!twins || **other == name));
            let called = match known {
                Some(((_, called), _)) => called.clone(),
                None => {
                    let wanted = row.names[of_part].as_deref().map(patch_name);
                    let wanted = wanted.unwrap_or_else(|| label(&own));
                    let called = unused(&wanted, &patches);
                    patches.push((own, called.clone()));
                    wanted_names.push(name);
                    called
                }
            };
            chosen[index].push(called);
        }
        for (leaves, called) in patches {
            let mut patch = Map::new();
            for (path, value) in leaves {
                set(&mut patch, &path, value);
            }
            set(tree, &format!("{section}/{called}"), Value::Object(patch));
        }
    }
    let matrix = matrix(&chosen, level, rows);
    if !matrix.is_empty() {
        tree.insert("matrix".to_owned(), Value::Object(matrix));
    }
}

/// Whether tests of different names have the same values.
fn has_twins(rows: &[Row], of_part: usize) -> bool {
    let pairs = rows.iter().enumerate();
    let mut pairs =
        pairs.flat_map(|(index, row)| rows.iter().take(index).map(move |earlier| (row, earlier)));
    pairs.any(|(a, b)| a.leaves == b.leaves && a.names[of_part] != b.names[of_part])
}

/// Whether a load is a ladder: some cases differ in nothing else.
fn is_ladder(level: &str, differing: &[&str], rows: &[Row]) -> bool {
    let rest = |row: &Row| -> Leaves {
        let own = row.leaves.iter().filter(|(path, _)| path != level);
        own.cloned().collect()
    };
    let mut kinds: Vec<Leaves> = Vec::new();
    for row in rows {
        let own = rest(row);
        if !kinds.contains(&own) {
            kinds.push(own);
        }
    }
    let complete = rows
        .iter()
        .all(|row| row.get(level).is_some_and(|value| is_swept(level, value)));
    differing.contains(&level) && complete && kinds.len() < rows.len()
}

/// The pairs of variants and workloads that are tested, and the loads of each.
fn matrix(chosen: &[Vec<String>; 2], level: Option<&str>, rows: &[Row]) -> Map<String, Value> {
    const AXES: [&str; 2] = ["variant", "workload"];
    let pair = |row: usize| chosen.each_ref().map(|names| names.get(row).cloned());
    let mut pairs: Vec<([Option<String>; 2], Vec<Value>)> = Vec::new();
    let mut levels: Vec<Value> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let value = level.and_then(|level| row.get(level).cloned());
        match pairs.iter_mut().find(|(known, _)| *known == pair(index)) {
            Some((_, own)) => own.extend(value.clone()),
            None => pairs.push((pair(index), value.clone().into_iter().collect())),
        }
        levels.extend(value.filter(|value| !levels.contains(value)));
    }
    levels.sort_by(|a, b| {
        a.as_f64()
            .partial_cmp(&b.as_f64())
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let count = |axis: usize| {
        let names: Vec<&String> = chosen[axis].iter().collect();
        let mut unique: Vec<&String> = Vec::new();
        for name in names {
            if !unique.contains(&name) {
                unique.push(name);
            }
        }
        unique.len().max(1)
    };
    let mut matrix = Map::new();
    if count(0) * count(1) > pairs.len() {
        let mut zip = Map::new();
        for (axis, key) in AXES.into_iter().enumerate() {
            let names = pairs.iter().filter_map(|(pair, _)| pair[axis].clone());
            zip.insert(key.to_owned(), names.map(Value::from).collect());
        }
        matrix.insert("zip".to_owned(), Value::Object(zip));
    }
    let Some(level) = level.map(dotted) else {
        return matrix;
    };
    let mut only = Vec::new();
    for (pair, own) in &pairs {
        if own.len() == levels.len() {
            continue;
        }
        for values in bands(&levels, own) {
            let mut row = Map::new();
            for (axis, key) in AXES.into_iter().enumerate() {
                row.extend(
                    pair[axis]
                        .clone()
                        .map(|name| (key.to_owned(), Value::from(name))),
                );
            }
            row.insert(level.clone(), values);
            only.push(Value::Object(row));
        }
    }
    matrix.insert(level, ladder(levels));
    if !only.is_empty() {
        matrix.insert("only".to_owned(), Value::Array(only));
    }
    matrix
}

/// The values as bands `4..64` of consecutive numbers of `all`; one by one if they are not numbers.
fn bands(all: &[Value], own: &[Value]) -> Vec<Value> {
    let mut runs: Vec<Vec<&Value>> = vec![Vec::new()];
    for value in all {
        match (own.contains(value), runs.last_mut()) {
            (true, Some(run)) if value.is_number() || run.is_empty() => run.push(value),
            (true, _) => runs.push(vec![value]),
            (false, _) => runs.push(Vec::new()),
        }
    }
    let band = |run: Vec<&Value>| match run.as_slice() {
        [] => None,
        [one] => Some((*one).clone()),
        [from, .., to] => Some(json!(format!("{from}..{to}"))),
    };
    runs.into_iter().filter_map(band).collect()
}

/// Longest name that is made of values.
const LONGEST: usize = 48;

/// A name made of the values that differ: texts as such, numbers with their key.
fn label(leaves: &Leaves) -> String {
    let part = |(path, value): &(String, Value)| {
        let key = path.rsplit('/').next().unwrap_or_default();
        match value {
            Value::String(text) => Some(text.rsplit('/').next().unwrap_or_default().to_owned()),
            Value::Number(number) => Some(format!("{key}-{number}")),
            Value::Bool(true) => Some(key.to_owned()),
            _ => None,
        }
    };
    let parts: Vec<String> = leaves.iter().filter_map(part).collect();
    let mut label = name(&parts.join(" "), "base");
    label.truncate(LONGEST);
    label.trim_end_matches('-').to_owned()
}

/// The name of a test with what a case id can have.
fn patch_name(text: &str) -> String {
    let kept = |c: char| {
        if c.is_ascii_alphanumeric() || "_-".contains(c) {
            c
        } else {
            '-'
        }
    };
    text.chars().map(kept).collect()
}

/// The name, with a number if another patch has it.
fn unused(wanted: &str, patches: &[(Leaves, String)]) -> String {
    // `all` is a word of the matrix.
    let wanted = match wanted {
        "" | "all" => "base",
        wanted => wanted,
    };
    let is_free = |name: &String| patches.iter().all(|(_, known)| known != name);
    let numbered = (2..).map(|number| format!("{wanted}-{number}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_else(|| wanted.to_owned())
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
            let block = key_kind(&dotted(&path)) == Some(KeyKind::Block);
            match value {
                Value::Object(inner) if block && !inner.is_empty() => {
                    collect(&format!("{path}/"), inner, found)
                }
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
    !path.contains('.')
        && !matches!(value, Value::Object(_) | Value::Array(_) | Value::Null)
        && key_kind(&dotted(path)) == Some(KeyKind::Scalar)
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

    /// Replaces [`NAMED`] by the key that has the names of the tests.
    fn name_tests(&mut self, key: &str) {
        let keys = self
            .0
            .iter_mut()
            .flat_map(|(_, _, account)| &mut account.keys);
        for named in keys.filter(|key| *key == NAMED) {
            *named = key.to_owned();
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
