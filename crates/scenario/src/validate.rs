//! Checks a tree against the schema tables: unknown keys, wrong types, values out of range, missing keys. All errors
//! are reported, not only the first.

use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::{Block, Field, Kind};
use crate::setting_names::{setting_named, synonym};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Entry, Node, Span};
use crate::values::{describe_actual, remote_data};

/// The owner of the top-level keys.
const TOP_LEVEL: &str = "a scenario";

/// Checks a whole scenario, except for the values of its matrix.
pub(crate) fn scenario(root: &Node, table: &'static Block, review: &mut Review) {
    keys(root.entries(), table, None, table, review);
    review.section.clear();
    let top = root.at.before();
    missing(root, table, TOP_LEVEL, top, review);
}

fn block(entry: &Entry, table: &'static Block, scenario: &'static Block, review: &mut Review) {
    let owner = format!("`{}`", entry.key);
    let Data::Map(entries) = &entry.value.data else {
        if let Some(mistake) = entry
            .value
            .text()
            .and_then(|text| tight(&text, entry.value.at, table))
        {
            return review.push(mistake);
        }
        let help = format!("{owner} has {}.", list(table.names(), "and"));
        return review.push(must_be(entry, "a mapping").help(help));
    };
    keys(entries, table, Some(&owner), scenario, review);
    missing(&entry.value, table, &owner, entry.key_at, review);
}

/// Checks the keys of a mapping; without an owner it is the scenario. Keys of an empty block that follow it are one
/// error: they are not indented.
fn keys(
    entries: &[Entry],
    table: &'static Block,
    owner: Option<&str>,
    scenario: &'static Block,
    review: &mut Review,
) {
    let mut rest = entries;
    while let Some((entry, after)) = rest.split_first() {
        if owner.is_none() {
            review.section.clone_from(&entry.key);
        }
        let inner = table
            .fields
            .iter()
            .find(|field| field.name == entry.key)
            .and_then(|field| match field.kind {
                Kind::Block(inner) | Kind::OneOrMore(inner) if entry.value.is_null() => Some(inner),
                _ => None,
            });
        let belongs = |next: &&Entry| {
            table.field(&next.key).is_none()
                && inner.is_some_and(|block| block.field(&next.key).is_some())
        };
        let children: Vec<&str> = after
            .iter()
            .take_while(belongs)
            .map(|next| next.key.as_str())
            .collect();
        match after.first().filter(|_| !children.is_empty()) {
            Some(first) => {
                let message = format!("`{}` must be indented under `{}`", first.key, entry.key);
                let mistake =
                    Mistake::new(first.key_at, message, "not indented").also(entry.key_at, "empty");
                review.push(mistake.help(format!(
                    "add two spaces before {}",
                    list(children.iter().copied(), "and")
                )));
            }
            None => key(entry, table, owner.unwrap_or(TOP_LEVEL), scenario, review),
        }
        rest = &after[children.len()..];
    }
}

/// `concurrency:8`, where a key and its value are meant.
fn tight(text: &str, at: Span, table: &'static Block) -> Option<Mistake> {
    let (key, value) = text.split_once(':')?;
    table.field(key).filter(|_| !value.is_empty())?;
    let mistake = Mistake::new(at, "a space is missing after the colon", "read as one text");
    Some(mistake.help(format!("Write `{key}: {value}`.")))
}

fn key(
    entry: &Entry,
    table: &'static Block,
    owner: &str,
    scenario: &'static Block,
    review: &mut Review,
) {
    let Some(field) = table.fields.iter().find(|field| field.name == entry.key) else {
        let mistake = match review.is_flooded() {
            true => Mistake::new(
                entry.key_at,
                format!("unknown key `{}`", entry.key),
                format!("not a key of {owner}"),
            ),
            false => unknown_key(entry, table, owner, scenario),
        };
        return review.push(mistake);
    };
    if !entry.value.is_null() {
        let before = review.count();
        value(entry, &field.kind, scenario, review);
        // The fields within a mapping or a list have their own examples.
        let has_fields = matches!(
            field.kind,
            Kind::Block(_)
                | Kind::OneOrMore(_)
                | Kind::SecretOr(_)
                | Kind::Over(_)
                | Kind::Map(_)
                | Kind::List(_)
        );
        if !has_fields && field.example.is_some() {
            review.help_since(before, || example(field));
        }
    } else if field.required && !review.lacks_value(entry.value.at) {
        review.push(
            Mistake::new(
                entry.key_at,
                format!("`{}` is empty", field.name),
                "has no value",
            )
            .help(example(field)),
        );
    }
}

/// Keys of earlier versions, and the key and the value that replace them.
const FORMER: [(&str, &str, &str); 1] = [("per_case", "restart", "case")];

fn unknown_key(
    entry: &Entry,
    table: &'static Block,
    owner: &str,
    scenario: &'static Block,
) -> Mistake {
    if let Some(mistake) = tight(&entry.key, entry.key_at, table).filter(|_| entry.value.is_null())
    {
        return mistake;
    }
    let message = format!("unknown key `{}`", entry.key);
    let mut former = FORMER.iter();
    let former = former.find(|(key, now, _)| *key == entry.key && table.field(now).is_some());
    if let Some((_, now, value)) = former {
        let mistake = Mistake::new(entry.key_at, message, "a key of earlier versions");
        return mistake.help(format!("Write `{now}: {value}`."));
    }
    if let Some(meant) = meant_key(&entry.key, table) {
        return Mistake::new(entry.key_at, message, format!("did you mean `{meant}`?"));
    }
    let elsewhere = synonym(&entry.key).map(str::to_owned);
    // The keys of smaller blocks have common names.
    let is_of_section = |path: &String| path.matches('.').count() == 1;
    let elsewhere = elsewhere.or_else(|| {
        let setting = setting_named(&entry.key, false, scenario)?;
        Some(setting.path).filter(is_of_section)
    });
    if let Some(path) = elsewhere {
        return Mistake::new(entry.key_at, message, format!("did you mean `{path}`?"));
    }
    if entry.value.is_null() && entry.key.bytes().all(|byte| byte.is_ascii_digit()) {
        let mistake = Mistake::new(entry.key_at, message, "a comma begins a new key here");
        return mistake.help("Write a number without commas, such as 1000.");
    }
    let mistake = Mistake::new(entry.key_at, message, format!("not a key of {owner}"));
    mistake.help(format!(
        "Keys of {owner} are {}.",
        list(table.names(), "and")
    ))
}

/// The key of a table that an unknown one means: what another tool calls so, or a similar one.
fn meant_key(key: &str, table: &'static Block) -> Option<&'static str> {
    // Only a key of a section: those of the blocks within have common names, such as `count`.
    let of_tool = synonym(key).and_then(|path| path.split_once('.'));
    let of_tool = of_tool
        .map(|(_, name)| name)
        .filter(|name| table.field(name).is_some());
    of_tool.or_else(|| nearest(key, table.names()))
}

/// Maximum number of unknown keys that are compared with missing ones.
const MOST_STRANGE: usize = 200;

fn missing(node: &Node, table: &'static Block, owner: &str, at: Span, review: &mut Review) {
    // An unknown key that resembles the missing one is already reported.
    let resembled = || {
        let unknown = node
            .entries()
            .iter()
            .filter(|entry| table.field(&entry.key).is_none())
            .take(MOST_STRANGE);
        unknown
            .filter_map(|entry| meant_key(&entry.key, table))
            .collect::<Vec<&str>>()
    };
    let resembled = std::cell::LazyCell::new(resembled);
    let meant = |field: &Field| resembled.contains(&field.name);
    let absent = |field: &&Field| {
        let instead = field.instead.is_some_and(|key| node.entry(key).is_some());
        field.required && !instead && node.entry(field.name).is_none() && !meant(field)
    };
    let fields: Vec<&Field> = table.fields.iter().filter(absent).collect();
    if fields.is_empty() || review.partial {
        return;
    }
    let names = list(fields.iter().map(|field| field.name), "and");
    let label = if fields.len() == 1 {
        format!("{names} is missing")
    } else {
        format!("{names} are missing")
    };
    let help: Vec<String> = fields.iter().map(|field| help(field)).collect();
    review.push(Mistake::new(at, format!("{owner} needs {names}"), label).help(help.join("\n")));
}

fn help(field: &Field) -> String {
    match field.example {
        Some(example) if field.doc.len() < 50 => {
            format!("{} For example `{}: {example}`.", field.doc, field.name)
        }
        _ => example(field),
    }
}

fn example(field: &Field) -> String {
    field.example.map_or_else(
        || field.doc.to_owned(),
        |example| format!("For example `{}: {example}`.", field.name),
    )
}

/// Checks a value against its kind. `scenario`: the table of all keys, for suggestions.
pub(crate) fn value(
    entry: &Entry,
    kind: &'static Kind,
    scenario: &'static Block,
    review: &mut Review,
) {
    let node = &entry.value;
    let expected = match kind {
        _ if node.is_open() => return,
        Kind::Bool if !matches!(node.data, Data::Bool(_)) => "`true` or `false`".to_owned(),
        Kind::Whole(low, high) if !node.integer().is_some_and(|n| (*low..=*high).contains(&n)) => {
            whole_range(*low, *high)
        }
        Kind::Number(low, high) if !node.number().is_some_and(|n| (*low..=*high).contains(&n)) => {
            number_range(*low, *high)
        }
        Kind::Text | Kind::Secret if node.text().is_none() => return review.push(not_text(entry)),
        Kind::SecretOr(table) if matches!(node.data, Data::Map(_)) => {
            return block(entry, table, scenario, review);
        }
        Kind::SecretOr(table) if node.text().is_none() => {
            let keys = list(table.names(), "and");
            let mistake = must_be(entry, &format!("text, or a mapping with {keys}"));
            return review.push(match node.scalar() {
                Some(value) => mistake.help(format!("Quote it: \"{value}\".")),
                None => mistake,
            });
        }
        Kind::Template if node.text().is_none() && !matches!(node.data, Data::Map(_)) => {
            "a file name, or the body as a mapping".to_owned()
        }
        Kind::File => return file(entry, review),
        Kind::Data => return data(entry, review),
        Kind::Hub => return hub(entry, review),
        Kind::Choice(known, later) => return choice(entry, known, later, review),
        Kind::Leaf(leaf) => {
            review.key.clone_from(&entry.key);
            return (leaf.check)(node, review);
        }
        Kind::List(kind) => return items(entry, kind, scenario, review),
        Kind::OneOrMore(table) if matches!(node.data, Data::List(_)) => {
            return blocks(entry, table, scenario, review);
        }
        Kind::Block(table) | Kind::OneOrMore(table) | Kind::Over(table) => {
            return block(entry, table, scenario, review);
        }
        Kind::Map(kind) => return map(entry, kind, scenario, review),
        Kind::Planned => return review.push(not_yet(entry.key_at, &entry.key)),
        _ => return,
    };
    review.push(must_be(entry, &expected));
}

fn must_be(entry: &Entry, expected: &str) -> Mistake {
    Mistake::new(
        entry.value.at,
        format!("`{}` must be {expected}", entry.key),
        describe_actual(&entry.value, expected),
    )
}

fn not_text(entry: &Entry) -> Mistake {
    let mistake = must_be(entry, "text");
    match entry.value.scalar() {
        Some(value) => mistake.help(format!("Quote it: \"{value}\".")),
        None => mistake,
    }
}

pub(crate) fn whole_range(low: i64, high: i64) -> String {
    if low == high {
        format!("{low}")
    } else if low == i64::MIN {
        "a whole number".to_owned()
    } else if high >= i64::from(u32::MAX) {
        format!("a whole number, {low} or more")
    } else {
        format!("a whole number from {low} to {high}")
    }
}

pub(crate) fn number_range(low: f64, high: f64) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => format!("a number from {low} to {high}"),
        (true, false) if low == f64::MIN_POSITIVE => "a number above 0".to_owned(),
        (true, false) => format!("a number, {low} or more"),
        _ => "a number".to_owned(),
    }
}

fn file(entry: &Entry, review: &mut Review) {
    let Some(named) = entry.value.text() else {
        return review.push(not_text(entry));
    };
    files::find_file(entry.value.at, &named, review);
}

fn data(entry: &Entry, review: &mut Review) {
    match entry.value.text() {
        Some(path) if remote_data::is_name(&path) => remote_data::check_name(&entry.value, review),
        _ => file(entry, review),
    }
}

fn hub(entry: &Entry, review: &mut Review) {
    let Some(named) = entry.value.text() else {
        return review.push(not_text(entry));
    };
    if review
        .sources
        .find_or_hub(entry.value.at.file, &named)
        .is_none()
    {
        let mistake = files::no_file(entry.value.at, &named, review);
        review.push(mistake.help(
            "A file or folder next to the file that names it, `builtin`, or a name \
            on a hub such as `org/name`.",
        ));
    }
}

fn choice(
    entry: &Entry,
    known: &'static [(&'static str, &'static str)],
    later: &'static [&'static str],
    review: &mut Review,
) {
    let words = || known.iter().map(|(word, _)| *word);
    let exist = list(words(), "or");
    let Some(text) = entry.value.text() else {
        return review.push(must_be(entry, &exist));
    };
    if words().any(|word| word == text) {
        return;
    }
    let key = entry.key.rsplit('.').next().unwrap_or(&entry.key);
    if later.contains(&text.as_ref()) {
        return review
            .push(not_yet(entry.value.at, &text).help(format!("`{key}` may be {exist}.")));
    }
    let label = meant_or(nearest(&text, words()), "does not exist");
    let one = if ["bodies", "addresses"].contains(&key) {
        key
    } else {
        key.strip_suffix('s').unwrap_or(key)
    };
    let message = format!("unknown {one} `{text}`");
    review.push(
        Mistake::new(entry.value.at, message, label).help(format!("`{key}` may be {exist}.")),
    );
}

/// The error of a key or word that is reserved for a later version.
pub(crate) fn not_yet(at: Span, word: &str) -> Mistake {
    Mistake::new(
        at,
        format!("`{word}` is not available yet"),
        "reserved for a later version",
    )
}

fn items(entry: &Entry, kind: &'static Kind, scenario: &'static Block, review: &mut Review) {
    if !matches!(entry.value.data, Data::List(_)) {
        let mistake = must_be(entry, "a list");
        let text = entry
            .value
            .text()
            .filter(|text| !text.contains(['"', '\n', '\\']));
        return review.push(match text {
            Some(text) => mistake.help(format!("Write `{}: [\"{text}\"]`.", entry.key)),
            None => mistake,
        });
    }
    for item in entry.value.items() {
        value(
            &Entry {
                key: entry.key.clone(),
                key_at: item.at,
                value: item.clone(),
            },
            kind,
            scenario,
            review,
        );
    }
}

/// A list of blocks, each of which may be in place of the list.
fn blocks(entry: &Entry, table: &'static Block, scenario: &'static Block, review: &mut Review) {
    if entry.value.items().is_empty() {
        let mistake = Mistake::new(
            entry.value.at,
            format!("`{}` is an empty list", entry.key),
            "has no item",
        );
        return review.push(mistake.help("Add an item, or remove the key."));
    }
    for item in entry.value.items() {
        let item = Entry {
            key: entry.key.clone(),
            key_at: item.at,
            value: item.clone(),
        };
        block(&item, table, scenario, review);
    }
}

fn map(entry: &Entry, kind: &'static Kind, scenario: &'static Block, review: &mut Review) {
    if !matches!(entry.value.data, Data::Map(_)) {
        return review.push(must_be(entry, "a mapping"));
    }
    for entry in entry.value.entries() {
        value(entry, kind, scenario, review);
    }
}
