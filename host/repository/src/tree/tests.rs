//! Tests of trees that are larger than they look.

use gix::ObjectId;
use gix::objs::tree::{Entry, EntryKind};
use gix::objs::{Commit, Tree as Object};

use super::{CommitTree, open_options};
use tollgate_applicationset::{GenerationBudget, GitTree as _};
use tollgate_config::GenerationLimits;

/// A bare repository for creating objects.
struct BareRepository {
    _folder: tempfile::TempDir,
    repository: gix::Repository,
}

impl BareRepository {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        gix::init_bare(folder.path()).unwrap();
        let repository = open_options().open(folder.path()).unwrap().to_thread_local();
        Self {
            _folder: folder,
            repository,
        }
    }

    fn blob(&self, text: &str) -> ObjectId {
        self.repository.write_blob(text).unwrap().detach()
    }

    fn tree(&self, entries: impl IntoIterator<Item = (String, EntryKind, ObjectId)>) -> ObjectId {
        let mut entries: Vec<Entry> = entries
            .into_iter()
            .map(|(name, kind, oid)| Entry {
                mode: kind.into(),
                filename: name.into(),
                oid,
            })
            .collect();
        entries.sort();
        self.repository.write_object(Object { entries }).unwrap().detach()
    }

    fn commit(&self, root: ObjectId) -> CommitTree {
        let who = gix::actor::Signature::default();
        let commit = Commit {
            tree: root,
            parents: Vec::new().into(),
            author: who.clone(),
            committer: who,
            encoding: None,
            message: "all".into(),
            extra_headers: Vec::new(),
        };
        let id = self.repository.write_object(commit).unwrap().detach();
        CommitTree::new(self.repository.clone(), id, "https://r").unwrap()
    }
}

fn budget() -> GenerationBudget {
    GenerationBudget::new(GenerationLimits::default())
}

/// SECURITY: a thousand directories with a thousand files each take only three objects.
#[test]
fn a_directory_that_occurs_at_many_paths_counts_at_each() {
    let repo = BareRepository::new();
    let file = repo.blob("");
    let square = |width: u32| {
        let inner = repo.tree((0..width).map(|name| (format!("f{name:04}"), EntryKind::Blob, file)));
        repo.commit(repo.tree((0..width).map(|name| (format!("d{name:04}"), EntryKind::Tree, inner))))
    };
    assert_eq!(square(100).directories(&budget()).unwrap().len(), 100);
    assert_eq!(square(100).files(&|_| true, &budget()).unwrap().len(), 10_000);
    let refused = square(1_000).files(&|_| false, &budget()).unwrap_err().to_string();
    assert!(
        refused.contains("entries or more, at most 500000 are allowed"),
        "{refused}"
    );
}

#[test]
fn paths_are_charged_to_the_budget() {
    let repo = BareRepository::new();
    let file = repo.blob("");
    let leaf = repo.tree([("x".to_owned(), EntryKind::Blob, file)]);
    let tree = repo.commit(repo.tree((0..100).map(|name| (format!("d{name:02}"), EntryKind::Tree, leaf))));
    let within = |bytes: u64| {
        GenerationBudget::new(GenerationLimits {
            bytes,
            ..GenerationLimits::default()
        })
    };
    assert_eq!(tree.directories(&within(10_000)).unwrap().len(), 100);
    assert_eq!(tree.files(&|_| true, &within(10_000)).unwrap().len(), 100);
    for refused in [
        tree.directories(&within(1_000)).map(drop),
        tree.files(&|_| true, &within(1_000)).map(drop),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("at most 1000 are allowed"), "{refused}");
    }
}

/// Directories that links lead through are read once, and count once.
#[test]
fn directories_behind_symbolic_links_count_once() {
    let repo = BareRepository::new();
    let file = repo.blob("{}");
    let linked = |entries: usize, links: usize| {
        let wide = repo.tree((0..entries).map(|name| (format!("f{name:06}"), EntryKind::Blob, file)));
        let link = repo.blob("wide/f000000");
        let links = (0..links).map(|name| (format!("l{name:04}"), EntryKind::Link, link));
        let root = links.chain([("wide".to_owned(), EntryKind::Tree, wide)]);
        repo.commit(repo.tree(root))
            .files(&|path| path.starts_with('l'), &budget())
    };
    assert_eq!(linked(1_000, 2_000).unwrap().len(), 2_000);
    let refused = linked(260_000, 1).unwrap_err().to_string();
    assert!(
        refused.contains("entries or more, at most 500000 are allowed"),
        "{refused}"
    );
}

#[test]
fn symbolic_links_have_a_limit_and_stay_in_the_repository() {
    let repo = BareRepository::new();
    let link = |target: &str| repo.blob(target);
    let chain = |links: usize| {
        let steps = (0..links).map(|at| (format!("l{at:02}"), EntryKind::Link, link(&format!("l{:02}", at + 1))));
        let end = (format!("l{links:02}"), EntryKind::Blob, repo.blob("{}"));
        let tree = repo.commit(repo.tree(steps.chain([end])));
        tree.files(&|path| path == "l00", &budget())
    };
    assert_eq!(chain(40).unwrap()[0].content.as_ref(), b"{}");
    assert!(chain(41).unwrap_err().to_string().contains("too many symbolic links"));
    for (target, why) in [
        ("self", "too many symbolic links"),
        (".", "to a directory"),
        ("./", "to a directory"),
        ("a/../a", "to a directory"),
        ("..", "out of the repository"),
        ("a/../../x", "out of the repository"),
        ("/etc/passwd", "out of the repository"),
        ("a/none", "to nothing"),
        ("a/x/", "ok"),
        ("a/x/y", "to nothing"),
        ("a/back/a/back/a/x", "ok"),
    ] {
        let a = repo.tree([
            ("back".to_owned(), EntryKind::Link, link("..")),
            ("x".to_owned(), EntryKind::Blob, repo.blob("{}")),
        ]);
        let entries = [
            ("a".to_owned(), EntryKind::Tree, a),
            ("self".to_owned(), EntryKind::Link, link(target)),
        ];
        let tree = repo.commit(repo.tree(entries));
        assert_eq!(tree.directories(&budget()).unwrap(), ["a"], "links are not followed");
        match tree.files(&|path| path == "self", &budget()) {
            Ok(files) => assert!(why == "ok" && files.len() == 1, "{target}"),
            Err(refused) => assert!(refused.to_string().contains(why), "{target}: {refused}"),
        }
    }
}
