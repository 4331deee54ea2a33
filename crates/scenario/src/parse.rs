//! Parses YAML to a tree from the parser's events, which have positions and duplicate keys. Anchors, aliases and
//! merge keys (`<<`) are resolved here.

mod scan;

use crate::fault::{Mistake, Review};
use crate::tree::{Data, Entry, Node, Span};
use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput, Tag};
use std::collections::HashMap;

/// Maximum number of nodes in one file, with aliases expanded: nested aliases must not exhaust the memory.
const MOST_NODES: usize = 200_000;

/// Maximum depth with aliases expanded, because tree walks are recursive.
const DEEPEST: usize = 100;

/// Parses a part of the source `file` that starts at byte `shift`. None where it is not YAML; the error is reported.
pub(crate) fn parse(file: usize, shift: usize, text: &str, review: &mut Review) -> Option<Node> {
    let mut options = Options::default();
    options.emit_comments = false;
    options.flow_nesting_limit = DEEPEST;
    options.block_nesting_limit = DEEPEST;
    let events = Parser::new_from_str_with_options(text, options);
    Builder {
        events,
        file,
        shift,
        text,
        anchors: HashMap::new(),
        nodes: 0,
        depth: 0,
        review,
    }
    .document()
}

struct Builder<'t, 'r> {
    events: Parser<'t, StrInput<'t>>,
    file: usize,
    shift: usize,
    text: &'t str,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    /// Current depth.
    depth: usize,
    review: &'r mut Review,
}

impl<'t> Builder<'t, '_> {
    fn document(mut self) -> Option<Node> {
        let mut root = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    let help = "A scenario is a single YAML document; move the second one to another file.";
                    return self
                        .stop(Mistake::new(at, "a second document", "begins here").help(help));
                }
                Event::DocumentStart(..) => {
                    let (event, at) = self.next()?;
                    root = Some(self.node(event, at)?);
                }
                _ => break,
            }
        }
        let nothing = Span {
            file: self.file,
            start: self.shift,
            end: self.shift,
        };
        Some(root.unwrap_or(Node::new(nothing, Data::Null)))
    }

    fn next(&mut self) -> Option<(Event<'t>, Span)> {
        match self.events.next()? {
            Ok((event, span)) => {
                let range = span.byte_range().unwrap_or(0..0);
                Some((
                    event,
                    Span {
                        file: self.file,
                        start: self.shift + range.start,
                        end: self.shift + range.end,
                    },
                ))
            }
            Err(error) => {
                let mistake = scan::mistake(&error, self.file, self.shift, self.text, self.review);
                self.stop(mistake)
            }
        }
    }

    fn stop<T>(&mut self, mistake: Mistake) -> Option<T> {
        self.review.push(mistake);
        None
    }

    fn node(&mut self, event: Event<'t>, at: Span) -> Option<Node> {
        self.count(1, at)?;
        self.depth += 1;
        let node = self.read(event, at);
        self.depth -= 1;
        node
    }

    fn read(&mut self, event: Event<'t>, at: Span) -> Option<Node> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let data = self.scalar(&text, style, tag.as_deref(), at);
                Some(self.anchored(anchor, Node::new(at, data)))
            }
            Event::SequenceStart(_, anchor, _) => {
                let node = self.list(at)?;
                Some(self.anchored(anchor, node))
            }
            Event::MappingStart(_, anchor, _) => {
                let node = self.map(at)?;
                Some(self.anchored(anchor, node))
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => {
                    self.count(size(&node), at)?;
                    if self.depth + depth(&node) > DEEPEST + 1 {
                        let message = format!("more than {DEEPEST} levels of nesting");
                        return self.stop(Mistake::new(
                            at,
                            message,
                            "this alias is nested too deep",
                        ));
                    }
                    Some(node)
                }
                None => self.stop(Mistake::new(
                    at,
                    "an alias inside its own anchor",
                    "refers to itself",
                )),
            },
            _ => self.stop(Mistake::new(
                at,
                "invalid YAML: a value is missing",
                "the parser stopped here",
            )),
        }
    }

    fn count(&mut self, nodes: usize, at: Span) -> Option<()> {
        self.nodes += nodes;
        if self.nodes > MOST_NODES {
            return self.stop(Mistake::new(
                at,
                format!("more than {MOST_NODES} values in one file"),
                "the first one too many",
            ));
        }
        Some(())
    }

    fn anchored(&mut self, anchor: usize, node: Node) -> Node {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        node
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Span) -> Data {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            let mistake = Mistake::new(
                at,
                format!("a tag `{}`", tag.original()),
                "this value has a tag",
            );
            self.review
                .push(mistake.help("Tags have no meaning in a scenario; remove it."));
        }
        let is_text = tag.and_then(Tag::core_suffix) == Some("str");
        // The parser reads an empty value as `~`.
        if style == ScalarStyle::Plain && !is_text {
            Data::plain(text)
        } else {
            Data::Text(text.to_owned())
        }
    }

    fn list(&mut self, open: Span) -> Option<Node> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::SequenceEnd {
                let span = self.around(open, at, items.iter().map(|item: &Node| item.at));
                return Some(Node::new(span, Data::List(items)));
            }
            items.push(self.node(event, at)?);
        }
    }

    fn map(&mut self, open: Span) -> Option<Node> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merges: Vec<Node> = Vec::new();
        let mut known: HashMap<String, Span> = HashMap::new();
        loop {
            let (event, key_at) = self.next()?;
            if event == Event::MappingEnd {
                let span = self.around(
                    open,
                    key_at,
                    entries
                        .iter()
                        .flat_map(|entry| [entry.key_at, entry.value.at]),
                );
                merges
                    .iter()
                    .for_each(|merge| fold(&mut entries, &mut known, merge));
                return Some(Node::new(span, Data::Map(entries)));
            }
            let (key, merging) = match event {
                Event::Scalar(key, style, ..) => {
                    let merging = key == "<<" && style == ScalarStyle::Plain;
                    (key.into_owned(), merging)
                }
                Event::MappingStart(..)
                    if self.text[..key_at.start - self.shift].ends_with('{') =>
                {
                    return self.bare_template(open, key_at);
                }
                _ => return self.stop(Mistake::new(key_at, "a key must be text", "is not text")),
            };
            let (event, at) = self.next()?;
            let mut value = self.node(event, at)?;
            if value.at.start == value.at.end {
                value.at = key_at;
            }
            if merging {
                self.merge(value, &mut merges);
            } else if let Some(first) = known.get(&key).copied() {
                let mistake =
                    Mistake::new(key_at, format!("duplicate key `{key}`"), "second value");
                self.review.push(
                    mistake
                        .also(first, "first value")
                        .help("Keep one of the two."),
                );
            } else {
                known.insert(key.clone(), key_at);
                entries.push(Entry { key, key_at, value });
            }
        }
    }

    fn merge(&mut self, value: Node, merges: &mut Vec<Node>) {
        match &value.data {
            Data::Map(_) => merges.push(value),
            Data::List(items) if items.iter().all(|item| matches!(item.data, Data::Map(_))) => {
                merges.extend(items.iter().cloned())
            }
            _ => self.review.push(Mistake::new(
                value.at,
                "`<<` needs a mapping",
                format!("found {}", value.noun()),
            )),
        }
    }

    /// `{{ x }}` without quotes is a mapping whose key is a mapping. Continues with the text that was meant.
    fn bare_template(&mut self, open: Span, inner: Span) -> Option<Node> {
        let mut depth = 2;
        let mut end = inner.end;
        while depth > 0 {
            let (event, at) = self.next()?;
            match event {
                Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
                Event::MappingEnd | Event::SequenceEnd => depth -= 1,
                _ => {}
            }
            end = at.end;
        }
        let at = Span { end, ..open };
        let written = self.text[open.start - self.shift..end - self.shift].to_owned();
        let mistake = Mistake::new(
            at,
            "a template without quotes",
            "YAML reads these braces as a mapping",
        );
        self.review
            .push(mistake.help(format!("Write \"{written}\".")));
        Some(Node::new(at, Data::Text(written)))
    }

    /// The span from the first to the last piece: in block style the closing event is at the next token.
    fn around(&self, open: Span, close: Span, pieces: impl Iterator<Item = Span>) -> Span {
        if close.start < close.end {
            return Span {
                end: close.end,
                ..open
            };
        }
        let end = pieces
            .filter(|piece| piece.start >= open.start)
            .map(|piece| piece.end)
            .max();
        Span {
            end: end.unwrap_or(open.end),
            ..open
        }
    }
}

fn size(node: &Node) -> usize {
    1 + node.items().iter().map(size).sum::<usize>()
        + node
            .entries()
            .iter()
            .map(|entry| size(&entry.value))
            .sum::<usize>()
}

fn depth(node: &Node) -> usize {
    let items = node
        .items()
        .iter()
        .chain(node.entries().iter().map(|entry| &entry.value));
    1 + items.map(depth).max().unwrap_or(0)
}

fn fold(entries: &mut Vec<Entry>, known: &mut HashMap<String, Span>, merge: &Node) {
    for entry in merge.entries() {
        if !known.contains_key(&entry.key) {
            known.insert(entry.key.clone(), entry.key_at);
            entries.push(entry.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::PathBuf;

    fn read(text: &str) -> (Option<Node>, Vec<String>) {
        let mut review = Review::default();
        let file = review.sources.add("t.yaml", text, PathBuf::new());
        let node = parse(file, 0, text, &mut review);
        let faults = if review.is_clean() {
            Vec::new()
        } else {
            review
                .faults()
                .iter()
                .map(|f| format!("{}:{} {f}", f.line(), f.column()))
                .collect()
        };
        (node, faults)
    }

    #[test]
    fn anchors_and_merge_keys_are_resolved() {
        let (node, faults) = read("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\ne: *x\nf:\n");
        assert_eq!(
            node.unwrap().json(),
            json!({ "a": { "b": 1, "c": 2 }, "d": { "c": 3, "b": 1 }, "e": { "b": 1, "c": 2 }, "f": null })
        );
        assert!(faults.is_empty());
    }

    #[test]
    fn block_mappings_end_with_their_last_value() {
        let text = "a:\n  b: 1\n  c: [1,\n   2]\n\nd: 2\n";
        let node = read(text).0.unwrap();
        assert_eq!(
            &text[node.get("a").unwrap().at.range()],
            "b: 1\n  c: [1,\n   2]"
        );
        assert_eq!(&text[node.get("a.c").unwrap().at.range()], "[1,\n   2]");
    }

    #[test]
    fn every_duplicate_key_is_found() {
        assert_eq!(
            read("a: 1\nb: {c: 1, c: 2}\na: 2\n").1,
            ["2:11 duplicate key `c`", "3:1 duplicate key `a`"]
        );
    }

    #[test]
    fn syntax_errors_have_a_position() {
        for (text, fault) in [
            ("a:\n\tb: 1\n", "2:1 invalid YAML: a tab in the indentation"),
            ("a: @x\n", "1:4 invalid YAML: a value begins with `@`"),
            ("a: 1\n---\nb: 1\n", "2:1 a second document"),
            ("a: {b: 1\n", "1:4 invalid YAML: unclosed bracket `{`"),
            ("a: &x [*x]\n", "1:8 an alias inside its own anchor"),
            ("? [a]\n: b\n", "1:3 a key must be text"),
            ("a: !x b\n", "1:7 a tag `!x`"),
        ] {
            assert_eq!(read(text).1, [fault], "{text:?}");
        }
    }

    #[test]
    fn template_without_quotes_is_read_as_text() {
        let (node, faults) = read("a: {{ vars.x }}\nb: 1\n");
        assert_eq!(node.unwrap().json(), json!({ "a": "{{ vars.x }}", "b": 1 }));
        assert_eq!(faults, ["1:4 a template without quotes"]);
    }

    #[test]
    fn nested_aliases_cannot_exhaust_the_memory() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let last = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", vec![last; 10].join(", "));
        }
        assert_eq!(read(&text).1, ["6:10 more than 200000 values in one file"]);
    }
}
