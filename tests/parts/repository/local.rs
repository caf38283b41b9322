//! Repositories in local folders.

use tollgate_applicationset::{GitTree, Repositories as _, RepositoryFile};
use tollgate_objects::Resources;

use crate::repository::support::{Origin, budget, git, limits, store};

fn open(origin: &Origin, revision: &str) -> Result<Box<dyn GitTree>, String> {
    let patterns = [format!("{}/*", origin.root().display())];
    let url = format!("file://{}", origin.path().display());
    let (store, resources) = (store(limits(), &patterns), Resources::default());
    let opened = store.reader(&resources, "").open(&url, revision, &budget());
    opened.map_err(|error| error.to_string())
}

fn directories(origin: &Origin, revision: &str) -> Vec<String> {
    open(origin, revision).unwrap().directories(&budget()).unwrap()
}

fn paths(files: &[RepositoryFile]) -> Vec<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn directories_come_in_depth_first_order() {
    let origin = Origin::new(&[
        ("a/x/deploy.yaml", "x"),
        ("a-b/deploy.yaml", "x"),
        (".github/workflows/ci.yaml", "x"),
        ("b/.hidden/inner/deploy.yaml", "x"),
        ("README.md", "x"),
    ]);
    assert_eq!(directories(&origin, "HEAD"), ["a", "a/x", "a-b", "b"]);
}

#[test]
fn a_submodule_is_a_directory_and_is_not_fetched() {
    let origin = Origin::new(&[("app/deploy.yaml", "x")]);
    let head = origin.git(&["rev-parse", "HEAD"]);
    origin.git(&[
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("160000,{head},vendor/lib"),
    ]);
    origin.git(&["commit", "-q", "-m", "submodule"]);
    assert_eq!(directories(&origin, "HEAD"), ["app", "vendor", "vendor/lib"]);
    let tree = open(&origin, "HEAD").unwrap();
    // Without `.gitmodules`, Argo CD leaves the directory empty too.
    assert!(tree.submodules(&budget()).unwrap().is_empty());
    let refused = tree.files(&|path| path == "vendor/lib", &budget()).unwrap_err();
    assert!(refused.to_string().contains("is a submodule"), "{refused}");
    origin.git(&["rm", "-q", "--cached", "app/deploy.yaml"]);
    origin.write(
        ".gitmodules",
        b"[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = https://git.example/lib\n",
    );
    origin.git(&["add", ".gitmodules"]);
    origin.git(&["commit", "-q", "-m", "filled"]);
    assert_eq!(
        open(&origin, "HEAD").unwrap().submodules(&budget()).unwrap(),
        ["vendor/lib"]
    );
}

/// A version range selects its highest tag. A tag in the range precedes a branch with the name.
#[test]
fn a_range_names_the_highest_tag() {
    let origin = Origin::new(&[("first/x", "")]);
    origin.git(&["tag", "v1.2.0"]);
    origin.commit(&[("second/x", "")]);
    origin.git(&["tag", "-a", "-m", "ten", "v1.10.0"]);
    origin.commit(&[("third/x", "")]);
    origin.git(&["branch", "1.x"]);
    assert_eq!(directories(&origin, "1.x"), ["first", "second"]);
    assert_eq!(directories(&origin, "~1.2"), ["first"]);
    assert_eq!(directories(&origin, "refs/heads/1.x"), ["first", "second", "third"]);
    origin.git(&["tag", "-d", "v1.2.0", "v1.10.0"]);
    assert_eq!(
        directories(&origin, "1.x"),
        ["first", "second", "third"],
        "without tags, the branch is used"
    );
}

#[test]
fn revisions_are_found() {
    let origin = Origin::new(&[("first/x", "")]);
    let first = origin.git(&["rev-parse", "HEAD"]);
    origin.git(&["tag", "light"]);
    origin.git(&["tag", "-a", "-m", "one", "annotated"]);
    origin.git(&["branch", "feature/a"]);
    origin.commit(&[("second/x", "")]);
    for revision in [
        "light",
        "annotated",
        "feature/a",
        "refs/tags/annotated",
        &first,
        &first[..9],
    ] {
        assert_eq!(directories(&origin, revision), ["first"], "{revision}");
    }
    for revision in ["", "HEAD", "main"] {
        assert_eq!(directories(&origin, revision), ["first", "second"], "{revision}");
    }
    let absent = "0123456789012345678901234567890123456789";
    for revision in [
        "HEAD~1",
        "main^{tree}",
        ":/change",
        "../x",
        "nothing",
        "abcdef0",
        absent,
    ] {
        let refused = open(&origin, revision).unwrap_err();
        let wanted = format!("has no branch, tag or commit `{revision}`");
        assert!(refused.contains(&wanted), "{refused}");
    }
}

#[test]
fn files_come_with_their_content() {
    let origin = Origin::new(&[
        ("b/config.json", "{}"),
        ("a/config.json", "[1]"),
        (".x/config.json", "h"),
    ]);
    let tree = open(&origin, "main").unwrap();
    let files = tree.files(&|path| path.ends_with("config.json"), &budget()).unwrap();
    assert_eq!(paths(&files), [".x/config.json", "a/config.json", "b/config.json"]);
    assert_eq!(files[1].content.as_ref(), b"[1]");
    assert!(tree.files(&|_| false, &budget()).unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn links_are_followed_within_the_tree_only() {
    use std::os::unix::fs::symlink;
    let origin = Origin::new(&[("real/config.json", "{}"), ("links/x", "")]);
    let secret = origin.root().join("secret");
    std::fs::write(&secret, "s3cr3t").unwrap();
    let link = |target: &str, name: &str| symlink(target, origin.path().join("links").join(name)).unwrap();
    link("../real/config.json", "good.json");
    link("../aside", "aside");
    symlink("real", origin.path().join("aside")).unwrap();
    link("aside/config.json", "twice.json");
    link("../../secret", "out.json");
    link(secret.to_str().unwrap(), "absolute.json");
    link("loop.json", "loop.json");
    link("nothing", "broken.json");
    link("../real", "directory.json");
    origin.commit(&[]);
    let read = |name: &str| {
        let path = format!("links/{name}");
        let tree = open(&origin, "HEAD").unwrap();
        tree.files(&|found| found == path, &budget())
    };
    for name in ["good.json", "twice.json"] {
        assert_eq!(read(name).unwrap()[0].content.as_ref(), b"{}", "{name}");
    }
    for (name, reason) in [
        ("out.json", "leads out of the repository"),
        ("absolute.json", "leads out of the repository"),
        ("loop.json", "too many symbolic links"),
        ("broken.json", "to nothing"),
        ("directory.json", "to a directory"),
    ] {
        let refused = read(name).unwrap_err().to_string();
        assert!(refused.contains(reason), "{name}: {refused}");
        assert!(!refused.contains("s3cr3t"));
    }
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_listed_folders_is_not_opened() {
    let (origin, other) = (Origin::new(&[("x", "")]), Origin::new(&[("y", "")]));
    std::os::unix::fs::symlink(other.path(), origin.root().join("link.git")).unwrap();
    let patterns = [format!("{}/*", origin.root().display())];
    let (store, resources) = (store(limits(), &patterns), Resources::default());
    let url = origin.root().join("link.git").display().to_string();
    let refused = store.reader(&resources, "").open(&url, "", &budget()).unwrap_err();
    assert!(refused.to_string().contains("may not read"), "{refused}");
}

#[test]
fn unlisted_and_absent_repositories_are_refused() {
    let origin = Origin::new(&[("x", "")]);
    let resources = Resources::default();
    let url = format!("file://{}", origin.path().display());
    let unlisted = store(limits(), &["*".to_owned(), "https://**".to_owned()]);
    let refused = unlisted.reader(&resources, "").open(&url, "", &budget()).unwrap_err();
    assert!(refused.to_string().contains("may not read"), "{refused}");
    let patterns = [format!("{}/*", origin.root().display())];
    let listed = store(limits(), &patterns);
    let absent = origin.root().join("absent").display().to_string();
    let refused = listed.reader(&resources, "").open(&absent, "", &budget()).unwrap_err();
    assert!(refused.to_string().contains("there is no git repository"), "{refused}");
}

#[test]
fn bare_repositories_are_read_and_paths_are_bounded() {
    let origin = Origin::new(&[("app/x", "")]);
    git(&origin.root(), &["clone", "-q", "--bare", "app.git", "bare.git"]);
    let patterns = [format!("{}/**", origin.root().display())];
    let (store, resources) = (store(limits(), &patterns), Resources::default());
    for name in ["bare.git", "bare"] {
        let url = origin.root().join(name).display().to_string();
        let tree = store.reader(&resources, "").open(&url, "main", &budget()).unwrap();
        assert_eq!(tree.directories(&budget()).unwrap(), ["app"], "{name}");
    }
    let deep = format!("{}x", "d/".repeat(70));
    origin.commit(&[(&deep, "")]);
    let tree = open(&origin, "HEAD").unwrap();
    let refused = tree.directories(&budget()).unwrap_err().to_string();
    assert!(
        refused.contains("65 directories within each other or more, at most 64"),
        "{refused}"
    );
}

#[test]
fn large_files_are_refused_alone_and_together() {
    let origin = Origin::new(&[("x", "")]);
    origin.write("one/big.json", &vec![b' '; 11 * 1024 * 1024]);
    origin.write("two/a.json", &vec![b' '; 6 * 1024 * 1024]);
    origin.write("two/b.json", &vec![b' '; 6 * 1024 * 1024]);
    origin.commit(&[]);
    let tree = open(&origin, "HEAD").unwrap();
    for folder in ["one", "two"] {
        let refused = tree
            .files(&|path| path.starts_with(folder), &budget())
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("too large") && refused.contains("10485760"),
            "{refused}"
        );
    }
    let small = tree.files(&|path| path == "two/a.json", &budget()).unwrap();
    assert_eq!(small[0].content.len(), 6 * 1024 * 1024);
}
