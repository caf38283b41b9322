//! Bounds: slow servers, endless and large responses, and the size of the cache.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tollgate_applicationset::{GenerationBudget, Repositories as _};
use tollgate_config::GenerationLimits;
use tollgate_config::{GitCache, GitLimits};
use tollgate_objects::Resources;
use tollgate_repository::RepositoryStore;

use gix::hash::{Kind, hasher};
use gix::odb::pack::data::entry::Header;
use gix::zlib::Compression;
use gix::zlib::stream::deflate;

use crate::repository::support::{Behavior, Origin, Server, budget, limits, store};

/// An upper bound for a response on a busy machine.
const SOON: Duration = Duration::from_secs(15);

fn short() -> GitLimits {
    GitLimits {
        time: Duration::from_millis(1500),
        ..limits()
    }
}

fn refused(store: &RepositoryStore, url: &str, budget: &GenerationBudget) -> String {
    let begun = tokio::time::Instant::now();
    let opened = store.reader(&Resources::default(), "").open(url, "main", budget);
    let took = begun.elapsed();
    assert!(took < SOON, "{took:?}");
    opened.unwrap_err().to_string()
}

#[test]
fn servers_that_send_nothing_or_little_time_out() {
    let origin = Origin::new(&[("x", "")]);
    let behaviors = [("silent", Behavior::Silent), ("dribble", Behavior::Dribble)];
    let server = Server::plain(&origin.root(), &behaviors);
    let store = store(short(), &[server.pattern()]);
    for behavior in ["silent", "dribble"] {
        let refused = refused(&store, &server.url(behavior), &budget());
        assert!(refused.contains("takes longer than 1.5s"), "{behavior}: {refused}");
    }
}

#[test]
fn the_time_budget_of_the_set_applies() {
    let origin = Origin::new(&[("x", "")]);
    let server = Server::plain(&origin.root(), &[("silent", Behavior::Silent)]);
    let store = store(limits(), &[server.pattern()]);
    let time = Duration::from_millis(300);
    let budget = GenerationBudget::new(GenerationLimits {
        time,
        ..GenerationLimits::default()
    });
    let refused = refused(&store, &server.url("silent"), &budget);
    assert!(refused.contains("takes longer than 300ms"), "{refused}");
}

#[test]
fn endless_lists_are_refused() {
    let origin = Origin::new(&[("x", "")]);
    let server = Server::plain(&origin.root(), &[("endless", Behavior::Endless)]);
    let store = store(limits(), &[server.pattern()]);
    let refused = refused(&store, &server.url("endless"), &budget());
    assert!(
        refused.contains("bytes received or more, at most 16777216 are allowed"),
        "{refused}"
    );
}

#[test]
fn packs_beyond_the_bytes_are_refused() {
    let origin = Origin::new(&[("app/x", "")]);
    // Pseudorandom bytes do not compress.
    let mut noise = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    });
    origin.write("large.bin", &bytes.take(2 * 1024 * 1024).collect::<Vec<u8>>());
    origin.commit(&[]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let bytes = 1024 * 1024;
    let small = store(GitLimits { bytes, ..limits() }, &[server.pattern()]);
    let refused = refused(&small, &server.url("git"), &budget());
    assert!(
        refused.contains("bytes received or more, at most 1048576 are allowed"),
        "{refused}"
    );
    let enough = store(limits(), &[server.pattern()]);
    let opened = enough
        .reader(&Resources::default(), "")
        .open(&server.url("git"), "main", &budget());
    assert_eq!(opened.unwrap().directories(&budget()).unwrap(), ["app"]);
}

#[test]
fn files_too_large_to_be_read_are_not_fetched() {
    let origin = Origin::new(&[("app/x", "")]);
    origin.write("zeros.bin", &vec![0; 40 * 1024 * 1024]);
    origin.commit(&[]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let tree = store
        .reader(&Resources::default(), "")
        .open(&server.url("git"), "main", &budget())
        .unwrap();
    assert_eq!(tree.directories(&budget()).unwrap(), ["app"]);
    let refused = tree.files(&|path| path == "zeros.bin", &budget()).unwrap_err();
    assert!(refused.to_string().contains("larger than what is fetched"), "{refused}");
}

#[test]
fn responses_that_are_not_git_s_are_reported() {
    let origin = Origin::new(&[("x", "")]);
    let behaviors = [
        ("html", Behavior::Html),
        ("absent", Behavior::Status(404, None)),
        ("broken", Behavior::Status(502, None)),
        ("dangling", Behavior::Dangling),
    ];
    let server = Server::plain(&origin.root(), &behaviors);
    let store = store(limits(), &[server.pattern()]);
    for (behavior, wanted) in [
        ("html", "smart"),
        ("absent", "status 404"),
        ("broken", "status 502"),
        ("dangling", "contradicts itself"),
    ] {
        let refused = refused(&store, &server.url(behavior), &budget());
        assert!(refused.contains(wanted), "{behavior}: {refused}");
    }
    let unreachable = format!("http://{}/app", {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    });
    let store = self::store(limits(), &["http://127.0.0.1:*/**".to_owned()]);
    let refused = refused(&store, &unreachable, &budget());
    assert!(refused.contains("cannot be reached"), "{refused}");
}

#[test]
fn a_slow_host_does_not_block_others() {
    let origin = Origin::new(&[("app/x", "")]);
    let slow = Server::plain(&origin.root(), &[("silent", Behavior::Silent)]);
    let quick = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let store = store(limits(), &[slow.pattern(), quick.pattern()]);
    let resources = Resources::default();
    std::thread::scope(|scope| {
        for revision in 0..40 {
            let (store, slow, resources) = (&store, &slow, &resources);
            scope.spawn(move || {
                let time = Duration::from_secs(3);
                let budget = GenerationBudget::new(GenerationLimits {
                    time,
                    ..GenerationLimits::default()
                });
                let url = slow
                    .url("silent")
                    .replace("app.git", &format!("app{}.git", revision % 20));
                let opened = store.reader(resources, "").open(&url, &revision.to_string(), &budget);
                let refused = opened.unwrap_err().to_string();
                let known = refused.contains("takes longer") || refused.contains("other repositories at the moment");
                assert!(known, "{refused}");
            });
        }
        while store.fetches() < 6 {
            std::thread::yield_now();
        }
        let tree = store
            .reader(&resources, "")
            .open(&quick.url("git"), "main", &budget())
            .unwrap();
        assert_eq!(tree.directories(&budget()).unwrap(), ["app"]);
        // Six fetches of the slow host, the most it may have, and this one.
        assert_eq!(store.fetches(), 7);
    });
}

#[test]
fn fetched_data_is_removed_with_the_store() {
    let origin = Origin::new(&[("app/x", "")]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let tree = store
        .reader(&Resources::default(), "")
        .open(&server.url("git"), "main", &budget())
        .unwrap();
    let folder = store.folder().to_owned();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "other users can read the folder");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(tree.directories(&budget()).unwrap(), ["app"]);
    drop((tree, store));
    assert!(!folder.exists(), "the folder still exists");
}

/// A pack with a blob of 128 MiB of zeros and levels of two deltas each: a leaf, and the base of
/// the next level. The library holds an object of each level in memory at the same time.
fn bomb(levels: usize) -> Vec<u8> {
    const SIZE: u64 = 128 * 1024 * 1024;
    // 2^27 in the encoding of deltas, then eight times 16 MiB in two copies: all but the last byte,
    // and the last byte.
    let size = [0x80, 0x80, 0x80, 0x40];
    let copies = (0..8_u32).flat_map(|number| {
        let at = (number << 24).to_le_bytes();
        [
            vec![0xff],
            at.to_vec(),
            vec![0xff, 0xff, 0xff],
            vec![0x9f],
            (at_end(number)).to_vec(),
            vec![1],
        ]
        .concat()
    });
    let delta: Vec<u8> = size.iter().chain(&size).copied().chain(copies).collect();
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend(u32::try_from(2 * levels + 1).unwrap().to_be_bytes());
    let put = |pack: &mut Vec<u8>, header: &Header, size: u64, content: &[u8]| {
        header.write_to(size, pack).unwrap();
        let mut out = deflate::Write::new(Vec::new(), Compression::BEST);
        out.write_all(content).unwrap();
        out.flush().unwrap();
        pack.extend(out.into_inner());
    };
    let mut base = pack.len();
    put(&mut pack, &Header::Blob, SIZE, &vec![0; usize::try_from(SIZE).unwrap()]);
    for number in 0..2 * levels {
        let offset = pack.len();
        let base_distance = u64::try_from(offset - base).unwrap();
        let length = u64::try_from(delta.len()).unwrap();
        put(&mut pack, &Header::OfsDelta { base_distance }, length, &delta);
        // The second delta of each level is the base of the next level.
        if number % 2 == 1 {
            base = offset;
        }
    }
    let mut sum = hasher(Kind::Sha1);
    sum.update(&pack);
    pack.extend(sum.try_finalize().unwrap().as_slice());
    pack
}

/// The offset of the last byte of a range of 16 MiB.
fn at_end(number: u32) -> [u8; 4] {
    ((number << 24) + 0xff_ffff).to_le_bytes()
}

/// Security: a delta of 100 bytes produces an object of 128 MiB.
#[test]
fn a_small_pack_that_takes_gigabytes_is_not_unpacked() {
    let pack = bomb(3);
    assert!(pack.len() < 1024 * 1024, "{}", pack.len());
    let root = tempfile::tempdir().unwrap();
    let server = Server::plain(root.path(), &[("bomb", Behavior::Pack(Arc::new(pack)))]);
    let store = store(limits(), &[server.pattern()]);
    let refused = refused(&store, &server.url("bomb"), &budget());
    assert!(
        refused.contains("bytes to unpack it in or more, at most 402653184 are allowed"),
        "{refused}"
    );
    assert_eq!(std::fs::read_dir(store.folder()).unwrap().count(), 0, "files are left");
}

fn kept(cache: &GitCache, server: &Server) -> RepositoryStore {
    RepositoryStore::new(limits(), cache, &[server.pattern()]).unwrap()
}

fn bytes_of(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let sizes = entries.map(|entry| match entry.metadata().unwrap() {
        found if found.is_dir() => bytes_of(&entry.path()),
        found => found.len(),
    });
    sizes.sum()
}

/// Several repositories that together exceed the cache: each can be read, and the least recently
/// used is evicted.
#[test]
fn what_was_asked_for_longest_ago_makes_room() {
    let mut noise = 1_u64;
    let mut origins = Vec::new();
    for _ in 0..5 {
        let origin = Origin::new(&[("app/x", "")]);
        let bytes = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        });
        origin.write("large.bin", &bytes.take(300 * 1024).collect::<Vec<u8>>());
        origin.commit(&[]);
        origins.push(origin);
    }
    let servers: Vec<Server> = origins
        .iter()
        .map(|origin| Server::plain(&origin.root(), &[("git", Behavior::Git)]))
        .collect();
    let parent = tempfile::tempdir().unwrap();
    let cache = GitCache {
        directory: Some(parent.path().to_owned()),
        bytes: 1024 * 1024,
        ..GitCache::default()
    };
    let patterns: Vec<String> = servers.iter().map(Server::pattern).collect();
    let store = RepositoryStore::new(limits(), &cache, &patterns).unwrap();
    assert!(store.folder().starts_with(parent.path()));
    let resources = Resources::default();
    for _ in 0..2 {
        for server in &servers {
            let tree = store
                .reader(&resources, "")
                .open(&server.url("git"), "main", &budget())
                .unwrap();
            assert_eq!(tree.directories(&budget()).unwrap(), ["app"]);
            drop(tree);
            let found = bytes_of(store.folder());
            assert!(found <= cache.bytes, "{found}");
        }
    }
    assert_eq!(store.fetches(), 10, "every read in the second round fetches again");
    // A repository larger than the cache is refused, and others can still be read.
    origins[0].write("larger.bin", &[0; 4]);
    let mut bytes = Vec::new();
    bytes.resize_with(900 * 1024, || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    });
    origins[0].write("larger.bin", &bytes);
    let larger = origins[0].commit(&[]);
    let open = |server: &Server, revision: &str| {
        store
            .reader(&resources, "")
            .open(&server.url("git"), revision, &budget())
            .map(drop)
    };
    let refused = open(&servers[0], &larger).unwrap_err().to_string();
    assert!(refused.contains("applicationSets.git.cacheBytes"), "{refused}");
    open(&servers[1], "main").unwrap();
}

#[test]
fn what_nobody_asks_for_goes() {
    let origin = Origin::new(&[("app/x", "")]);
    let first = origin.git(&["rev-parse", "HEAD"]);
    let second = origin.commit(&[("web/x", "")]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let resources = Resources::default();
    for (unused_ttl, left) in [(Duration::from_secs(3600), 2), (Duration::ZERO, 1)] {
        let store = kept(
            &GitCache {
                unused_ttl,
                ..GitCache::default()
            },
            &server,
        );
        for commit in [&first, &second] {
            store
                .reader(&resources, "")
                .open(&server.url("git"), commit, &budget())
                .unwrap();
        }
        assert_eq!(
            std::fs::read_dir(store.folder()).unwrap().count(),
            left,
            "{unused_ttl:?}"
        );
    }
}
