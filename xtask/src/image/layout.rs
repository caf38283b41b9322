//! Writes a tree of files as an OCI image layout with one image of one layer.
//!
//! Source: OCI image specification 1.1, image layout.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempDir};

use super::{Content, Entry, Tree};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The file by which a layout is known.
const MARKER: &str = "oci-layout";

/// Writes the layout, and returns the digest of the manifest.
///
/// - `config`: how a container starts.
pub(super) fn write(tree: &Tree, (architecture, config): (&str, Value), folder: &Path) -> Result<String> {
    check_replaceable(folder)?;
    let layout = Layout::start(folder)?;
    let (layer, uncompressed) = layout.layer(tree)?;
    let configuration = layout.document(&json!({
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [uncompressed]},
    }))?;
    let manifest = layout.document(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": configuration.descriptor(CONFIGURATION),
        "layers": [layer.descriptor(LAYER)],
    }))?;
    let mut image = manifest.descriptor(MANIFEST);
    image["platform"] = json!({"architecture": architecture, "os": "linux"});
    image["annotations"] = json!({"org.opencontainers.image.ref.name": env!("CARGO_PKG_VERSION")});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [image]});
    layout.file("index.json", &index)?;
    layout.file(MARKER, &json!({"imageLayoutVersion": "1.0.0"}))?;
    layout.finish(folder)?;
    Ok(manifest.digest)
}

/// Refuses to replace a folder that somebody else made.
fn check_replaceable(folder: &Path) -> Result<()> {
    let is_empty = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
    };
    ensure!(
        is_empty || folder.join(MARKER).is_file(),
        "{} has files and is no OCI image layout: name another folder, or empty it",
        folder.display()
    );
    Ok(())
}

/// A layout that is being written beside its place.
struct Layout(TempDir);

/// A blob of a layout.
struct Blob {
    /// `sha256:` and the digest.
    digest: String,
    bytes: u64,
}

impl Blob {
    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.digest, "size": self.bytes})
    }
}

impl Layout {
    fn start(folder: &Path) -> Result<Self> {
        let above = match folder.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
        fs::create_dir_all(above).with_context(|| format!("cannot create {}", above.display()))?;
        let temporary = tempfile::Builder::new()
            .prefix(".image-")
            .tempdir_in(above)
            .with_context(|| format!("cannot write to {}", above.display()))?;
        fs::create_dir_all(temporary.path().join("blobs/sha256"))?;
        Ok(Self(temporary))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Puts the layout into its place.
    fn finish(self, folder: &Path) -> Result<()> {
        let failed = || format!("cannot write {}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(failed)?;
        }
        readable(self.path()).with_context(failed)?;
        fs::rename(self.0.keep(), folder).with_context(failed)
    }

    /// Adds a JSON document.
    fn document(&self, document: &Value) -> Result<Blob> {
        let mut blob = Hashed::new(self.blob()?);
        blob.write_all(&json_bytes(document))?;
        self.add(blob)
    }

    /// Writes a JSON document that is no blob.
    fn file(&self, name: &str, document: &Value) -> Result<()> {
        fs::write(self.path().join(name), json_bytes(document)).with_context(|| format!("cannot write {name}"))
    }

    /// Adds an archive of the tree. Also returns its digest before compression.
    fn layer(&self, tree: &Tree) -> Result<(Blob, String)> {
        let blob = Hashed::new(self.blob()?);
        // Without name and time in the header of gzip.
        let compressed = GzEncoder::new(blob, Compression::default());
        let mut archive = tar::Builder::new(Hashed::new(compressed));
        for (path, entry) in &tree.0 {
            append(&mut archive, path, entry).with_context(|| format!("cannot archive {path}"))?;
        }
        let archive = archive.into_inner().context("cannot write the layer")?;
        let uncompressed = format!("sha256:{}", hex(archive.digest));
        let blob = archive.inner.finish().context("cannot write the layer")?;
        Ok((self.add(blob)?, uncompressed))
    }

    fn blob(&self) -> Result<BufWriter<NamedTempFile>> {
        let file = NamedTempFile::new_in(self.path()).context("cannot write a blob")?;
        Ok(BufWriter::new(file))
    }

    fn add(&self, blob: Hashed<BufWriter<NamedTempFile>>) -> Result<Blob> {
        let digest = hex(blob.digest);
        let file = blob.inner.into_inner().context("cannot write a blob")?;
        file.persist(self.path().join("blobs/sha256").join(&digest))?;
        Ok(Blob {
            digest: format!("sha256:{digest}"),
            bytes: blob.bytes,
        })
    }
}

/// Lets everybody read the folder, as folders that are not temporary.
fn readable(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for blob in fs::read_dir(folder.join("blobs/sha256"))? {
        fs::set_permissions(blob?.path(), fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

fn append<W: Write>(archive: &mut tar::Builder<W>, path: &str, entry: &Entry) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.owner);
    header.set_gid(entry.owner);
    header.set_mtime(0);
    match &entry.content {
        Content::Folder => {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            archive.append_data(&mut header, format!("{path}/"), io::empty())?;
        }
        Content::Bytes(bytes) => {
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, &**bytes)?;
        }
        Content::Copy(file) => {
            let file = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(file.metadata()?.len());
            archive.append_data(&mut header, path, BufReader::new(file))?;
        }
    }
    Ok(())
}

/// A document with its keys in order, regardless of serde_json's features.
fn json_bytes(document: &Value) -> Vec<u8> {
    let mut document = document.clone();
    document.sort_all_objects();
    document.to_string().into_bytes()
}

/// A writer that counts and digests what passes.
struct Hashed<W> {
    inner: W,
    digest: Sha256,
    bytes: u64,
}

impl<W> Hashed<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            digest: Sha256::new(),
            bytes: 0,
        }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(bytes.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
