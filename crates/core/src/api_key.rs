//! How requests prove who sends them: a fixed key, a key that a command prints during the run, or a signature of AWS.

use crate::redact::{Hidden, SHORTEST, Secret, hidden_spellings};
use crate::units::Nanos;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Where the key of requests comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiKey {
    /// The scenario.
    Fixed(Secret),
    /// A command.
    Command(KeyCommand),
    /// The credentials of AWS. They are not sent: they sign each request.
    Aws(AwsSigning),
}

/// A command that prints a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyCommand {
    /// The program and its arguments, run without a shell.
    pub argv: Vec<String>,
    /// Time from one call to the next.
    pub every: Nanos,
    /// The keys so far.
    pub keys: ObtainedKeys,
}

/// Signatures of AWS (SigV4).
#[derive(Clone, Debug, PartialEq)]
pub struct AwsSigning {
    /// The service, such as `bedrock`.
    pub service: String,
    /// The region; None: that of the environment or of the profile.
    pub region: Option<String>,
    /// The profile; None: the environment's credentials or profile.
    pub profile: Option<String>,
    /// The credentials so far.
    pub keys: ObtainedKeys,
}

/// Credentials of AWS, and the region that they sign for.
#[derive(Clone, Debug, PartialEq)]
pub struct AwsCredentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: Secret,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: Secret,
    /// `AWS_SESSION_TOKEN`, of temporary credentials.
    pub session_token: Option<Secret>,
    /// The region.
    pub region: String,
}

impl ApiKey {
    /// The key that the next request sends; None before the first call of the command, and for signed requests.
    pub fn current(&self) -> Option<Secret> {
        match self {
            ApiKey::Fixed(key) => Some(key.clone()),
            ApiKey::Command(command) => command.keys.latest()?.key().cloned(),
            ApiKey::Aws(_) => None,
        }
    }

    /// The key in the scenario, if it has one.
    pub fn fixed(&self) -> Option<&Secret> {
        match self {
            ApiKey::Fixed(key) => Some(key),
            ApiKey::Command(_) | ApiKey::Aws(_) => None,
        }
    }

    /// The keys that are obtained during the run.
    pub fn obtained(&self) -> Option<&ObtainedKeys> {
        match self {
            ApiKey::Fixed(_) => None,
            ApiKey::Command(command) => Some(&command.keys),
            ApiKey::Aws(signing) => Some(&signing.keys),
        }
    }
}

/// A key that was obtained.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue {
    /// Text that is sent.
    Text(Secret),
    /// Credentials that sign.
    Aws(AwsCredentials),
}

impl KeyValue {
    fn secrets(&self) -> Vec<&Secret> {
        match self {
            KeyValue::Text(key) => vec![key],
            KeyValue::Aws(credentials) => {
                [&credentials.access_key_id, &credentials.secret_access_key]
                    .into_iter()
                    .chain(&credentials.session_token)
                    .collect()
            }
        }
    }
}

impl From<&str> for KeyValue {
    fn from(key: &str) -> KeyValue {
        KeyValue::Text(Secret::new(key))
    }
}

/// All keys that were obtained, in order. One thread adds keys; readers do not wait. Clones share the keys.
///
/// Earlier keys are kept, since a server may return them in any later response.
#[derive(Clone, Default)]
pub struct ObtainedKeys(Arc<State>);

#[derive(Default)]
struct State {
    first: Link,
    /// Number of the last key that the server refused.
    refused: AtomicU64,
}

type Link = OnceLock<Arc<ObtainedKey>>;

/// One of the keys that were obtained.
pub struct ObtainedKey {
    /// From 1.
    number: u64,
    value: KeyValue,
    hidden: Vec<Hidden>,
    next: Link,
}

impl ObtainedKey {
    /// Its number, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The key, if it is text.
    pub fn key(&self) -> Option<&Secret> {
        match &self.value {
            KeyValue::Text(key) => Some(key),
            KeyValue::Aws(_) => None,
        }
    }

    /// The credentials of AWS, if it is these.
    pub fn aws(&self) -> Option<&AwsCredentials> {
        match &self.value {
            KeyValue::Text(_) => None,
            KeyValue::Aws(credentials) => Some(credentials),
        }
    }
}

impl Drop for ObtainedKey {
    /// Not recursive: a long run may have many keys.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut key) = next.and_then(Arc::into_inner) {
            next = key.next.take();
        }
    }
}

impl ObtainedKeys {
    /// Adds a key, unless it is the same as the latest one.
    pub fn add(&self, key: impl Into<KeyValue>) {
        let value = key.into();
        let latest = self.latest();
        if latest.as_ref().is_some_and(|latest| latest.value == value) {
            return;
        }
        let secrets = value.secrets().into_iter();
        let new = Arc::new(ObtainedKey {
            number: latest.as_ref().map_or(1, |latest| latest.number + 1),
            hidden: secrets
                .flat_map(|secret| hidden_spellings(secret.expose(), SHORTEST))
                .collect(),
            value,
            next: Link::new(),
        });
        let link = latest.as_ref().map_or(&self.0.first, |latest| &latest.next);
        let _ = link.set(new);
    }

    /// The latest key.
    pub fn latest(&self) -> Option<Arc<ObtainedKey>> {
        let mut latest = self.0.first.get()?;
        while let Some(next) = latest.next.get() {
            latest = next;
        }
        Some(latest.clone())
    }

    /// Replaces the key of this reader by the latest one. Returns it if it is newer.
    pub fn advance<'a>(&self, reader: &'a mut Option<Arc<ObtainedKey>>) -> Option<&'a ObtainedKey> {
        let mut found: Option<Arc<ObtainedKey>> = None;
        loop {
            let link = match found.as_ref().or(reader.as_ref()) {
                Some(key) => &key.next,
                None => &self.0.first,
            };
            match link.get() {
                Some(next) => found = Some(next.clone()),
                None => break,
            }
        }
        Some(reader.insert(found?))
    }

    /// Records that the server refused a key.
    pub fn refuse(&self, number: u64) {
        self.0.refused.fetch_max(number, Ordering::Relaxed);
    }

    /// Whether the server refused the latest key.
    pub fn is_refused(&self) -> bool {
        let refused = self.0.refused.load(Ordering::Relaxed);
        refused > 0 && self.latest().is_some_and(|latest| latest.number == refused)
    }

    /// Whether both are the same list of keys.
    pub fn is_shared_with(&self, other: &ObtainedKeys) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The spellings of all keys.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = &Hidden> + Clone {
        std::iter::successors(self.0.first.get(), |key| key.next.get()).flat_map(|key| &key.hidden)
    }
}

/// The keys are no part of a plan.
impl PartialEq for ObtainedKeys {
    fn eq(&self, _: &ObtainedKeys) -> bool {
        true
    }
}

impl fmt::Debug for ObtainedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;

    fn expose(key: Option<&ObtainedKey>) -> Option<String> {
        Some(key?.key()?.expose().to_owned())
    }

    #[test]
    fn a_reader_takes_each_newer_key_once() {
        let keys = ObtainedKeys::default();
        let mut reader = None;
        assert_eq!(expose(keys.advance(&mut reader)), None);
        keys.add("key-one");
        keys.add("key-one");
        assert_eq!(
            expose(keys.advance(&mut reader)),
            Some("key-one".to_owned())
        );
        assert_eq!(expose(keys.advance(&mut reader)), None);
        keys.add("key-two");
        keys.clone().add("key-three");
        assert_eq!(
            expose(keys.advance(&mut reader)),
            Some("key-three".to_owned())
        );
        assert_eq!(reader.map(|key| key.number()), Some(3));
    }

    #[test]
    fn only_the_latest_key_counts_as_refused() {
        let keys = ObtainedKeys::default();
        keys.add("key-one");
        keys.refuse(0);
        assert!(!keys.is_refused());
        keys.refuse(1);
        assert!(keys.is_refused());
        keys.add("key-two");
        keys.refuse(1);
        assert!(!keys.is_refused());
    }

    #[test]
    fn keys_that_come_later_are_redacted_too() {
        let keys = ObtainedKeys::default();
        let redactor = Redactor::from_texts(["key-of"].into_iter(), SHORTEST)
            .with_obtained(&keys)
            .with_encoding(|text| text.replace('_', "\\_"));
        keys.add("key-of-one");
        keys.add("a_key/two");
        let text = "key-of-one a_key/two a\\_key/two a_key%2Ftwo key-of-one";
        assert_eq!(
            redactor.redact(text.to_owned()),
            "[redacted] [redacted] [redacted] [redacted] [redacted]"
        );
        assert_eq!(redactor.redact_truncated("x a_key/"), "x [redacted]");
        assert_eq!(
            redactor.redact_json(r#"{"a": "a_key/two"}"#),
            r#"{"a": "[redacted]"}"#
        );
    }

    #[test]
    fn all_parts_of_aws_credentials_are_redacted() {
        let keys = ObtainedKeys::default();
        let redactor = Redactor::default().with_obtained(&keys);
        let credentials = AwsCredentials {
            access_key_id: Secret::new("AKIDEXAMPLE"),
            secret_access_key: Secret::new("wJalr/EXAMPLE"),
            session_token: Some(Secret::new("IQoJ//EXAMPLE==")),
            region: "us-east-1".to_owned(),
        };
        keys.add(KeyValue::Aws(credentials.clone()));
        keys.add(KeyValue::Aws(credentials));
        assert_eq!(keys.latest().map(|key| key.number()), Some(1));
        assert_eq!(
            redactor.redact("AKIDEXAMPLE/us-east-1 wJalr/EXAMPLE IQoJ//EXAMPLE==".to_owned()),
            "[redacted]/us-east-1 [redacted] [redacted]"
        );
        assert_eq!(
            format!("{:?}", keys.latest().unwrap().aws().unwrap()),
            "AwsCredentials { access_key_id: [redacted], secret_access_key: [redacted], \
             session_token: Some([redacted]), region: \"us-east-1\" }"
        );
    }

    #[test]
    fn many_keys_are_dropped_without_recursion() {
        let keys = ObtainedKeys::default();
        let mut last: Arc<ObtainedKey> = {
            keys.add("key-0");
            keys.latest().unwrap()
        };
        for number in 2..100_000 {
            let new = Arc::new(ObtainedKey {
                number,
                value: "k".into(),
                hidden: Vec::new(),
                next: Link::new(),
            });
            assert!(last.next.set(new.clone()).is_ok());
            last = new;
        }
        drop(keys);
        drop(last);
    }
}
