//! The worlds of plugins, and the host interfaces they may import (`wit/`).

/// The kind of a plugin, which decides what it may export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Edits header fields.
    HeaderFilter,
    /// Mints credentials for clusters.
    CredentialProvider,
    /// Generates parameters for ApplicationSets.
    Generator,
}

impl World {
    /// The world of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::HeaderFilter, Self::CredentialProvider, Self::Generator];
        all.into_iter().find(|world| world.name() == name)
    }

    /// Its name in WIT and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::HeaderFilter => "header-filter",
            Self::CredentialProvider => "credential-provider",
            Self::Generator => "generator",
        }
    }

    /// The interface that a guest of this world exports, without its version.
    pub fn export(self) -> &'static str {
        match self {
            Self::HeaderFilter => "tollgate:plugin/headers",
            Self::CredentialProvider => "tollgate:plugin/credentials",
            Self::Generator => "tollgate:plugin/generators",
        }
    }
}

/// A host interface of the package `tollgate:plugin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Import {
    /// Milliseconds since 1970.
    Clock,
    /// Lines in the gateway's log.
    Log,
    /// Random bytes.
    Random,
    /// Digests, keyed hashes and signatures over handles.
    Crypto,
    /// Identities of the pod.
    Ambient,
    /// Intermediate credentials, kept between calls.
    Memo,
    /// Secrets as plain bytes.
    Reveal,
}

impl Import {
    /// Every interface there is.
    pub const ALL: [Self; 7] = [
        Self::Clock,
        Self::Log,
        Self::Random,
        Self::Crypto,
        Self::Ambient,
        Self::Memo,
        Self::Reveal,
    ];

    /// Its name in WIT, manifests and grants.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Log => "log",
            Self::Random => "random",
            Self::Crypto => "crypto",
            Self::Ambient => "ambient",
            Self::Memo => "memo",
            Self::Reveal => "reveal",
        }
    }

    /// Whether guests of `world` can import it.
    pub fn is_available_in(self, world: World) -> bool {
        match self {
            Self::Clock | Self::Log | Self::Random => true,
            Self::Crypto | Self::Ambient | Self::Memo => world != World::HeaderFilter,
            // Generators get answers unchanged even without it.
            Self::Reveal => world == World::CredentialProvider,
        }
    }

    /// The interface of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|import| import.name() == name)
    }
}
