//! WASI, as a guest in Python finds it: there, and empty.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use serde_json::json;
use tollgate_plugin::credential::{Mint as _, MintErrorClass};

use super::{Stage, mint};

#[tokio::test]
async fn nothing_is_around_a_guest() {
    let stage = Stage::new(&["surroundings"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let source = stage.cluster("surroundings", &json!({"port": port}));
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
    assert!(Path::new("/etc/passwd").exists(), "the file it cannot read");
    assert!(!Path::new("/tmp/tollgate-surroundings").exists());
    let credential = mint(&source).await.unwrap();
    assert_eq!(credential.token.unwrap().expose(), "[]");
    let refused = source.revoke(credential.revocation.unwrap()).await.unwrap_err();
    assert_eq!(
        (refused.class, refused.code.as_str()),
        (MintErrorClass::Permanent, "surroundings")
    );
}
