//! Kinds of generators of ApplicationSets.

/// Argo CD's kinds of generators, in the order in which it runs those of one entry. The text is
/// the key in an entry of `generators`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::AsRefStr, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "camelCase")]
pub enum GeneratorKind {
    /// `list`.
    List,
    /// `clusters`.
    Clusters,
    /// `git`.
    Git,
    /// `scmProvider`, provided by a plugin.
    ScmProvider,
    /// `clusterDecisionResource`, provided by a plugin.
    ClusterDecisionResource,
    /// `pullRequest`, provided by a plugin.
    PullRequest,
    /// `matrix`.
    Matrix,
    /// `merge`.
    Merge,
    /// `plugin`, provided by a plugin.
    Plugin,
}
