//! Servers that are slow, endless or large, and what stays quick beside them.

use std::time::Duration;

use tollgate::applicationset::{Budget, Limits, Repositories as _};
use tollgate::config::GitLimits;
use tollgate::repository::Store;
use tollgate::state::Resources;

use crate::support::{Manner, Origin, Server, budget, limits, store};

/// Enough for a machine with other work to answer in.
const SOON: Duration = Duration::from_secs(15);

fn short() -> GitLimits {
    GitLimits {
        time: Duration::from_millis(1500),
        ..limits()
    }
}

fn refused(store: &Store, url: &str, budget: &Budget) -> String {
    let begun = tokio::time::Instant::now();
    let opened = store.with(&Resources::default(), "").open(url, "main", budget);
    let took = begun.elapsed();
    assert!(took < SOON, "{took:?}");
    opened.unwrap_err().to_string()
}

#[test]
fn who_sends_nothing_or_little_is_given_up() {
    let origin = Origin::new(&[("x", "")]);
    let manners = [("silent", Manner::Silent), ("dribble", Manner::Dribble)];
    let server = Server::plain(&origin.root(), &manners);
    let store = store(short(), &[server.pattern()]);
    for manner in ["silent", "dribble"] {
        let refused = refused(&store, &server.url(manner), &budget());
        assert!(refused.contains("takes longer than 1.5s"), "{manner}: {refused}");
    }
}

#[test]
fn the_budget_of_the_set_ends_the_waiting() {
    let origin = Origin::new(&[("x", "")]);
    let server = Server::plain(&origin.root(), &[("silent", Manner::Silent)]);
    let store = store(limits(), &[server.pattern()]);
    let time = Duration::from_millis(300);
    let budget = Budget::new(Limits {
        time,
        ..Limits::default()
    });
    let refused = refused(&store, &server.url("silent"), &budget);
    assert!(refused.contains("takes longer than 300ms"), "{refused}");
}

#[test]
fn lists_without_end_are_given_up() {
    let origin = Origin::new(&[("x", "")]);
    let server = Server::plain(&origin.root(), &[("endless", Manner::Endless)]);
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
    // Text that does not compress.
    let mut noise = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    });
    origin.write("large.bin", &bytes.take(2 * 1024 * 1024).collect::<Vec<u8>>());
    origin.commit(&[]);
    let server = Server::plain(&origin.root(), &[("git", Manner::Git)]);
    let bytes = 1024 * 1024;
    let small = store(GitLimits { bytes, ..limits() }, &[server.pattern()]);
    let refused = refused(&small, &server.url("git"), &budget());
    assert!(
        refused.contains("bytes received or more, at most 1048576 are allowed"),
        "{refused}"
    );
    let enough = store(limits(), &[server.pattern()]);
    let opened = enough
        .with(&Resources::default(), "")
        .open(&server.url("git"), "main", &budget());
    assert_eq!(opened.unwrap().directories(&budget()).unwrap(), ["app"]);
}

#[test]
fn files_too_large_to_be_read_are_not_even_sent() {
    let origin = Origin::new(&[("app/x", "")]);
    origin.write("zeros.bin", &vec![0; 40 * 1024 * 1024]);
    origin.commit(&[]);
    let server = Server::plain(&origin.root(), &[("git", Manner::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let tree = store
        .with(&Resources::default(), "")
        .open(&server.url("git"), "main", &budget())
        .unwrap();
    assert_eq!(tree.directories(&budget()).unwrap(), ["app"]);
    let refused = tree.files(&|path| path == "zeros.bin", &budget()).unwrap_err();
    assert!(refused.to_string().contains("larger than what is fetched"), "{refused}");
}

#[test]
fn what_is_not_git_is_told_so() {
    let origin = Origin::new(&[("x", "")]);
    let manners = [
        ("html", Manner::Html),
        ("absent", Manner::Status(404, None)),
        ("broken", Manner::Status(502, None)),
    ];
    let server = Server::plain(&origin.root(), &manners);
    let store = store(limits(), &[server.pattern()]);
    for (manner, wanted) in [("html", "smart"), ("absent", "status 404"), ("broken", "status 502")] {
        let refused = refused(&store, &server.url(manner), &budget());
        assert!(refused.contains(wanted), "{manner}: {refused}");
    }
    let nobody = format!("http://{}/app", {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    });
    let store = self::store(limits(), &["http://127.0.0.1:*/**".to_owned()]);
    let refused = refused(&store, &nobody, &budget());
    assert!(refused.contains("cannot be reached"), "{refused}");
}

#[test]
fn one_slow_repository_holds_up_no_other() {
    let origin = Origin::new(&[("app/x", "")]);
    let slow = Server::plain(&origin.root(), &[("silent", Manner::Silent)]);
    let quick = Server::plain(&origin.root(), &[("git", Manner::Git)]);
    let store = store(limits(), &[slow.pattern(), quick.pattern()]);
    let resources = Resources::default();
    std::thread::scope(|scope| {
        for revision in 0..40 {
            let (store, slow, resources) = (&store, &slow, &resources);
            scope.spawn(move || {
                let time = Duration::from_secs(3);
                let budget = Budget::new(Limits {
                    time,
                    ..Limits::default()
                });
                let url = slow
                    .url("silent")
                    .replace("app.git", &format!("app{}.git", revision % 20));
                let opened = store.with(resources, "").open(&url, &revision.to_string(), &budget);
                let refused = opened.unwrap_err().to_string();
                let known = refused.contains("takes longer") || refused.contains("other repositories at the moment");
                assert!(known, "{refused}");
            });
        }
        while store.fetches() < 6 {
            std::thread::yield_now();
        }
        let tree = store
            .with(&resources, "")
            .open(&quick.url("git"), "main", &budget())
            .unwrap();
        assert_eq!(tree.directories(&budget()).unwrap(), ["app"]);
        // Of the slow host there are as many as it may have, and no more.
        assert_eq!(store.fetches(), 7);
    });
}

#[test]
fn what_was_fetched_goes_with_the_store() {
    let origin = Origin::new(&[("app/x", "")]);
    let server = Server::plain(&origin.root(), &[("git", Manner::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let tree = store
        .with(&Resources::default(), "")
        .open(&server.url("git"), "main", &budget())
        .unwrap();
    let folder = store.folder().to_owned();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may look into it");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(tree.directories(&budget()).unwrap(), ["app"]);
    drop((tree, store));
    assert!(!folder.exists(), "it is still there");
}
