//! Where we differ on purpose, each with its reason. docs/differences.md has a row for
//! each; nothing else may differ.

/// A difference on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exception {
    /// A pattern over our bounds (length, nesting) refuses the policy; Argo CD takes it.
    RbacPatternBounds,
    /// A glob of a row is one of the exceptions of globs.
    RbacGlob,
    /// Over our bounds of length or nesting; Argo CD takes the pattern.
    GlobBounds,
    /// The library confuses bytes and characters outside ASCII.
    GlobUnicode,
    /// The library misjudges alternatives: it takes the length of one for that of all, and
    /// panics on an empty one beside text.
    GlobAlternatives,
    /// The library's `?`, class or row of stars misjudges the empty text.
    GlobEmptyText,
    /// The library takes several separators, or the characters of negated classes in a
    /// row, for one text.
    GlobExcludedCharacters,
    /// A path that two readers could read differently is refused before it is read.
    AttributesRefusedPath,
    /// kube-apiserver cannot read the request and refuses it itself, whatever is authorized.
    AttributesRefusedByKubernetes,
    /// What runs a program is `create` as well, not only what its method says.
    AttributesRunsProgram,
    /// A pattern over our bounds refuses the policy; Argo CD takes it.
    PolicyPatternBounds,
    /// `scopes` is no YAML list of texts; Argo CD's parser reads one into it.
    PolicyScopes,
    /// As [`Self::PolicyScopes`].
    RbacScopes,
    /// A key stands twice.
    YamlKeyTwice,
    /// A key that is neither text nor a whole number nor a boolean.
    YamlKey,
    /// A tag other than `!!str`.
    YamlTag,
    /// Nested over our bounds.
    YamlBounds,
    /// The text has characters or constructs that readers of YAML take for different things.
    YamlSyntax,
}

impl Exception {
    /// All there are.
    pub(crate) const ALL: [Self; 18] = [
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
    ];

    /// The kind it belongs to.
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
        }
    }

    /// Its name in reports and in docs/differences.md.
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
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(rows.count(), Exception::ALL.len());
}
