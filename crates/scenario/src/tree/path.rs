//! Dotted paths into a tree.

use super::{Data, Entry, Node, Span};

impl Node {
    /// The item of a list that has that name, or else that index.
    fn item(&self, name: &str) -> Option<usize> {
        let own = |item: &Node| item.entry("name").and_then(|entry| entry.value.text()).as_deref() == Some(name);
        let index = || name.parse().ok().filter(|&index: &usize| index < self.items().len());
        self.items().iter().position(own).or_else(index)
    }

    /// The entry at a dotted path, where it holds something; an item of a list is named by its `name` or its index.
    pub fn entry_at(&self, path: &str) -> Option<&Entry> {
        if let (Data::List(items), Some((head, rest))) = (&self.data, path.split_once('.')) {
            return items.get(self.item(head)?)?.entry_at(rest);
        }
        let found = match path.split_once('.') {
            None => self.entry(path),
            Some((head, rest)) => self.entry(head).and_then(|entry| entry.value.entry_at(rest)),
        };
        found.filter(|entry| !entry.value.is_null())
    }

    /// The value at a dotted path; `null` is absent.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.entry_at(path).map(|entry| &entry.value)
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let Data::Map(entries) = &mut self.data else { return None };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }

    /// Puts a value at a dotted path; what stands in the way is replaced by mappings, but for the items of a list: there is
    /// none where it has no such item.
    pub fn set(&mut self, path: &str, key_at: Span, value: Node) {
        if let (Data::List(_), Some((head, rest))) = (&self.data, path.split_once('.')) {
            let index = self.item(head);
            if let (Data::List(items), Some(index)) = (&mut self.data, index)
                && let Some(item) = items.get_mut(index)
            {
                item.set(rest, key_at, value);
            }
            return;
        }
        match path.split_once('.') {
            None => self.put(path, key_at, value),
            Some((head, rest)) => {
                if self.entry(head).is_none() {
                    self.put(head, key_at, Node::new(key_at, Data::Null));
                }
                if let Data::Map(entries) = &mut self.data {
                    let inner = entries.iter_mut().filter(|entry| entry.key == head);
                    inner.for_each(|entry| entry.value.set(rest, key_at, value.clone()));
                }
            }
        }
    }

    /// Puts a value at a key, dots and all.
    pub fn put(&mut self, key: &str, key_at: Span, value: Node) {
        let entry = Entry { key: key.to_owned(), key_at, value };
        match &mut self.data {
            Data::Map(entries) => match entries.iter().position(|own| own.key == key) {
                Some(index) => entries[index] = entry,
                None => entries.push(entry),
            },
            other => *other = Data::Map(vec![entry]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_a_path_replaces_what_stands_in_its_way() {
        let at = Span { file: 0, start: 0, end: 0 };
        let mut node = Node::new(at, Data::Map(Vec::new()));
        node.set("load.rate", at, Node::new(at, Data::Text("8/s".into())));
        node.set("load.rate.deep", at, Node::new(at, Data::Int(1)));
        assert_eq!(node.json(), serde_json::json!({ "load": { "rate": { "deep": 1 } } }));
        assert_eq!(node.get("load.rate.deep").and_then(Node::whole), Some(1));
        assert_eq!(node.get("load.rate.other"), None);
    }

    #[test]
    fn items_of_a_list_are_reached_by_name_and_by_index() {
        let at = Span { file: 0, start: 0, end: 0 };
        let item = |name: &str| {
            let mut item = Node::new(at, Data::Map(Vec::new()));
            item.put("name", at, Node::new(at, Data::Text(name.into())));
            item
        };
        let mut node = Node::new(at, Data::Map(Vec::new()));
        node.put("mix", at, Node::new(at, Data::List(vec![item("a"), item("b")])));
        for (path, weight) in [("mix.b.weight", 3), ("mix.0.weight", 2), ("mix.c.weight", 9), ("mix.2.weight", 9)] {
            node.set(path, at, Node::new(at, Data::Int(weight)));
        }
        let known = serde_json::json!({ "mix": [{ "name": "a", "weight": 2 }, { "name": "b", "weight": 3 }] });
        assert_eq!((node.json(), node.get("mix.1.weight").and_then(Node::whole)), (known, Some(3)));
        assert_eq!((node.get("mix.c.weight"), node.get("mix.2.name")), (None, None));
    }
}
