//! The structure of the code: modules use each other in one direction, and lines are short enough to be read.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, UseTree};

/// Rings that may stand in the whole workspace, and the most modules in one.
const MOST_RINGS: usize = 1;
const MOST_MODULES: usize = 2;
/// The longest line of code, in characters.
const LONGEST_LINE: usize = 120;

/// Module → the modules that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn source_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(source_files(&path)),
            false if path.extension() == Some(OsStr::new("rs")) => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

/// The paths that a file names, outside of tests.
#[derive(Default)]
struct NamedPaths(Vec<Vec<String>>);

impl NamedPaths {
    fn of(file: &File) -> NamedPaths {
        let mut paths = NamedPaths::default();
        paths.visit_file(file);
        paths
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &dyn ToString| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.0.push(with(&name.ident)),
            UseTree::Rename(name) => self.0.push(with(&name.ident)),
            UseTree::Glob(_) => self.0.push(before.to_vec()),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.add_tree(before, tree)),
        }
    }
}

impl<'a> Visit<'a> for NamedPaths {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Mod(module) if is_test(&module.attrs) => {}
            Item::Use(item) if is_test(&item.attrs) => {}
            Item::Use(item) => self.add_tree(&[], &item.tree),
            item => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.0.push(names.collect());
        visit::visit_path(self, path);
    }
}

fn parse(path: &Path) -> File {
    let text = fs::read_to_string(path).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the modules of a file: `a/b.rs` is `a::b`.
fn path_of_module(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    names.collect()
}

/// The path from the root of the crate, for a path that begins with `super` in the module `own`.
fn without_super(named: Vec<String>, own: &[String]) -> Vec<String> {
    let above = named.iter().take_while(|name| *name == "super").count();
    match above {
        0 => named,
        above => [&own[..own.len().saturating_sub(above)], &named[above..]].concat(),
    }
}

/// Whether a part of a path is `tests`, or a file of tests.
fn is_of_tests(part: &OsStr) -> bool {
    let part = part.to_str().unwrap();
    part == "tests" || part.ends_with("tests.rs")
}

/// The modules in a folder and which of them each uses. `root`: the path of the module that the folder belongs to,
/// and its file.
fn graph_of(folder: &Path, root: &[&str], file: &Path) -> Graph {
    let module_of = |path: &Path| {
        let first = path.strip_prefix(folder).unwrap().iter().next().unwrap();
        Path::new(first)
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let files: Vec<PathBuf> = source_files(folder)
        .into_iter()
        .filter(|path| !["lib", "main"].contains(&module_of(path).as_str()))
        .filter(|path| !path.iter().any(is_of_tests))
        .collect();
    let mut graph: Graph = files
        .iter()
        .map(|path| (module_of(path), BTreeSet::new()))
        .collect();
    // What the root exports again belongs to its module.
    let exported: BTreeMap<String, String> = NamedPaths::of(&parse(file))
        .0
        .into_iter()
        .filter(|path| path.len() > 1 && graph.contains_key(&path[0]))
        .filter_map(|path| Some((path.last()?.clone(), path[0].clone())))
        .collect();
    let root: Vec<String> = root.iter().map(|name| name.to_string()).collect();
    for path in &files {
        let module = module_of(path);
        let own = [
            root.clone(),
            path_of_module(path.strip_prefix(folder).unwrap()),
        ]
        .concat();
        for named in NamedPaths::of(&parse(path)).0 {
            let named = without_super(named, &own);
            let Some([name, ..]) = named.strip_prefix(root.as_slice()) else {
                continue;
            };
            let used = match graph.contains_key(name) {
                true => Some(name),
                false => exported.get(name),
            };
            if let Some(used) = used.filter(|used| **used != module) {
                graph
                    .entry(module.clone())
                    .or_default()
                    .insert(used.clone());
            }
        }
    }
    graph
}

/// The modules that a module uses, directly or through others.
fn reached(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        for next in &graph[&module] {
            if found.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    found
}

/// Groups of modules that use each other in both directions.
fn rings(graph: &Graph) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> = graph
        .keys()
        .map(|module| (module, reached(graph, module)))
        .collect();
    let ring = |module: &String| {
        let in_ring =
            |other: &&String| reached[module].contains(*other) && reached[other].contains(module);
        graph.keys().filter(in_ring).cloned().collect::<Vec<_>>()
    };
    graph
        .keys()
        .map(ring)
        .filter(|ring| ring.len() > 1)
        .collect()
}

#[test]
fn the_modules_of_a_run_use_earlier_ones_of_the_list() {
    let text = fs::read_to_string("src/run.rs").unwrap();
    let lines = text.lines().filter(|line| line.starts_with("//! - "));
    let listed: Vec<&str> = lines
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    let graph = graph_of(
        Path::new("src/run"),
        &["crate", "run"],
        Path::new("src/run.rs"),
    );
    let place = |module: &String| {
        let found = listed.iter().position(|name| name == module);
        found.unwrap_or_else(|| panic!("`{module}` is not in the list of src/run.rs"))
    };
    let later = graph.iter().flat_map(|(module, used)| {
        let later = used.iter().filter(|used| place(used) > place(module));
        later.map(move |used| (module, used))
    });
    assert_eq!(later.collect::<Vec<_>>(), []);
    assert_eq!(listed.len(), graph.len());
}

#[test]
fn rings_of_modules_are_found() {
    let graph = |edges: &[(&str, &[&str])]| -> Graph {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        edges
            .iter()
            .map(|(module, used)| (module.to_string(), owned(used)))
            .collect()
    };
    let stair = graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
    assert_eq!(rings(&stair), BTreeSet::new());
    let ring = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["a", "d"]), ("d", &[])]);
    assert_eq!(
        rings(&ring),
        BTreeSet::from([["a", "b", "c"].map(str::to_owned).to_vec()])
    );
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let mut all = vec![(
        PathBuf::from("src"),
        rings(&graph_of(
            Path::new("src"),
            &["crate"],
            Path::new("src/lib.rs"),
        )),
    )];
    let run = graph_of(
        Path::new("src/run"),
        &["crate", "run"],
        Path::new("src/run.rs"),
    );
    assert!(
        run.len() > 20 && run["execution"].contains("round"),
        "{run:?}"
    );
    all.push(("src/run".into(), rings(&run)));
    for entry in fs::read_dir("crates").unwrap() {
        let folder = entry.unwrap().path().join("src");
        let graph = graph_of(&folder, &["crate"], &folder.join("lib.rs"));
        all.push((folder, rings(&graph)));
    }
    let found: Vec<(&PathBuf, &Vec<String>)> = all
        .iter()
        .flat_map(|(folder, rings)| rings.iter().map(move |ring| (folder, ring)))
        .collect();
    println!("rings of modules: {found:#?}");
    let without = [Path::new("src/run"), Path::new("crates/scenario/src")];
    assert!(
        found
            .iter()
            .all(|(folder, _)| !without.contains(&folder.as_path())),
        "{found:#?}"
    );
    assert!(
        found.iter().all(|(_, ring)| ring.len() <= MOST_MODULES),
        "{found:#?}"
    );
    assert!(found.len() <= MOST_RINGS, "{found:#?}");
}

/// Marks the lines that have a long text in them, which may be data that cannot be broken.
fn mark_texts(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => mark_texts(group.stream(), lines),
            TokenTree::Literal(literal) => {
                let (start, end) = (literal.span().start(), literal.span().end());
                let is_long = end.line > start.line || end.column - start.column > LONGEST_LINE / 2;
                lines.extend((start.line..=end.line).filter(|_| is_long));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[test]
fn lines_of_code_and_comments_are_short() {
    let files = ["src", "crates"]
        .iter()
        .flat_map(|folder| source_files(Path::new(folder)));
    let mut long = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let mut texts = BTreeSet::new();
        let mut in_diagram = false;
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start().strip_prefix("//");
            in_diagram = comment.is_some_and(|comment| in_diagram != comment.contains("```"));
            if line.chars().count() <= LONGEST_LINE || in_diagram {
                continue;
            }
            if texts.is_empty() {
                mark_texts(text.parse().unwrap(), &mut texts);
            }
            if comment.is_some() || !texts.contains(&number) {
                long.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert_eq!(long, Vec::<String>::new());
}
