//! Fuzz targets for packs of git servers and the trees in them.
#![expect(clippy::expect_used, reason = "what fails here is the target and not a parser")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gix::hash::{Kind, hasher};
use gix::objs::Write as _;
use gix::objs::tree::EntryKind;
use gix::odb::pack::data::entry::Header;
use gix::progress::Discard;
use gix::zlib::Compression;
use gix::zlib::stream::deflate;
use gix::{ObjectId, ThreadSafeRepository};
use tokio::time::Instant;

use super::target;
use crate::MAX_PATH_BYTES;
use crate::fetch::write;
use crate::fetch_context::FetchContext;
use crate::pack::unpack_memory;
use crate::tree::{CommitTree, open_options};
use tollgate_applicationset::{GenerationBudget, GitTree as _};
use tollgate_config::GenerationLimits;
use tollgate_fuzz::{Target, inputs};

pub(super) const TARGETS: &[Target] = &[target("git_pack", git_pack, packs), target("git_tree", git_tree, trees)];

/// Maximum memory that unpacking a pack may take here, in bytes. Larger packs would test time, not
/// the parser.
const MOST_UNPACKED_BYTES: u64 = 16 * 1024 * 1024;

/// Size of a pack's checksum, in bytes.
const CHECKSUM_BYTES: usize = 20;

/// Small limits: an input stopped by a limit is as useful as one that completes.
fn budget() -> GenerationBudget {
    GenerationBudget::new(GenerationLimits {
        bytes: 4 * 1024 * 1024,
        time: Duration::from_secs(5),
        ..GenerationLimits::default()
    })
}

/// Inputs that begin with this byte are lists of objects; all others are complete packs.
const LIST: u8 = b'L';

fn packs() -> Vec<Vec<u8>> {
    // `B`, length, content; `O`, which base, length, instructions; `R` likewise by a name.
    let copy = [5, 5, 0b1001_0000, 5];
    let insert = [5, 3, 3, b'x', b'y', b'z'];
    let objects = [
        [b"LB\x05hello".as_slice(), b"O\x01\x04", &copy].concat(),
        [b"LB\x05hello".as_slice(), b"O\x01\x06", &insert, b"O\x02\x04", &copy].concat(),
        [b"LT\x00C\x02a\nR\x06".as_slice(), &insert].concat(),
        b"LB\xff".to_vec(),
    ];
    let mut seeds: Vec<Vec<u8>> = objects
        .iter()
        .map(|list| pack(list.get(1..).unwrap_or_default()))
        .collect();
    seeds.extend(objects);
    seeds
}

/// A pack under construction.
#[derive(Debug, Default)]
pub(crate) struct Pack {
    bytes: Vec<u8>,
    objects: u32,
}

impl Pack {
    /// The offset of the next object; the pack's own header has twelve bytes.
    pub(crate) fn end(&self) -> u64 {
        12 + u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }

    /// Adds an object whose header claims `size` bytes, and returns its offset.
    pub(crate) fn put(&mut self, header: &Header, size: u64, content: &[u8]) -> u64 {
        let offset = self.end();
        header.write_to(size, &mut self.bytes).expect("memory takes all");
        let mut out = deflate::Write::new(Vec::new(), Compression::BEST);
        out.write_all(content)
            .and_then(|()| out.flush())
            .expect("memory takes all");
        self.bytes.extend(out.into_inner());
        self.objects += 1;
        offset
    }

    /// The pack with its checksum.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut pack = [b"PACK\0\0\0\x02".as_slice(), &self.objects.to_be_bytes(), &self.bytes].concat();
        pack.extend(checksum(&pack));
        pack
    }
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut sum = hasher(Kind::Sha1);
    sum.update(body);
    let sum = sum.try_finalize().expect("no one makes collisions here");
    sum.as_slice().try_into().expect("SHA-1 has twenty bytes")
}

/// Packs the objects of a list as a server would.
fn pack(list: &[u8]) -> Vec<u8> {
    let mut rest = list.iter().copied();
    let mut offsets = Vec::new();
    let mut pack = Pack::default();
    while let Some(kind) = rest.next() {
        let header = match kind {
            b'C' => Header::Commit,
            b'T' => Header::Tree,
            b'G' => Header::Tag,
            b'O' => {
                let back = usize::from(rest.next().unwrap_or_default());
                let base = offsets.len().checked_sub(back).and_then(|at| offsets.get(at));
                Header::OfsDelta {
                    base_distance: pack.end().saturating_sub(base.copied().unwrap_or_default()),
                }
            }
            b'R' => Header::RefDelta {
                base_id: Kind::Sha1.null(),
            },
            _ => Header::Blob,
        };
        let size = rest.next().unwrap_or_default();
        let content: Vec<u8> = rest.by_ref().take(usize::from(size)).collect();
        offsets.push(pack.put(&header, size.into(), &content));
    }
    pack.finish()
}

/// A pack that is measured as small is unpacked or refused.
fn git_pack(data: &[u8]) {
    let mut bytes = match data.split_first() {
        Some((&LIST, list)) => pack(list),
        _ => data.to_vec(),
    };
    // A real sender computes the checksum, so it is corrected here.
    let Some((body, end)) = bytes.split_last_chunk_mut::<CHECKSUM_BYTES>() else {
        return;
    };
    *end = checksum(body);
    let time = Duration::from_secs(5);
    let context = FetchContext::new("https://git.example/app", Instant::now() + time, time);
    let Ok(memory_bytes) = unpack_memory(&mut bytes.as_slice(), &context) else {
        return;
    };
    if memory_bytes > MOST_UNPACKED_BYTES {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the pack");
    let _ = write(bytes.as_slice(), folder.path(), &mut Discard, &AtomicBool::new(false));
}

/// Objects are kept in memory; the folder stays empty and is not removed.
static REPOSITORY: LazyLock<(tempfile::TempDir, ThreadSafeRepository)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder for the repository");
    gix::init_bare(folder.path()).expect("a repository");
    let repository = open_options().open(folder.path()).expect("the repository");
    (folder, repository)
});

fn trees() -> Vec<Vec<u8>> {
    // Each line is an entry: its kind, its name, and its content after a tab. `d` puts all entries
    // before it into a directory, `=` adds raw bytes to the directory.
    inputs([
        "fapp.yaml\ta: b\nddirectory\nlink\tdirectory/app.yaml\n",
        "fa\t1\nla\tb\nlb\ta\nl..\t../..\nl.git\t/etc/passwd\n",
        "xrun\t#!\nf.hidden\t\nsmodule\nf.gitmodules\t[submodule \"m\"]\n\tpath = smodule\n",
        "fa\nda\nda\nda\nlup\ta/../a/./a/a\n",
        "=100644 a\nf/\tx\n",
    ])
}

/// A listing contains no path outside of the tree, and no file has content that is not in the
/// tree.
fn git_tree(data: &[u8]) {
    let (_, shared) = &*REPOSITORY;
    let repository = shared.to_thread_local().with_object_memory();
    let put = |kind, bytes: &[u8]| -> ObjectId { repository.write_buf(kind, bytes).expect("memory takes all") };
    let mut contents = BTreeSet::new();
    let mut tree = Vec::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some((kind, line)) = line.split_first() else {
            continue;
        };
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len());
        let (name, content) = line.split_at_checked(tab).unwrap_or_default();
        let content = content.get(1..).unwrap_or_default();
        let mut blob = || {
            contents.insert(content.to_vec());
            put(gix::objs::Kind::Blob, content)
        };
        let (mode, id) = match kind {
            b'f' => (EntryKind::Blob, blob()),
            b'x' => (EntryKind::BlobExecutable, blob()),
            b'l' => (EntryKind::Link, blob()),
            b's' => (EntryKind::Commit, Kind::Sha1.null()),
            b'd' => (EntryKind::Tree, put(gix::objs::Kind::Tree, &std::mem::take(&mut tree))),
            _ => {
                tree.extend(line);
                continue;
            }
        };
        let mode: &[u8] = mode.as_octal_str().as_ref();
        tree.extend([mode, b" ", name, b"\0", id.as_slice()].concat());
    }
    let root = put(gix::objs::Kind::Tree, &tree);
    let who = "a <a@b> 0 +0000";
    let commit = format!("tree {root}\nauthor {who}\ncommitter {who}\n\n");
    let commit = put(gix::objs::Kind::Commit, commit.as_bytes());
    let tree = CommitTree::new(repository.clone(), commit, "https://git.example/app").expect("a commit");
    let Ok(directories) = tree.directories(&budget()) else {
        return;
    };
    let _ = tree.submodules(&budget());
    for directory in &directories {
        assert_inside(directory);
        assert!(!directory.split('/').any(|part| part.starts_with('.')), "{directory:?}");
    }
    let Ok(files) = tree.files(&|_| true, &budget()) else {
        return;
    };
    assert!(files.is_sorted_by(|a, b| a.path <= b.path), "{files:?}");
    for file in &files {
        assert_inside(&file.path);
        assert!(contents.contains(file.content.as_ref()), "{file:?}");
    }
}

fn assert_inside(path: &str) {
    assert!(path.len() <= MAX_PATH_BYTES, "{path:?}");
    for part in path.split('/') {
        let known = matches!(part, "" | "." | "..") || part.eq_ignore_ascii_case(".git");
        assert!(!known && !part.contains('\0'), "{path:?}");
    }
}
