//! The server's TLS configuration, which follows the PEM files as they are renewed.
//!
//! Invariant: a broken file is never used; the last good pair stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
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
        source: rustls::pki_types::pem::Error,
    },
    /// The file contains no certificate.
    #[error("`{}` has no certificate", .0.display())]
    Empty(PathBuf),
    /// Key and certificate do not belong together, or cannot be used.
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

/// A certificate chain and key that follow their files.
#[derive(derive_more::Debug)]
#[debug("Certificates {{ files: {files:?}, .. }}")]
pub struct Certificates {
    files: tollgate_config::Tls,
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
    /// Reads the files.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load(files: tollgate_config::Tls) -> Result<Self, Error> {
        Self::load_with(files, None)
    }

    /// The same for a listener whose clients must have a certificate of an authority in this PEM file.
    /// The authority is not read again.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load_for_clients_of(files: tollgate_config::Tls, authority: &Path) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in read_chain(authority)? {
            roots.add(certificate)?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|source| Error::Clients {
            path: authority.to_owned(),
            source,
        })?;
        Self::load_with(files, Some(verifier))
    }

    fn load_with(files: tollgate_config::Tls, clients: Option<Arc<dyn ClientCertVerifier>>) -> Result<Self, Error> {
        let current = Arc::new(ServerCertResolver(ArcSwap::from_pointee(read(&files)?)));
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
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
        let read = read(&self.files)?;
        let is_changed = read.cert != self.current.0.load().cert;
        if is_changed {
            self.current.0.store(Arc::new(read));
        }
        Ok(is_changed)
    }

    /// The chain that clients see, the gateway's own certificate first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current.0.load().cert.clone()
    }

    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

fn read(files: &tollgate_config::Tls) -> Result<CertifiedKey, Error> {
    let chain = read_chain(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(failed(&files.key))?;
    Ok(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
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

fn failed(path: &Path) -> impl FnOnce(rustls::pki_types::pem::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}
