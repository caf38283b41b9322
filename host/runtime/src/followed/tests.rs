use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::sync::Mutex;

use super::{AuthorityFile, FollowedFile, Reread as _, authority_ends, reread, unusable};
use rustls::client::danger::ServerCertVerifier as _;

/// The list of followed files is one of the process, and each of these tests reads all of them again.
static LIST: Mutex<()> = Mutex::const_new(());

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    fn server(&self) -> CertificateDer<'static> {
        let parameters = CertificateParams::new(vec!["argocd".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        parameters.signed_by(&key, &self.0).unwrap().der().clone()
    }
}

fn accepts(authorities: &AuthorityFile, server: &CertificateDer<'_>) -> bool {
    let name = ServerName::try_from("argocd").unwrap();
    authorities
        .verify_server_cert(server, &[], &name, &[], UnixTime::now())
        .is_ok()
}

fn number(path: &Path) -> Result<Arc<FollowedFile<u32>>, String> {
    FollowedFile::open("test.number", path, |content| {
        let text = str::from_utf8(content).map_err(|_| "no text".to_owned())?;
        text.parse().map_err(|_| "no number".to_owned())
    })
}

#[test]
fn content_that_cannot_be_used_changes_nothing_and_is_said() {
    let _alone = LIST.blocking_lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let error = number(&path).unwrap_err();
    assert!(
        error.starts_with("`test.number`: `") && error.contains("cannot be read"),
        "{error}"
    );
    std::fs::write(&path, "x").unwrap();
    assert!(number(&path).unwrap_err().ends_with("no number"));

    std::fs::write(&path, "1").unwrap();
    let file = number(&path).unwrap();
    assert_eq!(file.reread(), Ok(false));
    std::fs::write(&path, "2").unwrap();
    assert_eq!((*file.load(), file.reread(), *file.load()), (1, Ok(true), 2));
    for broken in [Some("x"), None] {
        match broken {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        // Each look says so, not only the first one.
        for _ in 0..2 {
            let error = file.reread().unwrap_err();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert_eq!(*file.load(), 2);
        }
    }
    reread();
    assert_eq!(unusable().get("test.number"), Some(&true));
    std::fs::write(&path, "3").unwrap();
    reread();
    assert_eq!((*file.load(), unusable().get("test.number")), (3, Some(&false)));
    drop(file);
    assert_eq!(unusable().get("test.number"), None);
}

#[test]
fn a_handshake_trusts_the_authorities_that_the_file_has_now() {
    let _alone = LIST.blocking_lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let (old, new) = (first.server(), second.server());
    std::fs::write(&path, first.0.pem()).unwrap();
    let file = AuthorityFile::open("test.ca", &path).unwrap();
    let accepted = || [accepts(&file, &old), accepts(&file, &new)];
    assert_eq!(accepted(), [true, false]);
    std::fs::write(&path, format!("{}{}", first.0.pem(), second.0.pem())).unwrap();
    assert_eq!((file.reread(), accepted()), (Ok(true), [true, true]));
    std::fs::write(&path, second.0.pem()).unwrap();
    assert_eq!((file.reread(), accepted()), (Ok(true), [false, true]));

    // Opening it again while it is broken gives the last good content.
    std::fs::write(&path, "broken").unwrap();
    let again = AuthorityFile::open("test.ca", &path).unwrap();
    assert!(Arc::ptr_eq(&file, &again));
    assert_eq!(accepted(), [false, true]);
    assert!(file.reread().is_err());
    assert!(authority_ends().iter().any(|(setting, _)| *setting == "test.ca"));
    drop((file, again));
    assert!(AuthorityFile::open("test.ca", &path).is_err());
}

#[tokio::test]
async fn files_are_read_again_and_again() {
    let _alone = LIST.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "1").unwrap();
    let file = number(&path).unwrap();
    let interval = Duration::from_millis(1);
    let changes = async {
        for number in 2..5 {
            std::fs::write(&path, number.to_string()).unwrap();
            while *file.load() != number {
                tokio::time::sleep(interval).await;
            }
        }
    };
    tokio::select! {
        () = super::follow_every(interval) => {}
        () = changes => {}
    }
    assert_eq!(*file.load(), 4);
}
