//! The server's TLS configuration, which follows the PEM files as they are renewed, or has a pair that
//! its owner replaces.
//!
//! Invariant: a broken file or pair is never used; the last good one stays.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, RootCertStore, ServerConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_rustls::TlsAcceptor;

use tollgate_core::diagnostic::with_causes;
use tollgate_runtime::certificates;
use tollgate_runtime::followed::Reread;

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

/// Why a client and this server did not agree on TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum HandshakeFailure {
    /// It did not end in time.
    Timeout,
    /// The client closed the connection, or it broke.
    Closed,
    /// The client has no certificate, and must have one.
    ClientCertificateMissing,
    /// The client's certificate is of no authority that is trusted here.
    ClientAuthorityUnknown,
    /// The client's certificate has expired, or is not valid yet.
    ClientCertificateExpired,
    /// The client's certificate cannot be used for another reason.
    ClientCertificateInvalid,
    /// The client does not accept the certificate of this server.
    ServerCertificateRefused,
    /// Anything else: no common version, or bytes that are not TLS.
    Other,
}

impl HandshakeFailure {
    pub(crate) fn of(error: &io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let Some(cause) = cause else {
            return match error.kind() {
                io::ErrorKind::TimedOut => Self::Timeout,
                _ => Self::Closed,
            };
        };
        match cause {
            rustls::Error::NoCertificatesPresented => Self::ClientCertificateMissing,
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::ClientAuthorityUnknown,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::ClientCertificateExpired,
                _ => Self::ClientCertificateInvalid,
            },
            rustls::Error::AlertReceived(
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                // A certificate of an authority with the same name and another key.
                | AlertDescription::DecryptError
                | AlertDescription::UnsupportedCertificate,
            ) => Self::ServerCertificateRefused,
            _ => Self::Other,
        }
    }
}

/// A certificate chain and key that follow their files, or that their owner replaces, and the authorities
/// of clients, which follow their file.
#[derive(derive_more::Debug)]
#[debug("Certificates {{ files: {files:?}, .. }}")]
pub struct Certificates {
    /// `None` for a pair in memory.
    files: Option<tollgate_config::Tls>,
    current: Arc<ServerCertResolver>,
    /// `None` if clients need no certificate.
    clients: Option<Clients>,
    acceptor: ArcSwap<TlsAcceptor>,
}

struct Clients {
    file: PathBuf,
    authorities: ArcSwap<Vec<CertificateDer<'static>>>,
}

#[derive(Debug)]
struct ServerCertResolver(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for ServerCertResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificates {
    /// Reads the files. With `clients`, clients must have a certificate of an authority in this PEM file.
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
        let clients = clients.map(|file| {
            let authorities = ArcSwap::from_pointee(read_chain(file)?);
            let file = file.to_owned();
            Ok::<_, Error>(Clients { file, authorities })
        });
        let clients = clients.transpose()?;
        let trusted = clients
            .as_ref()
            .map(|clients| (&*clients.file, clients.authorities.load_full()));
        let acceptor = acceptor(&current, trusted.as_ref().map(|(file, trusted)| (*file, &***trusted)))?;
        Ok(Self {
            files,
            current,
            clients,
            acceptor: ArcSwap::from_pointee(acceptor),
        })
    }

    /// Reads the files again, and returns whether they have changed. New connections use the certificate
    /// and trust the authorities that they have now. A file that cannot be used delays no other one.
    ///
    /// # Errors
    /// [`Error`]; what was good last stays.
    pub fn reload(&self) -> Result<bool, Error> {
        let pair = match &self.files {
            Some(files) => read(files).map(|pair| self.store(pair)),
            None => Ok(false),
        };
        // Before the first `?`, so that an unusable pair does not keep the authorities as they are.
        let clients = self.reload_clients();
        Ok(pair? | clients?)
    }

    fn reload_clients(&self) -> Result<bool, Error> {
        let Some(clients) = &self.clients else {
            return Ok(false);
        };
        let authorities = read_chain(&clients.file)?;
        let is_changed = authorities != **clients.authorities.load();
        if is_changed {
            // The sessions that clients could resume are in the former one, so they end with it.
            let acceptor = acceptor(&self.current, Some((&clients.file, &authorities)))?;
            self.acceptor.store(Arc::new(acceptor));
            // Last: if there is no acceptor for them, the next reload has to find them changed again.
            clients.authorities.store(Arc::new(authorities));
        }
        Ok(is_changed)
    }

    /// Uses another pair for new connections, and returns whether its certificate is another one.
    ///
    /// # Errors
    /// [`Error`]; the last good certificate stays.
    pub fn replace(&self, certificate: &str, key: &SecretString) -> Result<bool, Error> {
        Ok(self.store(parse(certificate, key)?))
    }

    fn store(&self, pair: CertifiedKey) -> bool {
        // The key needs no comparison: `CertifiedKey::from_der` refuses one that is not the certificate's.
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

    /// The last second of validity of the certificate that clients see, since the Unix epoch.
    pub fn end(&self) -> Option<u64> {
        certificates::end(self.current.0.load().cert.first()?)
    }

    /// As [`Certificates::end`], of the authority of clients that ends first.
    pub fn authority_end(&self) -> Option<u64> {
        let authorities = self.clients.as_ref()?.authorities.load();
        authorities.iter().filter_map(certificates::end).min()
    }

    pub(crate) fn acceptor(&self) -> Arc<TlsAcceptor> {
        self.acceptor.load_full()
    }
}

impl Reread for Certificates {
    fn reread(&self) -> Result<bool, String> {
        self.reload().map_err(|error| with_causes(&error))
    }
}

/// - `clients`: the authorities of clients with the file that has them.
fn acceptor(
    current: &Arc<ServerCertResolver>,
    clients: Option<(&Path, &[CertificateDer<'static>])>,
) -> Result<TlsAcceptor, Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some((file, authorities)) => builder.with_client_cert_verifier(verifier(file, authorities)?),
    };
    let mut config = builder.with_cert_resolver(Arc::clone(current) as Arc<dyn ResolvesServerCert>);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

/// Accepts clients with a certificate of one of these authorities.
fn verifier(file: &Path, authorities: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|source| Error::Clients {
        path: file.to_owned(),
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
