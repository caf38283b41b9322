//! Files that the settings name, and that are read again when they change: certificates, authorities, keys.
//!
//! There is one list in the process, because a file has one content. Code that uses a file registers it,
//! and [`follow`] reads all of them every [`INTERVAL`].
//!
//! Invariant: content that cannot be used changes nothing. The last good content stays, and [`unusable`] says
//! so until the file can be used again.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};
use tollgate_core::diagnostic::with_causes;
use zeroize::Zeroizing;

use crate::certificates;

/// Time between two looks at the files.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// What is read again. An error says what is wrong and names the file; it has no content of it.
pub trait Reread: Send + Sync {
    /// Reads the files again, and returns whether what is in use has changed.
    ///
    /// # Errors
    /// A file cannot be used. What was good last stays in use.
    fn reread(&self) -> Result<bool, String>;

    /// When the certificate in use that ends first does so, in seconds since the Unix epoch, if it is the
    /// authority of a server.
    fn authority_end(&self) -> Option<u64> {
        None
    }
}

struct Entry {
    setting: &'static str,
    files: Weak<dyn Reread>,
    /// Why they could not be used the last time.
    error: Option<String>,
}

static FOLLOWED: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static REPORTED: Mutex<BTreeMap<&'static str, bool>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads files again from now on, for as long as `files` lives.
///
/// - `setting`: the key of the settings that names them.
pub fn register(setting: &'static str, files: &Arc<impl Reread + 'static>) {
    let files: Weak<dyn Reread> = Arc::downgrade(files) as Weak<dyn Reread>;
    lock(&FOLLOWED).push(Entry {
        setting,
        files,
        error: None,
    });
}

/// Notes whether something can be renewed that is not in a file, as [`unusable`] says it of files.
pub fn report(setting: &'static str, is_unusable: bool) {
    lock(&REPORTED).insert(setting, is_unusable);
}

/// Of each setting whose files are followed, whether one of them cannot be used now.
pub fn unusable() -> BTreeMap<&'static str, bool> {
    let mut all = lock(&REPORTED).clone();
    for entry in lock(&FOLLOWED).iter().filter(|entry| entry.files.strong_count() > 0) {
        *all.entry(entry.setting).or_default() |= entry.error.is_some();
    }
    all
}

/// When the authorities end by which servers are trusted, with their settings.
pub fn authority_ends() -> Vec<(&'static str, u64)> {
    let followed = lock(&FOLLOWED);
    let living = followed
        .iter()
        .filter_map(|entry| Some((entry.setting, entry.files.upgrade()?)));
    living
        .filter_map(|(setting, files)| Some((setting, files.authority_end()?)))
        .collect()
}

/// Reads every file again, and logs what changed or cannot be used. Blocks.
pub fn reread() {
    // Not under the lock: a disk may hang.
    let followed: Vec<_> = {
        let mut followed = lock(&FOLLOWED);
        followed.retain(|entry| entry.files.strong_count() > 0);
        followed
            .iter()
            .map(|entry| (entry.setting, Weak::clone(&entry.files)))
            .collect()
    };
    for (setting, weak) in followed {
        let Some(files) = weak.upgrade() else { continue };
        let error = match files.reread() {
            Ok(is_changed) => {
                if is_changed {
                    tracing::info!(setting, "files changed, new connections use them");
                }
                None
            }
            Err(error) => Some(error),
        };
        let mut followed = lock(&FOLLOWED);
        let Some(entry) = followed.iter_mut().find(|entry| Weak::ptr_eq(&entry.files, &weak)) else {
            continue;
        };
        let is_news = entry.error != error;
        entry.error.clone_from(&error);
        drop(followed);
        match error {
            Some(error) if is_news => {
                tracing::error!(
                    setting,
                    error,
                    "a file cannot be used, its last good content stays in use"
                );
            }
            None if is_news => tracing::info!(setting, "the files can be used again"),
            Some(_) | None => {}
        }
    }
}

/// Reads every file again at each [`INTERVAL`]. Never returns; cancel safe.
pub async fn follow() {
    follow_every(INTERVAL).await;
}

async fn follow_every(interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        // A panic is of one look; the next one may succeed.
        if let Err(error) = tokio::task::spawn_blocking(reread).await {
            tracing::error!(%error, "files could not be read again");
        }
    }
}

type Parse<T> = dyn Fn(&[u8]) -> Result<T, String> + Send + Sync;

/// A file and what was made of its last good content.
pub struct FollowedFile<T> {
    setting: &'static str,
    path: PathBuf,
    parse: Box<Parse<T>>,
    current: RwLock<Arc<T>>,
    /// Digest of the content that was read last, and why it cannot be used.
    last: Mutex<([u8; 32], Result<(), String>)>,
}

impl<T> fmt::Debug for FollowedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FollowedFile({}: {})", self.setting, self.path.display())
    }
}

impl<T: Send + Sync + 'static> FollowedFile<T> {
    /// Reads the file, and follows it from now on. Blocks.
    ///
    /// - `setting`: the key of the settings that names it.
    ///
    /// # Errors
    /// It cannot be read, or `parse` refuses its content. The text names the setting and the file.
    pub fn open(
        setting: &'static str,
        path: &Path,
        parse: impl Fn(&[u8]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, String> {
        let opened = Arc::new(Self::read_once(setting, path, parse)?);
        register(setting, &opened);
        Ok(opened)
    }

    fn read_once(
        setting: &'static str,
        path: &Path,
        parse: impl Fn(&[u8]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let failed = |why: String| format!("`{setting}`: `{}`: {why}", path.display());
        let content = read(path).map_err(|why| failed(format!("cannot be read: {why}")))?;
        let parsed = parse(&content).map_err(failed)?;
        Ok(Self {
            setting,
            path: path.to_owned(),
            parse: Box::new(parse),
            current: RwLock::new(Arc::new(parsed)),
            last: Mutex::new((Sha256::digest(&content).into(), Ok(()))),
        })
    }

    /// What was made of the last good content.
    pub fn load(&self) -> Arc<T> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    fn reread_file(&self) -> Result<bool, String> {
        let failed = |why: String| format!("`{}`: {why}", self.path.display());
        let mut last = lock(&self.last);
        let content = read(&self.path).map_err(|why| failed(format!("cannot be read: {why}")))?;
        let digest: [u8; 32] = Sha256::digest(&content).into();
        if digest == last.0 {
            return last.1.clone().map(|()| false);
        }
        let parsed = (self.parse)(&content).map_err(failed);
        let result = parsed.map(|parsed| {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(parsed);
        });
        *last = (digest, result.clone());
        result.map(|()| true)
    }
}

/// The content may be a key.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut content = Zeroizing::new(Vec::new());
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut content);
    read.map_err(|error| error.to_string())?;
    match content.len() as u64 > MAX_BYTES {
        true => Err(format!("it has more than {MAX_BYTES} bytes")),
        false => Ok(content),
    }
}

impl<T: Send + Sync + 'static> Reread for FollowedFile<T> {
    fn reread(&self) -> Result<bool, String> {
        self.reread_file()
    }
}

/// The authorities in one state of a file.
#[derive(Debug)]
struct Authorities {
    verifier: Arc<WebPkiServerVerifier>,
    end: Option<u64>,
}

impl Authorities {
    fn parse(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let mut end = None;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
            let one = certificates::end(&certificate);
            end = end.into_iter().chain(one).min();
            roots.add(certificate).map_err(|error| with_causes(&error))?;
        }
        if roots.is_empty() {
            return Err("no certificate in it".to_owned());
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|error| with_causes(&error))?;
        Ok(Self { verifier, end })
    }
}

/// The only authorities that are trusted for some server. Each handshake uses those that the file has now;
/// connections that are open go on.
#[derive(Debug)]
pub struct AuthorityFile(FollowedFile<Authorities>);

type KnownAuthorities = HashMap<(&'static str, PathBuf), Weak<AuthorityFile>>;

static AUTHORITIES: LazyLock<Mutex<KnownAuthorities>> = LazyLock::new(Mutex::default);

impl AuthorityFile {
    /// Reads a PEM file, and follows it from now on. One that is in use already is the same value, and its
    /// last good content stays if it cannot be used now. Blocks.
    ///
    /// # Errors
    /// As [`FollowedFile::open`].
    pub fn open(setting: &'static str, path: &Path) -> Result<Arc<Self>, String> {
        let mut known = lock(&AUTHORITIES);
        known.retain(|_, file| file.strong_count() > 0);
        let key = (setting, path.to_owned());
        if let Some(file) = known.get(&key).and_then(Weak::upgrade) {
            drop(known);
            // An error is reported by the task that follows all files.
            let _ = file.reread();
            return Ok(file);
        }
        let file = Arc::new(Self(FollowedFile::read_once(setting, path, Authorities::parse)?));
        known.insert(key, Arc::downgrade(&file));
        drop(known);
        register(setting, &file);
        Ok(file)
    }

    /// TLS of a client without a certificate that trusts these authorities.
    ///
    /// - `protocols`: for ALPN.
    ///
    /// # Errors
    /// TLS cannot be used at all.
    pub fn client_config(self: &Arc<Self>, protocols: &[&[u8]]) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let verifier = Arc::clone(self) as Arc<dyn ServerCertVerifier>;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // SECURITY: a session that is resumed is not verified again, so it would outlive its authority.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn verifier(&self) -> Arc<WebPkiServerVerifier> {
        Arc::clone(&self.0.load().verifier)
    }
}

impl Reread for AuthorityFile {
    fn reread(&self) -> Result<bool, String> {
        self.0.reread_file()
    }

    fn authority_end(&self) -> Option<u64> {
        self.0.load().end
    }
}

impl ServerCertVerifier for AuthorityFile {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier()
            .verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
