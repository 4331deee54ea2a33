//! Values put into a body.

use serde_json::{Map, Value};

/// The value at a dotted path.
pub(super) fn get<'a>(body: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => body.get(path),
        Some((head, rest)) => get(body.get(head)?.as_object()?, rest),
    }
}

/// Puts a value at a dotted path where nothing stands; what is no mapping on the way there stays as it is.
pub(super) fn fill(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => _ = body.entry(path).or_insert(value),
        Some((head, rest)) => {
            if let Value::Object(inner) = body.entry(head).or_insert_with(|| Value::Object(Map::new())) {
                fill(inner, rest, value);
            }
        }
    }
}

/// Puts a value at a dotted path in the place of what stands there; what is no mapping on the way there stays as it is.
pub(super) fn set(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => _ = body.insert(path.to_owned(), value),
        Some((head, rest)) => {
            if let Value::Object(inner) = body.entry(head).or_insert_with(|| Value::Object(Map::new())) {
                set(inner, rest, value);
            }
        }
    }
}

/// Merges `over` into `body`: mappings merge, `null` removes, everything else replaces.
pub(super) fn merge(body: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (body.get_mut(&key), value) {
            (_, Value::Null) => _ = body.shift_remove(&key),
            (Some(Value::Object(own)), Value::Object(value)) => merge(own, value),
            (_, Value::Object(value)) => {
                let mut fresh = Map::new();
                merge(&mut fresh, value);
                body.insert(key, Value::Object(fresh));
            }
            (_, value) => _ = body.insert(key, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_left_out_is_filled_in() {
        let Value::Object(mut body) = json!({ "options": { "seed": 1 }, "parameters": "x" }) else { panic!() };
        for path in ["options.seed", "options.top_k", "parameters.n", "a.b.c", "n"] {
            fill(&mut body, path, json!(7));
        }
        let filled = json!({ "options": { "seed": 1, "top_k": 7 }, "parameters": "x", "a": { "b": { "c": 7 } }, "n": 7 });
        assert_eq!(get(&body, "a.b.c"), Some(&json!(7)));
        assert_eq!((get(&body, "parameters.n"), get(&body, "a.x.c")), (None, None));
        assert_eq!(Value::Object(body), filled);
    }
}
