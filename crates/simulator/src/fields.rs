//! The fields of a request's body, read one by one. What is wrong is refused by its dotted path.

use serde_json::{Map, Value};
use std::fmt::Display;

/// A request that gets an error status instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
    /// The field that is wrong, as a dotted path.
    pub(super) param: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), param: None }
    }

    /// The error that a struck request reports inside its answer.
    pub(super) fn broken() -> Refusal {
        Refusal::new(500, "the simulator broke this answer on purpose")
    }
}

/// A JSON object inside the body, or the body itself. A field that is `null` counts as absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'b> {
    /// None where the object is absent.
    map: Option<&'b Map<String, Value>>,
    /// The object's own name, empty for the body.
    name: &'static str,
}

impl<'b> Fields<'b> {
    /// The fields of the body.
    pub(super) fn of(body: &'b Map<String, Value>) -> Fields<'b> {
        Fields { map: Some(body), name: "" }
    }

    /// A field's value.
    pub(super) fn get(self, name: &str) -> Option<&'b Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    /// A field's value; its absence is refused.
    pub(super) fn need(self, name: &str) -> Result<&'b Value, Refusal> {
        self.get(name).ok_or_else(|| self.wrong(name, "is missing"))
    }

    /// Refuses a field; `why` follows its name.
    pub(super) fn wrong(self, name: &str, why: impl Display) -> Refusal {
        let path = if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) };
        Refusal { status: 400, message: format!("`{path}` {why}"), param: Some(path) }
    }

    /// An object inside this one.
    pub(super) fn object(self, name: &'static str) -> Result<Fields<'b>, Refusal> {
        match self.get(name) {
            None => Ok(Fields { map: None, name }),
            Some(Value::Object(map)) => Ok(Fields { map: Some(map), name }),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }

    /// A whole number, not negative.
    pub(super) fn whole(self, name: &str) -> Result<Option<u64>, Refusal> {
        self.typed(name, Value::as_u64, "a whole number")
    }

    /// A flag; absent is `default`.
    pub(super) fn flag(self, name: &str, default: bool) -> Result<bool, Refusal> {
        Ok(self.typed(name, Value::as_bool, "true or false")?.unwrap_or(default))
    }

    /// A text.
    pub(super) fn text(self, name: &str) -> Result<Option<&'b str>, Refusal> {
        self.typed(name, Value::as_str, "text")
    }

    /// A list that is not empty; its absence is refused. `what` names what it holds.
    pub(super) fn list(self, name: &str, what: &str) -> Result<&'b [Value], Refusal> {
        match self.need(name)? {
            Value::Array(list) if !list.is_empty() => Ok(list),
            _ => Err(self.wrong(name, format_args!("must be a list of at least one {what}"))),
        }
    }

    /// A limit of output tokens, at least 1.
    pub(super) fn limit(self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.whole(name)? {
            Some(0) => Err(self.wrong(name, "must be at least 1")),
            limit => Ok(limit),
        }
    }

    fn typed<T>(self, name: &str, read: impl Fn(&'b Value) -> Option<T>, what: &str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(name, format_args!("must be {what}, not {value}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_fields_are_named_by_their_path() {
        let body = json!({ "a": { "n": -1, "s": "x", "none": null }, "l": [], "f": 1 });
        let body = Fields::of(body.as_object().unwrap());
        let inner = body.object("a").unwrap();
        let refused = |refusal: Refusal| (refusal.message, refusal.param.unwrap());
        assert_eq!(refused(inner.whole("n").unwrap_err()), ("`a.n` must be a whole number, not -1".into(), "a.n".into()));
        assert_eq!(refused(body.flag("f", true).unwrap_err()).0, "`f` must be true or false, not 1");
        assert_eq!(refused(body.list("l", "item").unwrap_err()).0, "`l` must be a list of at least one item");
        assert_eq!(refused(body.object("f").unwrap_err()).0, "`f` must be an object");
        assert_eq!(refused(body.need("x").unwrap_err()).0, "`x` is missing");
        assert_eq!((inner.text("s"), inner.text("none"), inner.flag("none", true)), (Ok(Some("x")), Ok(None), Ok(true)));
        assert_eq!(body.object("absent").unwrap().whole("n"), Ok(None));
    }
}
