//! Opening a store: valid and invalid URLs, and the errors.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use secrecy::SecretString;
use sqlx::Connection as _;
use tollgate_store::{CredentialFilter, Error, Page, Store};

use crate::store::support::{Backend, create, on_both, token};
use test_support::postgres::{PASSWORD, USER, shared};

on_both!(
    may_be_done_by_replicas_at_once,
    shows_nothing_of_the_url,
    refuses_tables_of_another_version
);

/// The text of the error, which must show nothing of the URL.
async fn refused(url: String) -> String {
    let error = Store::open(&SecretString::from(url)).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(matches!(error, Error::Open { .. } | Error::Unreachable(_)), "{text}");
    assert!(!text.contains(USER) && !text.contains(PASSWORD), "{text}");
    text
}

async fn may_be_done_by_replicas_at_once(backend: Backend) {
    let opened = futures_util::future::join_all((0..8).map(|_| Store::open(&backend.url))).await;
    let stores: Vec<_> = opened.into_iter().map(Result::unwrap).collect();
    let made = token(7, 1, 0);
    create(&stores[0], &made).await;
    for store in &stores {
        assert_eq!(
            store
                .tokens(&CredentialFilter::default(), &Page::default())
                .await
                .unwrap(),
            std::slice::from_ref(&made)
        );
    }
}

async fn shows_nothing_of_the_url(backend: Backend) {
    let text = format!("{:?}", backend.open().await);
    assert!(
        text == "Store { kind: Sqlite }" || text == "Store { kind: Postgres }",
        "{text}"
    );
}

async fn refuses_tables_of_another_version(backend: Backend) {
    drop(backend.open().await);
    sqlx::any::install_default_drivers();
    let url = secrecy::ExposeSecret::expose_secret(&backend.url);
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    let change = "UPDATE _sqlx_migrations SET version = 9999 WHERE version = 2";
    sqlx::query(change).execute(&mut connection).await.unwrap();
    let error = Store::open(&backend.url).await.unwrap_err();
    assert!(error.to_string().contains("9999"), "{error}");
}

#[tokio::test]
async fn other_urls_are_refused() {
    for url in [
        "",
        "/var/lib/store.db",
        "mysql://gatekeeper:correct-horse-staple@localhost/x",
        "postgres:gatekeeper",
    ] {
        let text = refused(url.to_owned()).await;
        assert!(text.contains("neither `sqlite:` nor `postgres://`"), "{text}");
    }
    for url in ["sqlite:", "sqlite:///tmp/tollgate-refused.db", "sqlite::memory:"] {
        let text = refused(url.to_owned()).await;
        assert!(text.contains("needs the path of a file"), "{text}");
    }
    let text = refused(format!("postgres://{USER}:{PASSWORD}@localhost:port/x")).await;
    assert!(text.contains("its URL is not valid"), "{text}");
    let text = refused(format!("postgres://{USER}:{PASSWORD}@localhost/x?sslmode={PASSWORD}")).await;
    assert!(text.contains("a setting that is not valid"), "{text}");
}

#[tokio::test]
async fn a_file_is_readable_by_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b%20?#.db");
    let url = SecretString::from(format!("sqlite:{}", path.display()));
    let store = Store::open(&url).await.unwrap();
    let made = token(7, 1, 0);
    create(&store, &made).await;
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort_unstable();
    assert_eq!(names, ["a b%20?#.db", "a b%20?#.db-shm", "a b%20?#.db-wal"]);
    // Opening the file again finds the token.
    let again = Store::open(&url).await.unwrap();
    assert_eq!(again.token(made.id).await.unwrap(), Some(made));
}

#[tokio::test]
async fn a_file_that_is_no_database_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes");
    fs::write(
        &path,
        "not a database, but a longer text than the head of one\n".repeat(9),
    )
    .unwrap();
    let text = refused(format!("sqlite:{}", path.display())).await;
    assert!(text.contains("not a database"), "{text}");
    assert!(fs::read_to_string(&path).unwrap().starts_with("not a database"));
    let text = refused(format!("sqlite:{}/absent/store.db", folder.path().display())).await;
    assert!(text.contains("No such file"), "{text}");
}

#[tokio::test]
async fn a_refused_login_shows_no_username() {
    let url = shared().database().await;
    let text = refused(url.replace(PASSWORD, "wrong")).await;
    assert!(text.contains("the database refused the login (28P01)"), "{text}");
    let text = refused(url.replace(USER, "nobody-here")).await;
    assert!(!text.contains("nobody-here"), "{text}");
}

#[tokio::test]
async fn an_unreachable_server_is_reported_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let text = refused(format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/x")).await;
    assert!(text.contains("the connection failed: connection refused"), "{text}");
}

#[tokio::test]
async fn the_server_certificate_is_verified() {
    let url = format!("{}?sslmode=verify-full&sslrootcert=", shared().database().await);
    let certificate = shared().certificate();
    let store = Store::open(&format!("{url}{}", certificate.display()).into())
        .await
        .unwrap();
    create(&store, &token(7, 1, 0)).await;
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.pem");
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(&other, stranger.cert.pem()).unwrap();
    let text = refused(format!("{url}{}", other.display())).await;
    assert!(text.contains("TLS"), "{text}");
}
