//! WASI as a guest in Python sees it: present, but empty.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use serde_json::json;
use tollgate_credential::{Mint as _, MintErrorClass};

use super::{Fixture, mint};

#[tokio::test]
async fn a_guest_sees_an_empty_environment() {
    let fixture = Fixture::new(&["surroundings"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let source = fixture.cluster("surroundings", &json!({"port": port}));
    let expected = [
        "environment: [[], []]",
        "root: refused, FileNotFoundError",
        "file: refused, FileNotFoundError",
        "output: refused, FileNotFoundError",
        "name: refused, gaierror",
        "socket: refused, PermissionError",
        "clock: [0.0, 0.0]",
        "randomness: '0000000000000000'",
    ];
    assert_eq!(source.check().await.unwrap(), expected);
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(
        Path::new("/etc/passwd").exists(),
        "without the file the test proves nothing"
    );
    assert!(!Path::new("/tmp/tollgate-surroundings").exists());
    let credential = mint(&source).await.unwrap();
    assert_eq!(credential.token.unwrap().expose(), "[]");
    let refused = source.revoke(credential.revocation.unwrap()).await.unwrap_err();
    assert_eq!(
        (refused.class, refused.code.as_str()),
        (MintErrorClass::Permanent, "surroundings")
    );
}
