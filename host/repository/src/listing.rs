//! Resolves a revision (branch, tag, `HEAD` or part of a commit) by a repository's list of
//! branches and tags. A range of versions (`1.x`) names the highest tag in it, before any branch
//! of that name, as in Argo CD.
//!
//! Invariant: an ambiguous revision is an error.

use std::collections::BTreeSet;

use gix::ObjectId;
use gix::bstr::{BString, ByteSlice};
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;

use tollgate_applicationset::template::{highest, is_range};

pub(crate) const TAGS: &str = "refs/tags/";

/// The names under which a revision is looked up, in order.
///
/// Source: gitrevisions(7). Argo CD takes the first reference of the list with that short name, so
/// a branch comes before a tag.
pub(crate) fn names(revision: &str) -> Vec<String> {
    if revision == "HEAD" || revision.starts_with("refs/") {
        return vec![revision.to_owned()];
    }
    // The last two are Argo CD's short names: `pull/1/head`, `remotes/origin/main`.
    ["refs/heads/", TAGS, "refs/", "refs/remotes/"]
        .map(|prefix| format!("{prefix}{revision}"))
        .into()
}

/// Whether the revision may be an abbreviated commit id.
///
/// Source: Argo CD's `IsTruncatedCommitSHA`.
pub(crate) fn is_short_commit(revision: &str) -> bool {
    (7..40).contains(&revision.len()) && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The prefixes to which the server may limit its list; `None` if the whole list is needed to find
/// a commit. Which tag a range selects is only known from all tags.
pub(crate) fn prefixes(revision: &str) -> Option<RefPrefixes> {
    if is_short_commit(revision) {
        return None;
    }
    let mut prefixes = RefPrefixes::new();
    prefixes.extend(names(revision).into_iter().map(BString::from));
    if is_range(revision) {
        prefixes.extend([BString::from(TAGS)]);
    }
    Some(prefixes)
}

/// Resolves a revision by the list, to a commit or tag.
///
/// # Errors
/// What to do, as the end of a sentence.
pub(crate) fn choose(refs: &[Ref], revision: &str) -> Result<ObjectId, &'static str> {
    // A tag counts as the commit it points to.
    let commits = || {
        let unpacked = refs.iter().map(Ref::unpack);
        unpacked.filter_map(|(name, object, peeled)| Some((name, peeled.or(object)?.to_owned())))
    };
    let tags = commits().filter_map(|(name, _)| name.strip_prefix(TAGS.as_bytes())?.to_str().ok());
    let revision = highest(revision, tags).unwrap_or(revision);
    for wanted in names(revision) {
        if let Some((_, id)) = commits().find(|(name, _)| *name == wanted.as_str()) {
            return Ok(id);
        }
    }
    if !is_short_commit(revision) {
        return Err("");
    }
    let wanted = revision.to_lowercase();
    let ids = commits().map(|(_, id)| id);
    let fitting: BTreeSet<ObjectId> = ids.filter(|id| id.to_string().starts_with(&wanted)).collect();
    match fitting.first() {
        Some(id) if fitting.len() == 1 => Ok(*id),
        None => Err("; of commits that no branch or tag is at, give all 40 characters"),
        Some(_) => Err("; several begin so, give all 40 characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::{choose, is_short_commit, names};
    use gix::ObjectId;
    use gix::protocol::handshake::Ref;

    const A: &str = "aaaaaaa111111111111111111111111111111111";
    const B: &str = "aaaaaaa222222222222222222222222222222222";
    const C: &str = "ccccccc333333333333333333333333333333333";

    fn id(hex: &str) -> ObjectId {
        hex.parse().unwrap()
    }

    fn refs() -> Vec<Ref> {
        let direct = |name: &str, hex: &str| Ref::Direct {
            full_ref_name: name.into(),
            object: id(hex),
        };
        vec![
            Ref::Symbolic {
                full_ref_name: "HEAD".into(),
                target: "refs/heads/main".into(),
                tag: None,
                object: id(A),
            },
            direct("refs/heads/main", A),
            direct("refs/heads/both", B),
            direct("refs/pull/7/head", C),
            Ref::Peeled {
                full_ref_name: "refs/tags/both".into(),
                tag: id(A),
                object: id(C),
            },
            Ref::Peeled {
                full_ref_name: "refs/tags/v1".into(),
                tag: id(B),
                object: id(C),
            },
        ]
    }

    #[test]
    fn revisions_resolve_to_commits() {
        for (revision, hex) in [
            ("HEAD", A),
            ("main", A),
            ("refs/heads/main", A),
            ("both", B),
            ("refs/tags/both", C),
            ("v1", C),
            ("pull/7/head", C),
            ("ccccccc", C),
            ("CCCCCCC3", C),
        ] {
            assert_eq!(choose(&refs(), revision), Ok(id(hex)), "{revision}");
        }
    }

    /// Source: Argo CD 3.5.7, `nativeGitClient.lsRemote`: ranges come first.
    #[test]
    fn a_range_names_the_highest_tag_before_a_branch() {
        let direct = |name: &str, hex: &str| Ref::Direct {
            full_ref_name: name.into(),
            object: id(hex),
        };
        let branch = || direct("refs/heads/1.x", A);
        let refs = [
            branch(),
            direct("refs/tags/v1.2.0", B),
            direct("refs/tags/v1.10.0", C),
            direct("refs/tags/v2.0.0", A),
        ];
        assert_eq!(choose(&refs, "1.x"), Ok(id(C)));
        assert_eq!(choose(&refs, "refs/heads/1.x"), Ok(id(A)));
        // Without a tag in the range, the name is that of a branch.
        assert_eq!(choose(&[branch()], "1.x"), Ok(id(A)));
        assert_eq!(choose(&refs, "3.x"), Err(""));
    }

    #[test]
    fn unknown_and_ambiguous_revisions_are_refused() {
        let several = "; several begin so, give all 40 characters";
        let none = "; of commits that no branch or tag is at, give all 40 characters";
        for (revision, hint) in [("mai", ""), ("heads", ""), ("aaaaaaa", several), ("ddddddd", none)] {
            assert_eq!(choose(&refs(), revision), Err(hint), "{revision}");
        }
    }

    #[test]
    fn short_commit_ids_have_at_least_seven_hex_digits() {
        assert!(!is_short_commit("aaaaaa"));
        assert!(is_short_commit("aaaaaaa"));
        assert!(!is_short_commit("aaaaaag"));
        assert_eq!(names("refs/x"), ["refs/x"]);
    }
}
