//! The server's TLS configuration, which follows the PEM files as they are renewed, or has a pair that
//! its owner replaces.
//!
//! Invariant: a broken file or pair is never used; the last good one stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_rustls::TlsAcceptor;

/// Why certificate files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or has no PEM of the kind wanted.
    #[error("cannot read `{}`", .path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// The file contains no certificate.
    #[error("`{}` has no certificate", .0.display())]
    Empty(PathBuf),
    /// The file contains no private key.
    #[error("`{}` has no private key", .0.display())]
    NoKey(PathBuf),
    /// The file contains the key of another certificate.
    #[error("`{}` is not the key of the certificate", .0.display())]
    OtherKey(PathBuf),
    /// A text has no PEM of the kind wanted.
    #[error("certificate and key cannot be read")]
    Pem(#[source] pem::Error),
    /// Key or certificate cannot be used.
    #[error("certificate and key cannot be used")]
    Rustls(#[from] rustls::Error),
    /// The authority of the clients cannot be used.
    #[error("`{}` cannot be used as the authority of clients", .path.display())]
    Clients {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: VerifierBuilderError,
    },
}

/// A certificate chain and key that follow their files, or that their owner replaces.
#[derive(derive_more::Debug)]
#[debug("Certificates {{ files: {files:?}, .. }}")]
pub struct Certificates {
    /// `None` for a pair in memory.
    files: Option<tollgate_config::Tls>,
    current: Arc<ServerCertResolver>,
    acceptor: TlsAcceptor,
}

#[derive(Debug)]
struct ServerCertResolver(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for ServerCertResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificates {
    /// Reads the files. With `clients`, clients must have a certificate of an authority in this PEM file,
    /// which is not read again.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load(files: tollgate_config::Tls, clients: Option<&Path>) -> Result<Self, Error> {
        let pair = read(&files)?;
        Self::new(Some(files), pair, clients)
    }

    /// Has a pair of PEM texts, until [`Certificates::replace`]. `clients` is as in
    /// [`Certificates::load`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn from_pem(certificate: &str, key: &SecretString, clients: Option<&Path>) -> Result<Self, Error> {
        Self::new(None, parse(certificate, key)?, clients)
    }

    fn new(files: Option<tollgate_config::Tls>, pair: CertifiedKey, clients: Option<&Path>) -> Result<Self, Error> {
        let current = Arc::new(ServerCertResolver(ArcSwap::from_pointee(pair)));
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => builder.with_client_cert_verifier(verifier(authority)?),
        };
        let mut config = builder.with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            files,
            current,
            acceptor: Arc::new(config).into(),
        })
    }

    /// Reads the files again, and returns whether the certificate is another one. New connections
    /// use it.
    ///
    /// # Errors
    /// [`Error`]; the last good certificate stays.
    pub fn reload(&self) -> Result<bool, Error> {
        match &self.files {
            Some(files) => Ok(self.store(read(files)?)),
            None => Ok(false),
        }
    }

    /// Uses another pair for new connections, and returns whether its certificate is another one.
    ///
    /// # Errors
    /// [`Error`]; the last good certificate stays.
    pub fn replace(&self, certificate: &str, key: &SecretString) -> Result<bool, Error> {
        Ok(self.store(parse(certificate, key)?))
    }

    fn store(&self, pair: CertifiedKey) -> bool {
        let is_changed = pair.cert != self.current.0.load().cert;
        if is_changed {
            self.current.0.store(Arc::new(pair));
        }
        is_changed
    }

    /// The chain that clients see, the gateway's own certificate first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current.0.load().cert.clone()
    }

    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

/// Accepts clients with a certificate of an authority in this file.
fn verifier(authority: &Path) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(authority)? {
        roots.add(certificate)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|source| Error::Clients {
        path: authority.to_owned(),
        source,
    })
}

fn parse(certificate: &str, key: &SecretString) -> Result<CertifiedKey, Error> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(Error::Pem)?;
    let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes()).map_err(Error::Pem)?;
    Ok(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
}

fn read(files: &tollgate_config::Tls) -> Result<CertifiedKey, Error> {
    let chain = read_chain(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::NoKey(files.key.clone()),
        other => failed(&files.key)(other),
    })?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Error::OtherKey(files.key.clone()),
        other => Error::Rustls(other),
    })
}

/// The certificates of a PEM file, at least one.
fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(failed(path))?
        .collect::<Result<_, _>>()
        .map_err(failed(path))?;
    match chain.is_empty() {
        true => Err(Error::Empty(path.to_owned())),
        false => Ok(chain),
    }
}

fn failed(path: &Path) -> impl FnOnce(pem::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}
