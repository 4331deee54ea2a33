//! What a person can act on, of a TLS handshake that failed.

use crate::connect::REMEDY;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::io;

/// Why the handshake with `host` failed. A server that does not speak TLS answers with bytes that no TLS library can name.
pub(super) fn in_words(error: &io::Error, host: &str, address: &str) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(why)) => format!("the certificate of {host} {}", certificate(why, host)),
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => format!("{address} does not speak TLS: use http://"),
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            format!("the server did not agree on the HTTP version that was offered (ALPN); {REMEDY}")
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("{address} closed the connection during the TLS handshake: if it does not speak TLS, use http://")
        }
        _ => error.to_string(),
    }
}

fn certificate(why: &CertificateError, host: &str) -> String {
    use CertificateError as Why;
    match why {
        Why::UnknownIssuer => "is signed by an unknown authority: set target.tls.ca".to_owned(),
        Why::Expired | Why::ExpiredContext { .. } => "has expired: renew it, or check the clock of this host".to_owned(),
        Why::NotValidYet | Why::NotValidYetContext { .. } => "is not valid yet: check the clock of this host".to_owned(),
        Why::NotValidForName => format!("does not name {host}: use a name of the certificate in target.url"),
        Why::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("names no host: use one that names {host}")
        }
        Why::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
            format!("names {}, not {host}: use a name of the certificate in target.url", names.join(", "))
        }
        Why::Revoked => "is revoked: renew it".to_owned(),
        // webpki refuses the certificate of an authority as that of a server, even where the authority is trusted.
        Why::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is self-signed as an authority: use a certificate that is not a CA, or set target.tls.insecure: true".to_owned()
        }
        other => format!("cannot be used: {other}"),
    }
}

/// `DnsName("a.example")` as `a.example`.
fn plain(presented: &str) -> &str {
    presented.split_once("(\"").and_then(|(_, rest)| rest.split_once('"')).map_or(presented, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{ServerName, UnixTime};
    use std::time::Duration;

    fn told(why: CertificateError) -> String {
        in_words(&io::Error::other(Error::InvalidCertificate(why)), "h.example", "h.example:443")
    }

    #[test]
    fn a_server_that_hangs_up_is_named() {
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        let words = "h.example:443 closed the connection during the TLS handshake: if it does not speak TLS, use http://";
        assert_eq!(in_words(&error, "h.example", "h.example:443"), words);
    }

    #[test]
    fn certificates_are_refused_in_words() {
        let at = |secs| UnixTime::since_unix_epoch(Duration::from_secs(secs));
        let unknown = "the certificate of h.example is signed by an unknown authority: set target.tls.ca";
        assert_eq!(told(CertificateError::UnknownIssuer), unknown);
        let expired = "the certificate of h.example has expired: renew it, or check the clock of this host";
        assert_eq!(told(CertificateError::ExpiredContext { time: at(9), not_after: at(1) }), expired);
        let early = "the certificate of h.example is not valid yet: check the clock of this host";
        assert_eq!(told(CertificateError::NotValidYet), early);
        let named = |presented: &[&str]| {
            let presented = presented.iter().map(|name| (*name).to_owned()).collect();
            told(CertificateError::NotValidForNameContext { expected: ServerName::try_from("h.example").unwrap(), presented })
        };
        let other = "the certificate of h.example names a.example, *.b.example, not h.example: use a name of the certificate in target.url";
        assert_eq!(named(&["DnsName(\"a.example\")", "*.b.example"]), other);
        assert_eq!(named(&[]), "the certificate of h.example names no host: use one that names h.example");
        assert!(told(CertificateError::BadSignature).starts_with("the certificate of h.example cannot be used: "));
    }
}
