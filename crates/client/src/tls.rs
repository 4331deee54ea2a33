//! TLS settings of a target, and how certificates are checked.

use llmscen_core::bounds;
use llmscen_core::target::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::sync::Arc;
use thiserror::Error;

/// Why the TLS settings are invalid.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A PEM file is missing or contains nothing usable.
    #[error("cannot read the {what} in {path}: {reason}")]
    Pem {
        /// `authorities`, `certificate` or `key`.
        what: &'static str,
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The settings contradict each other.
    #[error("invalid TLS settings: {0}")]
    Settings(String),
}

/// The client configuration for these settings. The dialer adds the HTTP versions to offer.
pub fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let settings = |error: rustls::Error| TlsError::Settings(error.to_string());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(settings)?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier(tls, provider)?);
    let config = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_slice(&read("key", key)?)
                .map_err(|e| pem("key", key, e))?;
            builder
                .with_client_auth_cert(certificates("certificate", cert)?, key)
                .map_err(settings)?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => {
            return Err(TlsError::Settings(
                "`cert` and `key` belong together: set both or neither".into(),
            ));
        }
    };
    Ok(Arc::new(config))
}

fn verifier(
    tls: &Tls,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    if tls.insecure {
        return Ok(Arc::new(AcceptAny(provider)));
    }
    let extra = match &tls.ca {
        Some(path) => certificates("authorities", path)?,
        None => Vec::new(),
    };
    let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(extra, provider);
    Ok(Arc::new(
        verifier.map_err(|error| TlsError::Settings(error.to_string()))?,
    ))
}

fn certificates(what: &'static str, path: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match CertificateDer::pem_slice_iter(&read(what, path)?).collect::<Result<Vec<_>, _>>() {
        Ok(certs) if certs.is_empty() => Err(pem(what, path, "it contains no certificate")),
        Ok(certs) => Ok(certs),
        Err(error) => Err(pem(what, path, error)),
    }
}

fn read(what: &'static str, path: &str) -> Result<Vec<u8>, TlsError> {
    bounds::read(path.as_ref(), bounds::TEXT).map_err(|error| pem(what, path, error))
}

fn pem(what: &'static str, path: &str, reason: impl std::fmt::Display) -> TlsError {
    TlsError::Pem {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// `tls.insecure: true`: any certificate is accepted; signatures are still checked against its key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_authority_names_its_file() {
        let tls = Tls {
            ca: Some("/nowhere/ca.pem".into()),
            ..Tls::default()
        };
        let error = client_config(&tls).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read the authorities in /nowhere/ca.pem: "),
            "{error}"
        );
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let tls = Tls {
            cert: Some("client.pem".into()),
            insecure: true,
            ..Tls::default()
        };
        assert!(
            client_config(&tls)
                .unwrap_err()
                .to_string()
                .contains("belong together")
        );
    }
}
