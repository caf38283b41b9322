//! Keeps compiled guests on disk between starts, found by the component's digest. A failure of the
//! cache never fails a load.
//!
//! SECURITY: wasmtime hardly checks the compiled code that it loads, so anyone who can write to the
//! folder can run code in the gateway. Therefore the folder is private, a keyed hash of our own
//! covers every file, and no file is mapped that could change after the check: the bytes that were
//! hashed are the bytes that are loaded.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

/// From this size on, compiling a guest takes seconds, and the log says so.
const LARGE_BYTES: usize = 1 << 20;
/// Bytes of the hash in front of each file.
const TAG_BYTES: usize = 32;
/// Bytes of a compiled guest that are read; a 64 MiB guest stays well below.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Where a compiled guest came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeOrigin {
    /// Compiled now.
    Compiled,
    /// Loaded from the folder of compiled guests.
    Cached,
}

#[derive(derive_more::Debug)]
#[debug("CompilationCache({})", folder.display())]
pub(super) struct CompilationCache {
    folder: PathBuf,
    key: zeroize::Zeroizing<Vec<u8>>,
}

impl CompilationCache {
    /// An error says why the cache cannot be used. The gateway works without it.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let refuse = |why: String| io::Error::other(format!("`{}` {why}", folder.display()));
        let failed = |error: io::Error| refuse(format!("cannot be used: {error}"));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(failed)?;
        // Links are not followed: a link could be redirected after the check.
        let metadata = fs::symlink_metadata(folder).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(refuse("is not a folder".to_owned()));
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            let why = format!("has mode `{mode:o}`; only its owner may have access (`700`)");
            return Err(refuse(why));
        }
        let key = key(folder).map_err(failed)?;
        // A file created here belongs to the user the gateway runs as.
        let user = fs::symlink_metadata(folder.join(KEY_FILE)).map_err(failed)?.uid();
        let owner = metadata.uid();
        if user != owner {
            let why = format!("belongs to user `{owner}`; the gateway runs as user `{user}`");
            return Err(refuse(why));
        }
        Ok(Self {
            folder: folder.to_owned(),
            key,
        })
    }

    pub(super) fn file(&self, engine: &Engine, sha256: &str) -> PathBuf {
        self.folder.join(name(engine, sha256))
    }

    /// The compiled guest, if the file exists and its hash matches.
    fn load(&self, engine: &Engine, sha256: &str) -> Option<Component> {
        let path = self.file(engine, sha256);
        let mut content = Vec::new();
        let file = File::open(&path).ok()?;
        // Until its hash is checked, the file may be anything.
        file.take(MAX_FILE_BYTES).read_to_end(&mut content).ok()?;
        let (tag, code) = content.split_at_checked(TAG_BYTES)?;
        if self.mac(&name(engine, sha256), code)?.verify_slice(tag).is_err() {
            tracing::warn!(file = %path.display(), "a compiled plugin was changed; it is compiled again");
            return None;
        }
        let component = {
            #[expect(
                unsafe_code,
                reason = "compiled by this engine and unchanged since, as the keyed hash shows"
            )]
            // SAFETY: `code` is in this process's memory, was written by
            // `store` from `Component::serialize`, and its hash with a key
            // only this user can read was just checked.
            unsafe {
                Component::deserialize(engine, code)
            }
        };
        component
            .inspect_err(|error| tracing::warn!(file = %path.display(), %error, "a compiled plugin does not load"))
            .ok()
    }

    /// Stores a compiled guest. A failure is no error: the next start compiles again.
    fn store(&self, engine: &Engine, sha256: &str, component: &Component) {
        let path = self.file(engine, sha256);
        let written = component.serialize().map_err(io::Error::other).and_then(|code| {
            let mac = self
                .mac(&name(engine, sha256), &code)
                .ok_or_else(|| io::Error::other("no key"))?;
            write_file(&path, &[&mac.finalize().into_bytes(), &code])
        });
        if let Err(error) = written {
            tracing::warn!(file = %path.display(), %error, "a compiled plugin cannot be kept");
        }
    }

    /// The keyed hash over a file's name and content, so that a renamed file does not match.
    fn mac(&self, name: &str, code: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        // The length keeps the end of a name apart from the start of the code.
        mac.update(&u64::try_from(name.len()).ok()?.to_be_bytes());
        mac.update(name.as_bytes());
        mac.update(code);
        Some(mac)
    }
}

pub(super) fn component(
    engine: &Engine,
    cache: Option<&CompilationCache>,
    sha256: &str,
    wasm: &[u8],
) -> wasmtime::Result<(Component, CodeOrigin)> {
    if let Some(component) = cache.and_then(|cache| cache.load(engine, sha256)) {
        return Ok((component, CodeOrigin::Cached));
    }
    let is_large = wasm.len() >= LARGE_BYTES;
    let started = Instant::now();
    if is_large {
        let mebibytes = wasm.len() >> 20;
        tracing::info!(target: "tollgate::plugin", sha256, "compiling a guest of {mebibytes} MiB, which takes a while");
    }
    let component = Component::from_binary(engine, wasm)?;
    if is_large {
        let seconds = started.elapsed().as_secs();
        let kept = match cache {
            Some(_) => "the next start takes it from `plugins.cache`",
            None => "set `plugins.cache` to keep the result",
        };
        tracing::info!(target: "tollgate::plugin", sha256, "compiled in {seconds} s; {kept}");
    }
    if let Some(cache) = cache {
        cache.store(engine, sha256, &component);
    }
    Ok((component, CodeOrigin::Compiled))
}

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;

/// The folder's key; made when missing or of the wrong length.
fn key(folder: &Path) -> io::Result<zeroize::Zeroizing<Vec<u8>>> {
    use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};

    let path = folder.join(KEY_FILE);
    if let Ok(key) = fs::read(&path)
        && key.len() == KEY_BYTES
    {
        return Ok(key.into());
    }
    let mut key = zeroize::Zeroizing::new(vec![0; KEY_BYTES]);
    let filled = SystemRandom::new().fill(&mut key);
    filled.map_err(|_| io::Error::other("no randomness for a key"))?;
    write_file(&path, &[&key])?;
    Ok(key)
}

/// Writes a file that only its owner may read, whole or not at all.
fn write_file(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
    for part in parts {
        file.write_all(part)?;
    }
    // Before the name is given: after a crash, no part of a file has it.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// `<digest>-<engine>.cwasm`. Another version or setting of the engine has another file.
fn name(engine: &Engine, sha256: &str) -> String {
    // The standard hasher may change between releases. Then the guest is compiled again.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{sha256}-{:016x}.cwasm", hasher.finish())
}

/// SHA-256, lower-case hex.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
