//! Repositories of good servers: fetching, caching, credentials, certificates and redirects.

use std::sync::Barrier;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use tollgate_applicationset::Repositories as _;
use tollgate_config::GitLimits;
use tollgate_objects::{RepositoryAuth, Resources};
use tollgate_repository::RepositoryStore;

use crate::repository::support::{Behavior, Origin, Server, budget, limits, secret, store};

fn directories(
    store: &RepositoryStore,
    resources: &Resources,
    (url, revision): (&str, &str),
) -> Result<Vec<String>, String> {
    let opened = store.reader(resources, "").open(url, revision, &budget());
    let tree = opened.map_err(|error| error.to_string())?;
    Ok(tree.directories(&budget()).unwrap())
}

#[test]
fn a_repository_is_fetched_once_for_many_reads() {
    let origin = Origin::new(&[("app/deploy.yaml", "kind: A"), ("web/deploy.yaml", "kind: B")]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let (url, none) = (server.url("git"), Resources::default());
    for _ in 0..3 {
        let found = directories(&store, &none, (&url, "main")).unwrap();
        assert_eq!(found, ["app", "web"]);
    }
    let tree = store.reader(&none, "").open(&url, "main", &budget()).unwrap();
    let files = tree.files(&|path| path == "web/deploy.yaml", &budget()).unwrap();
    assert_eq!(files[0].content.as_ref(), b"kind: B");
    assert_eq!(store.fetches(), 1);
    assert_eq!(directories(&store, &none, (&url, "")).unwrap(), ["app", "web"]);
    assert_eq!(store.fetches(), 2, "HEAD was asked for");
    // Two lists of references, and one pack.
    assert_eq!(server.packs(), 3);
}

#[test]
fn revisions_are_found() {
    let origin = Origin::new(&[("first/x", "")]);
    let first = origin.git(&["rev-parse", "HEAD"]);
    origin.git(&["tag", "-a", "-m", "one", "annotated"]);
    origin.git(&["branch", "feature/a"]);
    let middle = origin.commit(&[("second/x", "")]);
    origin.commit(&[("third/x", "")]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let (url, none) = (server.url("git"), Resources::default());
    let read = |revision: &str| directories(&store, &none, (&url, revision));
    for revision in ["annotated", "feature/a", "refs/heads/feature/a", &first, &first[..8]] {
        assert_eq!(read(revision).unwrap(), ["first"], "{revision}");
    }
    assert_eq!(
        read(&middle).unwrap(),
        ["first", "second"],
        "a commit without a branch or tag"
    );
    let refused = read(&middle[..8]).unwrap_err();
    assert!(refused.contains("give all 40 characters"), "{refused}");
    let refused = read("nothing").unwrap_err();
    assert!(refused.contains("has no branch, tag or commit `nothing`"), "{refused}");
}

#[test]
fn a_moved_branch_is_seen_after_the_ttl() {
    let origin = Origin::new(&[("first/x", "")]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let (url, none) = (server.url("git"), Resources::default());
    let cached = store(limits(), &[server.pattern()]);
    let revision_ttl = Duration::ZERO;
    let uncached = store(
        GitLimits {
            revision_ttl,
            ..limits()
        },
        &[server.pattern()],
    );
    for store in [&cached, &uncached] {
        assert_eq!(directories(store, &none, (&url, "main")).unwrap(), ["first"]);
    }
    origin.commit(&[("second/x", "")]);
    assert_eq!(directories(&cached, &none, (&url, "main")).unwrap(), ["first"]);
    assert_eq!(
        directories(&uncached, &none, (&url, "main")).unwrap(),
        ["first", "second"]
    );
}

#[test]
fn concurrent_readers_share_one_fetch() {
    let origin = Origin::new(&[("app/x", "")]);
    let server = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let (url, none, barrier) = (server.url("git"), Resources::default(), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(directories(&store, &none, (&url, "main")).unwrap(), ["app"]);
            });
        }
    });
    assert_eq!(store.fetches(), 1);
}

#[test]
fn the_credentials_of_the_secret_are_sent() {
    let origin = Origin::new(&[("app/x", "")]);
    let basic = format!("Basic {}", STANDARD.encode("u:p4ss"));
    let behaviors = [
        ("basic", Behavior::GitFor(basic)),
        ("bearer", Behavior::GitFor("Bearer t0k3n".to_owned())),
    ];
    let server = Server::plain(&origin.root(), &behaviors);
    // No pattern lists the host. The Secret does.
    let store = store(limits(), &[]);
    let auth = |username: &str, password: &str| RepositoryAuth::Basic {
        username: SecretString::from(username),
        password: SecretString::from(password),
    };
    let url = server.url("basic");
    let found = directories(&store, &secret(&url, auth("u", "p4ss")), (&url, "main"));
    assert_eq!(found.unwrap(), ["app"]);
    let refused = directories(&store, &secret(&url, auth("u", "wr0ng")), (&url, "main")).unwrap_err();
    assert!(refused.contains("refuses the gateway (status 401)"), "{refused}");
    assert!(!refused.contains("wr0ng"), "{refused}");
    let url = server.url("bearer");
    let bearer = RepositoryAuth::Bearer(SecretString::from("t0k3n"));
    assert_eq!(
        directories(&store, &secret(&url, bearer), (&url, "main")).unwrap(),
        ["app"]
    );
    let reason = "by ssh".to_owned();
    let refused = directories(&store, &secret(&url, RepositoryAuth::Unusable { reason }), (&url, "v")).unwrap_err();
    assert!(refused.contains("cannot be read: by ssh"), "{refused}");
}

#[test]
fn a_withdrawn_secret_closes_its_repository() {
    let origin = Origin::new(&[("app/x", "")]);
    let server = Server::plain(
        &origin.root(),
        &[("bearer", Behavior::GitFor("Bearer t0k3n".to_owned()))],
    );
    let store = store(limits(), &[server.pattern()]);
    let url = server.url("bearer");
    let with = secret(&url, RepositoryAuth::Bearer(SecretString::from("t0k3n")));
    assert!(directories(&store, &with, (&url, "main")).is_ok());
    let refused = directories(&store, &Resources::default(), (&url, "main")).unwrap_err();
    assert!(refused.contains("status 401"), "{refused}");
}

#[test]
fn certificates_are_verified_unless_the_secret_says_otherwise() {
    let origin = Origin::new(&[("app/x", "")]);
    let server = Server::tls(&origin.root(), &[("git", Behavior::Git)]);
    let store = store(limits(), &[server.pattern()]);
    let url = server.url("git");
    let insecure = secret(&url, RepositoryAuth::Anonymous);
    assert_eq!(directories(&store, &insecure, (&url, "main")).unwrap(), ["app"]);
    let refused = directories(&store, &Resources::default(), (&url, "main")).unwrap_err();
    assert!(refused.contains("cannot be reached"), "{refused}");
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
}

#[test]
fn redirects_are_followed_to_other_spellings_only() {
    let origin = Origin::new(&[("app/x", "")]);
    let elsewhere = Server::plain(&origin.root(), &[("git", Behavior::Git)]);
    let moved = |to: &str| Behavior::Status(301, Some(to.to_owned()));
    let behaviors = [
        ("git", Behavior::Git),
        ("host", moved(&elsewhere.url("git"))),
        ("path", moved("/git/app.git")),
        ("user", moved("http://u:p@127.0.0.1/user/app.git")),
        ("scheme", moved("file:///scheme/app.git")),
        ("round", moved("/round/app.git")),
    ];
    let server = Server::plain(&origin.root(), &behaviors);
    let store = store(limits(), &[server.pattern(), elsewhere.pattern()]);
    let token = || RepositoryAuth::Bearer(SecretString::from("t0k3n"));
    for behavior in ["host", "path", "user", "scheme", "round"] {
        let url = server.url(behavior);
        let refused = directories(&store, &secret(&url, token()), (&url, "main")).unwrap_err();
        assert!(
            refused.contains("redirects to another location"),
            "{behavior}: {refused}"
        );
    }
    assert!(
        elsewhere.seen.lock().unwrap().is_empty(),
        "the other host got a request"
    );
    let spelled = Server::plain(&origin.root(), &[("suffix", Behavior::Suffix)]);
    let bare = spelled.url("suffix");
    let bare = bare.strip_suffix(".git").unwrap();
    let found = directories(&store, &secret(bare, token()), (bare, "main"));
    assert_eq!(found.unwrap(), ["app"]);
    let seen = spelled.seen.lock().unwrap();
    assert!(
        seen.iter().all(|(_, authorization)| authorization == "Bearer t0k3n"),
        "{seen:?}"
    );
    // The first request is redirected, and later ones go to the new location.
    let asked: Vec<&str> = seen.iter().map(|(path, _)| path.as_str()).collect();
    let (refs, packs) = ("/suffix/app.git/info/refs", "/suffix/app.git/git-upload-pack");
    assert_eq!(asked, ["/suffix/app/info/refs", refs, packs, packs]);
}
