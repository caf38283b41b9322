//! The container images that `cargo xtask image` writes: their layouts, and the programs in them.
//!
//! With `TOLLGATE_IMAGE=DIR`, the gateway of that layout runs, and the connector of
//! `TOLLGATE_CONNECTOR_IMAGE=DIR`. Otherwise they are the programs of the other tests, which are linked
//! dynamically, beside libraries of this machine: linking one statically takes a second build of everything.
//! `cargo xtask image --check` does that.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use test_support::checkout;
use test_support::world::copy_tree;
use xtask::image::{Contents, Sources, check_static, write};

mod container;

/// A program that is small, for tests that do not run it.
const SMALL: &str = "/bin/true";

/// Notices that are small. `cargo xtask notices` makes the real ones, and has its own tests.
const NOTICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/NOTICE");

fn sources<'a>(program: &'a Path, guests: &'a Path) -> Sources<'a> {
    Sources {
        checkout: checkout(),
        program,
        notices: Path::new(NOTICES),
        contents: Contents::Gateway { guests },
        revision: Some("0123456789abcdef"),
    }
}

fn guests() -> PathBuf {
    checkout().join("target/guests")
}

/// A layout that was read back. Reading checks every digest and size.
struct Layout {
    folder: PathBuf,
    /// The only entry of the index.
    image: Value,
    manifest: Value,
    configuration: Value,
}

impl Layout {
    fn read(folder: &Path) -> Self {
        let file = |name: &str| -> Value { serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap() };
        assert_eq!(file("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
        let index = file("index.json");
        assert_eq!(index["schemaVersion"], 2);
        assert_eq!(index["mediaType"], "application/vnd.oci.image.index.v1+json");
        let image = only(&index["manifests"]).clone();
        let manifest = document(folder, &image, "application/vnd.oci.image.manifest.v1+json");
        assert_eq!(manifest["schemaVersion"], 2);
        assert_eq!(manifest["mediaType"], image["mediaType"]);
        let configuration = "application/vnd.oci.image.config.v1+json";
        let configuration = document(folder, &manifest["config"], configuration);
        Self {
            folder: folder.to_owned(),
            image,
            manifest,
            configuration,
        }
    }

    /// The archive of the only layer.
    fn archive(&self) -> Vec<u8> {
        let layer = only(&self.manifest["layers"]);
        assert_eq!(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar+gzip");
        let mut archive = Vec::new();
        std::io::copy(&mut GzDecoder::new(&*blob(&self.folder, layer)), &mut archive).unwrap();
        let digest = format!("sha256:{}", sha256(&archive));
        let rootfs = json!({"type": "layers", "diff_ids": [digest]});
        assert_eq!(self.configuration["rootfs"], rootfs);
        archive
    }
}

fn only(list: &Value) -> &Value {
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    &list[0]
}

/// The content of a blob, which must be what its descriptor says.
fn blob(folder: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap();
    let name = digest.strip_prefix("sha256:").unwrap();
    let content = fs::read(folder.join("blobs/sha256").join(name)).unwrap();
    assert_eq!(
        (&*sha256(&content), json!(content.len())),
        (name, descriptor["size"].clone())
    );
    content
}

fn document(folder: &Path, descriptor: &Value, media_type: &str) -> Value {
    assert_eq!(descriptor["mediaType"], media_type);
    serde_json::from_slice(&blob(folder, descriptor)).unwrap()
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn the_layout_has_one_image_and_says_how_to_run_it() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    let digest = write(sources(Path::new(SMALL), &guests()), &layout).unwrap();
    let read = Layout::read(&layout);
    assert_eq!(read.image["digest"], digest);
    let name = json!({"org.opencontainers.image.ref.name": env!("CARGO_PKG_VERSION")});
    assert_eq!(read.image["annotations"], name);
    // The manifest, the configuration, the layer, and nothing else.
    assert_eq!(fs::read_dir(layout.join("blobs/sha256")).unwrap().count(), 3);

    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => panic!("{other}"),
    };
    let platform = json!({"architecture": architecture, "os": "linux"});
    assert_eq!(read.image["platform"], platform);
    let mut expected = platform;
    // Neither a time nor a history: both would differ for the same content.
    expected["rootfs"] = read.configuration["rootfs"].clone();
    expected["config"] = json!({
        "User": "65532:65532",
        "Entrypoint": ["/usr/bin/tollgate"],
        "Cmd": ["serve", "--config", "/etc/tollgate/settings/tollgate.yaml", "--log-json"],
        "WorkingDir": "/",
        "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
        "ExposedPorts": {"8443/tcp": {}, "8081/tcp": {}},
        "Labels": {
            "org.opencontainers.image.title": "tollgate",
            "org.opencontainers.image.description":
                "A policy gateway between people, their GitOps control plane and their Kubernetes clusters",
            "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.revision": "0123456789abcdef",
        },
    });
    assert_eq!(read.configuration, expected);
}

#[test]
fn the_image_of_the_connector_has_its_program_notices_and_authorities_only() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    let connector = Sources {
        contents: Contents::Connector,
        ..sources(Path::new(SMALL), Path::new("/nowhere"))
    };
    write(connector, &layout).unwrap();
    let read = Layout::read(&layout);
    let config = &read.configuration["config"];
    assert_eq!(config["Entrypoint"], json!(["/usr/bin/tollgate-connector"]));
    assert_eq!(
        config["Cmd"],
        json!(["run", "--config", "/etc/tollgate/agent.yaml", "--log-json"])
    );
    let archive = read.archive();
    let mut archive = tar::Archive::new(&*archive);
    let entries = archive.entries().unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.header().entry_type().is_file());
    let names: Vec<String> = files.map(|entry| entry.path().unwrap().display().to_string()).collect();
    assert_eq!(
        names,
        [
            "etc/group",
            "etc/nsswitch.conf",
            "etc/passwd",
            "etc/ssl/certs/ca-certificates.crt",
            "usr/bin/tollgate-connector",
            "usr/share/doc/tollgate-connector/LICENSE",
            "usr/share/doc/tollgate-connector/NOTICE",
            "usr/share/doc/tollgate-connector/THIRD_PARTY_LICENSES",
        ]
    );
}

#[test]
fn the_files_are_sorted_and_have_neither_times_nor_owners_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    write(sources(Path::new(SMALL), &guests()), &layout).unwrap();
    let archive = Layout::read(&layout).archive();
    let mut paths = Vec::new();
    let mut modes = HashMap::new();
    for entry in tar::Archive::new(&*archive).entries().unwrap() {
        let entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
        let header = entry.header();
        let owner = if path == "home/nonroot" { 65532 } else { 0 };
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (owner, owner), "{path}");
        assert_eq!(header.mtime().unwrap(), 0, "{path}");
        let kind = header.entry_type();
        assert!(kind.is_file() || kind.is_dir(), "{path}: {kind:?}");
        modes.insert(path.clone(), header.mode().unwrap());
        paths.push(path);
    }
    assert!(paths.is_sorted(), "{paths:?}");
    for (path, mode) in [
        ("usr", 0o755),
        ("usr/bin/tollgate", 0o755),
        ("etc/ssl/certs/ca-certificates.crt", 0o644),
        ("etc/passwd", 0o644),
        ("usr/share/doc/tollgate/LICENSE", 0o644),
        ("usr/share/doc/tollgate/THIRD_PARTY_LICENSES", 0o644),
        ("usr/share/zoneinfo/Europe/Berlin", 0o644),
        ("tmp", 0o1777),
        ("home/nonroot", 0o700),
        ("usr/share/tollgate/policies/applications/policy.rego", 0o644),
        ("usr/share/tollgate/plugins/webapi.wasm", 0o644),
        ("usr/share/tollgate/providers/vault.yaml", 0o644),
    ] {
        assert_eq!(modes.get(path), Some(&mode), "{path}");
    }
}

/// Properties of the machine's folders, such as times, make no difference; a change of a file does.
#[test]
fn the_same_files_give_the_same_digest() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["policies", "target/guests"] {
        copy_tree(&checkout().join(name), &at("copy").join(name));
    }
    for name in ["LICENSE", "NOTICE"] {
        fs::copy(checkout().join(name), at("copy").join(name)).unwrap();
    }
    fs::copy(SMALL, at("program")).unwrap();
    let first = write(sources(Path::new(SMALL), &guests()), &at("first")).unwrap();
    let (program, guests) = (at("program"), at("copy/target/guests"));
    let copy = at("copy");
    let copied = Sources {
        checkout: &copy,
        ..sources(&program, &guests)
    };
    // It replaces an earlier layout.
    for _ in 0..2 {
        assert_eq!(write(copied, &at("second")).unwrap(), first);
    }
    let index = |name: &str| fs::read(at(name).join("index.json")).unwrap();
    assert_eq!(index("first"), index("second"));

    fs::write(
        at("copy/policies/applications/policy.rego"),
        "package tollgate.applications\n",
    )
    .unwrap();
    assert_ne!(write(copied, &at("second")).unwrap(), first);
    Layout::read(&at("second"));
    // Nothing of the work is left beside the layouts.
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["copy", "first", "program", "second"]);
}

#[test]
fn missing_sources_and_a_folder_of_somebody_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("thesis.txt"), "years").unwrap();
    let error = write(sources(Path::new(SMALL), &guests()), &work)
        .unwrap_err()
        .to_string();
    assert!(error.contains("is no OCI image layout"), "{error}");
    assert_eq!(fs::read_to_string(work.join("thesis.txt")).unwrap(), "years");

    let error = write(sources(Path::new(SMALL), &work), &folder.path().join("image")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("exec-credential.wasm is missing") && error.contains("cargo xtask plugins"),
        "{error}"
    );
    let lost = Sources {
        notices: Path::new("/nowhere/THIRD_PARTY_LICENSES"),
        ..sources(Path::new(SMALL), &work)
    };
    let error = write(lost, &folder.path().join("image")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("/nowhere/THIRD_PARTY_LICENSES is missing") && error.contains("cargo xtask notices"),
        "{error}"
    );
    assert!(!folder.path().join("image").exists());
}

#[test]
fn a_program_that_needs_libraries_is_refused() {
    let error = check_static(&test_support::tollgate()).unwrap_err().to_string();
    assert!(
        error.contains("is linked dynamically: it needs `") && error.contains("crt-static"),
        "{error}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("main.rs"), "fn main() {}\n").unwrap();
    let compiled = Command::new("rustc")
        .args(["-C", "target-feature=+crt-static", "--out-dir"])
        .args([folder.path(), &file("main.rs")])
        .status()
        .unwrap();
    assert!(compiled.success());
    check_static(&file("main")).unwrap();
    let error = check_static(&file("main.rs")).unwrap_err().to_string();
    assert!(error.contains("is no ELF program"), "{error}");
}

/// Clients of TLS find every authority in the file that they read.
#[test]
fn the_authorities_can_be_read() {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    write(sources(Path::new(SMALL), &guests()), &layout).unwrap();
    let archive = Layout::read(&layout).archive();
    let mut archive = tar::Archive::new(&*archive);
    let bundle = archive.entries().unwrap().map(Result::unwrap);
    let mut bundle = bundle
        .into_iter()
        .find(|entry| entry.path().unwrap().ends_with("ca-certificates.crt"))
        .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut bundle, &mut text).unwrap();
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .map(Result::unwrap)
        .collect();
    let mut roots = rustls::RootCertStore::empty();
    let (added, ignored) = roots.add_parsable_certificates(certificates);
    assert!(added > 100 && ignored == 0, "{added} {ignored}");
}
