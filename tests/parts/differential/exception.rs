//! The differences on purpose. `docs/differences.md` has a row with the reason for each. Any other
//! difference fails the tests.

/// A difference on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exception {
    /// We refuse a policy with a pattern over our bounds (length, nesting). Argo CD accepts it.
    RbacPatternBounds,
    /// A glob of a row is one of the exceptions for globs.
    RbacGlob,
    /// We refuse a pattern over our bounds of length or nesting. Argo CD accepts it.
    GlobBounds,
    /// Argo CD's glob library confuses bytes and characters outside ASCII.
    GlobUnicode,
    /// The library matches alternatives incorrectly. It uses the length of one for all of them, and
    /// panics on an empty one beside text.
    GlobAlternatives,
    /// The library matches `?`, a class or consecutive stars incorrectly with the empty text.
    GlobEmptyText,
    /// The library treats several separators, or the characters of consecutive negated classes, as
    /// one text.
    GlobExcludedCharacters,
    /// We refuse a path that two parsers could read differently, before we read any attribute.
    AttributesRefusedPath,
    /// kube-apiserver cannot parse the request and refuses it, regardless of what is authorized.
    AttributesRefusedByKubernetes,
    /// A request that runs a program needs `create` in addition to the verb of its method.
    AttributesRunsProgram,
    /// We refuse a policy with a pattern over our bounds. Argo CD accepts it.
    PolicyPatternBounds,
    /// `scopes` is not a YAML list of texts, but Argo CD's parser accepts it as one.
    PolicyScopes,
    /// As [`Self::PolicyScopes`].
    RbacScopes,
    /// A mapping has a duplicate key.
    YamlKeyTwice,
    /// A key is neither text nor an integer nor a boolean.
    YamlKey,
    /// The document has a tag other than `!!str`.
    YamlTag,
    /// The document is nested deeper than our bounds, or consists almost only of aliases.
    YamlBounds,
    /// The document has characters or constructs that YAML parsers read differently.
    YamlSyntax,
    /// We refuse every change where a sync window has a mistake. Argo CD ignores most of them.
    SyncWindowsMistake,
}

impl Exception {
    /// Every exception.
    pub(crate) const ALL: [Self; 19] = [
        Self::RbacPatternBounds,
        Self::RbacGlob,
        Self::GlobBounds,
        Self::GlobUnicode,
        Self::GlobAlternatives,
        Self::GlobEmptyText,
        Self::GlobExcludedCharacters,
        Self::AttributesRefusedPath,
        Self::AttributesRefusedByKubernetes,
        Self::AttributesRunsProgram,
        Self::PolicyPatternBounds,
        Self::PolicyScopes,
        Self::RbacScopes,
        Self::YamlKeyTwice,
        Self::YamlKey,
        Self::YamlTag,
        Self::YamlBounds,
        Self::YamlSyntax,
        Self::SyncWindowsMistake,
    ];

    /// The kind of comparison it belongs to.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::RbacPatternBounds | Self::RbacGlob | Self::RbacScopes => "rbac",
            Self::GlobBounds
            | Self::GlobUnicode
            | Self::GlobAlternatives
            | Self::GlobEmptyText
            | Self::GlobExcludedCharacters => "glob",
            Self::AttributesRefusedPath | Self::AttributesRefusedByKubernetes | Self::AttributesRunsProgram => {
                "attributes"
            }
            Self::PolicyPatternBounds | Self::PolicyScopes => "policy",
            Self::YamlKeyTwice | Self::YamlKey | Self::YamlTag | Self::YamlBounds | Self::YamlSyntax => "yaml",
            Self::SyncWindowsMistake => "sync-windows",
        }
    }

    /// Its name in reports and in `docs/differences.md`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RbacPatternBounds => "rbac-pattern-bounds",
            Self::RbacGlob => "rbac-glob",
            Self::GlobBounds => "glob-bounds",
            Self::GlobUnicode => "glob-unicode",
            Self::GlobAlternatives => "glob-alternatives",
            Self::GlobEmptyText => "glob-empty-text",
            Self::GlobExcludedCharacters => "glob-excluded-characters",
            Self::AttributesRefusedPath => "attributes-refused-path",
            Self::AttributesRefusedByKubernetes => "attributes-refused-by-kubernetes",
            Self::AttributesRunsProgram => "attributes-runs-program",
            Self::PolicyPatternBounds => "policy-pattern-bounds",
            Self::PolicyScopes => "policy-scopes",
            Self::RbacScopes => "rbac-scopes",
            Self::YamlKeyTwice => "yaml-key-twice",
            Self::YamlKey => "yaml-key",
            Self::YamlTag => "yaml-tag",
            Self::YamlBounds => "yaml-bounds",
            Self::YamlSyntax => "yaml-syntax",
            Self::SyncWindowsMistake => "sync-windows-mistake",
        }
    }
}

#[test]
fn every_exception_is_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/differences.md");
    let page = std::fs::read_to_string(path).unwrap();
    for exception in Exception::ALL {
        let row = format!("| `{}` |", exception.name());
        assert!(page.contains(&row), "docs/differences.md has no row {row}");
    }
    // The section after it is about what no differential test compares.
    let compared = page.split("\n## Extensions").next().unwrap();
    let rows = compared.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(rows.count(), Exception::ALL.len());
}
